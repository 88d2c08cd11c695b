"""What FINDINGS says of CoKL's baseline for its second term, recomputed from the committed seeds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.oracles.scores import written

SEEDS = pd.read_csv("bandit/shift/BASELINE.csv")
SECTION = Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("\n## A baseline for")[1].split("\n## ")[0]
DIGITS = {"retention": 1, "adaptation": 1, "overall": 1, "prior_pass_at_k": 3, "conditional_kl": 3}


def change(rows: pd.DataFrame, score: str, seeds: int = 5) -> list[float]:
    """With the baseline minus without, a number per seed."""
    rows = rows.sort_values("seed")
    on, off = (rows.loc[rows["baseline"] == which, score].tolist() for which in ("on", "off"))
    assert len(on) == len(off) == seeds
    return [one - other for one, other in zip(on, off, strict=True)]


def at(table: pd.DataFrame, run: str, beta: float) -> pd.DataFrame:
    return table[(table["run"] == run) & (table["beta"] == beta)]


@pytest.mark.parametrize("beta", [0.3, 1, 3])
def test_a_row_of_the_baselines_table_is_of_the_committed_seeds(beta):
    cells = [f"{beta:g}"]
    for score, digits in DIGITS.items():
        first, again = (written(change(at(SEEDS, run, beta), score), digits) for run in ("first", "again"))
        cells.append(f"{first} ({again})")
    assert f"| {' | '.join(cells)} |" in SECTION


def test_without_the_baseline_they_are_the_runs_of_the_labs_own_pages():
    without = SEEDS[SEEDS["baseline"] == "off"]
    for run, page in (("first", "RESULTS"), ("again", "RESULTS-again")):
        lab = pd.read_csv(f"bandit/shift/{page}.csv")
        lab = lab[(lab["mode"] == "sampled") & (lab["method"] == "cokl") & (lab["kl_prompts"] == 8)]
        both = without[without["run"] == run].merge(lab, on=["beta", "seed"], suffixes=("", "_lab"))
        assert len(both) == 15
        assert (both["retention"] - both["retention_lab"]).abs().max() < 1e-3


def test_the_sequences_sentence_is_of_the_committed_seeds():
    seeds = pd.read_csv("bandit/sequences/BASELINE.csv")
    shown = []
    for score in ("prior_correct", "new_correct"):
        for beta in (0.1, 0.3):
            runs = (change(at(seeds, run, beta), score, 8) for run in ("first", "again"))
            first, again = (written([100 * value for value in values], 1) for values in runs)
            shown.append(f"{first} ({again})")
    prior, prior_more, new, new_more = shown
    sentence = f"accuracy changes by {prior} and {prior_more} points, the new one's by {new} and {new_more}"
    assert sentence in " ".join(SECTION.split())


def test_the_finite_groups_sentence_is_of_the_committed_seeds():
    seeds = pd.read_csv("bandit/finite_group/BASELINE.csv")
    by_size = {size: seeds[seeds["group_size"] == size] for size in (2, 8, 64)}
    two, eight, most = (written(change(rows, "conditional_kl"), 3) for rows in by_size.values())
    sentence = f"changes by {two} nats with G = 2, {eight} with 8 and {most} with 64"
    assert sentence in " ".join(SECTION.split())
    assert max(abs(sum(change(rows, "coverage_at_64"))) / 5 for rows in by_size.values()) < 0.0015
