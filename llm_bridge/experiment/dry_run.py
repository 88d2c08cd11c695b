"""What a run would do, without doing it: stages, rows and tokens, memory, and VeRL's configuration of each job.

Estimates are upper bounds: every prompt and every response is counted at its full length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bridge.experiment import disk
from llm_bridge.experiment.config import LLMConfig
from llm_bridge.experiment.jobs import REWARD_SHARE, ROLLOUT_SHARE, Job

if TYPE_CHECKING:
    from omegaconf import DictConfig


ARCHITECTURES = {"Qwen/Qwen3-0.6B": (0.596e9, 28), "Qwen/Qwen3-1.7B": (1.721e9, 28), "Qwen/Qwen3-4B": (4.022e9, 36)}
"""Parameters and layers, from each published config.json."""
KV_HEADS, HEAD_DIM, VOCABULARY = 8, 128, 151_936
"""Of all of them."""
REWARD_MODELS = {"Skywork/Skywork-Reward-Llama-3.1-8B-v0.2": 7.5e9}
"""Parameters; the classification head takes the place of the vocabulary's."""
LENGTHS_SAID = {
    "token-sum": [
        "--length token-sum: the regularizer weights a response's sum over tokens, as Eq. 13 has it. At the paper's",
        "lengths its gradient is some 13,600 times the RL loss's, if the scores of single tokens are uncorrelated and",
        "equally large, and may drown it. token-mean has some 2.2 times. Watch cokl/gradient_share.",
    ],
    "token-mean": [
        "--length token-mean: the regularizer weights a response's mean over tokens, which is not Eq. 13's sum. At the",
        "paper's lengths its gradient is some 2.2 times the RL loss's; with token-sum it is some 13,600 times. Both",
        "suppose that the scores of single tokens are uncorrelated and equally large.",
    ],
    "group-mean": ["--length group-mean: the regularizer weights a response's sum over its group's mean length."],
}
"""What is said of the choice, by `LLMConfig.length`; the ratios are those of tests/cokl/test_strength.py."""
TINY = 204_480
"""Parameters of the tiny experiment's model."""


def parameters(config: LLMConfig) -> float | None:
    """Of the policy: a known model's, or counted in a folder's weights; None for another name on the hub."""
    if not config.model:
        return TINY
    if config.model in ARCHITECTURES:
        return ARCHITECTURES[config.model][0]
    counted = 0
    for path in Path(config.model).expanduser().glob("*.safetensors"):
        with path.open("rb") as file:
            tensors = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        counted += sum(math.prod(entry["shape"]) for name, entry in tensors.items() if name != "__metadata__")
    return float(counted) or None


def describe(config: LLMConfig, planned: Sequence[tuple[Job, DictConfig]], keep: disk.Keep = "model") -> str:
    """The whole plan as text; the first job's configuration in full, then what each next one changes."""
    lines = [f"{config.name}: {len(planned)} jobs on {config.nodes} x {config.accelerators} {config.device}", ""]
    tokens = config.max_prompt_length + config.max_response_length
    width = max(len(job.name) for job, _ in planned)
    for job, _ in planned:
        rows = " + ".join(f"{count} {kind}" for kind, count in job.rows.items())
        total = sum(job.rows.values())
        amount = f"{job.steps} steps of" if job.steps else "in all"
        groups = f"{total // config.group_size} groups, " if job.steps else ""
        lines.append(
            f"{job.name:<{width}}  {amount} {total} rows ({groups}{rows}), at most {total * tokens / 1e6:.2f} M tokens"
            + (" each" if job.steps else "")
        )
    lines.append("VeRL's ppo_mini_batch_size below counts RL prompts; the trainer adds the KL groups to it.")
    configurations = [resolve(composed) for _, composed in planned]
    lengths = [resolved.get("cokl.length") for resolved in configurations]
    lines += [line for length, said in LENGTHS_SAID.items() if length in lengths for line in said]
    size = parameters(config)
    space = disk.describe([job for job, _ in planned], size, keep) if size else "disk: unknown model"
    lines += ["", *_memory(config, tokens), space, ""]
    before: dict[str, str] = {}
    for (job, _), resolved in zip(planned, configurations, strict=True):
        lines.append(f"== {job.name}: " + ("VeRL's configuration" if not before else "what differs from the job above"))
        lines += [f"{key}: {value}" for key, value in resolved.items() if before.get(key) != value]
        lines += [f"{key}: not set" for key in before if key not in resolved]
        lines.append("")
        before = resolved
    return "\n".join(lines)


def resolve(composed: DictConfig) -> dict[str, str]:
    """VeRL's configuration of a job, an entry per leaf."""
    from omegaconf import OmegaConf

    return dict(_leaves(OmegaConf.to_container(composed), ""))


def _leaves(value: object, path: str) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}.{key}".lstrip("."))]
    return [(path, str(value))]


def _memory(config: LLMConfig, tokens: int) -> list[str]:
    """Memory per accelerator in GiB, by what takes it."""
    if config.model not in ARCHITECTURES:
        return ["memory: below 2 GiB in all processes together" if config.device == "cpu" else "memory: unknown model"]
    (size, layers), gib = ARCHITECTURES[config.model], 2**30
    ranks = config.nodes * config.accelerators
    logits = 2 * tokens * VOCABULARY * 4 * 3  # of one micro-batch, with their softmax and its gradient, in float32
    per_token = 2 * layers * KV_HEADS * HEAD_DIM * 2
    sequences = config.chat_batch * config.group_size / ranks
    parts = {
        f"weights, gradients and AdamW's moments, sharded over {ranks}": 16 * size / ranks,
        f"the reverse KLs' reference policy, sharded over {ranks}": 4 * size / ranks,
        f"logits of a micro-batch of {2 * tokens} tokens": logits,
        f"vLLM's weights (all of its memory: {ROLLOUT_SHARE:.0%} of the accelerator's)": 2 * size,
        f"KV cache of {sequences:.0f} full-length responses": sequences * tokens * per_token,
    }
    host: list[str] = []
    if config.reward_model in REWARD_MODELS:
        weights = 2 * REWARD_MODELS[config.reward_model]
        parts[f"the reward model's weights, while it scores (all of its memory: {REWARD_SHARE:.0%})"] = weights
        asleep = weights * config.accelerators / gib
        host = [f"host memory: {asleep:.0f} GiB a node for the reward model's replicas, which sleep there"]
    width = max(map(len, parts))
    return [
        "memory per accelerator, GiB:",
        *(f"  {part:<{width}}  {taken / gib:6.1f}" for part, taken in parts.items()),
        *host,
    ]
