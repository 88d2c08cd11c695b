"""`cokl.loss` and `cokl.weights` against definitions on one prompt's Python floats."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cokl
from cokl.support.errors import InputError
from tests.oracles.sampled import gamma, score_function, self_normalised

BETA = 0.7
METHODS = ("none", "cokl", "correct_forward_kl", "forward_kl", "reverse_kl", "entropy", "cokl_without_term1")


def by_hand(method, log_probs, rewards, cached_rewards, reference, behavior=None, epsilon=0.2):
    """Weights of the fresh and the cached responses to one prompt, before beta and the mean over prompts."""
    alpha, size = self_normalised(cached_rewards), len(cached_rewards)
    delta = self_normalised(rewards) if behavior is None else gamma(log_probs, behavior, rewards, epsilon)
    costs = [own - other for own, other in zip(log_probs, reference, strict=True)]
    ones = [1.0] * len(rewards)
    return {
        "none": (None, None),
        "cokl": (delta, [-a for a in alpha]),
        "correct_forward_kl": (None, [-a for a in alpha]),
        "forward_kl": (None, [-1 / size] * size),
        "reverse_kl": (score_function(costs, ones), None),
        "entropy": (score_function(log_probs, ones), None),
        "cokl_without_term1": (delta, None),
    }[method]


numbers = st.floats(-30, -0.01)


def existing(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data(), prompts=st.integers(1, 3), fresh=st.integers(1, 5), cached=st.integers(1, 4))
def test_weights_and_gradients_are_those_of_the_definitions(method, data, prompts, fresh, cached):
    def table(values, width):
        return data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=prompts, max_size=prompts))

    log_probs, reference = table(numbers, fresh), table(numbers, fresh)
    rewards, cached_rewards = table(st.integers(0, 1), fresh), table(st.integers(0, 1), cached)
    cached_log_probs = table(numbers, cached)
    own, stored = (torch.tensor(t, dtype=torch.float64, requires_grad=True) for t in (log_probs, cached_log_probs))
    arguments = {"method": method, "beta": BETA, "reference_log_probs": torch.tensor(reference, dtype=torch.float64)}
    loss = cokl.loss(own, torch.tensor(rewards), stored, torch.tensor(cached_rewards), **arguments)
    loss.backward()
    for number in range(prompts):
        of_fresh, of_cached = by_hand(
            method, log_probs[number], rewards[number], cached_rewards[number], reference[number]
        )
        for leaf, expected, width in ((own, of_fresh, fresh), (stored, of_cached, cached)):
            got = [0.0] * width if leaf.grad is None else leaf.grad[number].tolist()
            wanted = [0.0] * width if expected is None else [BETA * weight / prompts for weight in expected]
            assert got == pytest.approx(wanted, abs=1e-9)
    weights = cokl.weights(own, torch.tensor(rewards), torch.tensor(cached_rewards), **arguments)
    pairs = ((weights.rollout, own), (weights.reference, stored))
    value = sum(float((weight * leaf.detach()).sum()) for weight, leaf in pairs)
    assert float(loss.detach()) == pytest.approx(value, abs=1e-9)


@given(data=st.data(), prompts=st.integers(1, 3), cached=st.integers(1, 4))
def test_replay_needs_no_fresh_responses(data, prompts, cached):
    verdicts = data.draw(
        st.lists(st.lists(st.integers(0, 1), min_size=cached, max_size=cached), min_size=prompts, max_size=prompts)
    )
    stored = torch.full((prompts, cached), -3.0, dtype=torch.float64, requires_grad=True)
    found = cokl.loss(None, None, stored, torch.tensor(verdicts), method="replay", beta=BETA)
    found.backward()
    for row, own in zip(existing(stored.grad).tolist(), verdicts, strict=True):
        assert row == pytest.approx([-BETA * alpha / prompts for alpha in self_normalised(own)], abs=1e-12)
    weights = cokl.weights(None, None, torch.tensor(verdicts), method="replay", beta=BETA)
    assert weights.rollout.shape == (prompts, 0)
    assert float(found.detach()) == pytest.approx(-3.0 * float(weights.reference.sum()), abs=1e-6)


def test_a_policy_that_was_updated_since_sampling_gets_clipped_ratios():
    log_probs, behavior = torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[-1.05, -5.0, -2.0]])
    rewards, cached = torch.tensor([[1, 1, 1]]), torch.tensor([[1]])
    found = cokl.weights(log_probs, rewards, cached, beta=1.0, behavior_log_probs=behavior, epsilon_is=0.3)
    assert found.rollout[0].tolist() == pytest.approx(
        gamma(log_probs[0].tolist(), behavior[0].tolist(), [1, 1, 1], 0.3), rel=1e-6
    )


def test_the_loss_has_the_ratios_and_lengths_of_its_weights():
    own, cached = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True), torch.tensor([[-4.0]], requires_grad=True)
    arguments: Any = {
        "beta": 0.5,
        "behavior_log_probs": torch.tensor([[-1.05, -5.0, -2.0]]),
        "lengths": torch.tensor([[2, 3, 4]]),
        "cached_lengths": torch.tensor([[5]]),
        "epsilon_is": 0.3,
    }
    rewards, verdicts = torch.tensor([[1, 1, 1]]), torch.tensor([[1]])
    cokl.loss(own, rewards, cached, verdicts, **arguments).backward()
    ratios = gamma([-1.0, -2.0, -3.0], [-1.05, -5.0, -2.0], [1, 1, 1], 0.3)
    by_length = [0.5 * ratio / length for ratio, length in zip(ratios, (2, 3, 4), strict=True)]
    assert existing(own.grad)[0].tolist() == pytest.approx(by_length, rel=1e-6)
    assert existing(cached.grad)[0].tolist() == pytest.approx([-0.5 / 5])


def test_means_over_tokens_divide_each_weight_by_its_length():
    log_probs, rewards, cached = torch.tensor([[-1.0, -2.0]]), torch.tensor([[1, 1]]), torch.tensor([[1, 0]])
    lengths, cached_lengths = torch.tensor([[2, 5]]), torch.tensor([[4, 1]])
    found = cokl.weights(log_probs, rewards, cached, beta=1.0, lengths=lengths, cached_lengths=cached_lengths)
    assert found.rollout.tolist() == [pytest.approx([0.25, 0.1])]
    assert found.reference.tolist() == [pytest.approx([-0.25, 0.0])]


def test_accumulated_over_parts_of_the_rows_the_gradient_is_the_same():
    torch.manual_seed(0)
    own, stored = torch.randn(4, 3).sub(5).requires_grad_(), torch.randn(4, 2).sub(5).requires_grad_()
    rewards, cached = torch.tensor([[1, 0, 1]] * 3 + [[0, 0, 0]]), torch.tensor([[1, 1]] * 3 + [[0, 1]])
    cokl.loss(own, rewards, stored, cached, beta=0.5).backward()
    whole, own.grad = existing(own.grad), None
    weights = cokl.weights(own, rewards, cached, beta=0.5).rollout
    for part in range(4):
        (weights[part] * own[part]).sum().backward()
    assert torch.equal(existing(own.grad), whole)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "nothing"}, "nothing"),
        ({"beta": -0.1}, "beta: expected a finite coefficient"),
        ({"beta": math.inf}, "beta: expected a finite coefficient"),
        ({"beta": "0.1"}, "beta: expected a finite coefficient >= 0, got '0.1'"),
        ({"rewards": [[1, 0]]}, "rewards: expected a tensor, got list"),
        ({"log_probs": None}, "log_probs and rewards: expected both, or neither"),
        ({"rewards": None}, "log_probs and rewards: expected both, or neither"),
        ({"log_probs": None, "rewards": None}, "log_probs: cokl needs fresh responses"),
        ({"log_probs": None, "rewards": None, "method": "cokl_floor"}, "log_probs: cokl_floor needs fresh responses"),
        (
            {name: None for name in ("log_probs", "rewards", "cached_log_probs", "cached_rewards")}
            | {"method": "none"},
            "log_probs and rewards: expected both, or neither",
        ),
        ({"cached_rewards": None}, "cached_rewards: cokl weights cached responses"),
        ({"method": "reverse_kl"}, "reference_log_probs"),
        ({"cached_log_probs": None}, "cached_log_probs: expected"),
        ({"cached_rewards": torch.tensor([[1], [1]])}, "cached_rewards: expected one line for each of 1 prompts"),
        ({"rewards": torch.tensor([[0.5, 1.0]])}, "rewards: expected verifier verdicts"),
        ({"lengths": torch.tensor([[0, 1]]), "cached_lengths": torch.tensor([[1]])}, "lengths: expected lengths of at"),
        (
            {"lengths": torch.tensor([[1], [1]]), "cached_lengths": torch.tensor([[1]])},
            "lengths: expected lengths of at",
        ),
        ({"lengths": torch.tensor([[1, 1]])}, "lengths and cached_lengths: expected both or neither"),
        (
            {"lengths": torch.tensor([[1, 1]]), "method": "replay"},
            "lengths and cached_lengths: expected both or neither",
        ),
        ({"cached_lengths": torch.tensor([[1]])}, "lengths and cached_lengths: expected both or neither"),
        (
            {"log_probs": None, "rewards": None, "method": "replay", "behavior_log_probs": torch.tensor([[-1.0]])},
            "behavior_log_probs: expected shape",
        ),
        ({"cached_log_probs": torch.tensor([[3.0]])}, "at most 0"),
        ({"cached_log_probs": torch.tensor([[-math.inf]])}, "finite log-likelihoods"),
    ],
)
def test_what_does_not_fit_is_named(changed, message):
    arguments = {
        "log_probs": torch.tensor([[-1.0, -2.0]]),
        "rewards": torch.tensor([[1, 0]]),
        "cached_log_probs": torch.tensor([[-3.0]]),
        "cached_rewards": torch.tensor([[1]]),
        "beta": 0.1,
        **changed,
    }
    with pytest.raises((InputError, ValueError), match=message):
        cokl.loss(**arguments)


def test_the_package_offers_its_names_before_any_is_imported():
    assert set(cokl.__all__) == set(dir(cokl))
    assert all(hasattr(cokl, name) for name in cokl.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = cokl.nothing
