"""What the plasticity figures draw, against the table that they are drawn from, recomputed here seed by seed."""

import math
import statistics

import pandas as pd
import pytest
from scipy import stats

from bandit.plasticity import figures
from bandit.plasticity.analysis import Scored
from figures.marks import Drawing
from tests.bandit.plasticity.tables import CONFIG, SEEDS, STEPS, lab


def tradeoff(table: pd.DataFrame) -> Drawing:
    """The first picture."""
    return figures.tradeoff(table, Scored.of(table, CONFIG), CONFIG)


def rewards(table: pd.DataFrame, **values: object) -> list[list[float]]:
    """The rewards at each step, a list per reported seed."""
    found = []
    for seed in SEEDS:
        rows = [row for row in table.to_dict("records") if row["seed"] == seed]
        rows = [row for row in rows if all(row[name] == value for name, value in values.items())]
        found.append([row["reward"] for step in STEPS for row in rows if row["step"] == step])
        assert len(found[-1]) == 3
    return found


def area(at: list[float]) -> float:
    """The trapezoidal mean over 400 steps, by hand."""
    return (100 * (at[0] + at[1]) / 2 + 300 * (at[1] + at[2]) / 2) / 400


def check(point: dict, values: list[float]) -> None:
    """A mark is at the mean of the values with their 95% t-interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    assert point["y"] == pytest.approx(statistics.fmean(values))
    assert (point["low"], point["high"]) == pytest.approx((point["y"] - half, point["y"] + half))


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_the_trade_off_has_a_point_per_coefficient(mode):
    table = lab()
    marks = tradeoff(table).marks
    target = marks[(marks["panel"] == mode) & (marks["kind"] == "seed")]
    assert target[["x", "y"]].to_numpy().tolist() == [[0.95, 0], [0.95, 1]]
    shown = marks[(marks["panel"] == mode) & (marks["kind"] != "seed")]
    assert len(shown) == 6
    for point in shown.to_dict("records"):
        beta = float(point["text"].removeprefix("β = "))
        assert point["x"] == {0.1: 0.98, 0.2: 0.94, 0.0: 0.3}[beta]
        phase = "reference" if point["method"] == "reference" else "exact"
        of = {"method": point["method"], "beta": beta, "phase": phase, "change": "narrowed-2", "mode": mode}
        check(point, [area(seed) for seed in rewards(table, **of)])


def test_the_cache_panel_has_a_line_over_the_caches_and_one_across():
    table = lab()
    drawing = tradeoff(table)
    shown = drawing.marks[drawing.marks["panel"] == "cache"].to_dict("records")
    assert [(mark["method"], mark["kind"]) for mark in shown] == [
        ("cokl", "line"),
        ("cokl", "line"),
        ("entropy", "hline"),
    ]
    assert drawing.panels["cache"].x_ticks == [4, 16]
    for mark in shown[:2]:
        check(mark, [area(seed) for seed in rewards(table, phase="sampled", method="cokl", cached=mark["x"])])
    assert "at 0.9." in drawing.caption
    across = [area(seed) for seed in rewards(table, phase="sampled", method="entropy")]
    assert shown[2]["y"] == pytest.approx(statistics.fmean(across))
    assert (shown[2]["x_low"], shown[2]["x_high"]) == (4, 16)


def test_the_curves_are_of_the_match():
    table = lab()
    drawing = figures.curves(table, CONFIG)
    assert list(drawing.panels) == ["narrowed-2", "moved-2", "narrowed-2, exact"]
    assert "of a correctness of 0.95, from" in drawing.caption
    for panel in drawing.panels:
        change, mode = panel.removesuffix(", exact"), "exact" if panel.endswith("exact") else "sampled"
        shown = drawing.marks[drawing.marks["panel"] == panel]
        assert set(shown["method"]) == {"cokl", "entropy", "reference", "none"}
        for mark in shown.to_dict("records"):
            of = {"method": mark["method"], "change": change, "mode": mode}
            step = STEPS.index(mark["x"])
            if mark["method"] in CONFIG.methods:
                few, many = (rewards(table, **of, phase="exact", beta=beta) for beta in (0.1, 0.2))
                check(mark, [0.25 * one[step] + 0.75 * other[step] for one, other in zip(few, many, strict=True)])
            else:
                check(mark, [seed[step] for seed in rewards(table, **of)])


def test_with_few_seeds_there_are_no_intervals():
    table = lab().query("seed != 3")
    for drawing in (tradeoff(table), figures.curves(table, CONFIG)):
        assert drawing.marks["high"].isna().all()
        assert "means over 3 seeds" in drawing.caption
        assert "interval" not in drawing.caption
