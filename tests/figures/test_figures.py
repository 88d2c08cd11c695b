"""Figures show the table's numbers, tell every method apart, and are the same bytes each time."""

import itertools

import numpy as np
import pytest

from bandit.sweep.figures import dynamics, schematic, tradeoff
from cokl import regularizers
from figures import style
from tests.bandit.sweep.test_claims import GOOD, sweep_table


def lines_of(axes) -> dict[str, np.ndarray]:
    """Each labelled line's points (n, 2)."""
    return {line.get_label(): line.get_xydata() for line in axes.lines if not line.get_label().startswith("_")}


def test_tradeoff_draws_means_over_seeds():
    left, right = tradeoff.draw(sweep_table(GOOD, seeds=3)).axes
    np.testing.assert_allclose(lines_of(left)["CoKL"], [[0.9751, 0.2001], [0.9551, 0.6001]])
    np.testing.assert_allclose(lines_of(right)["Forward KL"], [[0.9651, 3.0001], [0.8001, 1.2001]])


def test_dynamics_draws_the_matched_coefficient():
    _, right = dynamics.draw(sweep_table(GOOD, seeds=3)).axes
    lines = lines_of(right)
    np.testing.assert_allclose(lines[r"CoKL, $\beta=0.1$"], [[0, 1e-4], [100, 0.1501], [200, 0.3001]])
    assert r"Forward KL, $\beta=0.001$" in lines


def test_every_registered_method_has_a_style_of_its_own():
    names = ["none", *regularizers.names()]
    styles = [style.method_style(name) for name in names]
    assert all(name in style.METHOD_STYLES for name in names)
    for (first, a), (second, b) in itertools.combinations(zip(names, styles, strict=True), 2):
        assert a.color != b.color, (first, second)
        assert a.marker != b.marker, (first, second)
    assert style.method_style("unheard_of") == style.method_style("unheard_of")


@pytest.mark.parametrize("draw", [schematic.draw, lambda: tradeoff.draw(sweep_table(GOOD))])
def test_pictures_are_reproducible(draw, tmp_path):
    first, second = (style.save(draw(), tmp_path / name, "picture") for name in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("seeds", [2, 4])
def test_few_seeds_are_lines_and_many_are_a_band(seeds: int):
    table = sweep_table(GOOD, seeds=seeds)
    left, _ = dynamics.draw(table).axes
    color = style.method_style("cokl").color
    single = [line for line in left.lines if line.get_color() == color and str(line.get_label()).startswith("_")]
    few = seeds < style.SEED_LINES
    assert bool(left.collections) != few
    runs = table[(table["method"] == "cokl") & (table["beta"] == 0.1)].groupby("seed")
    expected = [run[["step", "coverage_at_64"]].to_numpy().tolist() for _, run in runs] if few else []
    assert [line.get_xydata().tolist() for line in single] == expected  # type: ignore[union-attr]


def test_the_correctness_axis_ends_where_the_data_end():
    table = sweep_table(GOOD)
    for axes in tradeoff.draw(table).axes:
        low, high = axes.get_xlim()
        assert 0.98 < high < 0.982
        assert all(low <= tick <= high for tick in axes.get_xticks())


def test_captions_are_written_with_the_numbers_and_kept_for_pictures_drawn_before(tmp_path):
    style.save_all({"one": tradeoff.draw(sweep_table(GOOD, seeds=3))}, tmp_path)
    said = style.save_all({"two": dynamics.draw(sweep_table(GOOD, seeds=3))}, tmp_path)
    captions = style.read_captions(tmp_path)
    assert set(captions) == {"one", "two"}
    assert "7 points" in captions["one"]
    assert "means over 3 seeds" in captions["one"]
    assert "CoKL 0.600 and 0.30 nats" in captions["two"]
    assert str(tmp_path) in said
