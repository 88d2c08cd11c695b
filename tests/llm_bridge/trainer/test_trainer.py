"""Optimizer steps through the trainer's own hooks against an oracle that reads only rows; and planted bugs.

Each bug that is planted here must move the gradient away from the oracle's: a test that cannot fail shows nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.losses import ppo_loss

from cokl.methods import Method
from cokl.support.errors import InputError
from cokl.surrogate_config import SurrogateConfig
from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.experiment.rewarded import RewardedTrainer
from llm_bridge.trainer import advantages, checks, core
from llm_bridge.trainer.advantages import Aggregation
from llm_bridge.trainer.settings import RegularizationSettings
from tests.llm_bridge.toy import make_tokenizer
from tests.llm_bridge.trainer import one_step
from tests.llm_bridge.trainer.one_step import ACTOR, AGREES, DIFFERS, MODES, errors

SEVERAL = f"{ACTOR}.ppo_epochs=2"


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    with one_step.started(tmp_path_factory.mktemp("one-step")) as step:
        yield step


PROMPTS = {"drawn": lambda folder: (), "training": one_step.of_training_prompts}
"""Options by which prompts are regularized."""
SOLVED = sum(map(any, one_step.TRAINING_VERDICTS))
KL_PROMPTS = {"drawn": one_step.KL_PROMPTS, "training": SOLVED}
both = pytest.mark.parametrize("prompts", PROMPTS)


@both
@pytest.mark.parametrize(("lengths", "mode"), [("token-sum", mode) for mode in MODES] + [("token-mean", "token-mean")])
def test_a_step_has_the_gradient_of_the_equations(step, lengths, mode, prompts):
    options = f"+cokl.length={lengths}", f"{ACTOR}.loss_agg_mode={mode}", f"{ACTOR}.loss_scale_factor=10"
    gradients, rows, metrics = step.run(*options, *PROMPTS[prompts](step.folder))
    assert len(gradients) == 1
    assert max(errors(step, gradients, rows, lengths=lengths, aggregation=mode)) < AGREES
    assert metrics["cokl/kl_rows"] == KL_PROMPTS[prompts] * (one_step.CACHED + one_step.FRESH)
    assert metrics.get("cokl/not_regularized") == (None if prompts == "drawn" else 1 - SOLVED / one_step.RL_PROMPTS)


@both
@pytest.mark.parametrize("estimator", ["rloo", "reinforce_plus_plus"])
def test_other_advantages_of_verls_go_with_the_same_weights(step, estimator, prompts):
    """Of the RL rows alone, whatever is added to them; the regularizer's weights do not depend on the estimator."""
    gradients, rows, _ = step.run(f"algorithm.adv_estimator={estimator}", *PROMPTS[prompts](step.folder))
    assert max(errors(step, gradients, rows, estimator=estimator)) < AGREES
    assert max(errors(step, gradients, rows)) > DIFFERS


@pytest.mark.parametrize(
    "option",
    ["algorithm.use_kl_in_reward=True", *(f"algorithm.adv_estimator={name}" for name in checks.ESTIMATORS[1:])],
)
def test_the_regularizers_part_is_the_same_beside_any_advantages(step, option):
    """The gradient with a large coefficient less the one with none, beside GRPO and beside others of VeRL's."""
    parts = []
    for options in ((), (option,)):
        gradients = [step.run(*options, f"cokl.beta={beta}")[0][0] for beta in (100, 1e-9)]
        parts.append(gradients[0] - gradients[1])
    assert float((parts[1] - parts[0]).norm() / parts[0].norm()) < AGREES


def added_rows_as_surplus(patch):
    """VeRL's own choice, in the order of uids, which is none."""
    patch.setattr(core.CoKLTrainer, "_build_replay_buffer", PPOTrainerSync._build_replay_buffer)


@pytest.mark.parametrize("planted", [False, True])
def test_a_group_that_is_filtered_is_made_up_for_by_an_rl_group_alone(step, monkeypatch, planted):
    """VeRL asks for twice the groups that it dropped, and drops the surplus: never an added row."""
    if planted:
        added_rows_as_surplus(monkeypatch)
    options = "algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=acc"
    gradients, rows, metrics = step.run(*options)
    whole = metrics["cokl/kl_rows"] == one_step.KL_PROMPTS * (one_step.CACHED + one_step.FRESH)
    assert whole != planted
    if not planted:
        assert len({row.group for row in rows if row.stream == "rl"} - {"rl 0"}) == one_step.RL_PROMPTS
        assert max(errors(step, gradients, rows)) < AGREES


# ------------------------------ VeRL's other terms, of the RL rows alone ------------------------------


