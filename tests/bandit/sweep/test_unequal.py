"""Every verdict of a sweep from a table in which nothing equals anything else, written down by hand.

Four seeds differ by -a, 0, 0 and a, so that half of the 95% interval is 3.182446 * sqrt(2 / 3) / 2 * a = 1.29922 a.
"""

from __future__ import annotations

import math

import pandas as pd

from bandit.sweep.analysis import Scored, analyse, judge, matched_coefficients
from bandit.sweep.config import SweepConfig
from tests.bandit.same import page_and_screen

PATTERN = (-1.0, 0.0, 0.0, 1.0)
LAST = {
    ("none", 0.0): ((0.98, 0.002), (0.10, 0.004), (0.12, 0.0), (5.0, 0.3)),
    ("entropy", 0.02): ((0.962, 0.001), (0.35, -0.02), (0.45, 0.0), (2.0, 1.4)),
    ("entropy", 0.2): ((0.80, 0.003), (0.55, 0.01), (0.65, 0.01), (1.5, 0.1)),
    ("forward_kl", 0.03): ((0.968, 0.0), (0.20, 0.005), (0.22, 0.0), (3.0, 0.0)),
    ("forward_kl", 0.3): ((0.96, 0.0), (0.90, 0.01), (0.92, 0.01), (0.01, 0.0)),
    ("cokl", 0.01): ((0.970, 0.0), (0.30, 0.01), (0.40, 0.0), (1.0, 0.0)),
    ("cokl", 0.1): ((0.955, 0.002), (0.50, 0.01), (0.60, 0.1), (0.30, 0.02)),
}
"""Mean and a of correctness, coverage, coverage under pi+ and conditional KL at step 200."""
MIDDLE = {
    "none": (0.5, 0.0, 0.3, 1.0),
    "entropy": (0.5, 0.001, 0.62, 0.8),
    "forward_kl": (0.6, 0.0, 0.50, 1.2),
    "cokl": (0.4, 0.0, 0.60, 0.2),
}
"""Correctness, a of coverage, coverage and conditional KL at step 100."""
METRICS = ("p_correct", "coverage_at_16", "coverage_at_16_correct", "conditional_kl")


def table() -> pd.DataFrame:
    """Forward KL's larger coefficient, which nothing would beat, diverged on one seed at step 150."""
    lines = []
    for seed, sign in enumerate(PATTERN):
        start = dict(zip(METRICS, (0.1 + 0.01 * seed, 0.8, 0.85, 0.0), strict=True))
        lines.append({"seed": seed, "method": "reference", "beta": 0.0, "step": 0, **start})
        for (method, beta), last in LAST.items():
            run = {"seed": seed, "method": method, "beta": beta}
            correct, a, coverage, kl = MIDDLE[method]
            middle = (correct, coverage + a * sign, coverage, kl)
            end = tuple(mean + spread * sign for mean, spread in last)
            lost = (method, beta, seed) == ("forward_kl", 0.3, 1)
            rows = [(0, tuple(start.values())), (100, middle), (150, (math.nan,) * 4) if lost else (200, end)]
            lines += [{**run, "step": step, **dict(zip(METRICS, values, strict=True))} for step, values in rows]
    return pd.DataFrame(lines)


def test_every_claim_is_judged_on_its_own_rows():
    assert matched_coefficients(table()) == {"entropy": 0.02, "forward_kl": 0.03, "cokl": 0.1}
    found = [(claim.primary.text, claim.verdict) for claim in judge(Scored.of(table()))]
    assert found == [
        ("correctness 0.9800 ± 0.0026, coverage 0.1000 ± 0.0052 (95% intervals)", "held"),
        (
            "by means, 2 of CoKL's 2 coefficients are not dominated; CoKL dominates 1 of the others' 3 points",
            "held",
        ),
        (
            "by means, 2 of CoKL's 2 coefficients are not dominated; CoKL dominates 3 of the others' 3 points",
            "held",
        ),
        (
            "CoKL 0.500; next Entropy 0.350; higher by 0.150 ± 0.039, in 4 of 4 seeds; correctness 0.955 to 0.968",
            "held",
        ),
        (
            "CoKL 0.600; next Entropy 0.450; higher by 0.150 ± 0.130, in 4 of 4 seeds; correctness 0.955 to 0.968",
            "held",
        ),
        (
            "CoKL 0.300; next Entropy 2.000; lower by 1.700 ± 1.793, in 4 of 4 seeds; correctness 0.955 to 0.968",
            "undecided",
        ),
        (
            "ahead of every other, each interval above 0, at 1 of 2 evaluated steps; behind at step 100",
            "not held",
        ),
        (
            "ahead of every other, each interval above 0, at 1 of 2 evaluated steps; undecided at step 200",
            "undecided",
        ),
    ]


def test_a_method_far_from_cokls_correctness_is_no_rival_at_the_match():
    """Entropy at 0.2 alone has a correctness of 0.80 and more coverage than CoKL's 0.50; then forward KL as well."""
    far = table().query("method != 'entropy' or beta == 0.2")
    claims = judge(Scored.of(far))
    assert claims[3].primary.text.startswith("CoKL 0.500; next Forward KL 0.200; higher by 0.300")
    assert claims[3].verdict == "held"
    text, _ = page_and_screen(analyse({"sweep": far}, SweepConfig()))
    assert "Not comparable, since more than 0.03 away from CoKL's correctness: Entropy." in text
    lost = table().query("method != 'forward_kl' or beta == 0.3")  # it diverged, which is not to be far
    assert "Not comparable" not in page_and_screen(analyse({"sweep": lost}, SweepConfig()))[0]
    alone = far.query("method != 'forward_kl'")
    assert [claim.verdict for claim in judge(Scored.of(alone))[3:]] == [None] * 5
    assert "There is nothing to compare" in analyse({"sweep": alone}, SweepConfig()).answer


def test_the_page_says_what_was_left_out_and_prints_each_verdict_once():
    text, _ = page_and_screen(analyse({"sweep": table()}, SweepConfig()))
    assert "Seeds: 4; steps: 200." in text
    assert "1 of 28 runs diverged (forward_kl at beta 0.3, seed 1, at step 150)" in text
    verdicts = [line.rpartition(": ")[2] for line in text.splitlines() if line.startswith("### ")]
    assert verdicts == ["held"] * 5 + ["undecided", "not held", "undecided"]
