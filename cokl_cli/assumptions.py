"""ASSUMPTIONS.md: every choice that the paper leaves open, over all packages."""

from __future__ import annotations

from bandit.config import EnvironmentConfig
from bandit.engine import environment, sampled
from bandit.engine import networks as mlp
from bandit.finite_group import config as finite_group
from bandit.phase import score as phase
from bandit.shift import score as scores
from bandit.shift import tasks
from bandit.shift.config import ShiftConfig
from bandit.sweep import claims
from bandit.sweep.config import SweepConfig
from cokl import floor, methods, policy, regularizers
from cokl.groups import SurrogateConfig
from cokl.grpo import GRPOConfig
from cokl.regularizers.correct_reverse_kl import CorrectReverseKL
from cokl.support import workers
from cokl.support.assumptions import render
from llm_bridge import buffer
from llm_bridge.data.prepare import DataConfig
from llm_bridge.experiment.config import LLMConfig
from llm_bridge.report import tables
from llm_bridge.rewards import score as reward
from llm_bridge.rewards import validation as reward_validation
from llm_bridge.rewards import verifier
from llm_bridge.tiny import language


def page() -> str:
    """The text of ASSUMPTIONS.md."""
    configs = [
        EnvironmentConfig,
        SweepConfig,
        ShiftConfig,
        CorrectReverseKL,
        SurrogateConfig,
        GRPOConfig,
        LLMConfig,
        DataConfig,
    ]
    bridge = [buffer, verifier, reward, language, tables, reward_validation]
    simulator = [environment, mlp, claims, workers, sampled, tasks, scores, phase, finite_group]
    return render(configs, [policy, regularizers, methods, floor, *simulator, *bridge])


if __name__ == "__main__":
    print(page(), end="")
