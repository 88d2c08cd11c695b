#!/bin/bash
# CoKL's LLM experiment under SLURM, on one node or several: sbatch --nodes=N slurm.sh [arguments of `cokl llm run`].
#
# Several methods at once: run `--until buffer` first, then an array, in which each method has nodes and a
# Ray cluster of its own and all share --out:
#   sbatch --nodes=1 slurm.sh --methods grpo
#   METHODS="cokl reverse_kl forward_kl" sbatch --nodes=1 --array=0-2 slurm.sh
#
# OUT and HF_HOME lie on a file system that all nodes share. On nodes without internet: `cokl llm prepare` on one that
# has it, then HF_HUB_OFFLINE=1. HF_*, NCCL_*, WANDB_* and the like reach the workers from this job's environment.
#SBATCH --job-name=cokl
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=48:00:00
#SBATCH --requeue
set -euo pipefail

PRESET=${PRESET:-qwen3-1.7b}
OUT=${OUT:-$PWD/runs/llm-$PRESET}
GPUS=${SLURM_GPUS_ON_NODE:-8}
PORT=$((20000 + SLURM_JOB_ID % 20000))
command=(cokl llm run --preset "$PRESET" --out "$OUT" --nodes "$SLURM_JOB_NUM_NODES" --accelerators "$GPUS")
if [[ -n ${METHODS:-} ]]; then
    read -ra methods <<< "$METHODS"
    command+=(--methods "${methods[${SLURM_ARRAY_TASK_ID:-0}]}")
fi

if ((SLURM_JOB_NUM_NODES > 1)); then
    mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    head=${nodes[0]}
    address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address)
    export RAY_ADDRESS=${address%% *}:$PORT
    trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
    srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
        ray start --head --node-ip-address="${address%% *}" --port="$PORT" --num-gpus="$GPUS" --block &
    sleep "${RAY_WAIT:-10}"
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" --overlap \
        ray start --address="$RAY_ADDRESS" --num-gpus="$GPUS" --block &
    for ((attempt = 1; $(ray status --address="$RAY_ADDRESS" 2> /dev/null | grep -c node_) < SLURM_JOB_NUM_NODES; attempt++)); do
        if ((attempt == 60)); then
            echo "error: the Ray cluster at $RAY_ADDRESS has fewer than $SLURM_JOB_NUM_NODES nodes after 10 minutes" >&2
            exit 1
        fi
        sleep "${RAY_WAIT:-10}"
    done
fi
"${command[@]}" "$@"
