"""The controlled experiment as one of the experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bandit.config import EnvironmentConfig, TrainingConfig
from bandit.sweep.config import PRESETS, SweepConfig
from cokl.support.experiment import Execution, Experiment, GalleryPicture, register
from cokl.support.files import json_rows, read_json
from cokl.support.verdicts import Claim, withheld


@register
class Sweep(Experiment):
    """Every method, coefficient and seed on the single task (Appendix E.1)."""

    name, title, area = "sweep", "Controlled experiment", "controlled experiment"
    command, order = "cokl reproduce", 10
    summary = "Train every method, coefficient and seed; write the tidy table sweep.parquet. Resumes."
    presets = PRESETS
    folder_prefix = ""
    tables = ("sweep.parquet",)
    assumed_configs = (EnvironmentConfig, TrainingConfig)
    assumed_modules = ("bandit.sweep.score",)
    spread = "standard deviation over seeds"
    gallery = (
        GalleryPicture(
            "figure1_constraint_scopes", "What each KL constrains", "Figure 1, the scopes of KL constraints"
        ),
        GalleryPicture("figure2_tradeoff", "The trade-offs", "the controlled experiment's trade-offs"),
        GalleryPicture("figure3_dynamics", "Training dynamics", "the controlled experiment's dynamics"),
    )

    def train(self, config: SweepConfig, execution: Execution) -> Any:
        """The tidy table. Policies to be watched are kept beside it."""
        from bandit.sweep.collapse import keep
        from bandit.sweep.run import run_sweep

        table = run_sweep(config, execution)
        if execution.out is not None:
            keep(config, table, execution.out)
        return table

    def report(self, trained: Any, config: SweepConfig, folder: Path) -> str:
        """CoKL's lead, and what each method ends with at matched correctness."""
        from bandit.sweep.report import at_the_match

        return at_the_match(trained, folder)

    def figures(self, trained: Any, config: SweepConfig, folder: Path) -> Mapping[str, Any]:
        """The trade-off; `cokl figures` draws all, from any finished sweep."""
        from bandit.sweep.figures import tradeoff

        return {"figure2_tradeoff": tradeoff.draw(trained)}

    def outcome(self, config: SweepConfig, folder: Path) -> dict[str, Any]:
        """The table's path, and means over seeds at the last step."""
        from bandit.sweep.score import final_rows, read_sweep

        final = final_rows(read_sweep(folder)).drop(columns=["seed", "step"])
        means = final.groupby(["method", "beta"], sort=False).mean().reset_index()
        return {"table": folder / "sweep.parquet", "final": json_rows(means)}

    def holds(self, folder: Path) -> bool:
        """Not the parts of a sweep that a robustness run trains, at chosen coefficients alone."""
        config = folder / "config.json"
        return not (config.is_file() and "coefficients" in read_json(config, dict))

    def claims(self, folder: Path) -> Sequence[Claim]:
        """The claims of the paper's Results paragraph."""
        from bandit.sweep.claims import judge
        from bandit.sweep.score import read_sweep

        table = read_sweep(folder)
        return withheld(judge(table), table["seed"].nunique())

    def headline(self, folder: Path) -> dict[str, list[str]]:
        """At matched correctness, as the README shows it."""
        from bandit.sweep.score import matched_table, read_sweep

        table = read_sweep(folder)
        shown, kl = matched_table(table, digits=3), matched_table(table, digits=2)["conditional_kl"]
        coverage = next(column for column in map(str, shown) if column.startswith("coverage_at_"))
        columns = {
            "at the coefficient whose correctness is closest to 0.96": shown["method"],
            "β": shown["beta"],
            "correctness": shown["p_correct"],
            coverage.replace("_at_", "@"): shown[coverage],
            "conditional KL (nats)": kl,
        }
        return {title: list(values) for title, values in columns.items()}
