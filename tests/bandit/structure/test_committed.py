"""What FINDINGS and the pictures say of each setting, recomputed from every seed's row in RESULTS.csv."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from bandit.structure import figures
from bandit.structure.config import MAPS, MapName, StructureConfig
from figures.style import read_captions
from tests.docs.test_numbers import of_the_structure, rows
from tests.oracles import scores
from tests.oracles.scores import half_width, mean, select

COMMITTED = pd.read_csv(figures.RESULTS)
COKL, REPLAY = "cokl", "correct_forward_kl"
Interval = tuple[float, float]


def measured(cell: str, run: str) -> dict[str, Interval]:
    """CoKL minus replay, mean and half-width; gain is missing where a frontier never passes the adaptation.

    Nothing is measured where GRPO may forget or learn less than 5 points of correctness.
    """
    ends = COMMITTED[(COMMITTED["cell"] == cell) & (COMMITTED["run"] == run)].assign(mode="sampled", kl_prompts=0)
    made = scores.scored(ends.sort_values("seed", kind="stable").to_dict("records"))  # type: ignore[arg-type]
    ends_of = {one: select(made, role="report", method=one) for one in ("base", "none")}
    for column, sign in (("prior_correct", 1), ("new_correct", -1)):
        moved = [
            sign * (base[column] - grpo[column]) for base, grpo in zip(ends_of["base"], ends_of["none"], strict=True)
        ]
        if mean(moved) - half_width(moved) <= 0.05:
            return {}
    alike = scores.at_equal_adaptation(made, ["retention"])
    reported = select(made, role="report")
    ours, theirs = (select(reported, method=method, beta=1.0) for method in (COKL, REPLAY))
    pairs = {
        "kept": (ours, theirs, "retention"),
        "adapted": (ours, theirs, "adaptation"),
        "gain": (select(alike, method=COKL), select(alike, method=REPLAY), "retention"),
    }
    found = {}
    for name, (one, other, score) in pairs.items():
        if one and other:
            apart = [mine[score] - its[score] for mine, its in zip(one, other, strict=True)]
            assert len(apart) == 5
            found[name] = (mean(apart), half_width(apart))
    return found


def share(cell: str, run: str) -> Interval:
    """Of GRPO's drift on the prior task that is drift of the mass."""
    kept = (COMMITTED["cell"] == cell) & (COMMITTED["run"] == run) & (COMMITTED["role"] == "report")
    grpo = COMMITTED[kept & (COMMITTED["method"] == "none")].to_dict("records")
    drifts = [
        row["mass_drift"] / sum(row[f"{part}_drift"] for part in ("mass", "correct", "incorrect")) for row in grpo
    ]
    return mean(drifts), half_width(drifts)


def settings(name: MapName) -> list[str]:
    return [cell for cell, (_, prediction) in StructureConfig(map=name).chosen.items() if prediction]


SHOWN: list[MapName] = [name for name in MAPS if settings(name)[0] in set(COMMITTED["cell"])]


@pytest.mark.parametrize("name", SHOWN)
def test_the_pictures_points_are_of_the_committed_seeds(name):
    drawing = figures.of_both_runs(COMMITTED, StructureConfig(map=name))
    points = drawing.marks[drawing.marks["kind"] == "point"]
    named = {cell: height for height, label in drawing.panels["kept"].y_names.items() for cell in [label.split(":")[0]]}
    expected = []
    for number, run in enumerate(("first", "again")):
        for cell in settings(name):
            for panel, (value, half) in measured(cell, run).items():
                height = named[cell] + (0.15, -0.15)[number]
                expected.append((panel, height, value, value - half, value + half))
    found = points[["panel", "y", "x", "x_low", "x_high"]].to_numpy().tolist()
    for drawn, recomputed in zip(sorted(found), sorted(expected), strict=True):
        assert drawn[0] == recomputed[0]
        assert drawn[1:] == pytest.approx(recomputed[1:])
    for panel in ("kept", "gain"):
        area = drawing.marks[(drawing.marks["kind"] == "area") & (drawing.marks["panel"] == panel)]
        assert area["x"].tolist() == [-5, 5]


def table(outcomes: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """A summary of settings with these predictions and outcomes, one point apart."""
    columns = {f"{name}{end}": 1.0 for name in ("kept", "adapted", "gain") for end in ("", "_half_width")}
    cells = [{"cell": cell, "prediction": guess, "outcome": found} for cell, (guess, found) in outcomes.items()]
    return pd.DataFrame([{**cell, **columns, "kept": float(place)} for place, cell in enumerate(cells)])


def test_a_point_says_whether_its_prediction_came_out():
    cases = {
        "a": ("behind", "behind", "prediction came out"),
        "b": ("equal", "behind", "prediction refuted"),
        "c": ("behind", "undecided", "undecided"),
        "d": ("equal", "equal", "prediction came out"),
    }
    summary = table({cell: case[:2] for cell, case in cases.items()})
    summary.loc[summary["cell"] == "b", "gain"] = math.nan
    alone = figures.drawing({"": summary})
    points = alone.marks[(alone.marks["kind"] == "point") & (alone.marks["panel"] == "kept")]
    assert dict(zip(points["text"], points["style"], strict=True)) == {cell: case[2] for cell, case in cases.items()}
    assert points["y"].tolist() == list(alone.panels["kept"].y_names)
    assert alone.panels["kept"].y_names[-1.0] == "b: equal"
    gains = alone.marks[(alone.marks["kind"] == "point") & (alone.marks["panel"] == "gain")]
    assert gains["text"].tolist() == ["a", "c", "d"]
    assert "b 1.0 ± 1.0 (behind)" in alone.caption


@pytest.mark.parametrize("name", SHOWN)
def test_the_pictures_caption_is_of_the_committed_seeds(name):
    kept = read_captions(Path("figures/rendered"))[f"structure_{name}"]
    assert kept == figures.of_both_runs(COMMITTED, StructureConfig(map=name)).caption


def written(intervals: Iterator[Interval | None], digits: int) -> str:
    first, again = ("-" if one is None else f"{one[0]:z.{digits}f} ± {one[1]:.{digits}f}" for one in intervals)
    return f"{first} ({again})"


def test_every_row_of_the_findings_is_of_the_committed_seeds():
    shown = [row[1:] for row in rows(of_the_structure()) if len(row) > 3 and "±" in row[1]]
    cells = [cell for name in ("success", "tokens", "reference") if name in SHOWN for cell in settings(name)]
    for cell, row in zip(cells, shown, strict=True):
        found = [measured(cell, run) for run in ("first", "again")]
        expected = [written((one.get(name) for one in found), 1) for name in ("kept", "adapted", "gain")]
        if len(row) == 4:
            expected.append(written((share(cell, run) for run in ("first", "again")), 2))
        assert row == expected
