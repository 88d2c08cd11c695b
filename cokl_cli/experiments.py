"""Every experiment there is: those of the packages' folders, and those of other packages' entry points."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path

import bandit
from cokl.support.errors import InputError
from cokl.support.experiment import Experiment, registered

ENTRY_POINTS = "cokl.experiments"
"""The group in which another package names a module that registers an experiment."""
CARD = "card.csv"
"""In the folder of a regularizer's card, whose runs of the plasticity lab have too few seeds for verdicts."""


@cache
def _load() -> None:
    folders = (module.name for module in pkgutil.iter_modules(bandit.__path__) if module.ispkg)
    labs = (name for name in folders if Path(bandit.__path__[0], name, "experiment.py").is_file())
    for module in (*(f"bandit.{name}.experiment" for name in labs), "theory.experiment", "llm_bridge.descriptors"):
        importlib.import_module(module)
    for plugged_in in entry_points(group=ENTRY_POINTS):
        plugged_in.load()


def experiments() -> dict[str, Experiment]:
    """Every experiment by its name, sorted by `order`."""
    _load()
    return registered()


def finished(root: Path) -> dict[str, list[Path]]:
    """The folders under `root`, itself among them, with finished results of each experiment that has any.

    A card's folder is none. The paper's settings come before other presets', and shallow folders before deep ones.
    Raises InputError if `root` is not a folder.
    """
    if not root.is_dir():
        raise InputError(f"results: {root} is not a folder; `cokl bandit sweep --preset quick` makes results in runs/")
    by_name = {}
    for name, experiment in experiments().items():
        marks = root.rglob(experiment.tables[0]) if experiment.tables else ()
        folders = {path.parent for path in marks if all((path.parent / table).is_file() for table in experiment.tables)}
        own = [folder for folder in folders if not (folder / CARD).is_file() and experiment.holds(folder)]
        others = {"quick", *experiment.presets} - {"paper"}
        if own:
            by_name[name] = sorted(own, key=partial(_place, root=root, others=others))
    return by_name


def _place(folder: Path, root: Path, others: set[str]) -> tuple[bool, int, str]:
    """What sorts folders. others: names of presets that come last."""
    name = str(folder.relative_to(root))
    return any(preset in name for preset in others), len(folder.parts), name
