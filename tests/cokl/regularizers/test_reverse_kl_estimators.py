"""What is said of the estimators of the sampled reverse KL, by enumeration and autograd on a small softmax policy."""

import itertools

import pytest
import torch

from cokl.groups import ResponseGroups, SurrogateConfig, surrogate_loss
from cokl.regularizers import with_options
from cokl.support.errors import InputError

LOGITS = torch.tensor([0.3, -0.8, 1.1, 0.0], dtype=torch.float64)
REFERENCE = torch.tensor([-0.2, 0.9, 0.1, -1.0], dtype=torch.float64).log_softmax(-1)


def gradient(loss) -> torch.Tensor:
    """Of a function of the policy's log-probabilities (A,), with respect to the logits."""
    logits = LOGITS.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(logits.log_softmax(-1)), logits)
    return found


REVERSE = gradient(lambda log_probs: (log_probs.exp() * (log_probs - REFERENCE)).sum())
FORWARD = gradient(lambda log_probs: (REFERENCE.exp() * (REFERENCE - log_probs)).sum())


def expected(loss_of_a_sample) -> torch.Tensor:
    """Expected gradient of a loss of one sampled response's log-probability and its reference's."""
    probs = LOGITS.softmax(-1)
    return gradient(lambda log_probs: (probs * loss_of_a_sample(log_probs, REFERENCE)).sum())


def test_k1_as_a_loss_has_no_expected_gradient():
    torch.testing.assert_close(expected(lambda ours, theirs: ours - theirs), torch.zeros(4, dtype=torch.float64))


def test_k3_as_a_loss_has_the_forward_kls_expected_gradient():
    found = expected(lambda ours, theirs: (theirs - ours).exp() - 1 - (theirs - ours))
    torch.testing.assert_close(found, FORWARD)
    assert not torch.allclose(found, REVERSE, atol=1e-2)


@pytest.mark.parametrize(
    ("estimator", "expected_gradient"),
    [("reward", REVERSE), ("k1", torch.zeros_like(REVERSE)), ("sequence_k3", FORWARD)],
)
def test_ours_have_these_expected_gradients(estimator, expected_gradient):
    """Over all groups of two, each weighed with its probability."""
    log_probs = LOGITS.log_softmax(-1)
    total = torch.zeros(4, dtype=torch.float64)
    regularizer = with_options("reverse_kl", [f"reverse_kl.estimator={estimator}"])
    for pair in itertools.product(range(4), repeat=2):

        def loss(ours: torch.Tensor, pair: tuple[int, ...] = pair) -> torch.Tensor:
            drawn = list(pair)
            group = ResponseGroups(ours[drawn][None], torch.zeros(1, 2), None, REFERENCE[drawn][None])
            return surrogate_loss(regularizer.surrogate_weights(None, group, SurrogateConfig()), None, group)

        total += log_probs[list(pair)].sum().exp() * gradient(loss)
    torch.testing.assert_close(total, expected_gradient)


def low_var_kl(log_ratios: torch.Tensor) -> torch.Tensor:
    """VeRL's, of log pi - log pi_ref in any shape (`kl_penalty_forward` in `verl/trainer/ppo/core_algos.py`, 0.9.1)."""
    kl = (-log_ratios).clamp(-20, 20)
    return (kl.exp() - kl - 1).clamp(-10, 10)


def test_k3_of_a_sequence_is_verls_of_one_token_and_not_of_more():
    """At a ratio of -2.7 nats it is cut off; of four tokens the sequence's ratio is their product."""
    tokens = torch.tensor([[-2.6], [-2.7], [0.4], [30.0]], dtype=torch.float64)
    for log_ratios in (tokens, tokens.expand(-1, 4) / 4):
        moving = log_ratios.clone().requires_grad_()
        (sequence,) = torch.autograd.grad(low_var_kl(moving.sum(-1)).sum(), moving)
        (token,) = torch.autograd.grad(low_var_kl(moving).sum(), moving)
        group = ResponseGroups(log_ratios.sum(-1)[None], torch.zeros(1, 4), None, torch.zeros(1, 4))
        ours = with_options("reverse_kl", ["reverse_kl.estimator=sequence_k3"])
        weights = ours.surrogate_weights(None, group, SurrogateConfig()).rollout
        assert weights is not None
        torch.testing.assert_close(4 * weights[0, :, None].expand_as(log_ratios), sequence)
        assert torch.allclose(sequence, token) == (log_ratios.shape[1] == 1)


def test_another_estimator_is_refused():
    with pytest.raises(InputError, match=r"reverse_kl\.estimator: expected one of reward, k1, sequence_k3, got 'k3'"):
        with_options("reverse_kl", ["reverse_kl.estimator=k3"])
