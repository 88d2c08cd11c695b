"""What each claim of the shift lab prints, recomputed from a table in which no two scores are alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bandit.shift.claims import PAPER_CLAIMS, Views, judge
from bandit.shift.scores import Scored
from cokl.support.verdicts import Claim
from tests.bandit.shift.tables import POINTS, SEEDS, shift_table
from tests.oracles.intervals import half_width

WANTED: dict[str, list[tuple[str, str, float, str | None, float]]] = {
    "overall": [
        ("overall", "cokl", 1.0, name, beta)
        for name, beta in (
            ("forward_kl", 1.0),
            ("correct_forward_kl", 1.0),
            ("reverse_kl", 0.001),
            ("correct_reverse_kl", 0.001),
        )
    ],
    "pattern": [(score_, "cokl", 1.0, "correct_forward_kl", 1.0) for score_ in ("overall", "retention", "adaptation")],
    "reverse": [
        ("retention", "forward_kl", 1.0, "reverse_kl", 0.001),
        ("retention", "correct_forward_kl", 1.0, "correct_reverse_kl", 0.001),
    ],
    "constrained": [
        ("adaptation", "reverse_kl", 0.001, "forward_kl", 1.0),
        ("adaptation", "correct_reverse_kl", 0.001, "correct_forward_kl", 1.0),
    ],
    "search": [
        ("overall", name, chosen, name, other)
        for name, chosen, others in (
            ("forward_kl", 1.0, (0.1, 10.0)),
            ("correct_forward_kl", 1.0, (0.1, 10.0)),
            ("reverse_kl", 0.001, (0.01, 1.0)),
            ("correct_reverse_kl", 0.001, (0.01, 1.0)),
        )
        for other in others
    ],
    "term 2": [("adaptation", "cokl", 1.0, "correct_forward_kl", 1.0)],
    "floor": [("overall", "cokl", 1.0, "cokl_floor", 1.0)],
    "beta": [("retention", "cokl", 10.0, "cokl", 0.1), ("adaptation", "cokl", 0.1, "cokl", 10.0)],
    "dynamics": [
        ("retention", "cokl", 1.0, None, 0.0),
        ("adaptation", "cokl", 1.0, "none", 0.0),
    ],
    "level": [("retention", "cokl_without_term1", 1.0, None, 0.0)],
}
"""A claim, and of what its primary measurement is the difference: a score of one run minus another's."""


@pytest.fixture(scope="module")
def noisy() -> pd.DataFrame:
    """Every method of the lab; no two scores alike, and without term 1 some seeds retain less than nothing."""
    collapsed = {beta: (prior - 0.04, *rest) for beta, (prior, *rest) in POINTS["cokl_without_term1"].items()}
    table = shift_table({**POINTS, "cokl_without_term1": collapsed}, jitter=0.03, batches=(16, 8, 32, 64))
    return table.assign(zero_correct_rate=np.random.default_rng(1).random(len(table)))


@pytest.fixture(scope="module")
def noisy_claims(noisy) -> list[Claim]:
    """What is judged on it."""
    return judge(Views(Scored.of(noisy)))


def seeds_scores(table: pd.DataFrame, method: str, beta: float, prompts: int = 16) -> dict[str, np.ndarray]:
    """Each reported seed's scores: linearised around the ratio of means."""
    last = table[(table["role"] == "report") & ((table["step"] == 20) | (table["method"] == "base"))]

    def of(name: str, at: float, column: str, batch: int) -> np.ndarray:
        rows = last[(last["method"] == name) & (last["beta"] == at) & (last["kl_prompts"] == batch)]
        return rows.sort_values("seed")[column].to_numpy()

    found = {}
    for name, column, zero, hundred in (
        ("retention", "prior_correct", "none", "base"), ("adaptation", "new_correct", "base", "none")
    ):  # fmt: skip
        value, low, high = (
            of(method, beta, column, 0 if beta == 0 else prompts),
            of(zero, 0, column, 0),
            of(hundred, 0, column, 0),
        )
        span = high.mean() - low.mean()
        ratio = (value.mean() - low.mean()) / span
        found[name] = 100 * (ratio + (value - low - ratio * (high - low)) / span)
    return {**found, "overall": (found["retention"] + found["adaptation"]) / 2}


def written(values: np.ndarray, unit: str = "points") -> str:
    """A mean and its interval as a claim prints them."""
    digits = 1 if unit == "points" else 3
    return f"{values.mean():z.{digits}f} ± {half_width(values):.{digits}f} {unit}"


def named(claims: list[Claim], name: str) -> Claim:
    """The claim of this name, of which there is one."""
    (claim,) = [claim for claim in claims if claim.name == name]
    return claim


@pytest.mark.parametrize("name", WANTED)
def test_a_claim_prints_the_difference_that_the_paper_expects(name, noisy, noisy_claims):
    parts = named(noisy_claims, name).primary.text.split("; ")
    assert len(parts) == len(WANTED[name])
    for part, (column, one, at, other, there) in zip(parts, WANTED[name], strict=True):
        values = seeds_scores(noisy, one, at)[column]
        if other is not None:
            values = values - seeds_scores(noisy, other, there)[column]
        assert f" {written(values)}" in part


def test_what_is_not_a_difference_of_scores_is_printed_too(noisy, noisy_claims):
    """The ablation, the KL batches, the rollout groups and the drifts."""

    def printed(name: str) -> str:
        return named(noisy_claims, name).primary.text

    ours, without = (seeds_scores(noisy, name, 1.0)["retention"] for name in ("cokl", "cokl_without_term1"))
    assert (without < 0).any()
    assert " " + written(ours / 2 - np.maximum(without, 0)) in printed("collapse")
    batches = {size: seeds_scores(noisy, "cokl", 1.0, size)["retention"] for size in (8, 16, 32, 64)}
    assert printed("batches").endswith(f"32 minus with 8 prompts at beta 1: {written(batches[32] - batches[8])}")
    secondary = named(noisy_claims, "batches").secondary
    assert [one.text.rpartition("prompts at beta 1: ")[2].rpartition(" (")[0] for one in secondary] == [
        written(batches[16] - batches[8]), written(batches[32] - batches[16])
    ]  # fmt: skip
    assert " " + written(batches[64] - batches[8]) in printed("larger batches")
    reported = noisy[noisy["role"] == "report"]
    ours_ = reported[(reported["method"] == "cokl") & (reported["beta"] == 1) & (reported["kl_prompts"] == 16)]
    rates = ours_[ours_["step"] > 0].groupby("seed")["zero_correct_rate"].mean().to_numpy()
    assert " " + written(50 - 100 * rates) in printed("zero-correct")
    grpo = reported[(reported["method"] == "none") & (reported["step"] == 20)].sort_values("seed")
    drifts = (grpo["correct_drift"] - grpo["mass_drift"]).to_numpy()
    assert " " + written(drifts, "nats") in printed("drift")
    assert set(SEEDS["report"]) == set(grpo["seed"])
    equal = [name for name in PAPER_CLAIMS if "equal means within 5" in printed(name)]
    assert equal == ["pattern", "dynamics"]
