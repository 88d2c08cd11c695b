"""The robustness of the controlled experiment as one of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cokl.support.experiment import NOT_RECORDED, Experiment, register

from bandit.robustness.config import PRESETS, RobustnessConfig
from cokl.support.files import json_rows
from cokl.support.verdicts import Claim


@register
class Robustness(Experiment):
    """Which verdicts of the sweep rest on what the paper leaves open. Its tables are those of its sweeps."""

    name, title, area = "robustness", "Robustness of the controlled experiment", "robustness"
    command, order = "cokl bandit robustness", 70
    summary = "Vary each assumption of the sweep, one at a time, and say of each verdict whether it stands. Resumes."
    presets = PRESETS
    tables = ("robustness.csv",)
    reruns = False

    def outcome(self, config: RobustnessConfig, folder: Path) -> dict[str, Any]:
        """Where the page is, and every claim under every alternative."""
        import pandas as pd

        return {"page": folder / "results.md", "claims": json_rows(pd.read_csv(folder / "robustness.csv"))}

    def claims(self, folder: Path) -> Sequence[Claim]:
        """Of each of the sweep's claims, whether its verdict stands under every alternative; none below four seeds."""
        import pandas as pd

        from bandit.robustness.report import standing, verdict_of

        compared = pd.read_csv(folder / "robustness.csv", dtype={"stands": "boolean"})
        return [
            Claim(
                f"Under every alternative assumption the same verdict: {statement}",
                "beyond the paper: what it leaves open, at the coefficients next to the match",
                standing(rows) or "judged on too few seeds",
                verdict_of(rows),
            )
            for statement, rows in compared.groupby("claim", sort=False)
        ]

    def record(self, folders: Sequence[Path]) -> dict[str, Any]:
        """What was varied; the comparison does not say how long its sweeps took."""
        return {"command": self.command, "scope": "one assumption of the sweep changed at a time", **NOT_RECORDED}
