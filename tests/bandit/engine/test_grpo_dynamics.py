"""Expected GRPO with a reverse-KL penalty follows Mroueh's recurrence of the success probability, to its fixed point.

With G responses the mean advantages are those of infinitely large groups up to O(1 / G), so that is what is seen.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bandit.engine.sampled import expected_grpo_logit_gradient
from cokl import methods
from cokl.policy import CorrectSet, Policy
from tests.oracles.grpo_dynamics import fixed_point, next_success

CORRECT = CorrectSet.from_mask(torch.tensor([[[True, False, True, False, False]]]))
BETA = 4.0


@pytest.fixture(autouse=True)
def _without_clipping(monkeypatch):
    """It has no part in the recurrence: its range is as wide as it goes."""
    monkeypatch.setattr("cokl.grpo.CLIP", 1 - 1e-9)


def tilted(reference: Policy, mass: float) -> Policy:
    """The reference with its correct actions scaled to this mass: what every round's maximiser is."""
    odds = torch.logit(torch.tensor(mass, dtype=torch.float64)) - torch.logit(reference.mass)
    return Policy(reference.logits + odds[..., None] * CORRECT.mask, CORRECT)


def reference() -> Policy:
    return Policy(torch.tensor([[[0.3, 1.0, -0.5, 0.4, 0.9]]], dtype=torch.float64), CORRECT)


def slope(policy: Policy, behavior: Policy, group_size: int) -> Tensor:
    """Logit gradient of the expected -J_GRPO + beta * KL(pi || pi_ref)."""
    penalty = methods.get("reverse_kl").logit_gradient(policy, reference(), BETA)
    return expected_grpo_logit_gradient(policy, behavior, group_size) + penalty


@pytest.mark.parametrize("start", [0.25, 0.35, 0.6])
def test_a_round_ends_where_the_recurrence_says(start):
    behavior = tilted(reference(), start)
    end = tilted(reference(), next_success(start, float(reference().mass), BETA))
    residuals = [float(slope(end, behavior, size).abs().max()) for size in (50, 200, 800)]
    moved = float(slope(behavior, behavior, 800).abs().max())
    assert residuals[2] < 0.01 * moved
    # what is left is the O(1 / G) of finite groups
    assert residuals[0] / residuals[1] == pytest.approx(4, rel=0.1)
    assert residuals[1] / residuals[2] == pytest.approx(4, rel=0.1)


def test_a_round_that_ends_elsewhere_is_told_apart():
    behavior = tilted(reference(), 0.35)
    wrong = tilted(reference(), next_success(0.35, float(reference().mass), 1.1 * BETA))
    assert float(slope(wrong, behavior, 800).abs().max()) > 0.01


def test_on_policy_training_ends_at_the_fixed_point():
    expected = fixed_point(float(reference().mass), BETA)
    assert next_success(expected, float(reference().mass), BETA) == pytest.approx(expected, abs=1e-12)
    logits = reference().logits.clone()
    for _ in range(400):
        policy = Policy(logits, CORRECT)
        logits = logits - 0.5 * slope(policy, policy, 1000)
    assert float(slope(policy, policy, 1000).abs().max()) < 1e-9
    assert float(policy.mass) == pytest.approx(expected, abs=1e-3)
    assert expected > float(reference().mass) + 0.05  # success is amplified
    torch.testing.assert_close(policy.conditional_probs, reference().conditional_probs)
