"""Every lab's figure as it is drawn: words, series, colours and bars on Matplotlib's axes, against tables made by hand.

A series is what stands in the legend beside its colour: which method's numbers they are is looked up in the table.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from bandit.finite_group import analysis as finite_group_analysis
from bandit.finite_group import figures as finite_group
from bandit.finite_group.config import FiniteGroupConfig
from bandit.plasticity import analysis as plasticity_analysis
from bandit.plasticity import card
from bandit.plasticity import figures as plasticity
from bandit.sequences import analysis as sequences_analysis
from bandit.sequences import figures as sequences
from bandit.sequences.config import SequenceConfig
from bandit.shift import analysis as shift_analysis
from bandit.shift import figures as shift
from bandit.shift.config import ShiftConfig
from bandit.sweep import analysis as sweep_analysis
from bandit.sweep import figures as sweep
from bandit.sweep.config import SweepConfig
from figures.matplotlib_renderer import render
from figures.style import Picture
from llm_bridge.report.figures import ends_by_seed
from tests.bandit.finite_group.tables import made_metrics
from tests.bandit.plasticity.tables import CONFIG as PLASTICITY
from tests.bandit.plasticity.tables import lab as plasticity_table
from tests.bandit.shift.tables import POINTS, shift_table
from tests.bandit.sweep.tables import GOOD, sweep_table
from tests.oracles.intervals import half_width

COLOURS = {
    "Base": "#000000",
    "Reference": "#000000",
    "No regularizer": "#000000",
    "GRPO w/o KL": "#000000",
    "CoKL": "#d55e00",
    "Forward KL": "#0072b2",
    "Reverse KL": "#56b4e9",
    "Entropy": "#e69f00",
    "Replay": "#cc79a7",
    "CoKL w/o term 1": "#8c564b",
}
"""By which a reader tells the methods apart in every figure."""
Point = tuple[float, float]


def series(axes: Axes) -> dict[str, list[Point]]:
    """The labelled lines and markers of a panel; each in its method's colour."""
    found = {}
    for line in axes.lines:
        label = str(line.get_label()).partition(", $")[0]
        if not label.startswith("_"):
            assert to_hex(str(line.get_color())) == COLOURS[label], label
            found[label] = [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]
    return found


def bars(axes: Axes) -> set[tuple[Point, Point]]:
    """The ends of all bars of intervals."""
    segments = [s for one in axes.collections if isinstance(one, LineCollection) for s in one.get_segments()]
    return {tuple((round(float(x), 9), round(float(y), 9)) for x, y in segment) for segment in segments}  # type: ignore[misc]


def bars_of(x: list[float], y: list[float], spread) -> set[tuple[Point, Point]]:
    """Both bars of a point whose values these are."""
    at, to = statistics.fmean(x), statistics.fmean(y)
    across, up = spread(x), spread(y)
    ends = [((at - across, to), (at + across, to)), ((at, to - up), (at, to + up))]
    return {tuple((round(a, 9), round(b, 9)) for a, b in bar) for bar in ends}  # type: ignore[misc]


def words(picture: Picture) -> list[tuple[str, str]]:
    """The words at the axes of each panel, x and y."""
    return [(axes.get_xlabel(), axes.get_ylabel()) for axes in picture.axes]


def check(drawn: list[Point], expected: list[Point]) -> None:
    np.testing.assert_allclose(np.array(drawn, dtype=float), np.array(expected, dtype=float), rtol=1e-12)


