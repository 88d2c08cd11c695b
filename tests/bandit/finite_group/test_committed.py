"""What FINDINGS says of finite groups, recomputed from every seed's row in RESULTS.csv and RECOVERY.csv."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.oracles.scores import half_width, mean, written

LAB = Path("bandit/finite_group")
RUNS, SLOPES = pd.read_csv(LAB / "RESULTS.csv"), pd.read_csv(LAB / "RECOVERY.csv")
FINDINGS = Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("\n## Finite groups\n")[1].split("\n## ")[0]
SECTION = " ".join(FINDINGS.split())
COKL, REPLAY, EXACT = "cokl", "correct_forward_kl", np.inf


def of(method: str, groups: str, size: float, column: str, step: int = 600, mu: int = 1) -> list[float]:
    """A metric of the five seeds, in their order."""
    kept = RUNS[(RUNS["method"] == method) & (RUNS["groups"] == groups) & (RUNS["group_size"] == size)]
    kept = kept[(kept["step"] == step) & (kept["optimizer_steps"] == mu)].sort_values("seed")
    assert kept["seed"].tolist() == [0, 1, 2, 3, 4]
    return [float(value) for value in kept[column]]


def slope(method: str, groups: str = "fresh", mu: int = 1, column: str = "slope", **of_rows: float) -> list[float]:
    """A slope of the five seeds, over all group sizes or steps where none is given."""
    kept = SLOPES[(SLOPES["method"] == method) & (SLOPES["groups"] == groups) & (SLOPES["optimizer_steps"] == mu)]
    for name in ("group_size", "step"):
        kept = kept[kept[name] == of_rows[name]] if name in of_rows else kept[kept[name].isna()]
    assert kept["seed"].tolist() == [0, 1, 2, 3, 4]
    return [float(value) for value in kept[column]]


def minus(one: list[float], other: list[float]) -> list[float]:
    return [a - b for a, b in zip(one, other, strict=True)]


def to_exact(method: str, size: float, column: str) -> list[float]:
    return minus(of(method, "fresh", size, column), of(method, "exact", EXACT, column))


def ends(column: str) -> list[str]:
    shown = [written(of(COKL, "fresh", size, column), 3) for size in (1, 8, 64)]
    return [*shown, written(of(COKL, "exact", EXACT, column), 3)]


def sentences() -> list[str]:
    mass, coverage, apart = "p_correct", "coverage_at_64", "conditional_kl"
    shortfalls = [written(to_exact(COKL, size, mass), 3) for size in (1, 8, 64)]
    cached, fresh = (
        {
            (size, name): written(of(COKL, groups, size, name), 3)
            for size, name in ((1, apart), (8, apart), (8, mass), (8, coverage))
        }
        for groups in ("cached", "fresh")
    )
    within = SLOPES[(SLOPES["method"] == COKL) & (SLOPES["groups"] == "fresh") & (SLOPES["optimizer_steps"] == 1)]
    within = within[within["group_size"].isna() & within["step"].isna()]
    lost = to_exact(REPLAY, 1, mass)
    slower = [slope(COKL, mu=4, column=name) for name in ("slope", "slope_at_rollout")]
    by_size = [
        f"{mean(slope(COKL, mu=4, group_size=size)):.2f} and "
        f"{mean(slope(COKL, mu=4, column='slope_at_rollout', group_size=size)):.2f} at G = {size}"
        for size in (1, 8, 16)
    ]
    weak = [written(of(COKL, "unfiltered", 1, name), digits) for name, digits in ((mass, 3), (apart, 2))]
    costs = [minus(of(COKL, "fresh", size, mass, mu=1), of(COKL, "fresh", size, mass, mu=4)) for size in (64, 1)]
    return [
        f"predicted {written(slope(COKL), 4)} over all G, {written(slope(COKL, group_size=1), 4)} at G = 1 and "
        f"{written(slope(COKL, group_size=16), 3)} at G = 16; {100 * within['within_noise'].mean():.1f}% of the "
        f"{within['rows'].sum()}",
        f"{written(slope(REPLAY), 4)} for correct-only forward KL, {written(slope('reverse_kl'), 4)} for reverse KL",
        f"{shortfalls[0]} in correctness at G = 1, {shortfalls[1]} at G = 8, {shortfalls[2]} at G = 64",
        f"loses {-mean(lost):.3f} ± {half_width(lost):.3f} at G = 1",
        "Coverage@64 {} (G = 1), {} (G = 8), {} (G = 64), exact {};".format(*ends(coverage)),
        "conditional KL {}, {}, {}, exact {}.".format(*ends(apart)),
        f"has slope {written(slope(COKL, 'unfiltered'), 3)} on the prediction",
        f"(slope over all G {written(slope(COKL, 'unfiltered', step=96), 2)} at step 96)",
        f"correctness {weak[0]}, conditional KL {weak[1]}",
        f"at G = 1 ({cached[1, apart]} against {fresh[1, apart]}) and at G = 8 ({cached[8, apart]} against "
        f"{fresh[8, apart]})",
        f"coverage@64 is {cached[8, coverage]} against {fresh[8, coverage]}",
        f"{cached[8, mass]} against {fresh[8, mass]}",
        f"is {written(slower[0], 3)} on the paper's prediction and {written(slower[1], 3)} on one with",
        f"{by_size[0]}, {by_size[1]}, {by_size[2]}.",
        f"lower by {mean(costs[0]):.3f} (G = 64) to {mean(costs[1]):.3f} (G = 1)",
    ]


@pytest.mark.parametrize("sentence", sentences(), ids=range(len(sentences())))
def test_a_sentence_of_the_findings_is_of_the_committed_seeds(sentence):
    assert sentence in SECTION


def test_caching_by_passes_is_of_the_committed_seeds():
    cells = [line.strip("| ").split(" | ") for line in FINDINGS.splitlines()]
    rows = {row[0]: row[1:] for row in cells}
    steps = [50, 100, 150, 250, 400, 600]
    assert [float(cell) for cell in rows["passes"]] == [round(step * 512 / 8000, 1) for step in steps]

    def at(step: int, groups: str) -> list[float]:
        size = EXACT if groups == "exact" else 8
        return of(COKL, groups, size, "conditional_kl", step)

    assert rows["finite groups minus exact"] == [written(minus(at(n, "fresh"), at(n, "exact")), 3) for n in steps]
    assert rows["cached minus fresh groups"] == [written(minus(at(n, "cached"), at(n, "fresh")), 3) for n in steps]


def test_every_interval_of_the_findings_is_recomputed_here():
    """0.98 ± 0.02 stands for two slopes at step 99, which are asked for one by one."""
    recomputed = " ".join(sentences()) + " ".join(
        line for line in FINDINGS.splitlines() if line.lstrip().startswith("|")
    )
    shown = re.findall(r"\d+\.\d+ ± \d+\.\d+", SECTION)
    assert len(shown) > 35
    assert {interval for interval in shown if interval not in recomputed} == {"0.98 ± 0.02"}
    for column in ("slope", "slope_at_rollout"):
        values = slope(COKL, mu=4, column=column, step=99)
        assert f"{mean(values):.2f}" == "0.98"
        assert half_width(values) < 0.025