@pytest.mark.parametrize(("prompts", "mode"), [*(("drawn", mode) for mode in MODES), ("training", "token-mean")])
@pytest.mark.parametrize(
    ("option", "oracle", "metric"),
    [
        ((f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.3"), {"kl": 0.3}, "actor/kl_loss"),
        ((f"{ACTOR}.entropy_coeff=0.3",), {"entropy": 0.3}, "actor/entropy_loss"),
    ],
    ids=["KL loss", "entropy"],
)
def test_a_term_of_verls_counts_the_rl_rows_alone(step, mode, option, oracle, metric, prompts):
    options = f"{ACTOR}.loss_agg_mode={mode}", f"{ACTOR}.loss_scale_factor=10", *option
    gradients, rows, metrics = step.run(*options, *PROMPTS[prompts](step.folder))
    assert max(errors(step, gradients, rows, aggregation=mode, **oracle)) < AGREES
    assert max(errors(step, gradients, rows, aggregation=mode)) > DIFFERS
    _, _, alone = step.run(*options, "cokl.beta=1e-9", "cokl.kl_prompts=1")
    assert metrics[metric] == pytest.approx(alone[metric], rel=1e-4)


def test_a_kl_loss_may_be_of_any_kind(step):
    """VeRL's absolute difference has a gradient where the policy is the reference too, as after the first step."""
    kind = f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.3", f"{ACTOR}.kl_loss_type=abs"
    parts = [step.run(*kind, f"cokl.beta={beta}")[0][0] - step.run(f"cokl.beta={beta}")[0][0] for beta in (1, 1e-9)]
    assert float(parts[1].norm()) > 0
    assert float((parts[0] - parts[1]).norm() / parts[1].norm()) < 1e-4


RATIOS = {
    "token": lambda ratio: ratio.exp().clamp(max=2),
    "sequence": lambda ratio: ratio.sum().exp().clamp(max=2) * torch.ones_like(ratio),
}
"""VeRL's factors: of the log-ratios of the policy to what the rollout engine told, (T,)."""


@both
@pytest.mark.parametrize(("level", "mode"), [("token", "token-mean"), ("sequence", "seq-mean-token-mean")])
def test_factors_of_the_rollout_weigh_the_rl_loss_alone(step, level, mode, prompts):
    factors = f"algorithm.rollout_correction.rollout_is={level}", "rollout.calculate_log_probs=True"
    options = f"{ACTOR}.loss_agg_mode={mode}", factors[0], f"actor_rollout_ref.{factors[1]}"
    gradients, rows, _ = step.run(*options, *PROMPTS[prompts](step.folder))
    assert max(errors(step, gradients, rows, aggregation=mode, factor=RATIOS[level])) < AGREES
    assert max(errors(step, gradients, rows, aggregation=mode)) > DIFFERS


PENALTY = (
    "reward.reward_manager.name=dapo",
    "reward.reward_kwargs.overlong_buffer_cfg.enable=True",
    f"++reward.reward_kwargs.max_resp_len={one_step.LONGEST}",
)


@pytest.mark.parametrize(
    ("prompts", "options"),
    [("drawn", (f"{ACTOR}.ppo_micro_batch_size_per_gpu=16", "cokl.kl_prompts=3")), ("training", ())],
)
def test_a_penalty_on_length_is_the_rl_rewards_and_no_verdict(step, monkeypatch, prompts, options):
    """With padding too, which VeRL makes of the first row, and with it what the reward function said of that."""
    monkeypatch.setattr(step, "penalty", -0.7)
    options = *PROMPTS[prompts](step.folder), *options
    gradients, rows, metrics = step.run(*PENALTY, *options)
    assert any(key.startswith("pad") for key in step.workers.keys[0]) == (prompts == "drawn")
    assert max(errors(step, gradients, rows)) < AGREES
    fresh = [row.reward for row in rows if row.stream == "rollout"]
    assert metrics["cokl/reward_mean"] == pytest.approx(np.mean(fresh))
    gradients, rows, _ = step.run(*options)  # as if no penalty were set
    assert max(errors(step, gradients, rows)) > DIFFERS


@pytest.mark.parametrize(("size", "count"), [(5, 3), (3, 1), (4, 2)])
def test_any_number_of_responses_and_of_prompts_fits(step, size, count):
    """Rows that do not divide by `rollout.n` or by the micro-batch are made up by VeRL's padding."""
    gradients, rows, metrics = step.run(f"actor_rollout_ref.rollout.n={size}", f"cokl.kl_prompts={count}")
    assert max(errors(step, gradients, rows)) < AGREES
    assert metrics["cokl/kl_rows"] == count * (one_step.CACHED + size)


@pytest.mark.parametrize("estimator", checks.ESTIMATORS)
def test_verls_padding_changes_no_gradient(step, estimator):
    """Of RL rows alone: padded, opo's was NaN, gpg's 1.5 times as large, and Pass@k refused a single padding row."""
    few = "cokl.beta=1e-9", "cokl.kl_prompts=1", f"algorithm.adv_estimator={estimator}"
    plain, padded = (step.run(*few, f"{ACTOR}.ppo_micro_batch_size_per_gpu={size}")[0][0] for size in (4, 16))
    assert len(step.workers.keys[0]) == 32  # 24 and 8 of padding
    assert float((padded - plain).norm()) <= AGREES * float(plain.norm())
    step.run(*few, lose=1)
    assert [key.startswith("pad") for key in step.workers.keys[0]].count(True) == 1


def test_padding_has_no_token_in_a_mean_over_tokens(step):
    options = "cokl.kl_prompts=1", f"{ACTOR}.loss_agg_mode=token-mean", f"{ACTOR}.ppo_micro_batch_size_per_gpu=16"
    gradients, rows, _ = step.run(*options)
    assert len(step.workers.keys[0]) == 32  # 24 and 8 of padding
    assert max(errors(step, gradients, rows, aggregation="token-mean")) < AGREES


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("option", [*(f"policy_loss.loss_mode={name}" for name in checks._ON_POLICY), "reverse_kl"])
def test_verls_metrics_are_those_of_the_rl_rows(step, option, mode):
    """As a step has them in which the regularizer is nothing, of the same rollouts."""
    options = (
        f"{ACTOR}.{option}" if "=" in option else f"cokl.method={option}",
        f"{ACTOR}.loss_agg_mode={mode}",
        f"{ACTOR}.loss_scale_factor=10",
    )
    _, _, metrics = step.run(*options)
    _, _, alone = step.run(*options, "cokl.beta=1e-9", "cokl.kl_prompts=1")
    others = ("actor/grad_norm", "actor/loss", "actor/perf")
    names = [name for name in alone if name.startswith("actor/") and not name.startswith(others)]
    assert {"actor/entropy", "actor/pg_loss"} <= set(names)
    assert {"actor/ppo_kl", "actor/pg_clipfrac"} <= set(names) or "gpg" in option
    assert "actor/kl_loss" in names or option != "reverse_kl"
    assert [metrics[name] for name in names] == pytest.approx([alone[name] for name in names], abs=1e-6)
    assert metrics["actor/loss"] - metrics["actor/pg_loss"] == pytest.approx(metrics["cokl/loss"], rel=1e-5)


def test_added_rows_are_at_a_ratio_of_1_which_is_not_clipped(step):
    """Though their advantages are as large as a clipping range may be narrow."""
    narrow = f"{ACTOR}.clip_ratio_low=1e-4", f"{ACTOR}.clip_ratio_high=1e-4", f"{ACTOR}.clip_ratio_c=1.0001"
    gradients, _, metrics = step.run("cokl.beta=1000", *narrow)
    wide, _, _ = step.run("cokl.beta=1000")
    assert float((gradients[0] - wide[0]).norm() / wide[0].norm()) < AGREES
    assert metrics["actor/pg_clipfrac"] == metrics["actor/pg_clipfrac_lower"] == 0


OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "method": ((), ("cokl.method=correct_forward_kl",)),
    "beta": ((), ("cokl.beta=0.6",)),
    "buffer": ((), ("cokl.buffer=FOLDER/other.parquet",)),
    "kl_prompts": ((), ("cokl.kl_prompts=3",)),
    "seed": (("cokl.kl_prompts=2",), ("cokl.kl_prompts=2", "+cokl.seed=1")),
    "seed of cached responses": (("+cokl.cached_per_prompt=1",), ("+cokl.cached_per_prompt=1", "+cokl.seed=1")),
    "correct_above": ((), ("+cokl.correct_above=-0.5",)),
    "length": ((), ("+cokl.length=token-mean",)),
    "prompts": (
        ("cokl.kl_prompts=2", "cokl.buffer=FOLDER/training.parquet"),
        ("~cokl.kl_prompts", "cokl.buffer=FOLDER/training.parquet", "+cokl.prompts=training"),
    ),
    "cached_per_prompt": ((), ("+cokl.cached_per_prompt=1",)),
}
"""Of each option of the regularizer two values. FOLDER: the step's."""


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_at_another_value_gives_another_gradient(step, name):
    one_step.make_buffer(step.folder, "other", [(0, 1, 1, 0)] * one_step.KL_PROMPTS)
    first, changed = (
        step.run(*(option.replace("FOLDER", str(step.folder)) for option in options))[0][0] for options in OPTIONS[name]
    )
    assert float((changed - first).norm() / first.norm()) > DIFFERS


def test_every_option_of_the_regularizer_is_run_at_two_values():
    known = {field.name for field in dataclasses.fields(RegularizationSettings)} - {"check"}  # which starts nothing
    assert known == {name.partition(" ")[0] for name in OPTIONS}


@pytest.mark.parametrize("options", [("cokl.kl_prompts=2",), ("+cokl.cached_per_prompt=1",)])
def test_a_seed_draws_the_same_from_the_buffer_again_and_another_one_something_else(step, options):
    drawn = []
    for seed in (0, 0, 1):
        step.run(*options, f"+cokl.seed={seed}")
        drawn.append({row for row in step.answered.values() if row.stream == "reference"})
    assert drawn[0] == drawn[1] != drawn[2]


# ------------------------------ several optimizer steps ------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_later_steps_have_the_gradient_of_the_moved_policy(step, mode):
    gradients, rows, _ = step.run(SEVERAL, f"{ACTOR}.loss_agg_mode={mode}", f"{ACTOR}.loss_scale_factor=10")
    assert len(gradients) == 2
    assert max(errors(step, gradients, rows, aggregation=mode)) < AGREES


@pytest.mark.parametrize("adapter", [False, True], ids=["reference worker", "adapter off"])
def test_later_steps_beside_a_kl_loss_have_it_too(step, monkeypatch, adapter):
    """With an adapter VeRL takes the reference's log-probabilities from the actor, and marks the batch for it."""
    monkeypatch.setattr(step, "adapter", adapter)
    kl = f"{ACTOR}.loss_agg_mode=token-sum", f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.3"
    gradients, rows, _ = step.run(SEVERAL, *kl)
    assert max(errors(step, gradients, rows, aggregation="token-sum", kl=0.3)) < AGREES


@pytest.mark.parametrize("count", [4, 3])
def test_every_mini_batch_is_a_step_of_its_own_groups(step, count):
    gradients, _, _ = step.run(SEVERAL, f"{ACTOR}.ppo_mini_batch_size=2", f"cokl.kl_prompts={count}")
    assert len(gradients) == 2 * 2
    rows = [[step.answered[key] for key in keys if key in step.answered] for keys in step.workers.keys]
    for part in rows:
        sizes = Counter(row.group for row in part if row.stream != "rl")
        assert set(sizes.values()) == {one_step.CACHED + one_step.FRESH}
        assert sum(row.stream == "rl" for row in part) == 2 * one_step.FRESH
    assert max(errors(step, gradients, rows)) < AGREES


def test_under_the_moved_policy_no_more_rows_are_computed_than_fill_the_micro_batches(step):
    """Three prompts of 4 cached and 5 fresh responses, in micro-batches of 4: one RL row stands in."""
    asked: list[list[str]] = []
    right = step.workers.compute_log_prob

    def noted(batch, **options):
        asked.append(batch.keys)
        return right(batch, **options)

    with patch.object(step.workers, "compute_log_prob", noted):
        step.run(SEVERAL, "actor_rollout_ref.rollout.n=5", "cokl.kl_prompts=3")
    assert len(set(asked[-1])) == len(asked[-1]) == 27 + 1
    assert sum(step.answered[key].stream == "rl" for key in asked[-1]) == 1


def gamma_of_the_sampling_policy(patch):
    """Before the second optimizer step, the log-probabilities of the added rows are still those of the first."""
    patch.setattr(core.CoKLTrainer, "_under_current_policy", lambda self, step: core._moved(step, step.old_log_probs))


def test_stale_weights_are_seen(step, monkeypatch):
    gamma_of_the_sampling_policy(monkeypatch)
    gradients, rows, _ = step.run(SEVERAL)
    assert max(errors(step, gradients, rows)) > DIFFERS


SCHEDULES = {
    "constant": ["lr_warmup_steps=3"],
    "ratio": ["lr_warmup_steps_ratio=0.25"],
    "cosine": ["lr_scheduler_type=cosine", "lr_warmup_steps=2", "min_lr_ratio=0.1"],
}
ROLLOUTS = 8


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_learning_rate_goes_by_rollouts_whatever_the_optimizer_steps(step, tmp_path, name):
    """VeRL's own schedule, of the numbers that the trainer leaves it, at the first optimizer step of each rollout."""
    write_rows(
        [math_row("sums", row, "sum", f"{row} + 1?", str(row + 1)) for row in range(8)], tmp_path / "sums.parquet"
    )
    options = [f"{ACTOR}.optim.{option}" for option in SCHEDULES[name]]
    options += [f"data.{files}={tmp_path}/sums.parquet" for files in ("train_files", "val_files")]
    options += [f"trainer.total_training_steps={ROLLOUTS}", "data.dataloader_num_workers=0"]
    rates = {}
    for calls, several in ((1, []), (4, [SEVERAL, f"{ACTOR}.ppo_mini_batch_size=2"])):
        trainer = core.CoKLTrainer(one_step.configuration(step.folder, *options, *several))
        trainer.tokenizer, trainer.processor, trainer.parameter_sync_step = make_tokenizer(), None, 1
        trainer._init_dataloader()
        rates[calls] = learning_rates(trainer.config.actor_rollout_ref.actor.optim, ROLLOUTS * calls)[::calls]
    assert rates[4] == pytest.approx(rates[1])
    if name == "constant":
        assert rates[4] == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1, 1, 1])