def noisy(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """No two numbers alike, apart by less than the coefficients are."""
    table[columns] += np.random.default_rng(5).uniform(0, 1e-3, (len(table), len(columns)))
    return table


DIRECTIONS = ["higher is better", "lower is better"]
"""Of coverage, and of the KL."""
SWEEP = ["p_correct", "coverage_at_64", "coverage_at_64_correct", "conditional_kl"]
SWEPT = {"none": "No regularizer", "entropy": "Entropy", "forward_kl": "Forward KL", "cokl": "CoKL"}


def swept() -> pd.DataFrame:
    table = noisy(sweep_table(GOOD, seeds=4), SWEEP)
    return pd.concat([table.query("method == 'none' and step == 0").assign(method="reference"), table])


def test_the_tradeoff_of_the_sweep_is_drawn_as_its_axes_say():
    table = swept()
    picture = render(sweep.draw(sweep_analysis.analyse({"sweep": table}, SweepConfig()))["figure2_tradeoff"])
    assert [x.split(" $")[0] for x, _ in words(picture)] == ["Correctness", "Correctness"]
    assert words(picture)[0][1] == "Coverage@64"
    assert "KL" in words(picture)[1][1]
    assert [axes.get_title().rpartition(": ")[2] for axes in picture.axes] == DIRECTIONS
    for axes, column in zip(picture.axes, ("coverage_at_64", "conditional_kl"), strict=True):
        found, expected_bars = series(axes), set()
        assert set(found) == {*SWEPT.values(), "Reference"}
        for method, label in SWEPT.items():
            points = []
            for beta in sorted(GOOD[method]):
                rows = table[(table["method"] == method) & (table["beta"] == beta) & (table["step"] == 200)]
                x, y = rows["p_correct"].tolist(), rows[column].tolist()
                points.append((statistics.fmean(x), statistics.fmean(y)))
                expected_bars |= bars_of(x, y, half_width)
            check(found[label], points)
        assert bars(axes) == expected_bars


def test_the_dynamics_of_the_sweep_are_drawn_as_their_axes_say():
    table = swept()
    picture = render(sweep.draw(sweep_analysis.analyse({"sweep": table}, SweepConfig()))["figure3_dynamics"])
    assert [x for x, _ in words(picture)] == ["Training step"] * 2
    assert words(picture)[0][1] == "Coverage@64"
    assert [axes.get_title().rpartition(": ")[2] for axes in picture.axes] == DIRECTIONS
    matched = {"none": 0.0, "entropy": 0.001, "forward_kl": 0.001, "cokl": 0.1}  # nearest to 0.96
    for axes, column in zip(picture.axes, ("coverage_at_64", "conditional_kl"), strict=True):
        found = series(axes)
        assert set(found) == set(SWEPT.values())
        for method, beta in matched.items():
            rows = table[(table["method"] == method) & (table["beta"] == beta)]
            check(found[SWEPT[method]], [(s, rows[rows["step"] == s][column].mean()) for s in (0, 100, 200)])


def test_the_schematics_bars_are_the_optima_that_its_titles_say():
    """q = 0.35, beta = 0.5: the forward KL's optimum is the root of z (1 - z) = 0.5 (z - 0.35), CoKL's is 1."""
    full = (0.5 + math.sqrt(0.25 + 4 * 0.5 * 0.35)) / 2
    right, wrong = [0.46, 0.27, 0.17, 0.10], [0.30, 0.25, 0.20, 0.15, 0.10]
    panels = sweep.schematic().axes
    assert [one.get_title().split(",")[0] for one in panels] == [
        "Reference policy", "Optimum under full forward KL", "Optimum under CoKL",
    ]  # fmt: skip
    for axes, mass in zip(panels, (0.35, full, 1.0), strict=True):
        heights = [bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
        for drawn, z in ((heights[:9], mass), (heights[9:], 0.35)):
            assert drawn in ([], pytest.approx([*(z * p for p in right), *((1 - z) * p for p in wrong)]))
        assert bool(heights[9:]) == (axes is not panels[0])
        ticks = [tick.get_text() for tick in axes.get_xticklabels()]
        assert ticks == [f"correct\n$Z = {mass:.2f}$", f"incorrect\n$1 - Z = {1 - mass:.2f}$"]
    said = [[text.get_text().rpartition(": ")[2] for text in axes.texts] for axes in panels]
    assert said == [[], ["anchored"] * 3, ["free", "anchored", "free"]]


SHIFTED = {"cokl": "CoKL", "forward_kl": "Forward KL", "correct_forward_kl": "Replay", "reverse_kl": "Reverse KL",
           "cokl_without_term1": "CoKL w/o term 1", "cokl_floor": "CoKL + floor", "entropy": "Entropy",
           "jensen_shannon": "Jensen-Shannon", "correct_reverse_kl": "Correct-only reverse KL"}  # fmt: skip


def test_the_shifts_panels_are_a_method_each_with_the_others_behind_and_both_anchors():
    table = shift_table(jitter=0.02)
    drawing = next(iter(shift.draw(shift_analysis.analyse({"shift": table}, ShiftConfig())).values()))
    picture = render(drawing)
    methods = [method for method in POINTS if method != "none"]
    assert [axes.get_title() for axes in picture.axes] == [SHIFTED[method] for method in methods]
    assert {x for x, _ in words(picture)} - {""} == {"Adaptation"}
    assert {y for _, y in words(picture)} - {""} == {"Retention"}
    last = table[(table["role"] == "report") & (table["step"] == table["step"].max())]
    anchors = {}
    for method in ("base", "none"):
        rows = table[(table["role"] == "report") & (table["method"] == method)]
        rows = rows[rows["step"] == rows["step"].max()]
        anchors[method] = rows["prior_correct"].mean(), rows["new_correct"].mean()
    (kept, unlearned), (forgotten, learned) = anchors["base"], anchors["none"]
    points = {}
    for method in methods:
        of_method = last[(last["method"] == method) & (last["kl_prompts"] == 16)]
        means = of_method.groupby("beta")[["prior_correct", "new_correct"]].mean().sort_index()
        points[method] = [
            (100 * (new - unlearned) / (learned - unlearned), 100 * (prior - forgotten) / (kept - forgotten))
            for prior, new in means.itertuples(index=False)
        ]
    for axes, method in zip(picture.axes, methods, strict=True):
        drawn = [[tuple(point) for point in np.asarray(line.get_xydata()).tolist()] for line in axes.lines]
        colours = [to_hex(str(line.get_color())) for line in axes.lines]
        behind = [line for line, colour in zip(drawn, colours, strict=True) if colour == "#c9c9c9"]
        assert len(behind) == len(methods)
        for line, other in zip(behind, methods, strict=True):
            check(line, points[other])
        own = [line for line, colour in zip(drawn, colours, strict=True) if colour not in ("#c9c9c9", "#000000")]
        assert len(own) == 1
        check(own[0], points[method])
        assert [(0.0, 100.0), (100.0, 0.0)] in drawn  # the base keeps all and has learned nothing
    names = [text.get_text() for text in picture.legends[0].get_texts()]
    assert names[-1] == "Base (0, 100), GRPO w/o KL (100, 0)"


def sequences_table() -> pd.DataFrame:
    """Five reported seeds and one for selection, of which no number is another's."""
    rng, lines = np.random.default_rng(8), []
    runs = [("base", 0.0), ("none", 0.0), *itertools.product(("cokl", "correct_forward_kl"), (0.1, 0.3))]
    for seed, (method, beta) in itertools.product((0, 1, 2, 3, 4, 1000), runs):
        for step in (0,) if method == "base" else (0, 100):
            numbers = dict(
                zip(
                    ("known_share", "known_correct", "conditional_kl", "conditional_entropy", "mass_drift",
                     "correct_drift", "incorrect_drift"), rng.random(7), strict=True,
                )
            )  # fmt: skip
            level = {"base": (0.9, 0.1), "none": (0.4, 0.8)}.get(method, (0.6, 0.7))
            lines.append(
                {"seed": seed, "mode": "sampled", "method": method, "beta": beta, "step": step, **numbers,
                 "prior_correct": level[0] + 0.1 * rng.random(), "new_correct": level[1] + 0.1 * rng.random(),
                 "role": "report" if seed < 1000 else "selection", "kl_prompts": 8 if beta else 0}
            )  # fmt: skip
    return pd.DataFrame(lines)


def test_the_sequences_are_drawn_as_their_axes_say():
    table = sequences_table()
    picture = render(
        sequences.draw(sequences_analysis.analyse({"sequences": table}, SequenceConfig()))["sequences_correctness"]
    )
    assert words(picture) == [("Correctness on the new task", "Correctness on the prior task")]
    (axes,) = picture.axes
    labels = {"base": "Base", "none": "GRPO w/o KL", "cokl": "CoKL", "correct_forward_kl": "Replay"}
    found, expected_bars = series(axes), set()
    assert set(found) == set(labels.values())
    for method, label in labels.items():
        rows = table[(table["method"] == method) & (table["role"] == "report")]
        rows = rows[rows["step"] == rows["step"].max()]
        points = []
        for _, run in rows.groupby("beta"):
            x, y = run["new_correct"].tolist(), run["prior_correct"].tolist()
            points.append((statistics.fmean(x), statistics.fmean(y)))
            expected_bars |= bars_of(x, y, half_width)
        check(found[label], points)
    assert bars(axes) == expected_bars
    assert [text.get_text() for text in picture.legends[0].get_texts()] == list(labels.values())


@pytest.mark.parametrize("seeds", [3, 4])
def test_the_plasticity_is_drawn_as_its_axes_say_with_bars_where_seeds_are_not_few(seeds):
    table = plasticity_table()
    table = table[(table["seed"] < seeds) | (table["role"] == "selection")]
    config = dataclasses.replace(PLASTICITY, seeds=seeds)
    picture = render(plasticity.draw(plasticity_analysis.analyse({"plasticity": table}, config))["plasticity_tradeoff"])
    assert words(picture) == [("Correctness after phase 1", "Plasticity after narrowed-2")]
    (axes,) = picture.axes
    labels = {"reference": "Reference", "none": "No regularizer", "cokl": "CoKL", "entropy": "Entropy"}
    found = series(axes)
    assert set(found) == set(labels.values())
    rows = table.query("role == 'report' and mode == 'sampled' and change == 'narrowed-2'")
    for method, label in labels.items():
        points = []
        for _, run in rows[rows["method"] == method].groupby("beta"):
            learned = [
                (100 * (a + b) / 2 + 300 * (b + c) / 2) / 400
                for _, seed in run.groupby("seed")
                for a, b, c in [seed.sort_values("step")["reward"]]
            ]
            points.append((run["p_correct"].mean(), statistics.fmean(learned)))
        check(found[label], points)
    assert len(bars(axes)) == (6 if seeds == 4 else 0)
    assert ("95% t-intervals" in picture.caption) == (seeds == 4)
    dashed = [line.get_xydata() for line in axes.lines if to_hex(str(line.get_color())) == "#999999"]
    np.testing.assert_array_equal(dashed, [[[0.95, 0], [0.95, 1]]])


def test_the_finite_groups_are_drawn_as_their_axes_say():
    metrics = made_metrics()
    analysis = finite_group_analysis.analyse({"finite_group": metrics}, FiniteGroupConfig())
    picture = render(finite_group.draw(analysis)["finite_group_metrics"])
    assert f"means over {metrics['seed'].nunique()} seeds at" in picture.caption
    columns = {"Correctness": "p_correct", "Coverage@8": "coverage_at_8", "Conditional KL [nats]": "conditional_kl"}
    mus = sorted(metrics["optimizer_steps"].unique())
    last = metrics[metrics["step"] == metrics["step"].max()]
    for axes, (mu, (said, column)) in zip(picture.axes, itertools.product(mus, columns.items()), strict=True):
        assert axes.get_ylabel() == said
        for groups in ("fresh", "cached"):
            rows = last.query("method == 'cokl' and optimizer_steps == @mu and groups == @groups")
            label = "CoKL" + (", cached" if groups == "cached" else "")
            lines = [np.asarray(line.get_xydata()) for line in axes.lines if line.get_label() == label]
            means = rows.groupby("group_size")[column].mean()
            assert len(lines) == bool(len(means)), (mu, groups)
            for line in lines:
                check(line.tolist(), list(means.items()))
        exact = last.query("method == 'cokl' and optimizer_steps == @mu and groups == 'exact'")[column].mean()
        levels = [line.get_ydata()[0] for line in axes.lines if "exact" in str(line.get_label())]  # type: ignore[index]
        assert any(level == pytest.approx(exact) for level in levels)
    assert {axes.get_xlabel() for axes in picture.axes[-3:]} == {"Group size $G$"}


def test_smollm2s_seeds_are_drawn_as_their_axes_say():
    methods = {"base": "Base", "grpo": "GRPO w/o KL", "forward_kl": "Forward KL"}
    runs = itertools.product((1, 0), methods)  # not in the order of the axis
    scores = pd.DataFrame(
        [(seed, name, 0.01, 10.0 * seed + len(name), 50.0 + seed) for seed, name in runs],
        columns=["seed", "method", "beta", "known", "chat_val"],
    )
    picture = render(ends_by_seed(scores))
    assert words(picture) == [("Seed", "Right [%]"), ("Seed", "Reward [%]")]
    for axes, column in zip(picture.axes, ("known", "chat_val"), strict=True):
        found = series(axes)
        assert set(found) == set(methods.values())
        for name, label in methods.items():
            rows = scores[scores["method"] == name].sort_values("seed")
            assert [y for _, y in found[label]] == rows[column].tolist()
            assert [round(x) for x, _ in found[label]] == [0, 1]
        assert axes.get_xticks().tolist() == [0, 1]


def test_the_cards_panels_are_drawn_as_their_axes_say():
    table = plasticity_table()
    table["coverage_at_64"] = 10 * (1 - table["p_correct"])
    table["conditional_kl"] = 3 * table["p_correct"]
    picture = render(card.drawing(table))
    assert [y for _, y in words(picture)] == [
        "Coverage@64", "Conditional KL [nats]", "Plasticity: mean new reward",
    ]  # fmt: skip
    assert {x for x, _ in words(picture)} == {"Correctness (axis stretched)"}
    check(series(picture.axes[0])["CoKL"], [(0.98, 0.2), (0.94, 0.6)])
    check(series(picture.axes[1])["CoKL"], [(0.98, 2.94), (0.94, 2.82)])
    for axes in picture.axes:
        assert set(series(axes)) == {"Reference", "No regularizer", "CoKL", "Entropy"}
