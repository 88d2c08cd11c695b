"""Regularizers of other people's kinds: what trains passes, and what does not is one line that names the cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cokl import regularizers
from cokl.policy import Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError
from cokl_cli.regularizer_check import require_trainable
from tests.cokl_cli.test_bad_input import refusal

Value = Callable[[Policy, Policy], Tensor]


def kl(p: Policy, r: Policy) -> Tensor:
    return (p.probs * (p.log_probs - r.log_probs)).sum(-1)


def overlap(p: Policy, r: Policy) -> Tensor:
    return ((p.log_probs + r.log_probs) / 2).exp().sum(-1)


def top(p: Policy, r: Policy, of_reference: int) -> Tensor:
    """The reference's runs axis is `of_reference`, or the policy's where that is 0."""
    best = r.log_probs.topk(5, dim=-1).indices
    runs = best.expand(*p.log_probs.shape[:-1], 5)
    mine = p.log_probs.gather(-1, runs).log_softmax(-1)
    theirs = r.log_probs.gather(-1, best if of_reference else runs).log_softmax(-1)
    return (theirs.exp() * (theirs - mine)).sum(-1)


def acos_but_where_equal(p: Policy, r: Policy) -> Tensor:
    equal = (p.log_probs - r.log_probs).abs().amax(-1) < 1e-5
    return torch.where(equal, 0 * p.mass, torch.acos(torch.where(equal, 0.5, overlap(p, r))))


RIGHT: dict[str, Value] = {
    "alpha": lambda p, r: 4 * (1 - overlap(p, r)),
    "alpha_minus_1": lambda p, r: (p.probs**2 / r.probs).sum(-1) / 2 - 0.5,
    "tsallis_entropy_from_minus_1": lambda p, r: p.probs.square().sum(-1) - 1,
    "tsallis_relative": lambda p, r: (p.probs**1.5 * r.probs**-0.5).sum(-1) - 1,
    "renyi": lambda p, r: (2 * p.log_probs - r.log_probs).logsumexp(-1),
    "renyi_half": lambda p, r: -2 * overlap(p, r).log(),
    "chi_square": lambda p, r: ((p.probs - r.probs) ** 2 / r.probs).sum(-1),
    "total_variation_with_its_kink": lambda p, r: (p.probs - r.probs).abs().sum(-1) / 2,
    "wasserstein": lambda p, r: (p.probs - r.probs).cumsum(-1).abs().sum(-1),
    "fisher_rao_off_its_end": lambda p, r: 2 * torch.acos(overlap(p, r).clamp(max=1 - 1e-6)),
    "top_k": lambda p, r: top(p, r, 1),
    "jeffreys": lambda p, r: ((p.probs - r.probs) * (p.log_probs - r.log_probs)).sum(-1),
    "free_bits": lambda p, r: kl(p, r).clamp_min(0.1),
    "free_bits_never_left": lambda p, r: kl(p, r).clamp_min(100.0),
    "negative_entropy": lambda p, r: (p.probs * p.log_probs).sum(-1),
    "worst_ratio": lambda p, r: (p.log_probs - r.log_probs).abs().amax(-1),
    "hellinger_among_the_correct": lambda p, r: (
        1 - ((p.conditional_log_probs + r.conditional_log_probs) / 2).exp().sum(-1)
    ),
    "cross_entropy_from_above_0": lambda p, r: -(r.probs * p.log_probs).sum(-1),
    "hinge_on_the_mass": lambda p, r: (r.mass - p.mass).relu(),
}
AT = "at the reference, where training starts"
SIGN = "value is largest at the reference, .*: its sign is wrong for a distance$"
WRONG: dict[str, tuple[Value, str]] = {
    "js_distance": (
        lambda p, r: regularizers.get("jensen_shannon").value(p, r).sqrt(),
        f"the gradient of value is not finite {AT}: sqrt is at or beyond the end of its range there",
    ),
    "fisher_rao": (lambda p, r: 2 * torch.acos(overlap(p, r)), f"value is not finite {AT}.*: acos is at"),
    "fisher_rao_clamped_for_float64": (
        lambda p, r: 2 * torch.acos(overlap(p, r).clamp(max=1 - 1e-12)),
        "the gradient of value is not finite at the reference in float32, where training starts: acos",
    ),
    "acos_spared_at_0": (
        acos_but_where_equal, "(the gradient of )?value is not finite close to the reference in float32, where .*: acos"
    ),
    "hellinger_distance": (lambda p, r: (1 - overlap(p, r)).sqrt(), "value is not finite .*: sqrt"),
    "wasserstein_2": (
        lambda p, r: (p.probs - r.probs).cumsum(-1).square().sum(-1).sqrt(),
        f"the gradient of value is not finite {AT}: sqrt",
    ),
    "top_k_of_a_reference_that_is_not_broadcast": (
        lambda p, r: top(p, r, 0),
        r"RuntimeError in its value on a stack of runs, policies \(4, 8, 20\) beside a reference \(1, 8, 20\), which",
    ),
    "kl_turned_round": (lambda p, r: -kl(p, r), SIGN),
    "total_variation_turned_round": (lambda p, r: -(p.probs - r.probs).abs().sum(-1), SIGN),
    "similarity": (overlap, SIGN),
    "of_the_first_run": (lambda p, r: kl(p, r) / kl(p, r).mean(), "value depends on the other runs of a stack"),
    "of_the_logits": (
        lambda p, r: (p.logits - r.logits).square().sum(-1),
        "value changes when a constant is added to all logits",
    ),
    "per_reference_context": (
        lambda p, r: torch.stack([one.square().sum(-1) for one, _ in zip(p.probs, r.probs, strict=False)]),
        r"value returned shape \(1, 8\), expected shape \(4, 8\)",
    ),
    "numpy": (lambda p, r: torch.tensor(p.probs.numpy().sum(-1)), "RuntimeError in its value at an ordinary policy: "),
}  # fmt: skip


def registered(monkeypatch: pytest.MonkeyPatch, name: str, value: Value) -> None:
    own = {"name": name, "label": name, "value": lambda self, policy, reference: value(policy, reference)}
    monkeypatch.setitem(regularizers._registry, name, type("Mine", (Regularizer,), own)())


@pytest.mark.parametrize("name", RIGHT)
def test_what_trains_passes(name: str, monkeypatch: pytest.MonkeyPatch):
    registered(monkeypatch, name, RIGHT[name])
    require_trainable(name)


@pytest.mark.parametrize("name", regularizers.names())
def test_the_built_in_ones_pass(name: str):
    require_trainable(name)
    require_trainable(name, torch.float64)


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_train_is_one_line_with_its_cause(name: str, monkeypatch: pytest.MonkeyPatch):
    value, cause = WRONG[name]
    registered(monkeypatch, name, value)
    with pytest.raises(InputError, match=f"^{name}: {cause}") as refused:
        require_trainable(name)
    assert "\n" not in str(refused.value)


def test_what_float32_cannot_hold_float64_can(monkeypatch: pytest.MonkeyPatch):
    registered(monkeypatch, "mine", WRONG["fisher_rao_clamped_for_float64"][0])
    require_trainable("mine", torch.float64)


@pytest.mark.parametrize("lab", ["sweep", "robustness"])
def test_a_lab_refuses_what_does_not_train_before_it_makes_its_folder(lab: str, monkeypatch, capsys, tmp_path):
    registered(monkeypatch, "mine", WRONG["fisher_rao"][0])
    line = refusal(capsys, "bandit", lab, "--methods", "none,cokl,mine", "--out", str(tmp_path / "out"))
    assert "mine: value is not finite at the reference, where training starts: acos" in line
    assert not (tmp_path / "out").exists()
