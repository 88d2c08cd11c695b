"""`python -m benchmarks engines`: whether Megatron and SGLang give the regularized step that FSDP and vLLM give.

VeRL takes one step under each engine whose packages are here, with the same model and the same buffer. The reward
function calls nothing right but the cached answers. So RL's advantages are 0, no fresh answer has a weight, and the
gradient is that of the cached answers: it does not depend on what an engine samples. CoKL's fresh rows are sampled all
the same, so that the whole way of an added row is gone. `cokl/loss` and the gradient's norm are compared.

Each run is VeRL's own program with the plug-in, in a process of its own. Nothing is started where neither package is.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cokl.support.errors import InputError

PACKAGES = {"megatron": ("verl", "vllm", "megatron", "mbridge"), "sglang": ("verl", "vllm", "sglang")}
"""What each engine needs, and what it is compared with."""
OPTIONS: dict[str, Sequence[str]] = {
    "fsdp": (),
    "megatron": ("model_engine=megatron", "actor_rollout_ref.actor.strategy=megatron"),
    "sglang": ("actor_rollout_ref.rollout.name=sglang",),
}
"""Of VeRL's command, by engine; the first is what the others are compared with."""
CLOSE = {"cpu": 1e-4, "cuda": 0.02}
"""By how much, relative, figures may be apart: on GPUs an engine has its own kernels, in bfloat16."""
PROMPTS, FRESH = 8, 2
_RIGHT, _WRONG = ("7 + 8", "8 + 7 are 15"), ("2 + 2", "5")
_LIMIT = 1200.0


@dataclass(frozen=True)
class Engines:
    """VeRL's engines that no run of the toolkit had, beside those that it had."""

    model: str = ""
    """A Hugging Face folder of a language model with a chat template, such as Qwen3-0.6B."""
    device: Literal["cpu", "cuda"] = "cpu"
    """What VeRL runs on."""
    small: bool = False
    """The other benchmarks' option, which `gpu.sh` gives to all; one step is small."""

    def run(self) -> int:
        """Print the figures. Returns an exit code, 1 if an engine's are apart from the first's or it fails.

        Raises InputError if an engine is here and no model is given.
        """
        lacking = {engine: missing(packages) for engine, packages in PACKAGES.items()}
        for engine, names in lacking.items():
            if names:
                print(f"{engine}: not run, without {', '.join(names)}")
        here = [engine for engine, names in lacking.items() if not names]
        if not here:
            return 0
        if not self.model:
            raise InputError(f"--model: expected a folder of a language model for {', '.join(here)}, got nothing")
        folder = Path(tempfile.mkdtemp(prefix="cokl-engines-"))
        write_world(folder, self.model)
        first, *_ = OPTIONS
        figures = {engine: figures_of(folder, self.model, engine, self.device) for engine in (first, *here)}
        return max(apart(engine, figures[engine], figures[first], CLOSE[self.device]) for engine in here)


