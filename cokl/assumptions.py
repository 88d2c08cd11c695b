"""Choices that the paper leaves open: each is a dataclass field that says what was chosen and what a change does.

`ASSUMPTIONS.md` is made from these fields: `python -m cokl.assumptions > ASSUMPTIONS.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def assumption(default: Any, choice: str, effect: str) -> Any:
    """A dataclass field with `default` for something that the paper does not say.

    choice: what is being chosen. effect: what changes when the choice changes.
    """
    return dataclasses.field(default=default, metadata={"choice": choice, "effect": effect})


def assumptions_of(config_class: type) -> list[dataclasses.Field]:
    """The fields of a dataclass that were declared with `assumption`, in order."""
    return [field for field in dataclasses.fields(config_class) if "choice" in field.metadata]


def render(config_classes: list[type]) -> str:
    """A Markdown table over all assumptions of `config_classes`."""
    lines = [
        "# What the paper leaves open",
        "",
        "Each row is a configuration field. Made from the code: `python -m cokl.assumptions > ASSUMPTIONS.md`.",
        "",
        "| field | default | what it decides | what changes with it |",
        "|---|---|---|---|",
    ]
    for config_class in config_classes:
        for field in assumptions_of(config_class):
            choice, effect = (field.metadata[key].replace("|", "\\|") for key in ("choice", "effect"))
            lines.append(f"| `{config_class.__name__}.{field.name}` | `{field.default}` | {choice} | {effect} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from bandit.config import EnvironmentConfig, SweepConfig

    from cokl.groups import SurrogateConfig
    from cokl.grpo import GRPOConfig
    from cokl.regularizers.correct_reverse_kl import CorrectReverseKL

    print(render([EnvironmentConfig, SweepConfig, CorrectReverseKL, SurrogateConfig, GRPOConfig]), end="")
