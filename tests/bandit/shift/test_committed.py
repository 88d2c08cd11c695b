"""What FINDINGS says of CoKL's baseline in the task shift, recomputed from the committed seeds of both runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.oracles.scores import written

SEEDS = pd.read_csv("bandit/shift/BASELINE.csv")
SECTION = Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("\n## A baseline for")[1].split("\n## ")[0]
DIGITS = {"retention": 1, "adaptation": 1, "overall": 1, "prior_pass_at_k": 3, "conditional_kl": 3}


def change(run: str, beta: float, score: str) -> list[float]:
    """With the baseline minus without, a number per seed."""
    rows = SEEDS[(SEEDS["run"] == run) & (SEEDS["beta"] == beta)].sort_values("seed")
    on, off = (rows.loc[rows["baseline"] == which, score].tolist() for which in ("on", "off"))
    assert len(on) == len(off) == 5
    return [one - other for one, other in zip(on, off, strict=True)]


@pytest.mark.parametrize("beta", [0.3, 1, 3])
def test_a_row_of_the_baselines_table_is_of_the_committed_seeds(beta):
    cells = [f"{beta:g}"]
    for score, digits in DIGITS.items():
        first, again = (written(change(run, beta, score), digits) for run in ("first", "again"))
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
