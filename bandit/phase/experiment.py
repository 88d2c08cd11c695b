"""The maps of the task shift as one of the experiments."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bandit.phase.config import EXPERIMENTS, PRESETS, Diagram, MapsConfig
from cokl.support.errors import InputError
from cokl.support.experiment import Execution, Experiment, GalleryPicture, register
from cokl.support.files import read_json, read_result
from cokl.support.options import from_json
from cokl.support.verdicts import Claim


@register
class Phase(Experiment):
    """Over two knobs of the task-shift lab, which method wins; a results folder for each map."""

    name, title, area = "phase", "Maps of the task shift", "map"
    command, order = "cokl bandit phase", 40
    summary = "Over two knobs of the task-shift lab, which method wins Overall, by how much, and why. Resumes."
    presets: ClassVar[Mapping[str, Any]] = {str(name): config for name, config in PRESETS.items()}
    tables = ("phase.parquet",)
    pools_folders = True
    assumed_modules = ("bandit.phase.config",)
    gallery = (
        GalleryPicture(
            "phase_reference_correctness-correct_modes",
            "Where CoKL helps: the reference's correctness and the number of correct modes",
        ),
        GalleryPicture("phase_cluster_overlap-group_size", "Where CoKL helps: the tasks' overlap and the group size"),
    )

    def train(self, config: MapsConfig, execution: Execution) -> Any:
        """The cells of each map by its name."""
        from bandit.phase.run import run

        return run(config.diagrams(), execution)

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

        cells = summarize(read_result(folder / "phase.parquet", (*COLUMNS, "x", "y")))
        return [
            Claim(
                "CoKL has a higher Overall than its best rival, over the map",
                "beyond the paper: Main Results, each at its best coefficient and Jensen-Shannon among the rivals",
                tally(cells),
                verdict(cells),
            )
        ]

    def rerun(self, folder: Path, again: Path, execution: Execution) -> Path:
        """One map."""
        from bandit.phase.run import run

        diagram = from_json(Diagram, read_json(folder / "config.json", dict))
        run([diagram], dataclasses.replace(execution, out=again))
        return again / diagram.name

    def settings(self, stored: dict[str, Any]) -> Mapping[str, Any]:
        """One map's. Raises InputError for a cell whose settings are no options of the command."""
        if "experiment" not in stored:
            return stored
        diagram = from_json(Diagram, stored)
        experiment = diagram.experiment
        shared = {name: getattr(experiment, name) for name in ("mode", "methods", "betas", "seeds", "steps")}
        values = {"knobs": (diagram.x, diagram.y), "x_values": diagram.x_values, "y_values": diagram.y_values}
        for preset in PRESETS:
            settings = {**shared, **values, "preset": preset}
            if MapsConfig(**settings).diagrams() == [diagram]:
                return settings
        raise InputError("config: this map's cells have settings that `cokl bandit phase` has no options for")

    def stored_presets(self) -> Mapping[str, dict[str, Any]]:
        """The experiment in each cell, whose mode the knobs decide."""
        stored = json.loads(json.dumps({name: experiment.as_dict() for name, experiment in EXPERIMENTS.items()}))
        for experiment in stored.values():
            del experiment["mode"]
        return {preset: {"experiment": experiment} for preset, experiment in stored.items()}
