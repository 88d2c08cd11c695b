"""Methods: coefficients, streams and the floor, against the regularizer and the floor themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cokl import methods, regularizers
from cokl.floor import floor_logit_gradient, sampled_floor_weights
from cokl.groups import ResponseGroups, SurrogateConfig
from cokl.metrics import dual_anchor
from cokl.policy import CorrectSet, Policy
from cokl.support.errors import InputError

CONFIG = SurrogateConfig()


def groups(seed: int, shape: tuple[int, int] = (5, 4)) -> ResponseGroups:
    rng = np.random.default_rng(seed)
    log_probs, reference = (torch.from_numpy(-rng.exponential(2, shape)) for _ in range(2))
    return ResponseGroups(log_probs, torch.from_numpy(rng.integers(2, size=shape)), None, reference)


@pytest.mark.parametrize("name", regularizers.names())
def test_a_regularizers_weights_are_scaled_by_beta(name):
    reference, rollout = groups(0), groups(1)
    expected = regularizers.get(name).surrogate_weights(reference, rollout, CONFIG)
    assert expected is not None
    got = methods.get(name).weights(reference, rollout, 0.25, CONFIG)
    for stream, weights in zip(got, expected, strict=True):
        assert (stream is None) == (weights is None)
        if weights is not None:
            torch.testing.assert_close(stream, 0.25 * weights)


def test_the_floor_is_added_with_its_own_coefficient():
    reference, rollout = groups(2), groups(3)
    rollout = ResponseGroups(rollout.log_probs, torch.zeros(5, 4), None, rollout.reference_log_probs)
    plain = methods.get("cokl").weights(reference, rollout, 0.5, CONFIG)
    floored = methods.get("cokl_floor").weights(reference, rollout, 0.5, CONFIG)
    pull = sampled_floor_weights(reference, rollout)
    assert pull.abs().sum() > 0
    assert plain.reference is not None
    torch.testing.assert_close(floored.reference, plain.reference + pull)
    torch.testing.assert_close(floored.rollout, plain.rollout)


def test_the_exact_gradient_is_the_regularizers_and_the_floors():
    rng = np.random.default_rng(4)
    mask = torch.zeros(1, 3, 7, dtype=torch.bool)
    mask[..., :2] = True
    correct = CorrectSet.from_mask(mask)
    policy, reference = (Policy(torch.from_numpy(rng.normal(size=(1, 3, 7))), correct) for _ in range(2))
    lower = Policy(policy.logits - 4 * mask, correct)
    expected = 0.3 * regularizers.get("cokl").logit_gradient(lower, reference) + floor_logit_gradient(lower, reference)
    assert floor_logit_gradient(lower, reference).abs().max() > 0
    torch.testing.assert_close(methods.get("cokl_floor").logit_gradient(lower, reference, 0.3), expected)
    assert not methods.get("none").logit_gradient(lower, reference, 0.3).any()


@pytest.mark.parametrize(
    ("name", "streams", "needs_reference", "filtered"),
    [
        ("none", (), False, False),
        ("grpo", (), False, False),
        ("forward_kl", ("reference",), False, False),
        ("reverse_kl", ("rollout",), True, False),
        ("correct_forward_kl", ("reference",), False, True),
        ("correct_reverse_kl", ("rollout",), True, True),
        ("cokl", ("reference", "rollout"), False, True),
        ("cokl_without_term1", ("rollout",), False, True),
        ("cokl_floor", ("reference", "rollout"), False, True),
        ("entropy", ("rollout",), False, False),
        ("jensen_shannon", ("rollout",), True, False),
    ],
)
def test_what_a_method_asks_for(name, streams, needs_reference, filtered):
    method = methods.get(name)
    assert (method.streams(), method.compares_with_reference, method.filtered) == (
        streams,
        needs_reference,
        filtered,
    )


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match=r"unknown method 'nope' \(did you mean none\?\); known: none, .*cokl_floor"):
        methods.get("nope")
    with pytest.raises(InputError, match="unknown method 'nope_floor'"):
        methods.get("nope_floor")


@pytest.mark.parametrize(
    ("name", "blind"),
    [
        ("none", True), ("cokl", True), ("correct_forward_kl", True), ("forward_kl", False), ("cokl_floor", False),
        ("entropy", True),
    ],
)  # fmt: skip
def test_which_methods_are_blind_to_wrong_cached_responses(name, blind):
    """Told by their weights: a wrong response more among the cached changes nothing of a blind method's."""
    method = methods.get(name)
    assert method.blind_to_wrong_cached == blind
    fresh = ResponseGroups(torch.tensor([[-1.0, -2.0]]), torch.tensor([[1, 0]]))
    cached = [torch.tensor([[-1.0, -3.0, -2.0]]), torch.tensor([[1, 1, 0]])]
    several, fewer = (ResponseGroups(*(column[:, :size] for column in cached)) for size in (3, 2))
    weights = [method.weights(group, fresh, 1.0, SurrogateConfig()).reference for group in (several, fewer)]
    if weights[0] is not None and weights[1] is not None:
        same = torch.equal(weights[0], torch.nn.functional.pad(weights[1], (0, 1)))
        assert same == blind


