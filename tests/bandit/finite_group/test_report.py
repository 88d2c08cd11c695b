"""The lab's tables and figures, recomputed by loops from tables made up here."""

import itertools
import math
import statistics

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bandit.finite_group import figures as figure
from bandit.finite_group.analysis import (
    PAPER_PASSES,
    _caching_cells,
    caching_table,
    final_table,
    on_screen,
    read_results,
    slope_cells,
    slope_table,
    write,
)
from bandit.finite_group.config import PRESETS
from cokl.support.errors import InputError

ESTIMATES = [
    ("exact", math.inf, 1),
    ("exact", math.inf, 4),
    *itertools.product(["fresh"], [1.0, 8.0], [1, 4]),
    ("cached", 8.0, 1),
]
OF_LINE = ("method", "groups", "group_size", "optimizer_steps")
OF_EXACT = ("seed", "method", "optimizer_steps")


def made_metrics(seeds: int = 3) -> pd.DataFrame:
    """Two methods, two steps."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "seed": seed,
            "method": method,
            "beta": 0.3,
            "groups": groups,
            "group_size": size,
            "optimizer_steps": optimizer_steps,
            "step": step,
            "p_correct": rng.uniform(),
            "coverage_at_8": rng.uniform(),
            "coverage_at_8_correct": rng.uniform(),
            "conditional_kl": rng.uniform(),
            "zero_correct_rate": math.nan if groups == "exact" else rng.uniform(),
            "passes": step / 10 / optimizer_steps,
        }
        for seed, method, (groups, size, optimizer_steps), step in itertools.product(
            range(seeds), ["cokl", "reverse_kl"], ESTIMATES, [0, 50]
        )
    ]
    return pd.DataFrame(rows)


def made_recovery(seeds: int = 3) -> pd.DataFrame:
    """Two steps, four clusters; measured is near, but not at, the prediction."""
    rng = np.random.default_rng(1)
    rows = [
        {
            "seed": seed,
            "method": method,
            "beta": 0.3,
            "groups": "fresh",
            "group_size": size,
            "optimizer_steps": optimizer_steps,
            "step": step,
            "cluster": cluster,
            "measured": (predicted := rng.uniform()) + rng.normal(scale=0.1),
            "standard_error": 0.05,
            "predicted": predicted,
            "predicted_at_rollout": predicted + 0.1 * (optimizer_steps > 1),
            "p_correct": 0.5,
        }
        for seed, method, size, optimizer_steps, step, cluster in itertools.product(
            range(seeds), ["cokl", "reverse_kl"], [1.0, 8.0], [1, 4], [0, 9], range(4)
        )
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def metrics() -> pd.DataFrame:
    """Three seeds."""
    return made_metrics()


@pytest.fixture
def recovery() -> pd.DataFrame:
    """Three seeds."""
    return made_recovery()


def mean_and_half_width(values: list[float]) -> tuple[float, float]:
    quantile = stats.t.ppf(0.975, len(values) - 1)
    return statistics.fmean(values), quantile * statistics.stdev(values) / math.sqrt(len(values))


def test_final_table_holds_means_intervals_and_paired_differences(metrics):
    table = final_table(metrics)
    assert len(table) == 2 * len(ESTIMATES)
    records = metrics[metrics["step"] == 50].to_dict("records")
    for line in table.to_dict("records"):
        mine = [
            r
            for r in records
            if all(r[key] == line[key] for key in ("method", "groups", "group_size", "optimizer_steps"))
        ]
        for name in ("p_correct", "coverage_at_8", "conditional_kl"):
            expected = mean_and_half_width([row[name] for row in mine])
            assert (line[name], line[f"{name}_interval"]) == pytest.approx(expected)
            differences = []
            for row in mine:
                (exact,) = [
                    r for r in records
                    if r["groups"] == "exact" and all(r[key] == row[key] for key in OF_EXACT)
                ]  # fmt: skip
                differences.append(row[name] - exact[name])
            expected = mean_and_half_width(differences)
            assert (line[f"{name}_minus_exact"], line[f"{name}_minus_exact_interval"]) == pytest.approx(expected)


def test_the_cost_of_caching_by_passes(metrics, tmp_path):
    records = metrics[metrics["optimizer_steps"] == 1].to_dict("records")

    def kl(method: str, groups: str, step: int, seed: int) -> float:
        (value,) = [
            row["conditional_kl"] for row in records
            if (row["method"], row["groups"], row["step"], row["seed"]) == (method, groups, step, seed)
            and row["group_size"] in (8, math.inf)
        ]  # fmt: skip
        return value

    table = caching_table(metrics)
    assert len(table) == 4
    for line in table.to_dict("records"):
        method, step = line["method"], line["step"]
        assert line["passes"] == step / 10
        for name, one, other in (("finite", "fresh", "exact"), ("cached", "cached", "fresh")):
            differences = [kl(method, one, step, seed) - kl(method, other, step, seed) for seed in range(3)]
            expected = mean_and_half_width(differences)
            assert (line[name], line[f"{name}_interval"]) == pytest.approx(expected)
    assert caching_table(metrics[metrics["groups"] != "cached"]).empty
    assert PAPER_PASSES == 9.375
    write((metrics, metrics.iloc[:0]), PRESETS["quick"], tmp_path)
    assert "the paper makes 9.4" in (tmp_path / "results.md").read_text()


@pytest.mark.parametrize("by", [["method", "optimizer_steps"], ["method", "optimizer_steps", "group_size"]])
def test_slopes_are_those_of_each_seed(recovery, by):
    table = slope_table(recovery, by)
    for line in table.to_dict("records"):
        mine = [row for row in recovery.to_dict("records") if all(row[key] == line[key] for key in by)]
        for name, prediction in (("slope", "predicted"), ("slope_at_rollout", "predicted_at_rollout")):
            slopes = []
            for seed in range(3):
                points = [(row[prediction], row["measured"]) for row in mine if row["seed"] == seed]
                slopes.append(sum(x * y for x, y in points) / sum(x * x for x, _ in points))
            assert (line[name], line[f"{name}_interval"]) == pytest.approx(mean_and_half_width(slopes))
        near = [abs(row["measured"] - row["predicted"]) <= 1.96 * row["standard_error"] for row in mine]
        assert line["within_noise"] == pytest.approx(sum(near) / len(near))
        assert line["rows"] == len(mine)
    assert 0 < table["within_noise"].min() < 1


def test_the_page_and_the_screen_show_the_tables_numbers(metrics, recovery, tmp_path):
    write((metrics, recovery), PRESETS["quick"], tmp_path)
    page, printed = (tmp_path / "results.md").read_text(), on_screen(metrics, recovery, tmp_path)
    stored = pd.read_csv(tmp_path / "tables" / "final.csv")
    np.testing.assert_allclose(stored["p_correct"], final_table(metrics)["p_correct"])
    line = final_table(metrics).query("method == 'cokl' and group_size == 8 and optimizer_steps == 1").iloc[0]
    shown = f"{line['p_correct']:.4f} ± {line['p_correct_interval']:.4f}"
    assert shown in page
    assert f"{line['p_correct']:.3f} ± {line['p_correct_interval']:.3f}" in printed
    slope = slope_table(recovery, ["method", "optimizer_steps"]).iloc[0]
    assert f"{slope['slope']:.3f} ± {slope['slope_interval']:.3f} times R_G's prediction" in printed
    assert "Seeds: 3; steps: 50." in page


def test_figures_draw_the_tables_numbers(metrics, recovery):
    drawn = figure.render(figure.metrics(metrics))
    assert len(drawn.axes) == 6
    expected = final_table(metrics).query("method == 'cokl' and groups == 'fresh' and optimizer_steps == 1")
    line = next(line for line in drawn.axes[0].lines if np.array_equal(np.asarray(line.get_xdata()), [1, 8]))
    np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), expected["p_correct"])
    scatter = figure.render(figure.recovery(recovery))
    points = [np.asarray(line.get_xydata()) for line in scatter.axes[0].lines if line.get_label() == "$G = 8$"]
    rows = recovery.query("method == 'cokl' and group_size == 8 and optimizer_steps == 1")
    np.testing.assert_allclose(points[0], rows[["predicted", "measured"]])
    assert len(scatter.axes) == 3


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no finished finite-group lab in"):
        read_results(tmp_path)


def test_each_cell_of_the_page_is_under_its_head():
    of = {"method": ["cokl"], "beta": [0.3], "group_size": [8.0]}
    caching = {"step": [50], "passes": [2.5], "finite": [0.25], "cached": [0.125]}
    intervals = {"finite_interval": [0.01], "cached_interval": [0.02]}
    assert _caching_cells(pd.DataFrame({**of, **caching, **intervals})).iloc[0].to_dict() == {
        "method": "CoKL", "beta": "0.3", "G": "8", "step": 50, "passes": "2.5",
        "finite groups - exact": "0.2500 ± 0.0100", "cached - fresh groups": "0.1250 ± 0.0200",
    }  # fmt: skip
    slopes = {"groups": ["fresh"], "optimizer_steps": [4], "slope": [1.5], "slope_at_rollout": [0.5]}
    means = {"slope_interval": [0.1], "slope_at_rollout_interval": [0.2], "measured": [0.75], "predicted": [0.25]}
    assert slope_cells(pd.DataFrame({**of, **slopes, **means, "within_noise": [0.95]})).iloc[0].to_dict() == {
        "method": "CoKL", "beta": "0.3", "groups": "fresh", "mu": 4, "G": "8", "slope": "1.5000 ± 0.1000",
        "slope_at_rollout": "0.5000 ± 0.2000", "measured": "0.7500", "predicted": "0.2500", "within noise": "95%",
    }  # fmt: skip
