"""README and the labs' findings say of the committed tables what these say, computed here from each seed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.docs.pages import ROOT
from tests.oracles.intervals import half_width

README, FINDINGS = (
    " ".join((ROOT / page).read_text(encoding="utf-8").split()) for page in ("README.md", "bandit/FINDINGS.md")
)
BASE = pd.read_csv(ROOT / "bandit/sweep/robustness-seeds.csv").query("alternative == 'base'")
ENTROPY = pd.read_csv(ROOT / "bandit/plasticity/ENTROPY.csv").query("at == 'coefficient' and seed < 5")
DRAWS, DRAWS_AGAIN = (pd.read_csv(ROOT / "bandit/sweep/draws.csv").query(f"seed {run} 5") for run in ("<", ">="))
SHIFT = [pd.read_csv(ROOT / f"bandit/shift/RESULTS{again}.csv") for again in ("", "-again")]
FEW, FEW_SELECTION = (
    pd.read_csv(ROOT / "bandit/sequences/FEW-TOKENS.csv").query(f"role == '{role}'") for role in ("report", "selection")
)
RUNS = ("first", "again")


def spread(values: pd.Series, digits: int = 1) -> str:
    return f"{values.mean():z.{digits}f} ± {half_width(values):.{digits}f}"


def both(first: pd.Series, second: pd.Series) -> str:
    """A run's mean and interval, and in parentheses the second run's."""
    return f"{spread(first)} ({spread(second)})"


def at(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows with these values, by seed; each seed has one."""
    for name, value in values.items():
        table = table[table[name].isin([value]) if isinstance(value, str) else np.isclose(table[name], value)]
    assert len(table)
    assert table["seed"].is_unique
    return table.set_index("seed")


@pytest.mark.parametrize(
    ("row", "method", "beta"),
    [
        ("No regularizer", "none", 0),
        ("Forward KL", "forward_kl", 0.003),
        ("Jensen-Shannon", "jensen_shannon", 0.3),
        ("Reverse KL", "reverse_kl", 0.1),
        ("Entropy", "entropy", 0.1),
        ("CoKL", "cokl", 0.03),
        ("Replay", "correct_forward_kl", 0.03),
    ],
)
def test_readme_shows_each_method_of_the_controlled_experiment(row, method, beta):
    renamed = ENTROPY.rename(columns={"coverage_at_64": "coverage"})
    rows = at(renamed if method == "correct_forward_kl" else BASE, method=method, beta=beta)
    cells = [spread(rows["p_correct"], 3), spread(rows["coverage"], 3), spread(rows["conditional_kl"], 2)]
    assert f"| {row} | {' | '.join(cells)} |" in README


