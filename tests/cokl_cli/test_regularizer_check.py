"""Regularizers of other people's kinds: what trains passes, and what does not is one line that names the cause."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cokl import regularizers
from cokl.policy import Policy, expectation
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError
from cokl_cli.regularizer_check import require_trainable
from tests.cokl_cli.test_bad_input import refusal

Value = Callable[[Policy, Policy], Tensor]


def kl(p: Policy, r: Policy) -> Tensor:
    return (p.probs * (p.log_probs - r.log_probs)).sum(-1)


def overlap(p: Policy, r: Policy) -> Tensor:
    return ((p.log_probs + r.log_probs) / 2).exp().sum(-1)


def top(p: Policy, r: Policy, of_reference: int, size: int = 5) -> Tensor:
    """The reference's runs axis is `of_reference`, or the policy's where that is 0."""
    best = r.log_probs.topk(size, dim=-1).indices
    runs = best.expand(*p.log_probs.shape[:-1], size)
    mine = p.log_probs.gather(-1, runs).log_softmax(-1)
    theirs = r.log_probs.gather(-1, best if of_reference else runs).log_softmax(-1)
    return (theirs.exp() * (theirs - mine)).sum(-1)


def acos_but_where_equal(p: Policy, r: Policy) -> Tensor:
    equal = (p.log_probs - r.log_probs).abs().amax(-1) < 1e-5
    return torch.where(equal, 0 * p.mass, torch.acos(torch.where(equal, 0.5, overlap(p, r))))


def apart(p: Policy, r: Policy) -> Tensor:
    """Squared energy distance, with a table of the paper's 200 actions' distances."""
    where = torch.arange(200.0) / 200
    distances = (where[:, None] - where).abs().to(p.probs)
    return -(((p.probs - r.probs) @ distances) * (p.probs - r.probs)).sum(-1)


def ratio_among_the_correct(p: Policy, r: Policy) -> Tensor:
    return (r.conditional_log_probs - p.conditional_log_probs).nan_to_num().exp()


def wrong(p: Policy) -> Tensor:
    return p.log_probs.masked_fill(p.correct.mask, value=-torch.inf)


def js_among_the_correct(p: Policy, r: Policy) -> Tensor:
    middle = torch.logaddexp(p.conditional_log_probs, r.conditional_log_probs) - math.log(2)
    return expectation(p.conditional_probs, p.conditional_log_probs - middle) + expectation(
        r.conditional_probs, r.conditional_log_probs - middle
    )


def js_of_a_stack(p: Policy, r: Policy) -> Tensor:
    both = torch.stack([p.conditional_log_probs, r.conditional_log_probs.expand(p.conditional_log_probs.shape)])
    return (both.exp() * (both - both.logsumexp(0))).sum((0, -1))


def power_of_the_incorrect(p: Policy, r: Policy) -> Tensor:
    """Of the correct, log(0) = -inf, which the value leaves out."""
    chances = (p.probs * ~p.correct.mask).log()
    return torch.where(p.correct.mask, 0, p.probs * chances).sum(-1)


RIGHT: dict[str, Value] = {
    "top_50": lambda p, r: top(p, r, 1, 50),
    "table_of_the_actions": apart,
    "chi_square_among_the_correct": lambda p, r: (r.conditional_probs * (ratio_among_the_correct(p, r) - 1)).sum(-1),
    "kl_among_the_correct": lambda p, r: expectation(
        p.conditional_probs, p.conditional_log_probs - r.conditional_log_probs
    ),
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
PADDED = "where prompts differ in their number of correct answers, so that some have padding"
SIGN = "value is largest at the reference, .*: its sign is wrong for a distance$"


def written(into, where, what):
    """In place."""
    into[where] = what
    return into


def zero_by_zero(policy, reference):
    """Of wrong actions, whose -inf was written over with 0."""
    logs = (policy.probs * policy.correct.mask).log().clone()
    finite = written(logs, ~policy.correct.mask.expand(logs.shape), 0)
    return (finite / (finite * 0)).sum(-1)


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
        r"RuntimeError in its value on a stack of runs, policies \(4, 8, 200\) beside a reference \(1, 8, 200\), which",
    ),
    "kl_turned_round": (lambda p, r: -kl(p, r), SIGN),
    "total_variation_turned_round": (lambda p, r: -(p.probs - r.probs).abs().sum(-1), SIGN),
    "similarity": (overlap, SIGN),
    "of_the_first_run": (lambda p, r: kl(p, r) / kl(p, r).mean(), "value depends on the other runs of a stack"),
    "of_the_runs_before": (
        lambda p, r: (p.probs - r.probs).cumsum(0).square().sum(-1),
        "value depends on the other runs of a stack",
    ),
    "of_the_prompts_before": (
        lambda p, r: (p.probs - r.probs).cumsum(1).square().sum(-1),
        "value depends on the other prompts of a batch",
    ),
    "mean_over_the_batch": (
        lambda p, r: kl(p, r).mean(-1, keepdim=True).expand_as(kl(p, r)),
        "value depends on the other prompts of a batch",
    ),
    "of_the_mean_policy": (
        lambda p, r: (p.probs * (p.log_probs - p.probs.mean(-2, keepdim=True).log())).sum(-1),
        "value depends on the other prompts of a batch",
    ),
    "written_over_with_0_afterwards": (
        zero_by_zero,
        "value is not finite at an ordinary policy: div is at",
    ),
    "written_into_zeros": (
        lambda p, r: written(torch.zeros_like(p.probs), (..., 0), (p.probs[..., 0] * 0).log()).sum(-1),
        "value is not finite at an ordinary policy: log is at",
    ),
    "times_infinity": (
        lambda p, r: p.log_probs.sum(-1) * float("inf"), "value is not finite at an ordinary policy: mul is at"
    ),
    "padding_forgotten": (
        lambda p, r: (r.conditional_probs * (r.conditional_log_probs - p.conditional_log_probs)).sum(-1),
        f"value is not finite {PADDED}: sub makes NaN of an infinite number",
    ),
    "padding_hidden_from_the_value_alone": (
        lambda p, r: torch.where(
            p.conditional_probs > 0, p.conditional_probs * (p.conditional_log_probs - r.conditional_log_probs), 0
        ).sum(-1),
        f"the gradient of value is not finite {PADDED}: sub makes NaN of an infinite number",
    ),
    "jensen_shannon_among_the_correct": (
        js_among_the_correct,
        f"the gradient of value is not finite {PADDED}: logaddexp makes NaN of an infinite number",
    ),
    "jensen_shannon_of_a_stack": (
        js_of_a_stack,
        f"value is not finite {PADDED}: sub makes NaN of an infinite number",
    ),
    "log_hidden_from_the_value_alone": (
        power_of_the_incorrect,
        "the gradient of value is not finite at an ordinary policy: log is at or beyond the end of its range",
    ),
    "padding_among_a_mean": (
        lambda p, r: (p.conditional_probs - r.conditional_probs).square().mean(-1),
        f"value depends on the other prompts of a batch {PADDED}",
    ),
    "mask_forgotten": (
        lambda p, r: (p.probs * (wrong(p) - wrong(r))).sum(-1),
        "value is not finite at an ordinary policy: sub makes NaN of an infinite number",
    ),
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
    require_trainable(name, dtype=torch.float64)


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_train_is_one_line_with_its_cause(name: str, monkeypatch: pytest.MonkeyPatch):
    value, cause = WRONG[name]
    registered(monkeypatch, name, value)
    with pytest.raises(InputError, match=f"^{name}: {cause}") as refused:
        require_trainable(name)
    assert "\n" not in str(refused.value)


def test_what_float32_cannot_hold_float64_can(monkeypatch: pytest.MonkeyPatch):
    registered(monkeypatch, "mine", WRONG["fisher_rao_clamped_for_float64"][0])
    require_trainable("mine", dtype=torch.float64)


@pytest.mark.parametrize("lab", ["sweep", "robustness"])
def test_a_lab_refuses_what_does_not_train_before_it_makes_its_folder(lab: str, monkeypatch, capsys, tmp_path):
    registered(monkeypatch, "mine", WRONG["fisher_rao"][0])
    line = refusal(capsys, "bandit", lab, "--methods", "none,cokl,mine", "--out", str(tmp_path / "out"))
    assert "mine: value is not finite at the reference, where training starts: acos" in line
    assert not (tmp_path / "out").exists()


def test_a_closed_form_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch):
    registered(monkeypatch, "mine", RIGHT["alpha"])
    monkeypatch.setattr(
        type(regularizers.get("mine")), "logit_gradient", lambda self, policy, reference: policy.probs @ reference.probs
    )
    with pytest.raises(InputError, match=r"^mine: RuntimeError in its logit_gradient at an ordinary policy: "):
        require_trainable("mine")


def test_a_table_of_other_sizes_is_looked_at_with_the_labs_own(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path):
    """The table is of 200 actions, and the lab has 20."""
    registered(monkeypatch, "mine", apart)
    options = ("--methods", "mine", "--actions", "20", "--out", str(tmp_path / "out"))
    line = refusal(capsys, "bandit", "sweep", *options)
    assert "mine: RuntimeError in its value at an ordinary policy: " in line
    assert not (tmp_path / "out").exists()
