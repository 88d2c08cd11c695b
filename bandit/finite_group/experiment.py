"""The finite-group lab as one of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cokl.support.experiment import Experiment, GalleryPicture, register

from bandit.finite_group.config import PRESETS, FiniteGroupConfig
from cokl.support.files import json_rows, read_parquet
from cokl.support.verdicts import Claim, withheld


@register
class FiniteGroup(Experiment):
    """Sampled surrogates for several group sizes beside the exact objective."""

    name, title, area = "finite_group", "Finite groups", "finite groups"
    command, order = "cokl bandit finite-group", 50
    summary = "Sampled surrogates for several G beside the exact objective, and the recovery measured. Resumes."
    presets = PRESETS
    tables = ("finite_group.parquet", "recovery.parquet")
    assumed_modules = ("bandit.finite_group.config",)
    gallery = (
        GalleryPicture("finite_group_metrics", "Finite groups: the metrics against group size"),
        GalleryPicture("finite_group_recovery", "Finite groups: the recovery, measured and predicted"),
    )

    def outcome(self, config: FiniteGroupConfig, folder: Path) -> dict[str, Any]:
        """Where both tables are, and the metrics at the last step, a row per seed."""
        tables = {Path(name).stem: folder / name for name in self.tables}
        metrics = read_parquet(tables["finite_group"])
        return {**tables, "final": json_rows(metrics[metrics["step"] == metrics["step"].max()])}

    def claims(self, folder: Path) -> Sequence[Claim]:
        """Appendix B's recovery, and what the groups do to trained policies."""
        from bandit.finite_group.claims import judge, of_policies, of_slopes
        from bandit.finite_group.score import read_results

        metrics, recovery = read_results(folder)
        return [*withheld(judge(recovery), recovery["seed"].nunique()), *of_slopes(recovery), *of_policies(metrics)]
