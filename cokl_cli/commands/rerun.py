"""The command `cokl rerun`: a result computed anew from what its folder says, and compared. Light: see `run`."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from bandit.calibration.config import CalibrationConfig
from bandit.finite_group.config import FiniteGroupConfig
from bandit.sequences.config import SequenceConfig
from bandit.shift.config import ShiftConfig
from bandit.sweep.config import SweepConfig
from cokl.support.errors import InputError
from cokl.support.options import from_json, require
from cokl_cli.output import Output

if TYPE_CHECKING:
    import pandas as pd

_C = TypeVar("_C")


@dataclass(frozen=True)
class Compared:
    """A table and its rerun.

    outcome: identical, equal or different. deviation: the largest absolute one of a number, at `where`; None if rows do
    not match.
    """

    table: str
    outcome: str
    deviation: float | None
    where: str


@dataclass(frozen=True)
class Rerun(Output):
    """Compute a finished result anew, as its folder says that it was made, and compare; exit code 1 if it differs."""

    results: tyro.conf.Positional[Path]
    """Folder of a sweep, a lab, one phase diagram or the theory check. FOLDER.rerun holds the rerun until it agrees;
    the comparison stays in FOLDER/rerun.json."""
    tolerance: float = 0.0
    """The largest absolute deviation of a number that still counts as equal."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes on a CPU; one per core if not given."""

    def run(self) -> int:
        """Compute, compare, and say for each table whether it is identical, equal or different."""
        from cokl.support.files import write_text

        require(0 <= self.tolerance < math.inf, "tolerance", "a finite number >= 0", self.tolerance)
        folder = self.results.resolve()
        kind = next((name for name in _KINDS if (folder / name).is_file()), None)
        if kind is None:
            raise InputError(f"{self.results} holds no finished result; expected one of {', '.join(_KINDS)} in it")
        again = folder.with_name(f"{folder.name}.rerun")
        if (again / "rerun.json").exists():  # of an earlier rerun, which ended and differed
            shutil.rmtree(again)
        compute, tables = _KINDS[kind]
        made = compute(folder, again, self.jobs)
        compared = [_compare(folder / name, made / name, self.tolerance) for name in tables]
        text = json.dumps([asdict(one) for one in compared], indent=1) + "\n"
        write_text(text, folder / "rerun.json")
        for one in compared:
            at = "" if one.deviation == 0 else f" ({one.where}{_by(one.deviation)})"
            print(f"{one.outcome:10}{folder / one.table}{at}")
        if all(one.outcome != _DIFFERENT for one in compared):
            shutil.rmtree(again)
            return 0
        write_text(text, again / "rerun.json")
        print(f"the rerun is kept in {again}", file=sys.stderr)
        return 1

    def found(self) -> Any:
        """Each table with its outcome and its largest deviation."""
        return json.loads((self.results / "rerun.json").read_text(encoding="utf-8"))


_IDENTICAL, _EQUAL, _DIFFERENT = "identical", "equal", "different"


def _by(deviation: float | None) -> str:
    return "" if deviation is None else f" by {deviation:.3g}"


def _compare(old: Path, new: Path, tolerance: float) -> Compared:
    """Bytes first, then rows, columns and texts, which must be the same, then numbers; NaN is NaN's equal alone."""
    import numpy as np

    if old.read_bytes() == new.read_bytes():
        return Compared(old.name, _IDENTICAL, 0.0, "")
    before, after = _table(old), _table(new)
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        shapes = f"{before.shape} there, {after.shape} computed"
        return Compared(old.name, _DIFFERENT, None, f"rows and columns: {shapes}")
    deviation, where = 0.0, ""
    for name in before.columns:
        stored, anew = before[name], after[name]
        if not (_counts(stored) and _counts(anew)):
            if not stored.equals(anew):
                return Compared(old.name, _DIFFERENT, None, name)
            continue
        a, b = stored.to_numpy(np.float64), anew.to_numpy(np.float64)
        with np.errstate(invalid="ignore"):
            gaps = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        if len(gaps) and gaps.max() > deviation:
            row = int(gaps.argmax())
            deviation, where = float(gaps[row]), f"{name} in row {row}"
    return Compared(old.name, _EQUAL if deviation <= tolerance else _DIFFERENT, deviation, where)


def _counts(column: pd.Series) -> bool:
    return column.dtype.kind in "iuf"


def _table(path: Path) -> pd.DataFrame:
    """A table of ours, checksum or not; the theory's claims with a row for each piece of evidence."""
    import pandas as pd

    from cokl.support.files import read_json, read_parquet

    if path.suffix == ".parquet":
        return read_parquet(path)
    from theory.report import stored_evidence

    rows = [
        {
            "claim": row["claim"],
            "statement": row["statement"],
            "source": row["source"],
            **asdict(stored_evidence(piece)),
        }
        for row in read_json(path, list)
        for piece in row["evidence"]
    ]
    return pd.DataFrame(rows).astype({"error": float})


def _anew(experiment: str, config_class: type, folder: Path, again: Path, jobs: int | None) -> Path:
    """Compute what a results folder's config.json asks for into another one. experiment: "MODULE:FUNCTION", heavy."""
    resolve_name(experiment)(_config(config_class, folder), again, jobs)
    return again


def _config(config_class: type[_C], folder: Path) -> _C:
    """What a results folder says that it was made from."""
    from cokl.support.files import read_json

    return from_json(config_class, read_json(folder / "config.json", dict))


def _phase(folder: Path, again: Path, jobs: int | None) -> Path:
    from bandit.phase.config import Diagram
    from bandit.phase.run import run

    diagram = _config(Diagram, folder)
    run([diagram], again, jobs)
    return again / diagram.name


def _theory(folder: Path, again: Path, jobs: int | None) -> Path:
    from cokl.support.files import read_json
    from cokl_cli.commands.theory import Check

    claims = [claim["claim"] for claim in read_json(folder / "claims.json", list)]
    config = folder / "config.json"
    stored = read_json(config, dict) if config.is_file() else {}
    Check(only=tuple(claims), out=again, effort=stored.get("effort", "full")).checked()
    return again


_KINDS: dict[str, tuple[Callable[[Path, Path, int | None], Path], tuple[str, ...]]] = {
    "sweep.parquet": (partial(_anew, "bandit.sweep.run:run_sweep", SweepConfig), ("sweep.parquet",)),
    "shift.parquet": (partial(_anew, "bandit.shift.run:shift", ShiftConfig), ("shift.parquet",)),
    "phase.parquet": (_phase, ("phase.parquet",)),
    "finite_group.parquet": (
        partial(_anew, "bandit.finite_group.run:finite_group", FiniteGroupConfig),
        ("finite_group.parquet", "recovery.parquet"),
    ),
    "sequences.parquet": (partial(_anew, "bandit.sequences.run:sequences", SequenceConfig), ("sequences.parquet",)),
    "calibration.parquet": (
        partial(_anew, "bandit.calibration.run:calibration", CalibrationConfig),
        ("calibration.parquet",),
    ),
    "claims.json": (_theory, ("claims.json",)),
}
"""By the table that says what a folder holds: how it is computed again, and which tables are compared."""