def learning_rates(optim, steps: int) -> list[float]:
    """Of VeRL's schedule, as parts of the full rate, before each of its steps."""
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    engine: Any = SimpleNamespace(optimizer_config=optim, rank=1)
    scheduler, rates = FSDPEngine._build_lr_scheduler(engine, optimizer), []
    for _ in range(steps):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


def test_an_evaluated_response_without_a_reward_is_refused():
    """VeRL leaves it out where the reward function raised, so that the others' average would stand for all."""
    told = ["sums"] * 3, ["a", "a", "b"], {"reward": [1.0, 0.0, 1.0]}, [2] * 3
    asked = {("sums", "a"): 2, ("sums", "b"): 1}
    update: Any = RewardedTrainer._val_metrics_update
    assert update(None, *told, expected_acc_counts=asked)["val/sums/mean@2"] == 0.75
    with pytest.raises(InputError, match="1 evaluated responses have no reward"):
        update(None, *told, expected_acc_counts=asked | {("sums", "b"): 2})


# ------------------------------ rows ------------------------------


def test_a_training_prompt_adds_its_cached_responses_and_no_fresh_ones(step):
    _, rows, _ = step.run(*PROMPTS["training"](step.folder), "+cokl.cached_per_prompt=2")
    added = [row for row in step.answered.values() if row.stream != "rl"]
    assert {row.stream for row in added} == {"reference"}
    stored = {row for group in step.training.groups for row in one_step.cached_rows(group)}
    assert set(added) <= stored
    assert all(row.reward for row in added)  # each of the two solved prompts has two correct ones or more
    assert Counter(row.group for row in added) == {"rl 0": 2, "rl 1": 2}
    assert len(rows) == 16 + 8 + 4


