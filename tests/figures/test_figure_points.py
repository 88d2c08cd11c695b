"""Every point, error bar and band of Figures 2 and 3 is the mean or the standard deviation of the table's numbers."""

import itertools
import statistics

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb

from bandit.sweep.figures import dynamics, tradeoff
from cokl import regularizers
from figures import style

METRICS = ("p_correct", "coverage_at_64", "coverage_at_64_correct", "conditional_kl")
PANELS = ("coverage_at_64", "conditional_kl")
# The middle coefficient of each method is the one that ends closest to a correctness of 0.96.
CORRECTNESS = {0.01: 0.99, 0.1: 0.95, 1.0: 0.7}
METHODS = {"none": (0.0,), "forward_kl": tuple(CORRECTNESS), "cokl": tuple(CORRECTNESS)}


def label(method: str) -> str:
    """A method's name in a legend."""
    return "No regularizer" if method == "none" else regularizers.get(method).label


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Numbers without pattern, four seeds, steps 0, 50 and 75; the reference differs between seeds too."""
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(4):
        metrics = dict(zip(METRICS, rng.uniform(0.2, 0.4, 4), strict=True))
        rows.append({"seed": seed, "method": "reference", "beta": 0.0, "step": 0, **metrics})
        for method, betas in METHODS.items():
            for beta, step in itertools.product(betas, (0, 50, 75)):
                metrics = dict(zip(METRICS, rng.uniform(0.2, 0.9, 4), strict=True))
                if step == 75:
                    metrics["p_correct"] = CORRECTNESS.get(beta, 0.97) + rng.uniform(-0.005, 0.005)
                rows.append({"seed": seed, "method": method, "beta": beta, "step": step, **metrics})
    return pd.DataFrame(rows)


def rgb(colors) -> tuple[float, ...]:
    """The first of a collection's colours, without its opacity."""
    return tuple(np.atleast_2d(colors)[0, :3].tolist())


def numbers(table: pd.DataFrame, column: str, method: str, beta: float, step: int) -> list[float]:
    """A metric's values over seeds."""
    chosen = (table["method"] == method) & (table["beta"] == beta) & (table["step"] == step)
    assert chosen.sum() == 4
    return table.loc[chosen, column].tolist()


def lines_of(axes) -> dict[str, np.ndarray]:
    """Each labelled line's points (n, 2)."""
    return {line.get_label(): line.get_xydata() for line in axes.lines if not line.get_label().startswith("_")}


@pytest.mark.parametrize("panel", [0, 1])
def test_tradeoff_points_are_means_of_the_last_step(panel, table):
    lines = lines_of(tradeoff.draw(table).axes[panel])
    assert set(lines) == {"Reference", *map(label, METHODS)}
    for method, betas in METHODS.items():
        expected = [
            [statistics.mean(numbers(table, column, method, beta, 75)) for column in ("p_correct", PANELS[panel])]
            for beta in betas
        ]
        np.testing.assert_allclose(lines[label(method)], expected, rtol=1e-12)


@pytest.mark.parametrize("panel", [0, 1])
def test_the_star_is_at_the_references_means(panel, table):
    (star,) = [line for line in tradeoff.draw(table).axes[panel].lines if line.get_marker() == "*"]
    assert star.get_label() == "Reference"
    expected = [statistics.mean(numbers(table, column, "reference", 0.0, 0)) for column in ("p_correct", PANELS[panel])]
    np.testing.assert_allclose(star.get_xydata(), [expected], rtol=1e-12)


@pytest.mark.parametrize("panel", [0, 1])
@pytest.mark.parametrize("method", METHODS)
def test_error_bars_are_one_standard_deviation_each_way(method, panel, table):
    axes = tradeoff.draw(table).axes[panel]
    color = to_rgb(style.method_style(method).color)
    bars = [collection for collection in axes.collections if isinstance(collection, LineCollection)]
    horizontal, vertical = (bar.get_segments() for bar in bars if rgb(bar.get_color()) == color)
    for index, beta in enumerate(METHODS[method]):
        x = numbers(table, "p_correct", method, beta, 75)
        y = numbers(table, PANELS[panel], method, beta, 75)
        (x_mean, x_spread), (y_mean, y_spread) = ((statistics.mean(v), statistics.stdev(v)) for v in (x, y))
        ends = [[x_mean - x_spread, y_mean], [x_mean + x_spread, y_mean]]
        np.testing.assert_allclose(horizontal[index], ends, rtol=1e-12)
        ends = [[x_mean, y_mean - y_spread], [x_mean, y_mean + y_spread]]
        np.testing.assert_allclose(vertical[index], ends, rtol=1e-12)


@pytest.mark.parametrize("panel", [0, 1])
@pytest.mark.parametrize("method", METHODS)
def test_dynamics_draws_means_and_standard_deviations_of_every_method(method, panel, table):
    axes = dynamics.draw(table).axes[panel]
    lines = lines_of(axes)
    assert set(lines) == {"No regularizer", r"Forward KL, $\beta=0.1$", r"CoKL, $\beta=0.1$"}
    beta = 0.0 if method == "none" else 0.1
    (line,) = [points for name, points in lines.items() if name.startswith(label(method))]
    values = [numbers(table, PANELS[panel], method, beta, step) for step in (0, 50, 75)]
    means, spreads = (np.array([statistic(v) for v in values]) for statistic in (statistics.mean, statistics.stdev))
    np.testing.assert_allclose(line, np.column_stack([(0, 50, 75), means]), rtol=1e-12)
    color = to_rgb(style.method_style(method).color)
    (band,) = [
        collection
        for collection in axes.collections
        if isinstance(collection, PolyCollection) and rgb(collection.get_facecolor()) == color
    ]
    vertices = np.asarray(band.get_paths()[0].vertices)
    for step, mean, spread in zip((0, 50, 75), means, spreads, strict=True):
        heights = vertices[vertices[:, 0] == step, 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [mean - spread, mean + spread], rtol=1e-12)


def test_both_figures_name_every_method_in_their_legend(table):
    for figure, methods in ((tradeoff.draw(table), {"Reference", *METHODS}), (dynamics.draw(table), set(METHODS))):
        (legend,) = figure.legends
        texts = [text.get_text() for text in legend.get_texts()]
        assert len(texts) == len(methods)
        assert {text.split(",")[0] for text in texts} == {
            "Reference" if m == "Reference" else label(m) for m in methods
        }
