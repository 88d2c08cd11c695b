"""The robustness of the controlled experiment as one of the experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bandit.robustness.config import PRESETS, RobustnessConfig
from cokl.support.experiment import Experiment, register
from cokl.support.files import json_rows


@register
class Robustness(Experiment):
    """Which verdicts of the sweep rest on what the paper leaves open. Its tables are those of its sweeps."""

    name, title, area = "robustness", "Robustness of the controlled experiment", "robustness"
    command, order = "cokl bandit robustness", 70
    summary = "Vary each assumption of the sweep, one at a time, and say of each verdict whether it stands. Resumes."
    presets = PRESETS
    folder_prefix = "robustness-"
    tables = ("robustness.parquet",)
    reruns = False

    def outcome(self, config: RobustnessConfig, folder: Path) -> dict[str, Any]:
        """Where the page is, and every claim under every alternative."""
        import pandas as pd

        return {"page": folder / "results.md", "claims": json_rows(pd.read_csv(folder / "robustness.csv"))}
