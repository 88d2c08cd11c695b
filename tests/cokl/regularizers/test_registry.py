"""The registry of regularizers and the contract's defaults."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest
import torch

from cokl import methods, regularizers
from cokl.policy import CorrectSet, Policy, expectation
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError


@pytest.fixture
def temporary() -> Iterator[str]:
    """The name of a regularizer that defines a value only, registered for one test."""

    @regularizers.register
    class SquaredDistance(Regularizer):
        """Mean squared distance of log-probabilities under the reference."""

        name = "squared_distance"
        label = "Squared distance"

        def value(self, policy, reference):
            return expectation(reference.probs, (policy.log_probs - reference.log_probs).square())

    yield SquaredDistance.name
    regularizers._registry.pop(SquaredDistance.name)


def test_a_class_that_replaces_a_built_in_one_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(regularizers, "_registry", dict(regularizers._registry))
    mine = type("Mine", (Regularizer,), {"name": "cokl", "label": "Mine"})
    with pytest.warns(UserWarning, match="Mine replaces the built-in regularizer 'cokl' everywhere"):
        regularizers.register(mine)


def test_a_registered_class_is_found_by_name(temporary: str):
    assert temporary in regularizers.names()
    assert regularizers.get(temporary).label == "Squared distance"


def test_a_value_alone_brings_a_gradient_and_says_that_the_other_faces_are_unknown(temporary: str):
    regularizer = regularizers.get(temporary)
    correct = CorrectSet.from_mask(torch.tensor([[True, False, False]]))
    policy = Policy(torch.tensor([[0.2, -1.0, 0.5]], dtype=torch.float64), correct)
    reference = Policy(torch.zeros(1, 3, dtype=torch.float64), correct)
    distances = policy.log_probs + torch.tensor(3.0).double().log()
    by_hand = 2 / 3 * (distances - distances.sum() * policy.probs)
    torch.testing.assert_close(regularizer.logit_gradient(policy, reference), by_hand, rtol=0, atol=1e-14)
    assert regularizer.streams == ()
    with pytest.raises(InputError, match="no sampled surrogate"):
        methods.get(temporary).streams()
    assert not regularizer.has_closed_form
    assert not regularizer.conditional


def test_registering_a_name_again_replaces_it(temporary: str):
    before = regularizers.names()
    replacement = type("Replacement", (Regularizer,), {"name": temporary, "label": "Replacement"})
    assert regularizers.register(replacement) is replacement
    assert regularizers.names() == before
    assert isinstance(regularizers.get(temporary), replacement)


def test_names_are_sorted_and_every_file_of_the_package_registers_one():
    names = regularizers.names()
    assert names == sorted(names)
    modules = {module.name for module in pkgutil.iter_modules(regularizers.__path__)} - {"base"}
    assert {regularizers.get(name).__class__.__module__.rpartition(".")[2] for name in names} == modules
    for module in modules:
        assert import_module(f"cokl.regularizers.{module}").__doc__


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown regularizer 'kokl' \(did you mean cokl\?\); known: cokl, .*reverse_kl"
    ):
        regularizers.get("kokl")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"label": "Nameless"}, r"Bad\.name: expected a string"),
        ({"name": "bad"}, r"Bad\.label: expected a string"),
        ({"name": "bad", "label": " \n"}, r"Bad\.label: expected a string that is not blank, .* got ' \\n'"),
        (
            {"name": "no-identifier", "label": "Bad"},
            r"Bad\.name: expected letters, digits and underscores.* got 'no-identifier'",
        ),
        ({"name": "none", "label": "Bad"}, r"Bad\.name: expected letters.* other than 'none'"),
        ({"name": "reference", "label": "Bad"}, r"Bad\.name: expected letters.* other than 'none'"),
        ({"name": "replay", "label": "Bad"}, "a name of its own, got 'replay', as people call 'correct_forward_kl'"),
        ({"name": "CoKL", "label": "Bad"}, "a name of its own, got 'CoKL', as people call 'cokl'"),
    ],
)
def test_a_class_without_a_usable_name_or_label_is_refused(attributes: dict[str, str], message: str):
    before = regularizers.names()
    with pytest.raises(ValueError, match=message):
        regularizers.register(type("Bad", (Regularizer,), attributes))
    assert regularizers.names() == before


@pytest.mark.parametrize("streams", [(), "rollout", ["rollout"], ("rollouts",), ("rollout", "reference"), None])
def test_a_surrogate_without_streams_is_refused(streams):
    own = {"name": "streamless", "label": "Streamless", "surrogate_weights": lambda *_: None, "streams": streams}
    with pytest.raises(ValueError, match=r"^Bad\.streams: expected the streams .* or \('reference', 'rollout'\), got "):
        regularizers.register(type("Bad", (Regularizer,), own))
    assert "streamless" not in regularizers.names()
