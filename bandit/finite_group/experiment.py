"""The finite-group lab as one of the experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bandit.finite_group.config import PRESETS, FiniteGroupConfig
from cokl.support.experiment import Execution, Experiment, register
from cokl.support.files import json_rows, read_parquet

if TYPE_CHECKING:
    from cokl.support.verdicts import Claim


@register
class FiniteGroup(Experiment):
    """Sampled surrogates for several group sizes beside the exact objective."""

    name, title, area = "finite_group", "Finite groups", "finite groups"
    command, order = "cokl bandit finite-group", 50
    summary = "Sampled surrogates for several G beside the exact objective, and the recovery measured. Resumes."
    presets = PRESETS
    folder_prefix = "finite-group-"
    tables = ("finite_group.parquet", "recovery.parquet")
    assumed_modules = ("bandit.finite_group.config",)

    def train(self, config: FiniteGroupConfig, folder: Path, execution: Execution) -> Any:
        """Metrics and recovery."""
        from bandit.finite_group.run import finite_group

        return finite_group(config, dataclasses.replace(execution, out=folder))

    def report(self, trained: Any, config: FiniteGroupConfig, folder: Path) -> str:
        """Every table, and the page."""
        from bandit.finite_group.report import render_screen, write_tables

        metrics, recovery = trained
        written = [*(folder / name for name in self.tables), *write_tables(metrics, recovery, folder)]
        return "\n".join([render_screen(metrics, recovery), *map(str, written)])

    def figures(self, trained: Any, config: FiniteGroupConfig, folder: Path) -> Mapping[str, Any]:
        """Metrics against group size and, where it was measured, the recovery."""
        from bandit.finite_group import figures

        metrics, recovery = trained
        drawn = {"finite_group_metrics": figures.draw_metrics(metrics)}
        return drawn | ({"finite_group_recovery": figures.draw_recovery(recovery)} if len(recovery) else {})

    def outcome(self, config: FiniteGroupConfig, folder: Path) -> dict[str, Any]:
        """Where both tables are, and the metrics at the last step, a row per seed."""
        tables = {Path(name).stem: folder / name for name in self.tables}
        metrics = read_parquet(tables["finite_group"])
        return {**tables, "final": json_rows(metrics[metrics["step"] == metrics["step"].max()])}

    def claims(self, folder: Path) -> Sequence[Claim]:
        """Appendix B's recovery."""
        from bandit.finite_group.claims import judge
        from bandit.finite_group.score import read_results
        from cokl.support.verdicts import withheld

        _, recovery = read_results(folder)
        return withheld(judge(recovery), recovery["seed"].nunique())

    def section(self, folder: Path) -> Any:
        """Metrics and recovery."""
        from bandit.finite_group.section import section

        return section(folder)
