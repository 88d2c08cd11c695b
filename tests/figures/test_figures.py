"""Figures show the table's numbers, tell every method apart, and are the same bytes each time."""

import itertools

import pytest

from bandit.engine.two_tasks.config import METHODS
from bandit.sweep.analysis import Scored
from bandit.sweep.figures import dynamics, schematic, tradeoff
from cokl import regularizers
from figures import style
from figures.matplotlib_renderer import render
from tests.bandit.sweep.tables import GOOD, sweep_table


def test_every_registered_method_has_a_style_of_its_own():
    names = {"none", *regularizers.names(), *METHODS} - {"base"}
    styles = [style.method_style(name) for name in names]
    assert all(name in style.METHOD_STYLES for name in names)
    for (first, a), (second, b) in itertools.combinations(zip(names, styles, strict=True), 2):
        assert a.color != b.color, (first, second)
        assert a.marker != b.marker, (first, second)


def test_a_method_of_ones_own_looks_alike_in_every_process():
    """Python's own hash of a text does not; these are written down."""
    assert style.method_style("unheard_of") == style.Style("#DDCC77", "4", (3, 1, 1, 1))
    assert style.method_style("chi_square") == style.Style("#332288", "h", (3, 1, 1, 1))
    assert style.method_style("hellinger") == style.Style("#882255", "H", (3, 1, 1, 1))


@pytest.mark.parametrize("draw", [schematic, lambda: render(tradeoff(sweep_table(GOOD)))])
def test_pictures_are_reproducible(draw, tmp_path):
    first, second = (style.save(draw(), tmp_path / name, "picture") for name in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("seeds", [2, 4])
def test_few_seeds_are_lines_and_many_are_a_band(seeds: int):
    table = sweep_table(GOOD, seeds=seeds)
    left, _ = render(dynamics(Scored.of(table))).axes
    color = style.method_style("cokl").color
    single = [line for line in left.lines if line.get_color() == color and str(line.get_label()).startswith("_")]
    few = seeds < style.SEED_LINES
    assert bool(left.collections) != few
    runs = table[(table["method"] == "cokl") & (table["beta"] == 0.1)].groupby("seed")
    expected = [run[["step", "coverage_at_64"]].to_numpy().tolist() for _, run in runs] if few else []
    assert [line.get_xydata().tolist() for line in single] == expected  # type: ignore[union-attr]


def test_the_correctness_axis_ends_where_the_data_end():
    table = sweep_table(GOOD)
    for axes in render(tradeoff(table)).axes:
        low, high = axes.get_xlim()
        assert 0.98 < high < 0.982
        assert all(low <= tick <= high for tick in axes.get_xticks())
