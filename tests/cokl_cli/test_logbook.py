"""The logbook says what the results say, keeps what it is not given, and invents nothing."""

import json
import shutil
from typing import Any

import pytest

from bandit.sweep.config import preset
from cokl.support.errors import InputError
from cokl_cli.app import main
from cokl_cli.report import logbook
from tests.bandit.sweep.tables import GOOD, sweep_table
from tests.cokl_cli.test_bad_input import refusal

TINY: dict[str, Any] = {"methods": ("none", "entropy", "cokl"), "betas": (0.1,), "steps": 200}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two sweeps of four and two seeds that differ in nothing else."""
    root = tmp_path_factory.mktemp("results")
    points = {
        method: {beta: GOOD[method][beta] for beta in ((0.0,) if method == "none" else (0.1,))} for method in GOOD
    }
    for name, seeds in (("four", 4), ("two", 2)):
        (root / name).mkdir()
        config = preset("quick", seeds=seeds, batch_size=16, **TINY)
        sweep_table({method: points[method] for method in config.methods}, seeds).to_parquet(
            root / name / "sweep.parquet"
        )
        (root / name / "config.json").write_text(json.dumps(config.as_dict()))
        machine = {"cpu": "new", "cpu_count": 2, "versions": {"torch": "9"}, "git_commit": "abc", "seconds": 1.5}
        (root / name / "environment.json").write_text(json.dumps([{**machine, "cpu": "old", "seconds": 2.0}, machine]))
    return root


def made(folder, *results) -> tuple[str, dict]:
    with pytest.raises(SystemExit) as ended:
        main(["logbook", *map(str, results), "--out", str(folder)])
    assert ended.value.code == 0
    return (folder / logbook.PAGE).read_text(), json.loads((folder / logbook.RECORD).read_text())


def test_a_sweep_enters_with_its_verdicts_scope_time_and_command(results, tmp_path):
    page, book = made(tmp_path, results / "four")
    sweep = book["sweep"]
    assert len(sweep["claims"]) == 8
    assert {claim["verdict"] for claim in sweep["claims"][:3]} <= {"held", "not held", "undecided"}
    assert {claim["verdict"] for claim in sweep["claims"][3:]} == {"no verdict"}  # entropy is far less correct
    assert sweep["scope"] == "4 seeds, 3 methods, 1 coefficient, 200 steps"
    assert (sweep["hardware"], sweep["seconds"], sweep["commit"]) == ("new, 2 cores, torch 9", 3.5, "abc")
    assert "--methods none,entropy,cokl" in sweep["command"]
    assert "--batch-size 16" in sweep["command"]
    for claim in sweep["claims"]:
        assert f"| {claim['verdict']} | {claim['measured'][0]['text']} |" in page


def test_results_without_an_environment_are_one_line(results, tmp_path, capsys):
    folder = tmp_path / "emptied"
    shutil.copytree(results / "four", folder)
    (folder / "environment.json").write_text("[]")
    with pytest.raises(SystemExit) as ended:
        main(["logbook", str(folder), "--out", str(tmp_path / "page")])
    assert ended.value.code == 2
    assert "environment.json is damaged (it is empty); remove it and run the command" in capsys.readouterr().err


def test_what_is_not_given_is_not_run_and_not_invented(results, tmp_path):
    page, book = made(tmp_path, results / "four")
    assert set(book) == {"sweep"}
    for name in ("theory", "finite-group", "shift", "sequences", "plasticity"):
        title = logbook.listed()[name].title
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {title} |")]
        assert row.endswith("|  |  | not run here |")
        assert f"<summary>{title}</summary>" not in page


def test_below_four_seeds_there_is_no_verdict(results, tmp_path):
    _, book = made(tmp_path, results / "two")
    assert {claim["verdict"] for claim in book["sweep"]["claims"]} == {"no verdict"}


def test_an_experiment_stays_until_it_is_given_again(results, tmp_path, capsys):
    _, first = made(tmp_path, results / "four")
    _, kept = made(tmp_path)
    assert kept == first
    assert "in place of" not in capsys.readouterr().out
    line = refusal(capsys, "logbook", str(results / "two"), "--out", str(tmp_path))
    assert "has sweep with 4 seeds, " in line
    assert "these results have 2 seeds, 3 methods, 1 coefficient, 200 steps by cokl reproduce --preset quick" in line
    assert line.endswith("; --replace takes them")
    assert json.loads((tmp_path / logbook.RECORD).read_text()) == first
    _, replaced = made(tmp_path, results / "two", "--replace")
    assert replaced["sweep"]["scope"].startswith("2 seeds")
    said = "from these results (2 seeds, 3 methods, 1 coefficient, 200 steps), in place of others (4 seeds, 3 methods, "
    assert said in capsys.readouterr().out


def test_results_of_another_setting_with_the_same_counts_are_not_the_entrys(results, tmp_path, capsys):
    made(tmp_path, results / "four")
    capsys.readouterr()
    other = tmp_path / "other"
    shutil.copytree(results / "four", other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "batch_size": 17}))
    assert "--batch-size 17; --replace takes them" in refusal(capsys, "logbook", str(other), "--out", str(tmp_path))


def test_a_quick_check_of_the_theory_says_so():
    theory = logbook.listed()["theory"]
    assert theory.made_by({"effort": "quick", "only": []}) == "cokl theory check --effort quick"
    assert theory.made_by({"effort": "full", "only": []}) == "cokl theory check"


RECORD = {"command": "c", "scope": "s", "hardware": "h", "seconds": 3.0, "commit": None}


def test_a_claim_judged_in_two_runs_is_one_row_with_both():
    def claim(results: str, verdict: str, mean: str) -> dict:
        measured = [
            {"kind": kind, "text": text, "part": ""}
            for kind, text in (("primary", f"{mean} points"), ("secondary", "7 points"))
        ]
        origin = {"name": "n", "statement": "S", "origin": "beyond", "where": "W"}
        return {**origin, "verdict": verdict, "measured": measured, "results": results}

    judged = [claim("a", "held", "2 ± 1"), claim("b", "undecided", "1 ± 3")]
    page = logbook.render({"plasticity": RECORD | {"claims": judged}})
    assert "| S | W | held, undecided | a, held: 2 ± 1 points<br>b, undecided: 1 ± 3 points |" in page
    assert "| Plasticity | s | h | 3 s | beyond the paper: 1 held, 1 undecided |" in page


def test_two_claims_in_the_same_words_are_two_rows():
    said = {"statement": "S", "origin": "beyond", "where": "W"}
    judged = [
        {"name": name, **said, "verdict": verdict, "measured": [{"kind": "", "text": "1 point", "part": ""}]}
        for name, verdict in (("one", "held"), ("another", "not held"))
    ]
    page = logbook.render({"plasticity": RECORD | {"claims": judged}})
    assert "| S | W | held | 1 point |\n| S | W | not held | 1 point |" in page


def test_the_record_knows_each_claim_by_the_name_that_the_lab_gives_it(results, tmp_path):
    _, book = made(tmp_path, results / "four")
    judged = logbook.listed()["sweep"].claims(results / "four")
    assert [claim["name"] for claim in book["sweep"]["claims"]] == [claim.name for claim in judged]


def test_a_record_without_names_is_one_line_and_stays(results, tmp_path, capsys):
    """As versions before names wrote it."""
    _, book = made(tmp_path, results / "four")
    for claim in book["sweep"]["claims"]:
        del claim["name"]
    (tmp_path / logbook.RECORD).write_text(json.dumps(book))
    capsys.readouterr()
    line = refusal(capsys, "logbook", str(results / "four"), "--out", str(tmp_path))
    assert line.endswith(
        "is damaged (one of claims lacks 'name'); restore it from a copy, or give another --out and all results"
    )
    assert json.loads((tmp_path / logbook.RECORD).read_text()) == book


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(InputError, match="results: there are none in"):
        logbook.records([tmp_path])


def test_of_several_results_the_first_folder_counts_with_all_of_its_configuration(results, tmp_path):
    assert logbook.records([results])["sweep"]["scope"].startswith("4 seeds")  # "four" is before "two"
    again = tmp_path / "again"
    shutil.copytree(results / "four", again)
    pooled = logbook.records([results, again])["sweep"]
    assert pooled["seconds"] == 7.0
    assert logbook.records([results, results / "four"])["sweep"] == logbook.records([results])["sweep"]
    assert {claim["results"] for claim in pooled["claims"]} == {"four", "again"}
