"""What the plasticity figure draws, against the table that it is drawn from, recomputed here seed by seed."""

import statistics

import pandas as pd
import pytest

from bandit.plasticity.analysis import analyse
from bandit.plasticity.figures import draw
from figures.marks import Drawing
from tests.bandit.plasticity.tables import CONFIG, SEEDS, lab
from tests.oracles.intervals import half_width


def tradeoff(table: pd.DataFrame) -> Drawing:
    """The picture."""
    return draw(analyse({"plasticity": table}, CONFIG))["plasticity_tradeoff"]


def rewards(table: pd.DataFrame, method: str, beta: float) -> list[list[float]]:
    """The rewards of the first change at each step, in samples, a list per reported seed."""
    rows = table.query("change == 'narrowed-2' and mode == 'sampled' and method == @method and beta == @beta")
    found = [rows[rows["seed"] == seed].sort_values("step")["reward"].tolist() for seed in SEEDS]
    assert {len(one) for one in found} == {3}
    return found


def area(at: list[float]) -> float:
    """The trapezoidal mean over 400 steps, by hand."""
    return (100 * (at[0] + at[1]) / 2 + 300 * (at[1] + at[2]) / 2) / 400


def check(point: dict, values: list[float]) -> None:
    """A mark is at the mean of the values with their 95% t-interval."""
    half = half_width(values)
    assert point["y"] == pytest.approx(statistics.fmean(values))
    assert (point["low"], point["high"]) == pytest.approx((point["y"] - half, point["y"] + half))


def test_the_trade_off_has_a_point_per_coefficient():
    table = lab()
    marks = tradeoff(table).marks
    target = marks[marks["kind"] == "seed"]
    assert target[["x", "y"]].to_numpy().tolist() == [[0.95, 0], [0.95, 1]]
    shown = marks[marks["kind"] != "seed"]
    assert len(shown) == 6
    for point in shown.to_dict("records"):
        beta = float(point["text"].removeprefix("β = "))
        assert point["x"] == {0.1: 0.98, 0.2: 0.94, 0.0: 0.3}[beta]
        check(point, [area(seed) for seed in rewards(table, method=point["method"], beta=beta)])
