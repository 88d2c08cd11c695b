"""`cokl rerun`: the same result is found identical, and a changed number is found."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bandit.finite_group.run import finite_group
from bandit.phase.config import Diagram
from bandit.phase.run import run as phase
from bandit.sequences.run import sequences
from bandit.shift.run import shift
from bandit.sweep.run import run_sweep
from cokl.support.experiment import Execution
from cokl_cli.commands.rerun import Rerun
from cokl_cli.commands.theory import Check
from cokl_cli.experiments import experiments
from tests.bandit import conftest as sweep_miniature
from tests.bandit.finite_group import conftest as finite_group_miniature
from tests.bandit.phase.test_phase import TINY as PHASE
from tests.bandit.sequences.test_train import TINY as SEQUENCES
from tests.bandit.shift.conftest import TINY_SHIFT

SWEEP = dataclasses.replace(sweep_miniature.TINY, seeds=1, methods=("none", "cokl"), betas=(0.1,))
GROUPS = dataclasses.replace(finite_group_miniature.TINY, seeds=1, methods=("none", "cokl"), betas=(0.1,))
DIAGRAM = Diagram("cluster_overlap", "correct_modes", (0.2,), (2,), dataclasses.replace(PHASE, seeds=1))
MAKERS = {
    "sweep": lambda out: run_sweep(SWEEP, Execution(out=out, jobs=1), progress=False),
    "shift": lambda out: shift(TINY_SHIFT, Execution(out=out, jobs=1), progress=False),
    "finite-group": lambda out: finite_group(GROUPS, Execution(out=out, jobs=1), progress=False),
    "sequences": lambda out: sequences(
        dataclasses.replace(SEQUENCES, seeds=1), Execution(out=out, jobs=1), progress=False
    ),
    "phase": lambda out: phase([DIAGRAM], Execution(out=out, jobs=1), progress=False),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_the_same_result_is_identical(kind, tmp_path, capsys):
    folder = tmp_path / "result"
    MAKERS[kind](folder)
    if kind == "phase":
        folder /= DIAGRAM.name
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    rerun = Rerun(folder, jobs=1)
    assert rerun.run() == 0
    assert {(one["outcome"], one["deviation"]) for one in rerun.outcome()} == {("identical", 0.0)}
    assert {path: path.read_bytes() for path in kept} == kept
    assert not folder.with_name(f"{folder.name}.rerun").exists()
    assert capsys.readouterr().out.startswith("identical ")


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("swept") / "result"
    MAKERS["sweep"](folder)
    return folder


def change(folder: Path, edit) -> None:
    path = folder / "sweep.parquet"
    edit(pd.read_parquet(path)).to_parquet(path, index=False)


def plus(table: pd.DataFrame, amount: float) -> pd.DataFrame:
    """One number of the table, moved."""
    moved = table["conditional_kl"].to_numpy(copy=True)
    moved[3] += amount
    return table.assign(conditional_kl=moved)


@pytest.mark.parametrize(
    ("edit", "tolerance", "code", "deviation", "where"),
    [
        (lambda table: plus(table, 1e-6), 0.0, 1, 1e-6, "conditional_kl in row 3"),
        (lambda table: plus(table, 1e-6), 9e-7, 1, 1e-6, "conditional_kl in row 3"),
        (lambda table: plus(table, 1e-6), 1.1e-6, 0, 1e-6, "conditional_kl in row 3"),
        (lambda table: plus(table, np.nan), 1e3, 1, np.inf, "conditional_kl in row 3"),
        (lambda table: table.replace({"method": {"cokl": "forward_kl"}}), 1e3, 1, None, "method"),
        (lambda table: table.iloc[:-1], 1e3, 1, None, "rows and columns"),
        (lambda table: table.rename(columns={"step": "steps"}), 1e3, 1, None, "rows and columns"),
        (lambda table: table.astype({"seed": str}), 1e3, 1, None, "seed"),
    ],
)
def test_a_change_is_found(edit, tolerance, code, deviation, where, swept, tmp_path):
    folder = shutil.copytree(swept, tmp_path / "result")
    change(folder, edit)
    rerun = Rerun(folder, tolerance, jobs=1)
    assert rerun.run() == code
    (found,) = rerun.outcome()
    assert found["outcome"] == ("different" if code else "equal")
    assert found["deviation"] == (None if deviation is None else pytest.approx(deviation, rel=1e-3))
    assert found["where"].startswith(where)
    assert (tmp_path / "result.rerun").exists() == bool(code)


def test_another_configuration_than_the_stored_one_is_found(swept, tmp_path):
    folder = shutil.copytree(swept, tmp_path / "result")
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stored, "learning_rate": 2e-3}))
    assert Rerun(folder, jobs=1).run() == 1
    # An earlier rerun that ended is not taken for the new one.
    (folder / "config.json").write_text(json.dumps(stored))
    assert Rerun(folder, jobs=1).run() == 0


def test_the_theory_check_is_rerun_on_its_claims(tmp_path, capsys):
    folder = tmp_path / "theory"
    Check(only=("regularized-limit-selects",), out=folder).run()
    assert json.loads((folder / "environment.json").read_text())[0]["versions"]["torch"]
    assert Rerun(folder).run() == 0
    claims = json.loads((folder / "claims.json").read_text())
    claims[0]["evidence"][0]["error"] = 0.5
    (folder / "claims.json").write_text(json.dumps(claims))
    rerun = Rerun(folder)
    assert rerun.run() == 1
    assert rerun.outcome()[0]["where"].startswith("error in row 0")


def test_claims_of_an_earlier_version_are_read(tmp_path):
    """Which wrote "verdict": "holds" where "outcome": "held" stands now."""
    folder = tmp_path / "theory"
    Check(only=("regularized-limit-selects",), out=folder).run()
    written = json.loads((folder / "claims.json").read_text())
    earlier = json.loads((folder / "claims.json").read_text())
    for piece in earlier[0]["evidence"]:
        piece["verdict"] = {"held": "holds"}[piece.pop("outcome")]
    (folder / "claims.json").write_text(json.dumps(earlier))
    rerun = Rerun(folder)
    assert rerun.run() == 0
    assert [(one["outcome"], one["deviation"]) for one in rerun.outcome()] == [("equal", 0.0)]
    (entry,) = experiments()["theory"].claims(folder)
    lines = [entry.measured, *entry.evidence]
    assert len(lines) == len(written[0]["evidence"])
    assert not any("not held" in line for line in lines)


def test_a_folder_without_results_is_refused(tmp_path):
    from cokl.support.errors import InputError

    with pytest.raises(InputError, match=r"holds no finished result; expected one of sweep\.parquet, shift"):
        Rerun(tmp_path).run()