def test_each_step_draws_other_cached_responses_and_has_their_gradient(step):
    drawn = set()
    for step.number in range(1, 9):
        gradients, rows, _ = step.run(*PROMPTS["training"](step.folder), "+cokl.cached_per_prompt=1")
        drawn |= {row for row in rows if row.stream == "reference"}
    step.number = 1
    assert max(errors(step, gradients, rows)) < AGREES
    assert drawn == {row for group in step.training.groups for row in one_step.cached_rows(group) if row.reward}


def test_no_row_is_computed_a_second_time(step):
    asked: Counter = Counter()
    right = step.workers.compute_log_prob

    def counted(batch):
        asked.update(batch.keys)
        return right(batch)

    with patch.object(step.workers, "compute_log_prob", counted):
        step.run(*PROMPTS["training"](step.folder))
    assert set(asked.values()) == {1}
    assert set(asked) >= set(step.answered)


def log_likelihood(step, row, moved: int = 0) -> float:
    """Of a row's response, in nats, under the policy after so many optimizer steps."""
    model = copy.deepcopy(step.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_((1 + one_step.DISPLACEMENT) ** moved)
        logits = model(torch.tensor([row.prompt + row.response])).logits[0, len(row.prompt) - 1 : -1]
        told = logits.log_softmax(-1).gather(-1, torch.tensor(row.response)[:, None])
    return float(told.double().sum())


def correct(rows, stream: str) -> dict[str, list]:
    """The correct rows of a stream, by prompt; of every prompt that has rows of it."""
    groups: dict[str, list] = {row.group: [] for row in rows if row.stream == stream}
    for row in rows:
        if row.stream == stream and row.reward > 0.5:
            groups[row.group].append(row)
    return groups


def test_the_log_has_a_steps_values(step, monkeypatch):
    """CoKL's loss is, over prompts, minus the mean log-likelihood of the correct cached plus that of the correct fresh.

    Some prompts have no correct fresh response of two.
    """
    monkeypatch.setattr(step, "chance", 0.3)
    _, rows, metrics = step.run("actor_rollout_ref.rollout.n=2")
    cached, fresh = correct(rows, "reference"), correct(rows, "rollout")
    count = one_step.KL_PROMPTS
    assert metrics["cokl/kl_rows"] == count * (one_step.CACHED + 2)
    assert metrics["cokl/reward_mean"] == pytest.approx(sum(map(len, fresh.values())) / (2 * count))
    unsolved = sum(not group for group in fresh.values())
    assert metrics["cokl/zero_correct"] == pytest.approx(unsolved / count)
    assert 0 < unsolved / count < 1 - metrics["cokl/reward_mean"]
    loss = 0.0
    for groups, sign in ((cached, -1), (fresh, 1)):
        for group in filter(None, groups.values()):
            loss += sign * one_step.BETA / count * float(np.mean([log_likelihood(step, row) for row in group]))
    assert metrics["cokl/loss"] == pytest.approx(loss, rel=1e-5)


def test_the_log_has_the_mean_over_optimizer_steps(step):
    """Two mini-batches, the second under the policy that the first has moved; replay's loss has no ratios."""
    _, _, metrics = step.run("cokl.method=correct_forward_kl", f"{ACTOR}.ppo_mini_batch_size=2")
    losses = []
    for moved, keys in enumerate(step.workers.keys):
        groups = correct([step.answered[key] for key in keys if key in step.answered], "reference")
        of_prompts = [np.mean([log_likelihood(step, row, moved) for row in group]) for group in groups.values()]
        losses.append(-one_step.BETA * np.mean(of_prompts))
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    assert metrics["cokl/loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_log_has_the_regularizers_share_of_the_gradient(step):
    """On-policy the gradient of the GRPO loss with respect to a token is minus the advantage over rows and tokens."""
    _, rows, metrics = step.run("cokl.method=correct_forward_kl")
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(f"{row.stream} {row.group}", []).append(row.reward)
    squared_rl = sum(
        ((row.reward - np.mean(groups[f"rl {row.group}"])) / (np.std(groups[f"rl {row.group}"], ddof=1) + 1e-6)) ** 2
        / (one_step.RL_PROMPTS * one_step.FRESH) ** 2 / len(row.response)
        for row in rows if row.stream == "rl"
    )  # fmt: skip
    squared = sum(
        (one_step.BETA * row.reward / sum(groups[f"reference {row.group}"]) / one_step.KL_PROMPTS) ** 2
        * len(row.response)
        for row in rows
        if row.stream == "reference"
    )
    assert metrics["cokl/gradient_share"] == pytest.approx(squared / (squared + squared_rl), rel=1e-5)


def test_where_prompts_have_one_right_form_cokl_is_plain_rl_and_the_log_says_so(step, monkeypatch):
    """Cached and fresh rows are the same tokens: their weights are -1 and 1 in sum, whatever the coefficient."""
    said = [5, 6]
    ids = {"response_ids": [np.array(said)] * one_step.CACHED, "masks": [np.ones(2, int)] * one_step.CACHED}
    groups = tuple(
        dataclasses.replace(group, **ids, rewards=np.ones(one_step.CACHED, int)) for group in step.buffer.groups
    )
    dataclasses.replace(step.buffer, groups=groups).save(step.folder / "one-form.parquet")
    monkeypatch.setattr(step, "said", said)
    runs = [step.run(f"cokl.buffer={step.folder}/one-form.parquet", f"cokl.beta={beta}") for beta in (1, 1e-9)]
    (strong, _, metrics), (plain, _, _) = runs
    assert float((strong[0] - plain[0]).norm() / plain[0].norm()) < AGREES
    assert metrics["cokl/kl_rows"] == one_step.KL_PROMPTS * (one_step.CACHED + one_step.FRESH)
    assert metrics["cokl/gradient_share"] < 1e-12


def test_a_prompt_that_lost_a_response_has_no_part(step):
    gradients, rows, metrics = step.run(lose=1)
    whole = [row for row in rows if row.group != step.lost]
    assert max(errors(step, gradients, whole)) < AGREES
    assert metrics["cokl/kl_rows"] == (one_step.KL_PROMPTS - 1) * (one_step.CACHED + one_step.FRESH)
    assert max(errors(step, gradients, rows)) > DIFFERS


def test_a_training_prompt_that_lost_a_response_keeps_its_advantages_alone(step):
    gradients, rows, metrics = step.run(*PROMPTS["training"](step.folder), lose=1)
    whole = [row for row in rows if row.group != step.lost or row.stream == "rl"]
    assert max(errors(step, gradients, whole)) < AGREES
    assert metrics["cokl/kl_rows"] == (SOLVED - 1) * (one_step.CACHED + one_step.FRESH)


def test_methods_of_fresh_responses_alone_add_no_row(step):
    gradients, rows, metrics = step.run(*PROMPTS["training"](step.folder), "cokl.method=cokl_without_term1")
    assert {row.stream for row in step.answered.values()} == {"rl"}
    assert max(errors(step, gradients, [row for row in rows if row.stream != "reference"])) < AGREES
    assert metrics["cokl/not_regularized"] == 1 - SOLVED / one_step.RL_PROMPTS
    assert metrics["cokl/gradient_share"] > 0


# ------------------------------ never silently plain or wrong ------------------------------


def test_the_threshold_is_for_scores_and_not_for_the_verdicts_of_the_buffer(step, monkeypatch):
    monkeypatch.setattr(step, "shaped", 3.0)  # fresh responses are scored 3 or 4, cached ones hold 0 or 1
    gradients, rows, _ = step.run("+cokl.correct_above=3.5")
    assert max(errors(step, gradients, rows)) < AGREES


def test_a_reward_that_is_no_number_ends_the_run(step):
    step.shaped = float("nan")
    try:
        with pytest.raises(InputError, match="a response got the reward nan: expected finite numbers"):
            step.run()
    finally:
        step.shaped = 0.0


def test_steps_without_any_weight_are_told_and_end_the_run(step, caplog):
    everything = one_step.KL_PROMPTS * one_step.CACHED
    with caplog.at_level(logging.WARNING):
        step.run(lose=everything)
    assert "step 1 is plain RL: 4 prompts to regularize, 0 with all of their responses" in caplog.text
    with patch.object(core, "IDLE_STEPS", 1), pytest.raises(InputError, match="1 steps in a row were plain RL"):
        step.run(lose=everything)


def test_a_step_without_a_solved_training_prompt_is_plain_grpo_and_says_so(step, monkeypatch, caplog):
    monkeypatch.setattr(core, "prompt_key", lambda *arguments: "another task")
    with caplog.at_level(logging.WARNING):
        gradients, rows, metrics = step.run(*PROMPTS["training"](step.folder))
    assert max(errors(step, gradients, [row for row in rows if row.stream == "rl"])) < AGREES
    assert (metrics["cokl/kl_rows"], metrics["cokl/loss"], metrics["cokl/not_regularized"]) == (0, 0, 1)
    assert "step 1 is plain RL: 0 prompts to regularize" in caplog.text


def test_no_rl_response_at_all_ends_the_run(step, monkeypatch):
    right = step._roll_out

    def failing(prompts, lose):
        batch = right(prompts, lose)
        return batch.select_keys([key for key in batch.keys if step.answered[key].stream != "rl"])

    monkeypatch.setattr(step, "_roll_out", failing)
    with pytest.raises(InputError, match="no RL response came back: the agent loop or the reward function failed"):
        step.run()


@both
def test_a_cached_prompt_with_other_tokens_than_the_fresh_one_is_refused(step, monkeypatch, prompts):
    """As of a buffer that was built with another chat template."""
    right = core.CoKLTrainer._brought

    def retold(self, group):
        return dataclasses.replace(right(self, group), prompt_ids=group.prompt_ids + 1)

    monkeypatch.setattr(core.CoKLTrainer, "_brought", retold)
    with pytest.raises(InputError, match="build the buffer with the chat template, tools and system prompt"):
        step.run(*PROMPTS[prompts](step.folder))


# ------------------------------ planted bugs ------------------------------


def wrong_sign(patch):
    right = Method.row_weights
    patch.setattr(Method, "row_weights", lambda *arguments: -right(*arguments))


def wrong_beta(patch):
    read = RegularizationSettings.read
    patch.setattr(
        RegularizationSettings, "read", lambda config: dataclasses.replace(read(config), beta=2 * one_step.BETA)
    )


def delta_for_gamma(patch):
    """Off-policy steps only: every ratio as if the policy had not moved."""
    right = Method.row_weights
    patch.setattr(
        Method,
        "row_weights",
        lambda self, rows, *rest: right(self, dataclasses.replace(rows, behavior_log_probs=None), *rest),
    )


def wrong_epsilon_is(patch):
    patch.setattr(core, "SurrogateConfig", lambda: SurrogateConfig(epsilon_is=0.02))


def fresh_for_cached(patch):
    right = core.ask

    def forgetful(*arguments):
        rows, members = right(*arguments)
        for row in rows:
            row["agent_name"] = "single_turn_agent"
        return rows, members

    patch.setattr(core, "ask", forgetful)


def rl_advantages_not_scaled(patch):
    patch.setattr(Aggregation, "rl_factor", property(lambda self: 1.0))


def shares_of_all_rows(patch):
    """As if the added tokens were counted in VeRL's token mean."""
    right = Aggregation.shares
    patch.setattr(Aggregation, "shares", lambda self, tokens, added: right(self, tokens, torch.zeros_like(added)))


def verls_own_loss(patch):
    """Of which entropy and KL are averaged over the added rows as well."""
    patch.setattr(core, "loss_of_rl_rows", lambda config, rl_rows: functools.partial(ppo_loss, config))


def terms_of_all_rows(patch):
    """Divided as VeRL divides: by the added rows too."""
    right = core.loss_of_rl_rows
    patch.setattr(core, "loss_of_rl_rows", lambda config, rl_rows: right(config, 48))


def factors_on_the_regularizer(patch):
    right = advantages.regularized_advantages

    def without(own, masks, weights, added, aggregation, factors):
        return right(own, masks, weights, added, aggregation, [torch.ones_like(factor) for factor in factors])

    patch.setattr(core, "regularized_advantages", without)


def verdicts_of_shaped_scores(patch):
    patch.setattr(core, "penalized", lambda config: False)


def tokens_not_counted(patch):
    right = Aggregation.shares
    patch.setattr(Aggregation, "shares", lambda self, tokens, added: right(self, torch.ones_like(tokens), added))


def fresh_term_doubled(patch):
    right = Method.row_weights

    def doubled(self, rows, *rest):
        weights = right(self, rows, *rest)
        weights[rows.index.rollout] *= 2
        return weights

    patch.setattr(Method, "row_weights", doubled)


def weights_of_rl_rows_lost(patch):
    right = advantages.regularized_advantages

    def dropped(own, masks, weights, added, *rest):
        return right(own, masks, weights * added, added, *rest)

    patch.setattr(core, "regularized_advantages", dropped)


def cached_rows_of_another_prompt(patch):
    """Responses of the next solved prompt, as answers to this one."""
    right = core.CoKLTrainer._cached_by_uid

    def rotated(self, batch):
        found = right(self, batch)
        solved = [group for group in found.values() if group]
        others = dict(zip(map(id, solved), solved[1:] + solved[:1], strict=True))

        def other(group):
            return dataclasses.replace(others[id(group)], prompt=group.prompt, prompt_ids=group.prompt_ids)

        return {uid: group and other(group) for uid, group in found.items()}

    patch.setattr(core.CoKLTrainer, "_cached_by_uid", rotated)


def unsolved_prompts_counted(patch):
    patch.setattr(Method, "filtered", property(lambda self: False))


TERMS = {
    "kl": (f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.3"),
    "entropy": (f"{ACTOR}.entropy_coeff=0.3",),
    "factor": ("algorithm.rollout_correction.rollout_is=token", "actor_rollout_ref.rollout.calculate_log_probs=True"),
    "penalty": PENALTY,
}
LIFTED = [
    ("drawn", verls_own_loss, "entropy", "token-mean"),
    *(("drawn", terms_of_all_rows, term, "seq-mean-token-mean") for term in ("kl", "entropy")),
    ("training", verls_own_loss, "entropy", "seq-mean-token-mean"),
    ("training", factors_on_the_regularizer, "factor", "token-mean"),
    ("drawn", verdicts_of_shaped_scores, "penalty", "token-mean"),
    ("training", verdicts_of_shaped_scores, "penalty", "token-mean"),
]


@pytest.mark.parametrize(("prompts", "bug", "term", "mode"), LIFTED)
def test_a_term_without_its_correction_is_seen(step, monkeypatch, prompts, bug, term, mode):
    monkeypatch.setattr(step, "penalty", -0.7 * (term == "penalty"))
    oracle: dict[str, Any] = {"kl": {"kl": 0.3}, "entropy": {"entropy": 0.3}, "factor": {"factor": RATIOS["token"]}}
    options = *TERMS[term], f"{ACTOR}.loss_agg_mode={mode}", *PROMPTS[prompts](step.folder)
    for planted in (False, True):
        if planted:
            bug(monkeypatch)
        gradients, rows, _ = step.run(*options)
        error = max(errors(step, gradients, rows, aggregation=mode, **oracle.get(term, {})))
        assert error > DIFFERS if planted else error < AGREES


EVERYWHERE = (wrong_sign, wrong_beta, rl_advantages_not_scaled, tokens_not_counted, fresh_term_doubled)
PLANTED = [
    *(("drawn", bug, f"{ACTOR}.loss_agg_mode=seq-mean-token-mean") for bug in (*EVERYWHERE, fresh_for_cached)),
    ("drawn", shares_of_all_rows, f"{ACTOR}.loss_agg_mode=token-mean"),
    *(("drawn", bug, SEVERAL) for bug in (delta_for_gamma, wrong_epsilon_is)),
    *(
        ("training", bug, f"{ACTOR}.loss_agg_mode=seq-mean-token-mean")
        for bug in (*EVERYWHERE, weights_of_rl_rows_lost, cached_rows_of_another_prompt, unsolved_prompts_counted)
    ),
]


@pytest.mark.parametrize(("prompts", "bug", "option"), PLANTED, ids=lambda given: getattr(given, "__name__", None))
def test_a_planted_bug_is_seen(step, monkeypatch, prompts, bug, option):
    bug(monkeypatch)
    gradients, rows, _ = step.run(*PROMPTS[prompts](step.folder), option)
    mode = option.partition("loss_agg_mode=")[2] or "seq-mean-token-mean"
    assert max(errors(step, gradients, rows, aggregation=mode)) > DIFFERS
