"""GRPO's advantages and clipped surrogate (Eqs. 1-4)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cokl.grpo import group_advantages, grpo_loss
from tests.cokl.cases import assert_close
from tests.oracles import sampled

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 5))


@given(rewards=arrays(float, SHAPES, elements=st.integers(-80, 80).map(lambda n: n / 8)))
def test_advantages_equal_their_definition(rewards: np.ndarray):
    expected = [sampled.advantages(row, 1e-6, True) for row in rewards.tolist()]
    assert_close(group_advantages(torch.from_numpy(rewards)), expected, 1e-10)


def test_advantages_of_verifier_verdicts_by_hand():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    one, two = 0.5 + 1e-6, math.sqrt(1 / 3) + 1e-6
    expected = [[0.75 / one, -0.25 / one, -0.25 / one, -0.25 / one], [0.5 / two, 0.5 / two, -0.5 / two, -0.5 / two]]
    assert_close(group_advantages(rewards), expected, 1e-12)
    half = 0.5 / (math.sqrt(1 / 2) + 1e-6)
    assert_close(group_advantages(torch.tensor([[1.0, 0.0]], dtype=torch.float64)), [[half, -half]], 1e-12)


@given(reward=st.floats(-1e3, 1e3, width=32), size=st.integers(1, 9))
def test_equal_rewards_have_exactly_zero_advantages_in_either_precision(reward: float, size: int):
    for dtype in (torch.float32, torch.float64):
        assert bool((group_advantages(torch.full((1, size), reward, dtype=dtype)) == 0).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rewards_have_advantages_though_their_squares_overflow(dtype: torch.dtype):
    found = group_advantages(torch.tensor([[300, 0, 0, 0]], dtype=dtype))
    assert found.dtype == dtype
    assert_close(found.float(), [[1.5, -0.5, -0.5, -0.5]], 1e-3)


@st.composite
def token_batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, behaviour ones, advantages and lengths of padded responses; padding holds NaN."""
    shape = draw(SHAPES)
    tokens = draw(st.integers(1, 4))
    log_probs, behavior = (draw(arrays(float, (*shape, tokens), elements=st.floats(-5, 0))) for _ in range(2))
    advantages = draw(arrays(float, shape, elements=st.floats(-3, 3)))
    lengths = draw(arrays(int, shape, elements=st.integers(1, tokens)))
    padding = np.arange(tokens) >= lengths[..., None]
    log_probs[padding] = behavior[padding] = np.nan
    return log_probs, behavior, advantages, lengths


@given(batch=token_batches())
def test_loss_equals_its_definition_and_ignores_padding(batch):
    log_probs, behavior, advantages, lengths = batch
    objectives = []
    for i, group_lengths in enumerate(lengths.tolist()):
        tokens, behavior_tokens = (
            [row[:length] for row, length in zip(x[i].tolist(), group_lengths, strict=True)]
            for x in (log_probs, behavior)
        )
        objectives.append(sampled.grpo_objective(tokens, behavior_tokens, advantages[i].tolist(), 0.2))
    current = torch.from_numpy(log_probs).requires_grad_()
    loss = grpo_loss(
        current,
        torch.from_numpy(behavior),
        torch.from_numpy(advantages),
        torch.from_numpy(~np.isnan(log_probs)),
    )
    assert_close(loss, torch.tensor(-sum(objectives) / len(objectives), dtype=torch.float64), 1e-10)
    gradient = torch.autograd.grad(loss, current)[0]
    assert bool(gradient.isfinite().all())
    assert bool((gradient[current.isnan()] == 0).all())


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "slope"),
    [
        (0.0, 2.0, -2.0),
        (0.0, -2.0, 2.0),
        (0.5, 2.0, 0.0),
        (-0.5, -2.0, 0.0),
        (0.5, -2.0, 2 * math.exp(0.5)),
        (-0.5, 2.0, -2 * math.exp(-0.5)),
        (1e4, 2.0, 0.0),
        (-1e4, -2.0, 0.0),
        (-1e4, 2.0, 0.0),
        (1e4, 0.0, 0.0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slope_is_clipped_on_the_side_that_the_advantage_favours(
    log_ratio: float, advantage: float, slope: float, dtype: torch.dtype
):
    """Also where the ratio itself overflows: the minimum in Eq. 3 is bounded for advantages >= 0."""
    current = torch.full((1, 1, 1), min(log_ratio, 0.0), dtype=dtype, requires_grad=True)
    loss = grpo_loss(
        current,
        torch.full((1, 1, 1), min(-log_ratio, 0.0), dtype=dtype),
        torch.full((1, 1), advantage, dtype=dtype),
        torch.ones(1, 1, 1, dtype=torch.bool),
    )
    assert bool(loss.isfinite())
    assert_close(torch.autograd.grad(loss, current)[0].flatten(), [slope], 1e-6)


def test_only_the_current_policy_carries_a_gradient():
    current, behavior, rewards = (torch.zeros(1, 2, 1, requires_grad=True) for _ in range(3))
    advantages = group_advantages(rewards[..., 0] + torch.tensor([[0.0, 1.0]]))
    assert not advantages.requires_grad
    loss = grpo_loss(current, behavior, advantages, torch.ones(1, 2, 1, dtype=torch.bool))
    gradients = torch.autograd.grad(loss, (current, behavior), allow_unused=True)
    assert gradients[0].abs().sum() > 0
    assert gradients[1] is None


def test_a_response_without_tokens_is_refused():
    mask = torch.tensor([[[True, False], [False, False]]])
    with pytest.raises(ValueError, match="response_mask: every response needs at least one token"):
        grpo_loss(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2), torch.zeros(1, 2), mask)


@pytest.mark.parametrize(
    ("rewards", "says"),
    [
        (torch.tensor([[0, 1]]), "expected a floating-point tensor, got torch.int64"),
        (torch.tensor([[True, False]]), "expected a floating-point tensor, got torch.bool"),
        (torch.tensor([[0.0, float("nan")]]), "expected finite numbers"),
        (torch.tensor([[0.0, float("inf")]]), "expected finite numbers"),
        (torch.tensor([[0.0, 1e30]]), "expected finite numbers whose squares are finite"),
    ],
)
def test_rewards_that_are_no_numbers_are_refused(rewards, says):
    with pytest.raises(ValueError, match=says):
        group_advantages(rewards)


@pytest.mark.parametrize("name", ["log_probs", "behavior_log_probs"])
def test_a_likelihood_in_the_place_of_its_logarithm_is_refused_but_not_in_padding(name):
    given = {"log_probs": -torch.ones(1, 1, 2), "behavior_log_probs": -torch.ones(1, 1, 2)}
    given[name] = torch.tensor([[[-1.0, 0.75]]])
    with pytest.raises(ValueError, match=f"^{name}: expected log-likelihoods, which are at most 0, got 0.75"):
        grpo_loss(**given, advantages=torch.ones(1, 1), response_mask=torch.tensor([[[True, True]]]))
    grpo_loss(**given, advantages=torch.ones(1, 1), response_mask=torch.tensor([[[True, False]]]))