@pytest.mark.parametrize("name", regularizers.names())
def test_a_missing_stream_is_named(name):
    regularizer = regularizers.get(name)
    given = {"reference": groups(5), "rollout": groups(6)}
    for stream in regularizer.streams:
        reference, rollout = (None if other == stream else given[other] for other in ("reference", "rollout"))
        with pytest.raises(ValueError, match=f"^{stream}: this regularizer needs {stream} groups$"):
            regularizer.surrogate_weights(reference, rollout, CONFIG)


def test_a_floor_needs_both_streams_whatever_its_regularizer_does():
    for name, missing, reference, rollout in (
        ("forward_kl_floor", "rollout", groups(7), None),
        ("reverse_kl_floor", "reference", None, groups(8)),
    ):
        with pytest.raises(ValueError, match=f"^{missing}: this regularizer needs {missing} groups$"):
            methods.get(name).weights(reference, rollout, 0.5, CONFIG)
        assert methods.get(name).streams() == ("reference", "rollout")
        assert methods.get(name).filtered


def test_labels():
    assert methods.get("none").label == methods.get("grpo").label == "GRPO w/o KL"
    assert (methods.get("grpo").name, methods.get("cokl_floor").name) == ("grpo", "cokl_floor")
    assert methods.get("cokl_floor").label == "CoKL + floor"
    assert methods.label("cokl") == methods.get("cokl").label == "CoKL"
    assert methods.label("cokl_floor") == "CoKL + floor"
    assert methods.label("somebody_elses") == "somebody_elses"
    assert methods.label("base", {"base": "Qwen"}) == "Qwen"
    assert methods.label("cokl", {"base": "Qwen"}) == "CoKL"


def test_a_coefficient_may_differ_between_groups():
    reference, rollout = groups(9), groups(10)
    betas = torch.tensor([[0.0], [0.1], [0.2], [0.3], [0.4]], dtype=torch.float64)
    whole = methods.get("cokl").weights(reference, rollout, 1.0, CONFIG)
    scaled = methods.get("cokl").weights(reference, rollout, betas, CONFIG)
    for one, other in zip(whole, scaled, strict=True):
        assert one is not None
        torch.testing.assert_close(other, betas * one)
    assert methods.get("none").weights(reference, rollout, 1.0, CONFIG) == (None, None)


def test_anchors_that_coincide_are_refused():
    score, zero, hundred = (np.float32(number) for number in (0.1, 0.3, 1.0))
    assert dual_anchor(score, zero, hundred) == dual_anchor(float(score), float(zero), float(hundred))
    with pytest.raises(InputError, match=r"^scores: the anchors base and grpo score the same"):
        dual_anchor([1.0, 2.0], zero=[0.0, 3.0], hundred=[1.0, 3.0])


CORRECT = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
BAD_WEIGHTS = {
    "one_a_group": (
        lambda reference, rollout: (None, rollout.rewards.double().mean(-1, keepdim=True)),
        r"gave rollout weights of shape \(5, 1\), expected \(5, 4\), one for each",
    ),
    "summed_over_the_prompts": (
        lambda reference, rollout: (None, rollout.rewards.double().sum(0)),
        r"gave rollout weights of shape \(4,\), expected \(5, 4\), one for each",
    ),
    "list": (lambda reference, rollout: (None, rollout.rewards.tolist()), "gave rollout weights of type list"),
    "nothing": (lambda reference, rollout: None, r"gave NoneType, expected SurrogateWeights\(reference, rollout\)"),
    "share_of_no_correct_one": (
        lambda reference, rollout: (None, rollout.rewards / rollout.rewards.sum(-1, keepdim=True)),
        "gave rollout weights that are not finite for a group without a correct response; cokl.groups.self_normalised",
    ),
    "infinite": (
        lambda reference, rollout: (None, rollout.rewards / 0.0 + 1),
        "gave rollout weights that are not finite",
    ),
    "undeclared": (
        lambda reference, rollout: (reference.log_probs, None),
        "gave reference weights, and streams declares only rollout",
    ),
}


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_weights_of_ones_own_that_would_train_something_else_are_a_line(name, monkeypatch):
    """Broadcast or multiplied by NaN they made a loss, and NaN was blamed on beta."""
    made, message = BAD_WEIGHTS[name]
    own = {
        "name": "mine",
        "label": "Mine",
        "streams": ("rollout",),
        "surrogate_weights": lambda self, reference, rollout, config: made(reference, rollout),
    }
    monkeypatch.setitem(regularizers._registry, "mine", type("Mine", (regularizers.Regularizer,), own)())
    rollout = groups(1)
    rollout = ResponseGroups(rollout.log_probs, torch.cat([torch.zeros(1, 4), CORRECT.expand(4, 4)]))
    with pytest.raises(InputError, match=f"^mine: surrogate_weights {message}") as refused:
        methods.get("mine").weights(groups(0), rollout, 0.5, CONFIG)
    assert "\n" not in str(refused.value)
