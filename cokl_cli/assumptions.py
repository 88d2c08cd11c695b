"""ASSUMPTIONS.md, made from the code: `python -m cokl_cli.assumptions > ASSUMPTIONS.md`."""

from __future__ import annotations

from bandit.calibration import config as calibration_config
from bandit.config import EnvironmentConfig, TrainingConfig
from bandit.engine import environment, networks, sampled
from bandit.finite_group import config as finite_group_config
from bandit.phase import config as phase_config
from bandit.sequences.config import SequenceConfig
from bandit.shift import score, tasks
from bandit.shift.config import ShiftConfig
from bandit.sweep import score as sweep_score
from cokl import floor, groups, grpo, methods, metrics, policy, regularizers
from cokl.groups import SurrogateConfig
from cokl.grpo import GRPOConfig
from cokl.regularizers import reverse_kl
from cokl.regularizers.correct_reverse_kl import CorrectReverseKL
from cokl.responses import buffer, verifier
from cokl.support import verdicts, workers
from cokl.support.assumptions import render
from llm_bridge import bring_buffer
from llm_bridge.data.config import DataConfig
from llm_bridge.experiment.config import LLMConfig
from llm_bridge.report import tables
from llm_bridge.rewards import score as reward_score
from llm_bridge.rewards import validation
from llm_bridge.tiny import language
from llm_bridge.trainer import schedule

CONFIGS = [
    EnvironmentConfig,
    TrainingConfig,
    ShiftConfig,
    SequenceConfig,
    CorrectReverseKL,
    SurrogateConfig,
    GRPOConfig,
    LLMConfig,
    DataConfig,
]
METHOD = [policy, regularizers, reverse_kl, methods, floor, grpo, groups, metrics, buffer, verifier, verdicts]
SIMULATOR = [
    environment,
    networks,
    sweep_score,
    workers,
    sampled,
    tasks,
    score,
    phase_config,
    finite_group_config,
    calibration_config,
]
BRIDGE = [bring_buffer, schedule, reward_score, language, tables, validation]


def page() -> str:
    """ASSUMPTIONS.md."""
    return render(CONFIGS, [*METHOD, *SIMULATOR, *BRIDGE])


if __name__ == "__main__":
    print(page(), end="")
