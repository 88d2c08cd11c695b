"""The maps of the task shift as one of the experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bandit.phase.config import EXPERIMENTS, MAPS, Diagram, MapsConfig
from cokl.support.experiment import Execution, Experiment, register
from cokl.support.files import read_json, read_result
from cokl.support.options import from_json

if TYPE_CHECKING:
    import pandas as pd

    from cokl.support.verdicts import Claim


@register
class Phase(Experiment):
    """Over two knobs of the task-shift lab, which method wins; a results folder for each map."""

    name, title, area = "phase", "Maps of the task shift", "map"
    command, order = "cokl bandit phase", 40
    summary = "Over two knobs of the task-shift lab, which method wins Overall, by how much, and why. Resumes."
    presets: ClassVar[Mapping[str, Any]] = {str(name): config for name, config in MAPS.items()}
    folder_prefix = "phase-"
    tables = ("phase.parquet",)
    pools_folders = True
    assumed_modules = ("bandit.phase.config",)

    def train(self, config: MapsConfig, folder: Path, execution: Execution) -> dict[str, pd.DataFrame]:
        """The cells of each map by its name."""
        return self._train(config.diagrams(), folder, execution)

    def _train(self, diagrams: list[Diagram], folder: Path, execution: Execution) -> dict[str, pd.DataFrame]:
        from bandit.phase.run import run

        return run(diagrams, dataclasses.replace(execution, out=folder))

    def report(self, trained: dict[str, pd.DataFrame], config: MapsConfig, folder: Path) -> str:
        """The page of each map."""
        pages = [folder / f"{name}.md" for name in trained]
        return "\n".join(f"{page.read_text(encoding='utf-8')}\nwritten to {page}\n" for page in pages)

    def figures(self, trained: dict[str, pd.DataFrame], config: MapsConfig, folder: Path) -> Mapping[str, Any]:
        """Each map."""
        from bandit.phase.figures import draw

        return {f"phase_{one.name}": draw(one, trained[one.name]) for one in config.diagrams()}

    def outcome(self, config: MapsConfig, folder: Path) -> dict[str, Any]:
        """Where each map's page and table are."""
        names = [diagram.name for diagram in config.diagrams()]
        return {name: {"page": folder / f"{name}.md", "table": folder / name} for name in names}

    def area_of(self, folder: Path) -> str:
        """The map's name."""
        return f"map of {folder.name}"

    def claims(self, folder: Path) -> Sequence[Claim]:
        """One map's count of cells."""
        from bandit.phase.report import tally, verdict
        from bandit.phase.score import summarize
        from bandit.shift.run import COLUMNS
        from cokl.support.verdicts import Claim

        cells = summarize(read_result(folder / "phase.parquet", (*COLUMNS, "x", "y")))
        return [
            Claim(
                "CoKL has a higher Overall than its best rival, over the map",
                "Main Results, main table",
                tally(cells),
                verdict(cells),
            )
        ]

    def section(self, folder: Path) -> Any:
        """The map's winners and leads."""
        from bandit.phase.section import section

        return section(folder)

    def rerun(self, folder: Path, again: Path, execution: Execution) -> Path:
        """One map."""
        diagram = from_json(Diagram, read_json(folder / "config.json", dict))
        self._train([diagram], again, execution)
        return again / diagram.name

    def stored_presets(self) -> Mapping[str, dict[str, Any]]:
        """The experiment in each cell, whose mode the knobs decide."""
        return {
            preset: {"experiment": {name: value for name, value in experiment.as_dict().items() if name != "mode"}}
            for preset, experiment in EXPERIMENTS.items()
        }