def test_readme_says_what_cokl_gains_and_loses_in_the_simulator():
    coverage = at(BASE, method="cokl", beta=0.03)["coverage"] - at(BASE, method="entropy", beta=0.1)["coverage"]
    told = f"64 draws with CoKL find {spread(coverage * 100)} points more of all correct answers"
    assert f"{told} than with an entropy bonus |" in README
    few = at(DRAWS, method="entropy", beta=0.1)["coverage_at_8"] - at(DRAWS, method="cokl", beta=0.03)["coverage_at_8"]
    assert f"With 8 draws instead of 64, CoKL finds {spread(few * 100)} points fewer than the entropy bonus." in README
    assert f"with 8 the entropy bonus covers {spread(few, 3)} (" in FINDINGS
    equal = [
        at(part, method="entropy", beta=0.1)["coverage_at_8"] - at(part, method="cokl", beta=0.05)["coverage_at_8"]
        for part in (DRAWS, DRAWS_AGAIN)
    ]
    told = "At equal correctness those two are hardly told apart: "
    assert f"{told}{spread(equal[0], 3)} and {spread(equal[1], 3)}." in FINDINGS
    after = [at(ENTROPY, method=name, beta=beta)["plasticity"] for name, beta in (("cokl", 0.05), ("entropy", 0.1))]
    assert f"minus 0.61 (entropy at 0.1) | {spread(after[0] - after[1], 3)} (" in FINDINGS
    (declared,) = re.findall(r"the declared measurement \| 0\.(\d+) ± 0\.(\d+) \(", FINDINGS)
    mean, half_width = (f"{int(digits) / 10:.1f}" for digits in declared)
    four = re.findall(r"\| at [^|]* \| (0\.\d+) ± ", FINDINGS.partition("plasticity, narrowed-2 |")[2])[:4]
    least, _, most, highest = sorted(100 * float(number) for number in four)
    assert f"{highest:.1f}" == mean
    told = f"mean reward is {mean} ± {half_width} points higher after CoKL than after an entropy bonus"
    assert f"{told}; in three other measurements {least:.1f} to {most:.1f} |" in README
    (moved,) = re.findall(r"\| moved-2 \| (.*?) \|(?= 1\.)", FINDINGS)
    *others, reference = ([float(number) for number in cell.split(" ± ")] for cell in moved.split(" | "))
    from_there = f"from there mean reward is {100 * reference[0]:.1f} ± {100 * reference[1]:.1f} points"
    assert f"{from_there}, after any method {100 * max(others)[0]:.1f} at most" in README
    raw = [
        at(table, mode="sampled", method="reverse_kl", beta=0.3)[["prior_correct", "new_correct"]].mean(axis=1) * 100
        - at(table, mode="sampled", method="cokl", beta=0.3)[["prior_correct", "new_correct"]].mean(axis=1) * 100
        for table in (part[part["kl_prompts"].isin([8, 16])] for part in SHIFT)
    ]
    assert f"one choice among 64: CoKL ends {spread(raw[0])} points below reverse KL" in README
    assert f"CoKL ends {both(*raw)} *raw* points below reverse KL" in FINDINGS


def test_how_plastic_entropy_and_cokl_are_at_other_coefficients():
    told = [
        [spread(at(ENTROPY, method=name, beta=beta)[column], 3) for column in ("p_correct", "plasticity")]
        for name, beta in (("entropy", 0.2), ("cokl", 0.3), ("cokl", 0.03))
    ]
    entropy, most, more_correct = told
    assert f"Entropy at 0.2, at a correctness of {entropy[0]}, comes to a plasticity of {entropy[1]}" in FINDINGS
    assert f"CoKL's most is {most[1]}, at {most[0]}. CoKL falls as well where it is more correct" in FINDINGS
    assert f"to {more_correct[1]} at {more_correct[0]}" in FINDINGS
    bonus = spread(at(ENTROPY, method="entropy", beta=0.2)["coverage_at_64"], 3)
    assert f"at 0.2 it covers {bonus}, and is right in {entropy[0]}. CoKL covers" in README
    cokl = ENTROPY.query("method == 'cokl'").groupby("beta")[["coverage_at_64", "p_correct"]].mean()
    covered, right = cokl.loc[0.5]
    assert cokl["coverage_at_64"].idxmax() == cokl.index.max() == 0.5
    assert f"CoKL covers {covered:.3f} at most, at {right:.3f} and a coefficient of 0.5 (not in" in README
    assert most[1] == max(
        (spread(rows["plasticity"], 3) for _, rows in ENTROPY.query("method == 'cokl'").groupby("beta")), key=str
    )


def test_overall_at_equal_coefficients():
    """Above zero in one run at 30 and 100 in samples, and at no coefficient up to 10."""

    def lead(table: pd.DataFrame, mode: str, beta: float) -> pd.Series:
        ends = [
            at(table, mode=mode, method=name, beta=beta, kl_prompts=prompts)["overall"]
            for name, prompts in (("cokl", 8), ("correct_forward_kl", 16))
        ]
        return ends[0] - ends[1]

    for beta in (10, 30, 100):
        cells = [both(*(lead(table, mode, beta) for table in SHIFT)) for mode in ("sampled", "exact")]
        assert f"| {beta} | {' | '.join(cells)} |" in FINDINGS
    below = [lead(table, mode, beta).mean() for table in SHIFT for mode in ("sampled", "exact") for beta in BETAS]
    assert max(below) < 0
    told_apart = [
        [lead(table, "sampled", beta).mean() > half_width(lead(table, "sampled", beta)) for beta in (30, 100)]
        for table in SHIFT
    ]
    assert told_apart == [[True, True], [False, False]]


BETAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


