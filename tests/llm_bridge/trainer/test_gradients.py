"""Every method and kind of loss on one rank and on two, through the trainer's hooks, against the equations.

`test_trainer` has the trainer's own options, on one rank.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

pytest.importorskip("verl")

from cokl import methods, regularizers
from tests.llm_bridge.trainer import one_step
from tests.llm_bridge.trainer.one_step import ACTOR, AGREES, DIFFERS, MODES, errors

METHODS = [name for name in (*regularizers.names(), "cokl_floor") if methods.get(name).streams()]
PACKED: dict[str, Any] = {"use_remove_padding": True}
DYNAMIC: dict[str, Any] = {"use_dynamic_bsz": True, "max_token_len_per_gpu": 12}
SETTINGS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "packed": ((), PACKED, {}),
    "dynamic": ((), DYNAMIC, {}),
    "dynamic, packed": ((), PACKED | DYNAMIC, {}),
    "training prompts": (("TRAINING",), {}, {}),
    "KL loss": ((f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.3"), {}, {"kl": 0.3}),
    "entropy": ((f"{ACTOR}.entropy_coeff=0.3",), {}, {"entropy": 0.3}),
    **{name: ((f"{ACTOR}.policy_loss.loss_mode={name}",), {}, {}) for name in ("gspo", "gpg", "cispo")},
}
"""Options of VeRL's trainer and of its workers, and what they are to the oracle. At a ratio of 1 the last three losses
have the gradient of the first.
"""
ROWS = 48
"""Of a step with both streams, and what fewer rows are padded to in a single micro-batch."""


def on(*kinds: str) -> Any:
    """The ranks on which a test runs, one kind after the other: a process has one group of ranks at a time."""
    return pytest.mark.parametrize("step", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def step(request, tmp_path_factory):
    ranks, lora = {"one rank": (1, False), "two ranks": (2, False), "an adapter": (1, True)}[request.param]
    with one_step.started(tmp_path_factory.mktemp("gradients"), ranks, lora) as step:
        step.chance = 0.3  # an open gate of the floor
        yield step


def differences(step, method: str, mode: str, setting: str = "", micro_batch: int = 4) -> tuple[float, float]:
    """Relative errors of the gradient: to the equations, and to those without the regularizer."""
    options, told, oracle = SETTINGS.get(setting, ((), {}, {}))
    if options == ("TRAINING",):
        options = one_step.of_training_prompts(step.folder)
    gradients, rows, metrics = step.run(
        f"cokl.method={method}",
        f"{ACTOR}.loss_agg_mode={mode}",
        f"{ACTOR}.loss_scale_factor=10",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu={micro_batch}",
        *options,
        **{"micro_batch_size_per_gpu": micro_batch} | told,
    )
    assert metrics.get("actor/pg_clipfrac", 0) == metrics.get("actor/pg_clipfrac_lower", 0) == 0
    oracle = oracle | {"aggregation": mode}
    plain = [row for row in rows if row.stream == "rl"]
    return max(errors(step, gradients, rows, method=method, **oracle)), max(errors(step, gradients, plain, **oracle))


@on("one rank", "two ranks")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
def test_verls_gradient_is_that_of_the_equations(step, method, mode):
    """In micro-batches of one row, of a few, and of all."""
    number = METHODS.index(method) + MODES.index(mode)
    micro_batch = (1, 4, ROWS // step.workers.ranks)[number % 3]
    error, without = differences(step, method, mode, micro_batch=micro_batch)
    assert error < AGREES
    assert without > DIFFERS


IN_TURNS = [
    (method, MODES[number % len(MODES)], setting)
    for number, (method, setting) in enumerate(itertools.product(("reverse_kl", "correct_forward_kl"), SETTINGS))
]
"""For methods of one stream."""


@on("one rank", "two ranks")
@pytest.mark.parametrize(
    ("method", "mode", "setting"),
    [*(("cokl", mode, setting) for setting, mode in itertools.product(SETTINGS, MODES)), *IN_TURNS],
)
def test_it_is_under_packing_training_prompts_and_other_losses(step, method, mode, setting):
    error, without = differences(step, method, mode, setting)
    assert error < AGREES
    assert without > DIFFERS


@on("one rank", "two ranks")
@pytest.mark.parametrize("setting", ["", "training prompts"])
@pytest.mark.parametrize("method", ["cokl", "cokl_floor"])
def test_it_is_with_prompts_without_a_correct_fresh_response(step, method, setting, monkeypatch):
    """Their fresh responses have no weight, and their cached ones have."""
    monkeypatch.setattr(step, "chance", 0.2)
    error, without = differences(step, method, "token-mean", setting)
    assert error < AGREES
    assert without > DIFFERS
    answered = [row for row in step.answered.values() if row.stream == ("rl" if setting else "rollout")]
    right = {row.group: sum(one.reward for one in answered if one.group == row.group) for row in answered}
    assert 0 in right.values()
    assert any(right.values())


@on("one rank", "two ranks")
@pytest.mark.parametrize("count", [1, 24])
@pytest.mark.parametrize("mode", MODES)
def test_it_does_not_depend_on_the_number_of_micro_batches(step, mode, count):
    error, _ = differences(step, "cokl", mode, micro_batch=ROWS // step.workers.ranks // count)
    assert error < AGREES


@on("an adapter")
@pytest.mark.parametrize("mode", MODES)
def test_an_adapters_gradient_is_that_of_the_equations_too(step, mode):
    error, without = differences(step, "cokl", mode)
    assert error < AGREES
    assert without > DIFFERS
