"""Which results a folder holds, by the files that each experiment leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from cokl.support.errors import InputError
from cokl.support.files import read_json


def _beside(pattern: str) -> Callable[[Path], list[Path]]:
    """Finds the folders, ROOT among them, that hold a file of this name; the paper's settings come first."""

    def find(root: Path) -> list[Path]:
        folders = {path.parent for path in root.rglob(pattern)}
        return sorted(
            folders, key=lambda folder: ("quick" in str(folder.relative_to(root)), len(folder.parts), str(folder))
        )

    return find


def _whole_sweeps(root: Path) -> list[Path]:
    """Without the parts of a sweep that a robustness run trains, at chosen coefficients alone."""
    return [folder for folder in _beside("sweep.parquet")(root) if not _is_part(folder / "config.json")]


def _is_part(config: Path) -> bool:
    return config.is_file() and "coefficients" in read_json(config, dict)


@dataclass(frozen=True)
class Found:
    """Folders of finished experiments under one root, those of the paper's settings first."""

    sweeps: list[Path]
    """With sweep.parquet."""
    theory: list[Path]
    """With claims.json, the checked claims of the theory."""
    shifts: list[Path]
    """With shift.parquet."""
    sequences: list[Path]
    """With sequences.parquet."""
    phases: list[Path]
    """With phase.parquet: one folder for each diagram."""
    finite_groups: list[Path]
    """With finite_group.parquet and recovery.parquet."""
    calibrations: list[Path]
    """With calibration.parquet."""
    llm: list[Path]
    """With scores.csv."""
    llm_repeats: list[Path]
    """With runs.csv: several runs of the LLM experiment."""

    @property
    def folders(self) -> list[Path]:
        """All of them."""
        return [folder for field in fields(self) for folder in getattr(self, field.name)]


_FILES = {
    "sweeps": _whole_sweeps,
    "theory": _beside("claims.json"),
    "shifts": _beside("shift.parquet"),
    "sequences": _beside("sequences.parquet"),
    "phases": _beside("phase.parquet"),
    "finite_groups": _beside("recovery.parquet"),
    "calibrations": _beside("calibration.parquet"),
    "llm": _beside("scores.csv"),
    "llm_repeats": _beside("runs.csv"),
}


def find(root: Path) -> Found:
    """What is finished under `root`. Raises InputError if `root` is no folder."""
    if not root.is_dir():
        raise InputError(f"results: {root} is no folder; `cokl bandit sweep --preset quick` makes results in runs/")
    return Found(**{name: finder(root) for name, finder in _FILES.items()})
