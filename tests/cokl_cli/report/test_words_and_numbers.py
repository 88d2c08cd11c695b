"""What reaches the page from outside is words and never markup; the numbers that its script draws, one by one."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import shutil
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy.optimize import minimize_scalar

from bandit.lab import Analysis
from bandit.labs import LABS, labs
from cokl.support.verdicts import Claim, Evidence
from cokl_cli.report.page import write
from tests.cokl_cli.report.conftest import controlled_experiment
from tests.cokl_cli.test_labs import LAB, Squares, enter
from tests.oracles.intervals import half_width
from tests.oracles.optima import REDUCED_PENALTIES


def data_of(page: Path) -> dict[str, Any]:
    """What the page's script is given."""
    text = page.read_text(encoding="utf-8")
    return json.loads(text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])


HOSTILE = "<!--<script></script><i title='{}'>&amp; \"{}\"</i>"
"""Within a script's data too: there `<!--<script>` would make the page's end a part of the script."""
PLACES = ("title", "heading", "answer", "note", "caption", "column", "cell", "statement", "place", "measured", "kind",
          "evidence", "derivation")  # fmt: skip


@pytest.fixture
def hostile(monkeypatch, tmp_path: Path):
    """A finished folder of another package's lab, every word of which is markup."""
    said = {place: HOSTILE.format(place, place) for place in PLACES}

    def analyse(tables, config) -> Analysis:
        claim = Claim(
            "name",
            said["statement"],
            "beyond",
            said["place"],
            Evidence("", said["measured"]),
            "held",
            (Evidence(said["kind"], said["evidence"]),),
            said["derivation"],
        )
        table = pd.DataFrame({said["column"]: [said["cell"]]})
        captions = {"squares": said["caption"]}
        titles = {"squares": said["heading"]}
        return Analysis(
            said["answer"],
            4,
            [claim],
            {"squares": table},
            captions,
            lambda rows: rows,
            table,
            [said["note"]],
            titles=titles,
        )

    enter(monkeypatch, "squares", dataclasses.replace(LAB, title=said["title"], analyse=analyse))
    folder = tmp_path / "runs" / "<i>folder<"
    folder.mkdir(parents=True)
    pd.DataFrame({"the_square": [1]}).to_parquet(folder / "squares.parquet")
    (folder / "config.json").write_text(json.dumps(Squares().as_dict()))
    shutil.copytree(folder, tmp_path / "runs" / "<i>other<")
    yield tmp_path / "runs", said
    monkeypatch.undo()
    labs.cache_clear()


def test_no_word_of_a_lab_becomes_markup(hostile):
    root, said = hostile
    write(root, root / "page.html")
    page = (root / "page.html").read_text(encoding="utf-8")
    assert "<i " not in page
    assert "<i>" not in page
    assert "<!--" not in page
    assert page.count("</script>") == 2
    for place, words in said.items():
        written = html.escape(words)
        if place == "column":  # which is spelled out
            written = written.partition(" title")[0] + f" title=&#x27;{place}"
        assert written in page, place
    assert page.count("&lt;i&gt;folder&lt;") >= 2
    assert "&lt;i&gt;other&lt;" in page


def test_no_name_of_a_method_becomes_markup(tmp_path: Path):
    """In the legend, in tables, pictures' captions, and in what the script reads."""
    name = HOSTILE.format("method", "method")
    (tmp_path / "sweep").mkdir()
    table = controlled_experiment()
    table.assign(method=table["method"].replace("entropy", name)).to_parquet(tmp_path / "sweep" / "sweep.parquet")
    (tmp_path / "sweep" / "config.json").write_text(json.dumps(LABS["sweep"].presets["paper"].as_dict()))
    write(tmp_path, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<i " not in page
    assert "<i>" not in page
    assert "<!--" not in page
    assert page.count("</script>") == 2
    assert html.escape(name) in page
    assert name in data_of(tmp_path / "page.html")["tradeoff"]["order"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A sweep in an environment of its own, in which no two numbers are alike, and what the page's script is given."""
    root = tmp_path_factory.mktemp("swept")
    table = controlled_experiment()
    numbers = [name for name in table if name not in ("seed", "method", "beta", "step")]
    for place, name in enumerate(numbers):
        table[name] = table[name] * (1 + 1e-3 * place) + 1e-4 * pd.Series(range(len(table))).mod(7 + place)
    table.to_parquet(root / "sweep.parquet")
    config = LABS["sweep"].presets["paper"]
    environment = dataclasses.replace(config.environment, actions=40, correct_actions=6)
    (root / "config.json").write_text(json.dumps(dataclasses.replace(config, environment=environment).as_dict()))
    write(root, root / "page.html")
    return table, data_of(root / "page.html")


def test_every_point_of_the_trade_off_is_a_mean_and_half_an_interval(swept):
    table, data = swept
    columns = {"correctness": "p_correct", "coverage": "coverage_at_64", "covered": "coverage_at_64_correct",
               "kl": "conditional_kl"}  # fmt: skip
    trained = table[table["method"] != "reference"]
    assert data["tradeoff"]["steps"] == [0, 100, 200]
    assert data["tradeoff"]["coverage"] == "Coverage@64"
    assert {(one["method"], one["beta"]) for one in data["tradeoff"]["settings"]} == {
        *trained[["method", "beta"]].itertuples(index=False, name=None)
    }
    for one in data["tradeoff"]["settings"]:
        assert one["step"] == [0, 100, 200]
        for place, step in enumerate(one["step"]):
            rows = trained[(trained["method"] == one["method"]) & (trained["beta"] == one["beta"])]
            rows = rows[rows["step"] == step]
            for name, column in columns.items():
                values = rows[column].tolist()
                assert one[name][place] == pytest.approx(statistics.fmean(values), rel=1e-5)
                assert one[f"{name}_half_width"][place] == pytest.approx(half_width(values), rel=1e-5)


def test_every_optimum_is_the_best_of_its_penalty_in_the_sweeps_environment(swept):
    """Correct actions are 0.15 of all, which entropy's optimum depends on."""
    optima = swept[1]["optima"]
    assert set(optima["curves"]) == set(REDUCED_PENALTIES)
    assert optima["beta"] == pytest.approx([10 ** (-3 + place / 25) for place in range(126)], rel=1e-3)
    for row, column in ((12, 40), (51, 70), (90, 60), (101, 100)):
        q, beta = optima["q"][row], 10 ** (-3 + column / 25)
        for name, curve in optima["curves"].items():

            def loss(z: float, name=name, q=q, beta=beta) -> float:
                return beta * REDUCED_PENALTIES[name](z, q, 0.15, math) - z

            inside = (1e-12, 1 - 1e-12)
            found = minimize_scalar(loss, bounds=inside, method="bounded", options={"xatol": 1e-10}).x
            best = min((float(found), *inside), key=loss)
            assert curve[row][column] == pytest.approx(best, abs=2e-5), (name, q, beta)
