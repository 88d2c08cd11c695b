"""The task-shift figures show the tables' numbers, and every method that they draw can be told from the others."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from bandit.engine.two_tasks.config import METHODS
from bandit.shift import analysis as results
from bandit.shift import figures as shift
from bandit.shift.config import PRESETS
from figures import style
from figures.matplotlib_renderer import render
from tests.bandit.shift.tables import shift_table
from tests.figures.test_figures import lines_of


def panels_of(figure) -> dict:
    """The visible panels by their titles."""
    return {axes.get_title(): axes for axes in figure.axes if axes.get_visible() and axes.get_title()}


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """The tables of a hand-made shift table."""
    return results.tables(shift_table())


def test_every_figure_is_drawn_for_each_mode():
    both = pd.concat([shift_table(), shift_table().assign(mode="sampled")], ignore_index=True)
    drawn = shift.draw_all(both, PRESETS["paper"])
    per_mode = {f"shift_{kind}_{mode}" for kind in _KINDS for mode in ("exact", "sampled")}
    assert set(drawn) == per_mode | {"shift_kl_batch"}


_KINDS = ("tradeoff", "beta", "dynamics", "decomposition")


def test_tradeoff_and_beta_draw_the_reported_means(tables: dict[str, pd.DataFrame]):
    search = tables["beta_search"]
    reported = search[(search["method"] == "cokl") & (search["role"] == "report")]
    axes = panels_of(render(shift.tradeoff(search)))["CoKL"]
    curves = [line.get_xydata() for line in axes.lines]
    assert any(np.array_equal(curve, reported[["adaptation", "retention"]].to_numpy()) for curve in curves)
    axes = panels_of(render(shift.beta(search)))["CoKL"]
    retention, adaptation, best = (line.get_xydata() for line in axes.lines)
    np.testing.assert_array_equal(retention, reported[["beta", "retention"]])
    np.testing.assert_array_equal(adaptation, reported[["beta", "adaptation"]])
    np.testing.assert_array_equal(best, reported[reported["best"]][["beta", "overall"]])


def test_dynamics_and_decomposition_draw_the_tables(tables: dict[str, pd.DataFrame]):
    dynamics = tables["dynamics"]
    ours = dynamics[dynamics["method"] == "cokl"]
    axes = panels_of(render(shift.dynamics(dynamics)))["CoKL"]
    *_, prior, new = (line.get_xydata() for line in axes.lines)
    np.testing.assert_array_equal(prior, ours[["step", "prior_correct"]])
    np.testing.assert_array_equal(new, ours[["step", "new_correct"]])
    ends = tables["decomposition"].query("setting == 'best'")
    bars = render(shift.decomposition(tables["decomposition"], dynamics)).axes[0]
    widths = [bar.get_width() for bar in bars.patches if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(widths, ends[results.DRIFTS].to_numpy().T.ravel())


@pytest.mark.parametrize(
    ("figure", "table", "columns"),
    [
        ("dynamics", "dynamics", {"prior task": "prior_correct", "new task": "new_correct"}),
        ("beta", "beta_search", {"retention": "retention", "adaptation": "adaptation"}),
    ],
)
def test_a_legend_names_the_curve_that_looks_like_it(figure, table, columns, tables: dict[str, pd.DataFrame]):
    rows = tables[table].query("method == 'cokl'")
    rows = rows[rows["role"] == "report"] if "role" in rows else rows
    drawn = render(getattr(shift, figure)(tables[table]))
    (legend,) = drawn.legends
    handles = {text.get_text(): line for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert len({handles[name].is_dashed() for name in columns}) == 2
    for name, column in columns.items():
        (curve,) = [line for line in panels_of(drawn)["CoKL"].lines if np.array_equal(line.get_ydata(), rows[column])]
        assert curve.is_dashed() == handles[name].is_dashed()


def test_kl_batch_draws_every_size(tables: dict[str, pd.DataFrame]):
    retention, _ = render(shift.kl_batch(tables["kl_batch"])).axes
    np.testing.assert_array_equal(lines_of(retention)["CoKL"], tables["kl_batch"][["kl_prompts", "retention"]])


def test_every_method_of_the_lab_has_a_colour_and_a_marker_of_its_own():
    styles = {name: style.method_style(name) for name in METHODS}
    assert all(name in style.METHOD_STYLES for name in METHODS)
    for (first, a), (second, b) in itertools.combinations(styles.items(), 2):
        assert a.color != b.color, (first, second)
        assert a.marker != b.marker, (first, second)


def test_few_seeds_are_drawn_one_by_one():
    table = shift_table()
    table = table[(table["role"] == "selection") | (table["seed"] < style.SEED_LINES - 1)]
    drawn = shift.draw_all(table, PRESETS["paper"])
    rows = results.each_seed(table)["dynamics"].query("method == 'cokl'")
    axes = panels_of(drawn["shift_dynamics_exact"])["CoKL"]
    assert not axes.collections
    thin = [line.get_xydata().tolist() for line in axes.lines]
    for _, run in rows.groupby("seed"):
        assert run[["step", "prior_correct"]].to_numpy().tolist() in thin
    assert panels_of(render(shift.dynamics(results.tables(table)["dynamics"])))["CoKL"].collections


def test_every_picture_has_a_caption_with_its_numbers(tables: dict[str, pd.DataFrame]):
    best = tables["beta_search"].query("method == 'cokl' and role == 'report' and best")["overall"].iloc[0]
    drawn = shift.draw_all(shift_table(), PRESETS["paper"])
    assert all(figure.caption for figure in drawn.values())
    assert f"CoKL {best:.1f}" in drawn["shift_tradeoff_exact"].caption
