"""The code that an experiment's results depend on, found without loading VeRL."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cokl.support.code import code_of
from cokl.support.results_folder import digest

from cokl import methods
from llm_bridge.experiment.config import LLMConfig

_ALWAYS = (
    "llm_bridge.experiment.jobs",
    "llm_bridge.rewards.score",
    "cokl.responses.verifier_process",
)
"""Beside what VeRL loads: what it is told, what judges, the verifier's process included."""
_ON_A_CPU = ("llm_bridge.cpu", "llm_bridge.cpu.vllm_extension")
"""Modules that change VeRL when they are imported."""
_SETTINGS = Path(__file__).parents[1] / "cpu" / "settings.yaml"
"""What a CPU's jobs are told beside."""


def code_behind(config: LLMConfig, method_names: Iterable[str]) -> dict[str, str]:
    """Digests by module of all source that an experiment with these methods depends on.

    The user's reward function counts too: a file alone, a module of a package with what that imports of its package.
    Raises InputError for an unknown method.
    """
    reward, _, _ = config.reward_function.rpartition(":")
    roots = [
        *_ALWAYS,
        "llm_bridge.data.prepare" if config.model else "llm_bridge.tiny.make",
        *(_ON_A_CPU if config.device == "cpu" else ()),
        *([reward.removeprefix("pkg://")] if reward.startswith("pkg://") else []),
    ]
    regularizers = [methods.get(name).regularizer for name in method_names]
    classes = [used for regularizer in regularizers if regularizer is not None for used in regularizer.made_of()]
    code = code_of("llm_bridge.plugin", classes)
    for root in roots:
        code |= code_of(root, ())
    files = [_SETTINGS] if config.device == "cpu" else []
    if reward and not reward.startswith("pkg://"):
        files.append(Path(reward).expanduser())
    for file in filter(Path.is_file, files):
        code[f"{file.parent.name}/{file.name}"] = digest(file.read_text("utf-8"))
    return dict(sorted(code.items()))
