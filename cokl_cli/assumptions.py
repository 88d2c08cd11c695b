"""ASSUMPTIONS.md, made from the code: `python -m cokl_cli.assumptions > ASSUMPTIONS.md`."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from itertools import chain
from types import ModuleType

from bandit.engine import environment, networks, sampled
from cokl import floor, groups, grpo, methods, metrics, policy, regularizers
from cokl.groups import SurrogateConfig
from cokl.grpo import GRPOConfig
from cokl.regularizers.cokl import CoKL
from cokl.regularizers.correct_reverse_kl import CorrectReverseKL
from cokl.regularizers.reverse_kl import ReverseKL
from cokl.responses import buffer, verifier
from cokl.support import verdicts, workers
from cokl.support.assumptions import render
from cokl_cli.experiments import experiments
from llm_bridge import bring_buffer
from llm_bridge.data.config import DataConfig
from llm_bridge.experiment.config import LLMConfig
from llm_bridge.report import tables
from llm_bridge.rewards import score as reward_score
from llm_bridge.rewards import validation
from llm_bridge.tiny import language
from llm_bridge.trainer import schedule

METHOD_CONFIGS = [CoKL, CorrectReverseKL, ReverseKL, SurrogateConfig, GRPOConfig]
CONFIGS = [*METHOD_CONFIGS, LLMConfig, DataConfig]
METHOD = [policy, regularizers, methods, floor, grpo, groups, metrics, buffer, verifier, verdicts]
SIMULATOR = [environment, networks, workers, sampled]
BRIDGE = [bring_buffer, schedule, reward_score, language, tables, validation]


def sources(names: Collection[str] | None = None) -> tuple[list[type], list[ModuleType]]:
    """Every configuration that declares assumptions, and every module that states some; of these experiments alone."""
    chosen = [experiment for name, experiment in experiments().items() if names is None or name in names]
    configs = chain.from_iterable(experiment.assumed_configs for experiment in chosen)
    modules = chain.from_iterable(experiment.assumed_modules for experiment in chosen)
    if names is not None and not any(name.startswith("llm") for name in names):
        of_method = [*METHOD, *SIMULATOR, *map(importlib.import_module, modules)]
        return [*configs, *METHOD_CONFIGS], of_method
    return [*configs, *CONFIGS], [*METHOD, *SIMULATOR, *map(importlib.import_module, modules), *BRIDGE]


if __name__ == "__main__":
    print(render(*sources()), end="")
