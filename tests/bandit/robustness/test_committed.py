"""What FINDINGS says of what the sweep's verdicts rest on is on the committed page, or follows from committed seeds."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from tests.oracles.scores import written

LAB = Path("bandit/robustness")
WHOLE = Path("bandit/FINDINGS.md").read_text(encoding="utf-8")
SECTION = WHOLE.split("\n## What the controlled experiment's verdicts rest on")[1].split("\n## ")[0]


def behind(beta: float, first_seed: int) -> str:
    """CoKL at a coefficient minus the entropy bonus at 0.1 in coverage@8, without its sign."""
    seeds = pd.read_csv(LAB / "DRAWS.csv")
    seeds = seeds[seeds["seed"].between(first_seed, first_seed + 4)].sort_values("seed")
    ours, theirs = (
        seeds.loc[(seeds["method"] == method) & (seeds["beta"] == at), "coverage_at_8"].tolist()
        for method, at in (("cokl", beta), ("entropy", 0.1))
    )
    assert len(ours) == len(theirs) == 5
    return written([other - one for one, other in zip(ours, theirs, strict=True)], 3)


def test_what_is_said_of_eight_draws_is_of_the_committed_seeds():
    section = " ".join(SECTION.split())
    assert f"(-{behind(0.03, 0)}). Seeds 5 to 9: -{behind(0.03, 5)} (" in section
    assert f"lower by {behind(0.05, 0)} in the sweep and by {behind(0.05, 5)} on the other seeds" in section


def test_every_other_interval_is_on_the_committed_page():
    exact = re.findall(r"(\d+\.\d+) ± (\d+\.\d+)", (LAB / "RESULTS.md").read_text(encoding="utf-8"))
    known = {f"{float(a):.{digits}f} ± {float(b):.{digits}f}" for a, b in exact for digits in (2, 3)}
    known |= {behind(0.03, 5), behind(0.05, 0), behind(0.05, 5)}
    shown = re.findall(r"\d+\.\d+ ± \d+\.\d+", SECTION)
    assert len(shown) > 8
    assert [interval for interval in shown if interval not in known] == []