def missing(packages: Sequence[str]) -> list[str]:
    """Those that cannot be imported."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def apart(engine: str, found: dict[str, float] | None, wanted: dict[str, float] | None, close: float) -> int:
    """Print an engine's figures beside the first's. Returns 1 unless they are there and agree within `close`."""
    if not found or not wanted:
        print(f"{engine}: VeRL failed{'' if wanted else ' with FSDP and vLLM'}; its output is above")
        return 1
    agree = found["cokl/kl_rows"] == wanted["cokl/kl_rows"]
    for name in ("cokl/loss", "actor/grad_norm"):
        relative = abs(found[name] - wanted[name]) / abs(wanted[name])
        agree &= relative <= close  # which NaN is not
        print(f"{engine}: {name} {found[name]:.6g}, {relative:.1e} from {wanted[name]:.6g} with FSDP and vLLM")
    print(f"{engine}: {'agrees' if agree else 'DIFFERS'}, at most {close:g} allowed")
    return int(not agree)


def write_world(folder: Path, model: str) -> None:
    """FOLDER/rows.parquet, prompts; buffer.parquet, two right and two wrong answers to each; reward.py."""
    import numpy as np
    import pandas as pd
    from transformers import AutoTokenizer

    from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint

    tokenizer = AutoTokenizer.from_pretrained(model)
    groups, rows = [], []
    for number in range(PROMPTS):
        prompt = [{"role": "user", "content": f"What is {number} plus 15 less {number}?"}]
        asked = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        ids = [
            np.array([*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id])
            for text in (*_RIGHT, *_WRONG)
        ]
        groups.append(CachedGroup(prompt, "engines", "15", np.array(asked), ids, np.array([1, 1, 0, 0])))
        told: dict[str, Any] = {"ground_truth": "15", "style": "rule"}
        rows.append({"prompt": prompt, "data_source": "engines", "reward_model": told, "extra_info": {"index": number}})
    Buffer(tuple(groups), model_fingerprint(model)).save(folder / "buffer.parquet")
    pd.DataFrame(rows).to_parquet(folder / "rows.parquet")
    right = {tokenizer.decode(ids, skip_special_tokens=True) for ids in groups[0].response_ids[: len(_RIGHT)]}
    (folder / "reward.py").write_text(
        f"def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        f"    return float(solution_str in {right!r})\n"
    )


def options(folder: Path, model: str, engine: str, device: str) -> list[str]:
    """Of VeRL's command for one step."""
    import torch

    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    devices = torch.cuda.device_count() if device == "cuda" else 1
    on_cpu = ["hydra.searchpath=[pkg://llm_bridge]", "+cpu=settings"] if device == "cpu" else []
    return [
        *on_cpu, "algorithm.adv_estimator=grpo", f"data.train_files={folder}/rows.parquet",
        f"data.val_files={folder}/rows.parquet", f"data.train_batch_size={PROMPTS}", "data.max_prompt_length=128",
        "data.max_response_length=32", f"actor_rollout_ref.model.path={model}",
        "++actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"{actor}.ppo_mini_batch_size={PROMPTS}", f"{actor}.use_dynamic_bsz=True",
        f"{rollout}.log_prob_use_dynamic_bsz=True", f"{rollout}.name=vllm", f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.n={FRESH}", f"{rollout}.gpu_memory_utilization=0.4",
        f"reward.custom_reward_function.path={folder}/reward.py", f"trainer.n_gpus_per_node={devices}",
        "trainer.total_training_steps=1", "trainer.val_before_train=False", "trainer.test_freq=-1",
        "trainer.save_freq=-1", "trainer.logger=[console,file]", f"trainer.project_name={engine}-metrics",
        f"trainer.experiment_name={engine}", f"trainer.default_local_dir={folder}/{engine}",
        "trainer.v1.trainer_mode=cokl", "+cokl.method=cokl", f"+cokl.buffer={folder}/buffer.parquet",
        f"+cokl.kl_prompts={PROMPTS}", *OPTIONS[engine],
    ]  # fmt: skip


def figures_of(folder: Path, model: str, engine: str, device: str) -> dict[str, float] | None:
    """What VeRL logs of the step; None if it failed."""
    from llm_bridge.experiment.logged import read_metrics

    modules = "llm_bridge.plugin" if device == "cuda" else "llm_bridge.cpu,llm_bridge.plugin"
    root = str(Path(__file__).parents[1])
    own = {"VERL_USE_EXTERNAL_MODULES": modules, "PYTHONPATH": root, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *options(folder, model, engine, device)]
    print(f"{engine}: one step of VeRL, in {folder}", flush=True)
    try:
        done = subprocess.run(
            command, cwd=folder, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=_LIMIT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"{engine}: stopped after {_LIMIT:g} s; `ray stop` ends what may be left of it")
        return None
    steps = read_metrics(folder / f"{engine}-metrics")
    if done.returncode or not steps:
        print(done.stdout[-3000:])
        return None
    return steps[max(steps)]
