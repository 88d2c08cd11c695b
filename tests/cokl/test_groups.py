"""Weights over groups of responses against loops, the surrogate loss, and refused input."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cokl.groups import (
    ResponseGroups,
    SurrogateConfig,
    SurrogateWeights,
    importance_ratios,
    reference_weights,
    rollout_weights,
    score_function_weights,
    surrogate_loss,
)
from tests.cokl.cases import assert_close
from tests.oracles import sampled

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6))
EPSILONS = st.floats(0.01, 0.99)


@st.composite
def off_policy_groups(draw: st.DrawFn) -> ResponseGroups:
    """Groups with likelihood ratios inside and far outside every clipping range."""
    shape = draw(SHAPES)
    behavior = torch.from_numpy(draw(arrays(float, shape, elements=st.floats(-2e4, -1e4))))
    log_ratios = torch.from_numpy(draw(arrays(float, shape, elements=st.floats(-1, 1) | st.floats(-1e4, 1e4))))
    rewards = torch.from_numpy(draw(arrays(bool, shape)))
    return ResponseGroups(behavior + log_ratios, rewards.double(), behavior)


def rows(groups: ResponseGroups) -> zip:
    """Log-likelihoods, behaviour log-likelihoods and rewards of each group as lists."""
    assert groups.behavior_log_probs is not None
    return zip(groups.log_probs.tolist(), groups.behavior_log_probs.tolist(), groups.rewards.tolist(), strict=True)


@given(groups=off_policy_groups(), epsilon_is=EPSILONS)
def test_weights_equal_their_definitions(groups: ResponseGroups, epsilon_is: float):
    ratios, alphas, gammas = [], [], []
    for log_probs, behavior, rewards in rows(groups):
        ratios.append(sampled.clipped_ratios(log_probs, behavior, epsilon_is))
        alphas.append(sampled.self_normalised(rewards))
        gammas.append(sampled.gamma(log_probs, behavior, rewards, epsilon_is))
    assert_close(importance_ratios(groups, epsilon_is), ratios, 1e-12)
    assert_close(reference_weights(groups), alphas, 1e-15)
    assert_close(rollout_weights(groups, epsilon_is), gammas, 1e-12)


@given(groups=off_policy_groups())
def test_weights_sum_to_one_or_zero(groups: ResponseGroups):
    has_correct = groups.rewards.any(-1).double()
    assert_close(reference_weights(groups).sum(-1), has_correct, 1e-12)
    assert_close(rollout_weights(groups, 0.2).sum(-1), has_correct, 1e-12)


@given(groups=off_policy_groups(), data=st.data())
def test_score_function_weights_equal_their_definition(groups: ResponseGroups, data: st.DataObject):
    costs = data.draw(arrays(float, tuple(groups.log_probs.shape), elements=st.floats(-100, 100)))
    expected = []
    for (log_probs, behavior, _), group_costs in zip(rows(groups), costs.tolist(), strict=True):
        expected.append(sampled.score_function(group_costs, sampled.clipped_ratios(log_probs, behavior, 0.2)))
    assert_close(score_function_weights(groups, torch.from_numpy(costs), 0.2), expected, 1e-10)


def test_loss_is_the_mean_over_groups_of_the_weighted_sums_of_both_streams():
    reference = ResponseGroups(torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]), torch.ones(2, 2))
    rollout = ResponseGroups(torch.tensor([[-5.0], [-6.0]]), torch.ones(2, 1))
    weights = SurrogateWeights(torch.tensor([[1.0, 0.5], [0.0, 2.0]]), torch.tensor([[10.0], [-1.0]]))
    assert surrogate_loss(weights, reference, rollout).item() == (-1 - 1 - 8) / 2 + (-50 + 6) / 2
    assert surrogate_loss(weights._replace(rollout=None), reference, None).item() == -5


@pytest.mark.parametrize("stream", SurrogateWeights._fields)
def test_loss_names_the_missing_stream(stream: str):
    weights = SurrogateWeights(None, None)._replace(**{stream: torch.ones(1, 1)})
    with pytest.raises(ValueError, match=f"{stream}: this regularizer needs {stream} groups"):
        surrogate_loss(weights, None, None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"log_probs": torch.zeros(3)}, r"log_probs: expected shape \(N, G\), got \(3,\)"),
        ({"rewards": torch.zeros(2, 2)}, r"rewards: expected shape \(2, 3\), got \(2, 2\)"),
        ({"rewards": torch.full((2, 3), 0.5)}, "rewards: expected verifier verdicts, 0 or 1"),
        ({"rewards": torch.full((2, 3), torch.nan)}, "rewards: expected verifier verdicts, 0 or 1"),
        ({"behavior_log_probs": torch.zeros(3, 2)}, r"behavior_log_probs: expected shape \(2, 3\), got \(3, 2\)"),
        ({"reference_log_probs": torch.zeros(1, 3)}, r"reference_log_probs: expected shape \(2, 3\), got \(1, 3\)"),
    ],
)
def test_groups_refuse_bad_input(overrides: dict[str, torch.Tensor], message: str):
    with pytest.raises(ValueError, match=message):
        ResponseGroups(**({"log_probs": torch.zeros(2, 3), "rewards": torch.zeros(2, 3)} | overrides))


@pytest.mark.parametrize("epsilon_is", [0.0, 1.0, -0.1, float("nan")])
def test_config_refuses_an_empty_clipping_range(epsilon_is: float):
    with pytest.raises(ValueError, match="epsilon_is: expected a number in"):
        SurrogateConfig(epsilon_is)


@pytest.mark.parametrize("name", ["log_probs", "behavior_log_probs", "reference_log_probs"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_groups_refuse_log_likelihoods_that_no_sampled_response_has(name: str, value: float):
    tensors = {"log_probs": torch.zeros(2, 3), "rewards": torch.ones(2, 3)}
    tensors[name] = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, value, -3.0]])
    with pytest.raises(ValueError, match=f"^{name}: expected finite log-likelihoods"):
        ResponseGroups(**tensors)


@pytest.mark.parametrize("name", ["log_probs", "behavior_log_probs", "reference_log_probs"])
@pytest.mark.parametrize("value", [0.05, 0.9, 37.5])
def test_likelihoods_and_negative_log_likelihoods_are_refused_and_a_rounded_certainty_is_not(name: str, value: float):
    tensors = {"log_probs": -torch.ones(1, 2), "rewards": torch.ones(1, 2)}
    for rounded in (1e-6, 1e-4, 8e-3):
        ResponseGroups(**{**tensors, name: torch.tensor([[-1.0, rounded]], dtype=torch.bfloat16)})
    with pytest.raises(ValueError, match=f"^{name}: expected log-likelihoods, which are at most 0, got {value}; "):
        ResponseGroups(**{**tensors, name: torch.tensor([[-1.0, value]], dtype=torch.float64)})


def test_log_ratios_are_those_of_the_two_likelihoods_without_gradient():
    log_probs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    groups = ResponseGroups(log_probs, torch.ones(1, 2), None, torch.tensor([[-4.0, -1.5]]))
    ratios = groups.reference_log_ratios()
    assert ratios.tolist() == [[3.0, -0.5]]
    assert not ratios.requires_grad
    with pytest.raises(ValueError, match=r"^reference_log_probs: this regularizer needs the rollouts'"):
        ResponseGroups(log_probs, torch.ones(1, 2)).reference_log_ratios()


def test_ratios_without_a_behaviour_policy_are_ones():
    groups = ResponseGroups(torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True), torch.ones(1, 3))
    ratios = importance_ratios(groups, 0.2)
    assert ratios.tolist() == [[1.0, 1.0, 1.0]]
    assert not ratios.requires_grad


def test_a_group_of_one_has_no_baseline_and_its_whole_cost_for_a_weight():
    groups = ResponseGroups(torch.tensor([[-1.0]]), torch.ones(1, 1))
    assert score_function_weights(groups, torch.tensor([[3.0]]), 0.2).tolist() == [[3.0]]
