#!/usr/bin/env bash
# What the simulator and CoKL's rows cost on one GPU: `bash benchmarks/gpu.sh`, ten minutes at most, without internet.
# Where Megatron's or SGLang's packages are beside VeRL, a step of each is compared with FSDP's and vLLM's; MODEL is then the
# folder of a small language model, and this takes minutes more. `--device cpu --small` tries it out. It needs Python 3.11 to 3.13 with torch and transformers, and these packages:
packages=(docstring-parser filelock joblib numba numpy pandas pyarrow pyyaml scipy tqdm typeguard tyro)
# Those that the machine lacks are installed from the folder WHEELS, which another machine fills with
#     pip download --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \
#         --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 -d wheels tyro typeguard ...
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
(($#)) || set -- --device cuda

if [ -n "${WHEELS:-}" ]; then
    $python -m pip install --quiet --no-index --find-links "$WHEELS" "${packages[@]}" || exit
fi
status=0
for benchmark in actor sweep; do
    timeout 300 $python -m benchmarks $benchmark "$@" || status=$? # the other's figures are still to come
done
timeout 3600 $python -m benchmarks engines --model "${MODEL:-}" "$@" || status=$?
exit $status
