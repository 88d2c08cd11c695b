"""What FINDINGS says of the sequences, recomputed from every seed's row in RESULTS.csv, both runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.oracles import scores
from tests.oracles.scores import select, written

LAB = Path("bandit/sequences")
COMMITTED = pd.read_csv(LAB / "RESULTS.csv")
SECTION = Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("\n## Sequences\n")[1].split("\n## ")[0]
INTERVAL = re.compile(r"\d+\.\d+ ± \d+\.\d+")


def of(run: str) -> list[scores.Row]:
    kept = COMMITTED[COMMITTED["run"] == run].sort_values("seed", kind="stable")
    return scores.scored(kept.to_dict("records"))  # type: ignore[arg-type]


def moved(run: str, column: str) -> list[float]:
    ends = {method: select(of(run), role="report", method=method) for method in ("base", "none")}
    return [grpo[column] - base[column] for base, grpo in zip(ends["base"], ends["none"], strict=True)]


def lead(run: str, rival: str, column: str) -> list[float]:
    alike = scores.at_equal_adaptation(of(run), [column])
    pairs = zip(select(alike, method="cokl"), select(alike, method=rival), strict=True)
    return [ours[column] - theirs[column] for ours, theirs in pairs]


REPLAY, WITHOUT_TERM_1 = "correct_forward_kl", "cokl_without_term1"
SENTENCES: dict[str, tuple[Callable[[str], list[float]], float, int]] = {
    "forgets {} ({})": (lambda run: moved(run, "prior_correct"), -1, 3),
    "learns {} ({})": (lambda run: moved(run, "new_correct"), 1, 3),
    "by {} points ({})": (lambda run: lead(run, REPLAY, "prior_correct"), -100, 1),
    "does not reverse it:** {} ({})": (lambda run: lead(run, REPLAY, "prior_pass_at_k"), 1, 3),
    "conditional KL {} nats more than replay's ({})": (lambda run: lead(run, REPLAY, "conditional_kl"), 1, 3),
    "entropy of the correct answers {} nats more ({})": (lambda run: lead(run, REPLAY, "conditional_entropy"), 1, 3),
    "conditional KL is {} nats larger than CoKL's ({})": (
        lambda run: lead(run, WITHOUT_TERM_1, "conditional_kl"),
        -1,
        1,
    ),
    "accuracy {} points lower ({})": (lambda run: lead(run, WITHOUT_TERM_1, "prior_correct"), 100, 1),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_of_the_findings_is_of_the_committed_seeds(sentence):
    measure, scale, digits = SENTENCES[sentence]
    shown = []
    for run in ("first", "again"):
        values = [scale * value for value in measure(run)]
        assert len(values) == 8
        shown.append(written(values, digits))
    assert sentence.format(*shown) in " ".join(SECTION.split())


def test_every_interval_of_the_findings_is_in_a_committed_page():
    pages = "".join((LAB / name).read_text(encoding="utf-8") for name in ("RESULTS.md", "RESULTS-again.md"))
    exact = re.findall(r"(\d+\.\d+) ± (\d+\.\d+)", pages)
    known = {f"{scale * float(a):.1f} ± {scale * float(b):.1f}" for a, b in exact for scale in (1, 100)}
    shown = INTERVAL.findall(SECTION.replace("-35.6 ± 23.1 and -92.9 ± 209.0", ""))
    assert len(shown) >= 20
    assert [interval for interval in shown if interval not in known | set(INTERVAL.findall(pages))] == []