def few_tokens(size: int, beta: float, column: str) -> list[pd.Series]:
    """CoKL minus replay in each run, raw points."""
    ends = [
        [at(FEW, run=run, group_size=size, method=name, beta=beta) for name in ("cokl", "correct_forward_kl")]
        for run in RUNS
    ]
    columns = ["prior_correct", "new_correct"] if column == "overall" else [column]
    return [100 * (cokl[columns].mean(axis=1) - replay[columns].mean(axis=1)) for cokl, replay in ends]


def test_where_few_tokens_decide():
    for size in (8, 2):
        overall = []
        for beta, name in ((1e-4, "1e-4"), (3e-4, "3e-4"), (1e-3, "1e-3")):
            cells = [both(*few_tokens(size, beta, column)) for column in ("prior_correct", "new_correct")]
            assert f"| {size} | {name} | {' | '.join(cells)} |" in FINDINGS
            overall.append(both(*few_tokens(size, beta, "overall")))
        assert f"| {size} | {' | '.join(overall)} |" in FINDINGS


def test_few_tokens_are_equal_within_the_margin_that_is_told():
    from scipy import stats

    ends = [
        end
        for size in (8, 2)
        for lead in few_tokens(size, 1e-4, "prior_correct")
        for end in stats.t.interval(0.9, len(lead) - 1, lead.mean(), stats.sem(lead))
    ]
    assert f"reach from {min(ends):.1f} to {max(ends):.1f} over the four runs" in FINDINGS
    assert f"equal within {max(map(abs, ends)):.1f} points at the least coefficient tried; at larger ones" in README
    more = [lead.mean() for size in (8, 2) for beta in (3e-4, 1e-3) for lead in few_tokens(size, beta, "prior_correct")]
    assert f"at larger ones CoKL ends {-max(more):.1f} to {-min(more):.1f} points below replay |" in README


def test_what_is_gained_over_plain_rl_where_few_tokens_decide():
    """At 1e-4 in both runs: the mean of both tasks, and for CoKL in groups of 2 each task."""
    tasks = ["prior_correct", "new_correct"]

    def points(rows: pd.DataFrame, method: str, size: int) -> pd.DataFrame:
        beta = 0 if method == "none" else 1e-4
        chosen = rows[(rows["method"] == method) & (rows["beta"] == beta) & (rows["group_size"] == size)]
        return 100 * chosen.set_index(["run", "seed"])[tasks]

    gains = {
        (method, size): points(FEW, method, size) - points(FEW, "none", size)
        for method in ("cokl", "correct_forward_kl")
        for size in (2, 8)
    }
    assert {len(gain.dropna()) for gain in gains.values()} == {120}
    cokl_2, cokl_8, replay_2, replay_8 = (spread(gain.mean(axis=1)) for gain in gains.values())
    assert f"CoKL at 1e-4 ends {cokl_2} points above plain RL in groups of 2 and {cokl_8} in groups of 8" in FINDINGS
    assert f"Replay ends {replay_2} and {replay_8} points above plain RL." in FINDINGS
    kept, learned = gains["cokl", 2].mean()
    assert f"it keeps {kept:.1f} points more of the old task and learns {-learned:.1f} less of the new" in FINDINGS
    told = [
        f"{points(FEW_SELECTION, method, size).mean().mean():.1f}" for size in (8, 2) for method in ("cokl", "none")
    ]
    assert "seen in groups of 8, {} and {}, and not in groups of 2, {} and {}.".format(*told) in FINDINGS


def test_diversity_with_answers_of_many_tokens_stands_wherever_diversity_is_claimed():
    told = re.search(
        r"keeps more different correct answers than CoKL: (6\.9 ± 1\.0) \(7\.0 ± 2\.3\) more of 64", FINDINGS
    )
    assert told
    assert f"{told[1]} more different correct answers of 64 than" in README


def test_twelve_tokens_in_readme_are_the_declared_comparison_of_the_logbook():
    logbook = (ROOT / "REPRODUCTION.md").read_text(encoding="utf-8")
    first, second = re.findall(r"at equal adaptation \(sampled\): -(\S+ ± \S+) points", logbook)
    assert f"it is -{first} (-{second}). Replay" in FINDINGS
    assert f"CoKL ends {first} points below replay on the old task, where both learn the new one alike" in README
