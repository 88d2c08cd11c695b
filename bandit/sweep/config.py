"""Configuration of the sweep (Appendix E.1): every regularizer at every coefficient; no heavy imports here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from bandit.config import QUICK, TrainingConfig
from cokl.support.errors import InputError, did_you_mean

REPLAY = "replay"
"""A folder in a sweep's own, where `cokl reproduce` trains the one method that it shows beside the paper's."""


@dataclass(frozen=True)
class SweepConfig(TrainingConfig):
    """Which runs to train, and how."""


PRESETS: dict[str, SweepConfig] = {
    "paper": SweepConfig(),
    "quick": SweepConfig(betas=(0.003, 0.01, 0.03, 0.1, 0.3), **QUICK),
}


def preset(name: str, **changes: Any) -> SweepConfig:
    """The configuration called `name`, "paper" or "quick", with some fields changed.

    Raises InputError for a name or a field that is unknown, and for a value of the wrong type.
    """
    if name not in PRESETS:
        raise InputError(f"preset: expected one of {', '.join(PRESETS)}, got {name!r}{did_you_mean(name, PRESETS)}")
    fields = [field.name for field in dataclasses.fields(SweepConfig)]
    if unknown := sorted(set(changes) - set(fields)):
        near = did_you_mean(unknown[0], fields)
        raise InputError(f"preset: there is no field {unknown[0]!r}{near}; fields: {', '.join(fields)}")
    return dataclasses.replace(PRESETS[name], **changes)
