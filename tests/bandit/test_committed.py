"""The committed tables against each other: what is printed is computed here from each seed's numbers, without a lab.

Each of their columns is a key, a number as it was measured, or one that follows from others; a new one needs its line.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pandas as pd
import pytest

from tests.oracles.intervals import half_width

ROOT = Path(__file__).parents[2]
KEYS = {"seed", "method", "beta", "groups", "group_size", "optimizer_steps", "step", "change", "mode", "kl_prompts",
        "role", "run", "alternative", "name", "claim", "at"}  # fmt: skip
MEASURED = {"p_correct", "coverage", "coverage_at_8", "coverage_at_64", "conditional_kl", "zero_correct_rate", "start",
            "to_half", "never", "plasticity", "prior_correct", "new_correct", "prior_pass_at_k", "new_pass_at_k",
            "known_share", "known_correct", "conditional_entropy", "mass_drift", "correct_drift", "incorrect_drift",
            "new_kl"}  # fmt: skip
"""Every one is the plain loop's in the lab's test_whole.py."""
COMPUTED = {"passes", "retention", "adaptation", "overall", "verdict", "stands", "measured"}
"""Here."""
TABLES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "bandit").glob("*/*.csv"))


@pytest.mark.parametrize("name", TABLES)
def test_every_column_of_a_committed_table_is_looked_at(name):
    assert set(read(name)) <= KEYS | MEASURED | COMPUTED


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(ROOT / name)


def printed(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    below = (ROOT / page).read_text(encoding="utf-8").partition(heading)[2]
    table = below[below.index("\n|") :].lstrip("\n").partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def with_half(values: pd.Series, digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f} ± {half_width(values.tolist()):.{digits}f}"


LABELS = {"No regularizer": "none", "Forward KL": "forward_kl", "Jensen-Shannon": "jensen_shannon", "CoKL": "cokl",
          "Reverse KL": "reverse_kl", "Entropy": "entropy", "Replay": "correct_forward_kl"}  # fmt: skip


def matched(sweep: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Each method's rows at the coefficient whose mean correctness is nearest to 0.96, by seed."""
    chosen = {}
    for method, rows in sweep.groupby("method"):
        means = rows.groupby("beta")["p_correct"].mean()
        nearest = (means - 0.96).abs().idxmin()
        chosen[str(method)] = rows[rows["beta"] == nearest].set_index("seed")
    return chosen


def test_the_readmes_table_is_that_of_the_seeds_of_the_base():
    base = matched(read("bandit/sweep/robustness-seeds.csv").query("alternative == 'base'"))
    rows = printed("README.md", "## The paper's experiment")
    assert {LABELS[row[0]] for row in rows} - {"correct_forward_kl"} == set(base)
    for label, *shown in rows:
        if LABELS[label] in base:  # replay has a sweep of its own
            seeds = base[LABELS[label]]
            expected = [(seeds["p_correct"], 3), (seeds["coverage"], 3), (seeds["conditional_kl"], 2)]
            assert shown == [with_half(*one) for one in expected], label


def test_verdicts_stand_where_they_are_the_bases_and_are_counted_in_the_findings():
    table = read("bandit/sweep/robustness.csv")
    base = table[table["alternative"] == "base"].set_index("name")["verdict"]
    assert (table["stands"] == (table["verdict"] == table["name"].map(base))).all()
    others = table[(table["alternative"] != "base") & ~table["alternative"].str.startswith("coverage_draws")]
    assert others["alternative"].nunique() == 12
    stands = others.groupby("name")["stands"].sum()
    told = {
        row[0]: row[1] for row in printed("bandit/FINDINGS.md", "## What the controlled experiment's verdicts rest on")
    }
    for said, name in (
        ("CoKL's conditional KL is the lowest at matched correctness, without replay", "match, conditional_kl"),
        ("CoKL's coverage@64 is the highest, without replay", "match, coverage_at_64"),
        ("plain RL collapses", "collapse"),
    ):
        assert told[said] == f"{stands[name]} of 12"


def test_what_a_claim_of_the_robustness_measured_is_that_of_its_seeds():
    seeds, table = read("bandit/sweep/robustness-seeds.csv"), read("bandit/sweep/robustness.csv")
    for alternative, sweep in seeds.groupby("alternative"):
        at = matched(sweep)
        of = table[table["alternative"] == alternative].set_index("name")["measured"]
        none = at["none"]
        expected = f"correctness {with_half(none['p_correct'], 4)}, coverage {with_half(none['coverage'], 4)}"
        assert of["collapse"] == f"{expected} (95% intervals)"
        for name, column, sign in (("conditional_kl", "conditional_kl", -1), ("coverage_at_64", "coverage", 1)):
            said = of[f"match, {name}"]
            cokl = at["cokl"]
            near = [m for m in at if m not in ("none", "cokl")
                    and abs(at[m]["p_correct"].mean() - cokl["p_correct"].mean()) <= 0.03]  # fmt: skip
            leads = {method: sign * (cokl[column] - at[method][column]) for method in near}
            closest = str(pd.Series({method: lead.mean() for method, lead in leads.items()}).idxmin())
            assert f"{'lower' if sign < 0 else 'higher'} by {with_half(leads[closest], 3)}, in" in said, alternative
            assert said.startswith(f"CoKL {cokl[column].mean():.3f}; next ")


def test_the_finite_groups_page_is_that_of_their_seeds():
    table = read("bandit/finite_group/RESULTS.csv")
    drawn = table["step"] * 512 / table["optimizer_steps"] / 8000
    assert table["passes"].tolist() == pytest.approx(drawn.tolist(), rel=1e-5)
    assert (table["zero_correct_rate"].isna() == (table["groups"] == "exact")).all()
    last = table[table["step"] == 600]
    rows = printed("bandit/finite_group/RESULTS.md", "## At the last step")
    assert len(rows) > 20
    for label, beta, groups, mu, size, *shown in rows:
        seeds = last[(last["method"] == LABELS[label]) & (last["beta"] == float(beta)) & (last["groups"] == groups)]
        seeds = seeds[(seeds["optimizer_steps"] == int(mu)) & (seeds["group_size"] == float(size))]
        columns = ["p_correct", "coverage_at_64", "conditional_kl", "zero_correct_rate"]
        assert shown == ["-" if groups == "exact" and c == columns[-1] else with_half(seeds[c], 4) for c in columns]


@pytest.mark.parametrize("name", ["bandit/shift/RESULTS.csv", "bandit/shift/RESULTS-again.csv"])
def test_the_shifts_scores_are_those_of_its_correctness(name):
    """Linearised around the ratio of means, so that the scores' mean is the ratio of the means."""
    table = read(name)
    for _, rows in table.groupby("mode"):
        ends = {method: rows[rows["method"] == method].set_index("seed") for method in ("base", "none")}
        for score, column, zero, hundred in (
            ("retention", "prior_correct", "none", "base"),
            ("adaptation", "new_correct", "base", "none"),
        ):
            low, high = ends[zero][column], ends[hundred][column]
            for _, run in rows.groupby(["method", "beta", "kl_prompts"]):
                value = run.set_index("seed")[column]
                ratio = (value.mean() - low.mean()) / (high.mean() - low.mean())
                expected = ratio + (value - low - ratio * (high - low)) / (high.mean() - low.mean())
                found = run.set_index("seed")[score]
                assert found.tolist() == pytest.approx((100 * expected).tolist(), abs=2e-3)
    both = (table["retention"] + table["adaptation"]) / 2
    assert table["overall"].tolist() == pytest.approx(both.tolist(), abs=1e-3)
