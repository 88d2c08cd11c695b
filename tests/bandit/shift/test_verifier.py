"""A verifier that errs, against its definition: Z the expected success, pi+ proportional to pi times its chance."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bandit.engine.sampled import Responses
from bandit.shift.config import ShiftConfig
from bandit.shift.train import Verifier
from cokl import methods, regularizers
from cokl.decomposition import decompose_kl
from cokl.metrics import correctness
from cokl.policy import CorrectSet, Policy
from cokl.support.errors import InputError

RIGHT = torch.tensor([True, False, False, True, False])
RATES = [(0.3, 0.8), (0.0, 0.6), (0.5, 1.0)]


def log_probs(seed: int) -> Tensor:
    """Of five responses."""
    return torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)


def succeeding(log_policy: Tensor, rates: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Z, and pi+ of each response."""
    joint = log_policy.exp() * torch.where(RIGHT, rates[1], rates[0])
    return joint.sum(), joint / joint.sum()


def divergence(ours: Tensor, theirs: Tensor) -> Tensor:
    """D_KL, over what `ours` has."""
    kept = ours > 0
    return (ours[kept] * (ours[kept] / theirs[kept]).log()).sum()


@pytest.mark.parametrize("rates", RATES)
def test_mass_and_drifts_are_those_of_success(rates):
    now, old = log_probs(0), log_probs(1)
    policy, reference = (Policy(one, CorrectSet.from_mask(RIGHT)) for one in (now, old))
    outcomes = Verifier(*rates).outcomes
    (mass, given), (old_mass, old_given) = succeeding(now, rates), succeeding(old, rates)
    torch.testing.assert_close(correctness(outcomes(policy)), mass)
    torch.testing.assert_close(
        regularizers.get("cokl").value(outcomes(policy), outcomes(reference)), divergence(old_given, given)
    )
    drift = decompose_kl(outcomes(reference), outcomes(policy))
    torch.testing.assert_close(drift.correct, old_mass * divergence(old_given, given))
    both = [torch.stack([one, 1 - one]) for one in (old_mass, mass)]
    torch.testing.assert_close(drift.mass, divergence(*both))
    torch.testing.assert_close(drift.total, divergence(old.exp(), now.exp()))


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("name", ["cokl", "correct_forward_kl", "correct_reverse_kl"])
def test_gradients_are_those_of_the_soft_divergence(name, rates):
    old, leaf = log_probs(3), torch.randn(5, dtype=torch.float64, requires_grad=True)
    now = leaf.log_softmax(-1)
    (_, given), (_, old_given) = succeeding(now, rates), succeeding(old, rates)
    kept = old_given > 0
    value = {
        "cokl": lambda: divergence(old_given, given),
        "correct_forward_kl": lambda: -(old_given[kept] * now[kept]).sum(),
        "correct_reverse_kl": lambda: divergence(given, old_given),
    }[name]()
    expected = torch.autograd.grad(value, leaf)[0]
    policy, reference = (Policy(one[None, None], CorrectSet.from_mask(RIGHT[None])) for one in (now.detach(), old))
    outcomes = Verifier(*rates).outcomes
    pairs = methods.get(name).logit_gradient(outcomes(policy), outcomes(reference), 1.0)[0, 0]
    torch.testing.assert_close(pairs[:5] + pairs[5:], expected)


def test_verdicts_come_as_often_as_they_should():
    actions = torch.arange(5).repeat(1, 1, 4000)
    rewards = RIGHT.float()[actions]
    drawn = Responses(actions, rewards, rewards, rewards)
    numbers = torch.rand(1, 20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    verdicts = Verifier(0.3, 0.8).judge(drawn, numbers).rewards[0, 0]
    for right, share in ((True, 0.8), (False, 0.3)):
        assert verdicts[rewards[0, 0] == right].mean() == pytest.approx(share, abs=0.02)
    assert torch.equal(Verifier(0.0, 1.0).judge(drawn, numbers).rewards, rewards)


def test_a_verifier_that_prefers_wrong_answers_is_refused():
    with pytest.raises(InputError, match=r"success_of_wrong: expected less than success_of_right, 0\.3, got 0\.3"):
        ShiftConfig(success_of_wrong=0.3, success_of_right=0.3)
