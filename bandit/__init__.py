"""The controlled experiment: an exact-objective contextual bandit and everything that trains and measures on it.

Names are loaded when first used, so that the command line starts without PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bandit.config import EnvironmentConfig
    from bandit.engine.environment import Environment
    from bandit.sweep.config import SweepConfig, preset
    from bandit.sweep.train import run_sweep
    from cokl.support.results import Execution

__all__ = ["Environment", "EnvironmentConfig", "Execution", "SweepConfig", "preset", "run_sweep"]

_HOMES = {
    "Environment": "bandit.engine.environment",
    "EnvironmentConfig": "bandit.config",
    "Execution": "cokl.support.results",
    "SweepConfig": "bandit.sweep.config",
    "preset": "bandit.sweep.config",
    "run_sweep": "bandit.sweep.train",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'bandit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
