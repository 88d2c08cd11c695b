"""The command `cokl rerun`: a result is recomputed from its folder's configuration and compared."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from cokl.support.errors import InputError
from cokl.support.experiment import Execution
from cokl.support.files import write_text
from cokl.support.options import require
from cokl_cli.experiments import experiments
from cokl_cli.output import Output

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Compared:
    """A table and its rerun.

    outcome: identical, equal or different. deviation: the largest absolute difference of two numbers, in the cell that
    `where` names; None if rows do not match.
    """

    table: str
    outcome: str
    deviation: float | None
    where: str


@dataclass(frozen=True)
class Rerun(Output):
    """Recompute a finished result with its folder's configuration, and compare; exit code 1 if it differs."""

    results: tyro.conf.Positional[Path]
    """Folder of a sweep, a lab, one phase diagram or the theory check. The rerun is made in FOLDER.rerun, which is
    removed if it agrees; the comparison is written to FOLDER/rerun.json."""
    tolerance: float = 0.0
    """The largest absolute deviation of a number that still counts as equal."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes on a CPU; one per core if not given."""

    def run(self) -> int:
        """Compute, compare, and print for each table whether it is identical, equal or different."""
        require(0 <= self.tolerance < math.inf, "tolerance", "a finite number >= 0", self.tolerance)
        folder = self.results.resolve()
        kinds = [experiment for experiment in experiments().values() if experiment.reruns and experiment.tables]
        own = (one for one in kinds if (folder / one.tables[0]).is_file() and one.holds(folder))
        experiment = next(own, None)
        if experiment is None:
            marks = ", ".join(dict.fromkeys(one.tables[0] for one in kinds))
            raise InputError(f"{self.results} holds no finished result; expected one of {marks} in it")
        again = folder.with_name(f"{folder.name}.rerun")
        if (again / "rerun.json").exists():  # of an earlier rerun, which ended and differed
            shutil.rmtree(again)
        made = experiment.rerun(folder, again, Execution(jobs=self.jobs))
        compared = [
            _compare(folder / name, made / name, experiment.comparable, self.tolerance) for name in experiment.tables
        ]
        text = json.dumps([asdict(one) for one in compared], indent=1) + "\n"
        write_text(text, folder / "rerun.json")
        for one in compared:
            by = "" if one.deviation is None else f" by {one.deviation:.3g}"
            difference = "" if one.deviation == 0 else f" ({one.where}{by})"
            print(f"{one.outcome:10}{folder / one.table}{difference}")
        if all(one.outcome != _DIFFERENT for one in compared):
            shutil.rmtree(again)
            return 0
        write_text(text, again / "rerun.json")
        print(f"the rerun is kept in {again}", file=sys.stderr)
        return 1

    def outcome(self) -> Any:
        """Each table with its outcome and its largest deviation."""
        return json.loads((self.results / "rerun.json").read_text(encoding="utf-8"))


_IDENTICAL, _EQUAL, _DIFFERENT = "identical", "equal", "different"


def _compare(old: Path, new: Path, read: Callable[[Path], pd.DataFrame], tolerance: float) -> Compared:
    """Compare bytes; if they differ, rows, columns and texts, which must be the same, then numbers. NaN equals NaN."""
    import numpy as np

    if old.read_bytes() == new.read_bytes():
        return Compared(old.name, _IDENTICAL, 0.0, "")
    before, after = read(old), read(new)
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        shapes = f"{before.shape} there, {after.shape} computed"
        return Compared(old.name, _DIFFERENT, None, f"rows and columns: {shapes}")
    deviation, where = 0.0, ""
    for name in before.columns:
        stored, anew = before[name], after[name]
        if not (_is_numeric(stored) and _is_numeric(anew)):
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


def _is_numeric(column: pd.Series) -> bool:
    return column.dtype.kind in "iuf"
