"""Two optimizer steps through the trainer's own hooks against an oracle that reads only rows; and planted bugs.

Each bug that is planted here must move the gradient away from the oracle's: a test that cannot fail shows nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from transfer_queue import KVBatchMeta
from transformers import AutoModelForCausalLM

from cokl.groups import LENGTHS
from cokl.methods import Method
from cokl.support.errors import InputError
from cokl.surrogate_config import SurrogateConfig
from llm_bridge.trainer import joint, loss, options
from llm_bridge.trainer.loss import ADDED, WEIGHT
from llm_bridge.trainer.options import RegularizationSettings, batch_shape
from llm_bridge.trainer.streams import Minibatch, Origin
from tests.llm_bridge.trainer import one_step
from tests.oracles import joint_step

AGREES, DIFFERS = 1e-5, 1e-3
"""Relative errors of a gradient: at most without a bug, and at least with one."""


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    with patch.dict(os.environ):  # the worker's rank and address, which jobs of later tests would inherit
        yield one_step.Step(tmp_path_factory.mktemp("one-step"))
        torch.distributed.destroy_process_group()


def errors(step, gradients, rows, lengths="token-sum", token_mean=False, estimator="grpo") -> list[float]:
    """Relative error of each optimizer step's gradient. rows: of every step, or a list of each step's."""
    sampled = AutoModelForCausalLM.from_pretrained(step.folder, dtype=torch.float32)
    found = []
    for number, gradient in enumerate(gradients):
        model = copy.deepcopy(sampled)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_((1 + one_step.DISPLACEMENT) ** number)

        def log_probs(row, model):
            logits = model(torch.tensor([row.prompt + row.response])).logits[0, len(row.prompt) - 1 : -1]
            return logits.log_softmax(-1).gather(-1, torch.tensor(row.response)[:, None])[:, 0].double()

        total = joint_step.loss(
            rows[number] if isinstance(rows[0], list) else rows,
            lambda row, model=model: log_probs(row, model),  # type: ignore[misc]
            lambda row: log_probs(row, sampled).detach(),
            one_step.BETA,
            one_step.EPSILON_IS,
            one_step.CLIP,
            lengths,
            token_mean,
            estimator,
        )
        expected = torch.cat([part.flatten() for part in torch.autograd.grad(total, list(model.parameters()))])
        found.append(float((gradient - expected).norm() / expected.norm()))
    return found


PROMPTS = {"drawn": lambda folder: (), "training": one_step.of_training_prompts, "both": one_step.of_both}
"""Options by which prompts are regularized."""
SOLVED = sum(map(any, one_step.TRAINING_VERDICTS))
KL_PROMPTS = {"drawn": one_step.KL_PROMPTS, "training": SOLVED, "both": one_step.KL_PROMPTS + SOLVED}


@pytest.mark.parametrize("prompts", PROMPTS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_both_steps_have_the_gradient_of_the_equations(step, lengths, prompts):
    gradients, rows, metrics = step.run(f"+cokl.length={lengths}", *PROMPTS[prompts](step.folder))
    assert len(gradients) == one_step.EPOCHS
    assert max(errors(step, gradients, rows, lengths)) < AGREES
    assert metrics["cokl/kl_rows"] == KL_PROMPTS[prompts] * (one_step.CACHED + one_step.FRESH)
    assert metrics.get("cokl/not_regularized") == (None if prompts == "drawn" else 1 - SOLVED / one_step.RL_PROMPTS)
    assert metrics["actor/cokl/loss"] == pytest.approx(metrics["cokl/loss"], rel=1e-4)


@pytest.mark.parametrize("prompts", PROMPTS)
@pytest.mark.parametrize("estimator", ["rloo", "reinforce_plus_plus"])
def test_other_advantages_of_verls_go_with_the_same_weights(step, estimator, prompts):
    """Of the RL rows alone, whatever is added to them; the regularizer's weights do not depend on the estimator."""
    gradients, rows, _ = step.run(f"algorithm.adv_estimator={estimator}", *PROMPTS[prompts](step.folder))
    assert max(errors(step, gradients, rows, estimator=estimator)) < AGREES
    assert max(errors(step, gradients, rows)) > DIFFERS


def test_a_training_prompt_adds_its_cached_responses_and_no_fresh_ones(step):
    _, rows, metrics = step.run(*PROMPTS["training"](step.folder), "+cokl.cached_per_prompt=2")
    assert sorted(row.stream for row in step.answered.values()).count("rl") == one_step.RL_PROMPTS * one_step.FRESH
    added = [row for row in step.answered.values() if row.stream != "rl"]
    assert {row.stream for row in added} == {"reference"}
    assert metrics["cokl/added_tokens"] == sum(len(row.response) for row in added)
    stored = {row for group in step.training.groups for row in one_step.cached_rows(group)}
    assert set(added) <= stored
    assert all(row.reward for row in added)  # each of the two solved prompts has two correct ones or more
    assert Counter(row.group for row in added) == {"rl 0": 2, "rl 1": 2}
    assert len(rows) == 16 + 8 + 4


def test_each_step_draws_other_cached_responses_and_has_their_gradient(step):
    drawn = set()
    for step.number in range(1, 9):
        gradients, rows, _ = step.run(
            *PROMPTS["training"](step.folder), "+cokl.cached_per_prompt=1", "actor_rollout_ref.actor.ppo_epochs=1"
        )
        drawn |= {row for row in rows if row.stream == "reference"}
    step.number = 1
    assert max(errors(step, gradients, rows)) < AGREES
    correct = {row for group in step.training.groups for row in one_step.cached_rows(group) if row.reward}
    assert drawn == correct


def test_fresh_responses_are_not_computed_a_second_time(step):
    """One optimizer step takes the log-probabilities of no row twice: VeRL's pass, and that of the added rows."""
    asked: Counter = Counter()
    right = step.workers.compute_log_prob

    def counted(batch):
        asked.update(batch.keys)
        return right(batch)

    with patch.object(step.workers, "compute_log_prob", counted):
        step.run(*PROMPTS["training"](step.folder), "actor_rollout_ref.actor.ppo_epochs=1")
    assert set(asked.values()) == {1}
    assert set(asked) >= set(step.answered)


def test_the_log_has_either_streams_gradient_and_the_regularizers_share(step):
    """The gradient of a weighted sum of log-likelihoods with respect to a row's tokens is the row's weight."""
    gradients, rows, metrics = step.run("actor_rollout_ref.actor.ppo_epochs=1")
    assert len(gradients) == 1
    squared = sum(
        float(step.queue[key][WEIGHT]) ** 2 * len(row.response)
        for key, row in step.answered.items()
        if row.stream != "rl"
    )
    assert metrics["cokl/gradient_kl"] == pytest.approx(squared**0.5, rel=1e-5)
    # On-policy, and without clipping, the gradient of the GRPO loss is minus the advantage over rows and tokens.
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.stream == "rl":
            groups.setdefault(row.group, []).append(row.reward)
    squared_rl = sum(
        ((row.reward - np.mean(groups[row.group])) / (np.std(groups[row.group], ddof=1) + 1e-6)) ** 2
        / (one_step.RL_PROMPTS * one_step.FRESH) ** 2 / len(row.response)
        for row in rows if row.stream == "rl"
    )  # fmt: skip
    assert metrics["cokl/gradient_rl"] == pytest.approx(squared_rl**0.5, rel=1e-5)
    assert metrics["cokl/gradient_share"] == pytest.approx(squared / (squared + squared_rl), rel=1e-5)
    assert not any("squared" in name for name in metrics)


def test_the_coefficient_follows_its_schedule(step):
    _, _, constant = step.run("actor_rollout_ref.actor.ppo_epochs=1")
    _, _, none = step.run("actor_rollout_ref.actor.ppo_epochs=1", "+cokl.schedule=linear", "+cokl.beta_end=0.1")
    assert constant["cokl/beta"] == none["cokl/beta"] == one_step.BETA  # the first of five steps
    step.number = 3
    try:
        _, _, halfway = step.run("actor_rollout_ref.actor.ppo_epochs=1", "+cokl.schedule=linear", "+cokl.beta_end=0.1")
    finally:
        step.number = 1
    assert halfway["cokl/beta"] == pytest.approx((one_step.BETA + 0.1) / 2)
    assert halfway["cokl/gradient_kl"] / constant["cokl/gradient_kl"] == pytest.approx(
        halfway["cokl/beta"] / one_step.BETA, rel=1e-5
    )


def test_mini_batches_keep_a_training_prompt_and_its_cached_responses_together(step):
    gradients, _, _ = step.run("actor_rollout_ref.actor.ppo_mini_batch_size=2", *PROMPTS["both"](step.folder))
    assert len(gradients) == 2 * one_step.EPOCHS
    parts = [[step.answered[key] for key in keys if key in step.answered] for keys in step.workers.keys]
    homes = [{row.group for row in part if row.stream != "rollout"} for part in parts[:2]]
    assert not homes[0] & homes[1]
    assert max(errors(step, gradients, [one_step.as_the_oracle_has_them(part) for part in parts])) < AGREES


def test_every_mini_batch_is_a_step_of_its_own_groups(step):
    gradients, _, _ = step.run("actor_rollout_ref.actor.ppo_mini_batch_size=2")
    assert len(gradients) == 2 * one_step.EPOCHS
    rows = [[step.answered[key] for key in keys] for keys in step.workers.keys]
    assert [len(part) for part in rows] == [2 * one_step.FRESH + 2 * (one_step.CACHED + one_step.FRESH)] * len(rows)
    for part in rows:
        sizes = Counter(row.group for row in part if row.stream != "rl")
        assert set(sizes.values()) == {one_step.CACHED + one_step.FRESH}
    assert max(errors(step, gradients, rows)) < AGREES


def test_a_prompt_that_lost_a_response_has_no_part(step):
    gradients, rows, metrics = step.run(lose=1)
    whole = [row for row in rows if row.group != step.lost]
    assert max(errors(step, gradients, whole)) < AGREES
    assert metrics["cokl/kl_rows"] == (one_step.KL_PROMPTS - 1) * (one_step.CACHED + one_step.FRESH)
    assert max(errors(step, gradients, rows)) > DIFFERS


def test_a_first_step_in_which_no_group_came_back_whole_is_refused(step):
    with pytest.raises(InputError, match=r"no group of cokl\.kl_prompts came back complete"):
        step.run(lose=one_step.KL_PROMPTS * one_step.CACHED)


def test_an_agent_loop_with_several_outputs_a_session_is_refused(step, monkeypatch):
    right = step._roll_out

    def twice(prompts, lose):
        batch = right(prompts, lose)
        first, key = batch.keys[0], f"{batch.keys[0].removesuffix('_0')}_1"
        step.queue[key] = dict(step.queue[first])
        return dataclasses.replace(batch, keys=[*batch.keys, key], tags=[*batch.tags, batch.tags[0]])

    monkeypatch.setattr(step, "_roll_out", twice)
    with pytest.raises(InputError, match="an agent loop gave 1 outputs beside the first of their sessions"):
        step.run()


@pytest.fixture
def judging(step, tmp_path):
    """Options that name a judge of a file, by its function: one finds the stored verdicts and one does not."""
    rows = [row for group in step.buffer.groups for row in one_step.cached_rows(group)]
    file = tmp_path / "judges.py"
    file.write_text(
        f"SOLVED = {[row.response for row in rows if row.reward]}\n\n\ndef same(solution_str, points=1, **told):\n"
        "    return {'points': points * (tuple(map(int, solution_str.split())) in SOLVED)}\n\n\n"
        "def other(**told):\n    return {'points': 0.0, 'score': 0.0}\n"
    )
    return lambda name: (f"+cokl.judge={file}:{name}", "+cokl.judge_key=points")


def test_a_judge_that_contradicts_the_stored_verdicts_is_refused(step, judging):
    with pytest.raises(InputError, match=r"stored as correct and this run's judge gives it 0, with cokl\.correct_a"):
        step.run(*judging("other"))
    with pytest.raises(InputError, match="expected a finite number, or a dictionary with one at 'score'"):
        step.run(judging("same")[0])
    with pytest.raises(InputError, match="gives it 3, with"):
        step.run(*judging("same"), "+cokl.judge_kwargs.points=3", "+cokl.correct_above=5")


def test_a_judge_that_finds_the_stored_verdicts_judges_the_fresh_responses(step, judging, monkeypatch):
    asked: list = []
    right = step._roll_out

    def noted(prompts, lose):
        asked.extend(zip(prompts["agent_name"], prompts["judge"], strict=True))
        return right(prompts, lose)

    monkeypatch.setattr(step, "_roll_out", noted)
    options = judging("same")
    gradients, rows, _ = step.run(*options, "+cokl.judge_kwargs.points=3", "+cokl.correct_above=0.9")
    assert max(errors(step, gradients, rows)) < AGREES
    judge = {
        "function": options[0].removeprefix("+cokl.judge="), "key": "points", "options": {"points": 3},
        "loop": "single_turn_agent",
    }  # fmt: skip
    assert [told for agent, told in asked if agent == "judged"] == [judge] * one_step.KL_PROMPTS
    assert not any(told for agent, told in asked if agent != "judged")


def test_the_runs_own_function_is_held_to_the_stored_verdicts_as_well(step, judging):
    file = judging("other")[0].removeprefix("+cokl.judge=").removesuffix(":other")
    function = "reward.custom_reward_function"
    for prompts in ("drawn", "training"):
        with pytest.raises(InputError, match="stored as correct and this run's judge gives it 0"):
            step.run(*PROMPTS[prompts](step.folder), f"{function}.path={file}", f"{function}.name=other")


def test_a_cached_prompt_under_another_template_is_refused_where_nothing_fresh_would_tell(step, monkeypatch):
    replay = "cokl.method=correct_forward_kl"
    _, _, metrics = step.run(replay)
    assert metrics["cokl/kl_rows"] == one_step.KL_PROMPTS * one_step.CACHED
    right = one_step.Tokenizer.apply_chat_template
    asked: list[str] = []

    def last_is_other(self, messages, **options):
        asked.append(messages[0]["content"])
        return "1 2 3" if len(asked) == one_step.KL_PROMPTS else right(self, messages, **options)

    monkeypatch.setattr(one_step.Tokenizer, "apply_chat_template", last_is_other)
    with pytest.raises(InputError, match="a prompt has 2 tokens with one response and 3 or others with another"):
        step.run(replay)
    assert len(set(asked)) == one_step.KL_PROMPTS
    step.run(replay, "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent")  # whose template has tools
    assert len(asked) == one_step.KL_PROMPTS


def test_rows_carry_the_references_log_likelihoods_of_both_streams(step):
    """Those of cached responses lie in the buffer; of fresh ones they were computed, or are unknown."""
    keys = ["rl_0_0", "a_0_0", "b_0_0"]
    batch = KVBatchMeta(keys, [{"response_len": length} for length in (5, 1, 2)], "train", None)
    ones = torch.nested.as_nested_tensor([torch.ones(length) for length in (5, 1, 2)], layout=torch.jagged)
    trainer = object.__new__(joint.CoKLTrainer)
    trainer.settings = RegularizationSettings.read(one_step.configuration(step.folder))
    trainer.minibatch = Minibatch({"a": Origin("reference", 0), "b": Origin("rollout", 0)}, 2, {"a": -7.0})
    trainer.solved = [0.7]
    written = torch.nested.as_nested_tensor([*ones.unbind()[:2], torch.tensor([1.0, 0.0])], layout=torch.jagged)
    for trainer.reference_log_probs, fresh in (({"b_0_0": -9.0}, -9.0), ({}, np.nan)):
        data = {"old_log_probs": -ones, "rm_scores": ones / 4, "loss_mask": written}
        rows = trainer._indexed_rows(batch, data)
        assert [table.tolist() for table in rows.index] == [[[1]], [[2]]]
        assert rows.reference_log_probs is not None
        assert rows.tokens is not None
        assert rows.reference_log_probs.tolist() == pytest.approx([np.nan, -7.0, fresh], nan_ok=True)
        assert rows.log_probs.tolist() == [-5.0, -1.0, -1.0]  # a tool wrote the last token
        assert rows.rewards.tolist() == [1.0, 0.0, 0.0]  # 5/4, 1/4 and 2/4 against the threshold 0.5
        assert rows.tokens.tolist() == [5.0, 1.0, 1.0]
        assert rows.reference_accuracy is not None
        assert rows.reference_accuracy.tolist() == pytest.approx([np.nan, 0.7, 0.7], nan_ok=True)


def wrong_sign(patch):
    right = Method.row_weights
    patch.setattr(Method, "row_weights", lambda *arguments: -right(*arguments))


def wrong_beta(patch):
    read = RegularizationSettings.read
    patch.setattr(
        RegularizationSettings, "read", lambda config: dataclasses.replace(read(config), beta=2 * one_step.BETA)
    )


def wrong_epsilon_is(patch):
    patch.setattr(RegularizationSettings, "surrogate", lambda self: SurrogateConfig(0.01))


def delta_for_gamma(patch):
    right = Method.row_weights
    patch.setattr(
        Method,
        "row_weights",
        lambda self, rows, *rest: right(self, dataclasses.replace(rows, behavior_log_probs=None), *rest),
    )


def forgotten_loss_mask(patch):
    """The added rows go on counting among VeRL's tokens; a token mean is what divides by them."""
    right = joint.TensorDict
    patch.setattr(
        joint,
        "TensorDict",
        lambda columns, **options: right({k: v for k, v in columns.items() if k != "loss_mask"}, **options),
    )


def wrong_rl_batch_size(patch):
    def all_rows(*arguments):
        shape = batch_shape(*arguments)
        return type("Shape", (), {**dataclasses.asdict(shape), "added": shape.added, "mini_batch": shape.mini_batch,
                                  "rl": shape.rl + shape.added})()  # fmt: skip

    patch.setattr(options, "batch_shape", all_rows)


def fresh_for_cached(patch):
    right = joint.requests

    def forgetful(*arguments):
        rows, minibatch = right(*arguments)
        for row in rows:
            row["agent_name"] = "single_turn_agent"
        return rows, minibatch

    patch.setattr(joint, "requests", forgetful)


@pytest.mark.parametrize(
    "bug",
    [wrong_sign, wrong_beta, wrong_epsilon_is, delta_for_gamma, wrong_rl_batch_size, fresh_for_cached],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_seen(step, monkeypatch, bug):
    bug(monkeypatch)
    gradients, rows, _ = step.run()
    assert max(errors(step, gradients, rows)) > DIFFERS


def fresh_term_doubled(patch):
    """What happens where a training prompt's rollouts are taken for the drawn ones' as well."""
    right = Method.row_weights

    def doubled(self, rows, *rest):
        weights = right(self, rows, *rest)
        weights[rows.index.rollout] *= 2
        return weights

    patch.setattr(Method, "row_weights", doubled)


def fresh_term_lost(patch):
    """The weights of RL rows are dropped, as they were when these had none."""
    right = loss._column
    patch.setattr(
        loss,
        "_column",
        lambda data, name: right(data, name) * (right(data, ADDED) if name == WEIGHT else 1),
    )


def advantage_lost_on_weighed_rows(patch):
    right = loss._column

    def column(data, name):
        return right(data, name) if name != ADDED else torch.maximum(right(data, ADDED), (right(data, WEIGHT) != 0) * 1)

    patch.setattr(loss, "_column", column)


def cached_rows_of_another_prompt(patch):
    """Responses of the next solved prompt, as answers to this one."""
    right = joint.CoKLTrainer._cached_by_uid

    def rotated(self, batch):
        found = right(self, batch)
        solved = [group for group in found.values() if group]
        others = dict(zip(map(id, solved), solved[1:] + solved[:1], strict=True))

        def other(group):
            return dataclasses.replace(others[id(group)], prompt=group.prompt, prompt_ids=group.prompt_ids)

        return {uid: group and other(group) for uid, group in found.items()}

    patch.setattr(joint.CoKLTrainer, "_cached_by_uid", rotated)


def unsolved_prompts_counted(patch):
    patch.setattr(Method, "filtered", property(lambda self: False))


def gamma_of_the_sampling_policy(patch):
    """Before the second optimizer step, the log-probabilities of the RL rows are still those of the first."""
    right = joint.CoKLTrainer._current_log_probs

    def stale(self, mini_batch, start):
        log_probs = right(self, mini_batch, start)
        fresh = self.rows.index.rollout
        log_probs[fresh] = self.rows.log_probs[fresh]
        return log_probs

    patch.setattr(joint.CoKLTrainer, "_current_log_probs", stale)


@pytest.mark.parametrize(
    "bug",
    [
        fresh_term_doubled, fresh_term_lost, advantage_lost_on_weighed_rows, cached_rows_of_another_prompt,
        unsolved_prompts_counted, gamma_of_the_sampling_policy, wrong_sign, wrong_beta, wrong_epsilon_is,
        delta_for_gamma, wrong_rl_batch_size,
    ],
    ids=lambda bug: bug.__name__,
)  # fmt: skip
@pytest.mark.parametrize("prompts", ["training", "both"])
def test_a_bug_planted_under_training_prompts_is_seen(step, monkeypatch, bug, prompts):
    bug(monkeypatch)
    gradients, rows, _ = step.run(*PROMPTS[prompts](step.folder))
    assert max(errors(step, gradients, rows)) > DIFFERS


@pytest.mark.parametrize("method", ["cokl", "correct_forward_kl"])
@pytest.mark.parametrize("prompts", ["training", "both"])
def test_a_cached_prompt_with_other_tokens_than_the_training_prompt_is_refused(step, monkeypatch, method, prompts):
    """As of a buffer that was built with another chat template; replay has no fresh rows of its own to tell."""
    right = joint.CoKLTrainer._cached_by_uid

    def retold(self, batch):
        return {
            uid: group and dataclasses.replace(group, prompt_ids=group.prompt_ids + 1)
            for uid, group in right(self, batch).items()
        }

    monkeypatch.setattr(joint.CoKLTrainer, "_cached_by_uid", retold)
    with pytest.raises(InputError, match="build the buffer with the chat template, its arguments, tools and system"):
        step.run(*PROMPTS[prompts](step.folder), f"cokl.method={method}")


def test_training_prompts_of_which_none_has_a_correct_response_are_refused(step, monkeypatch):
    monkeypatch.setattr(joint, "prompt_key", lambda *arguments: "another task")
    with pytest.raises(InputError, match=r"none of this step's 4 training prompts has a correct response in /.*/train"):
        step.run(*PROMPTS["training"](step.folder))


def test_training_prompts_without_a_ground_truth_are_refused(step, monkeypatch):
    right = step._prompts()
    monkeypatch.setattr(step, "_prompts", lambda: {name: right[name] for name in right if name != "reward_model"})
    with pytest.raises(InputError, match=r"data\.train_files: expected a column reward_model"):
        step.run(*PROMPTS["training"](step.folder))


def test_a_later_step_without_a_solved_prompt_is_plain_grpo(step, monkeypatch):
    monkeypatch.setattr(joint, "prompt_key", lambda *arguments: "another task")
    monkeypatch.setattr(joint.CoKLTrainer, "_check_first_step", lambda *arguments: None)
    gradients, rows, metrics = step.run(*PROMPTS["training"](step.folder))
    assert max(errors(step, gradients, [row for row in rows if row.stream == "rl"])) < AGREES
    assert (metrics["cokl/kl_rows"], metrics["cokl/loss"], metrics["cokl/not_regularized"]) == (0, 0, 1)


def test_methods_of_fresh_responses_alone_add_no_row(step):
    """Those of correct ones leave out prompts that were never solved; the others need no file at all."""
    gradients, rows, metrics = step.run(*PROMPTS["training"](step.folder), "cokl.method=cokl_without_term1")
    assert {row.stream for row in step.answered.values()} == {"rl"}
    assert max(errors(step, gradients, [row for row in rows if row.stream != "reference"])) < AGREES
    assert metrics["cokl/not_regularized"] == 1 - SOLVED / one_step.RL_PROMPTS
    _, _, metrics = step.run(*PROMPTS["training"](step.folder), "cokl.method=entropy", "cokl.buffer=''")
    assert metrics["cokl/kl_rows"] == one_step.RL_PROMPTS * one_step.FRESH
    assert (metrics["cokl/added_tokens"], metrics["cokl/not_regularized"]) == (0, 0)
    assert metrics["cokl/gradient_share"] > 0


def test_a_training_prompt_that_lost_a_response_keeps_its_advantages_alone(step):
    gradients, rows, metrics = step.run(*PROMPTS["training"](step.folder), lose=1)
    whole = [row for row in rows if row.group != step.lost or row.stream == "rl"]
    assert max(errors(step, gradients, whole)) < AGREES
    assert metrics["cokl/kl_rows"] == (SOLVED - 1) * (one_step.CACHED + one_step.FRESH)
    assert max(errors(step, gradients, rows)) > DIFFERS


def test_two_buffers_of_unequal_groups_need_a_number_of_cached_responses(step):
    one_step.make_buffer(step.folder, "six", [(1, 0, 1, 0, 1, 1)])
    overrides = "+cokl.prompts=both", f"+cokl.training_buffer={step.folder}/six.parquet"
    with pytest.raises(InputError, match=r"cached_per_prompt: expected a number up to 4, since the files hold 4 and 6"):
        step.run(*overrides)


def test_added_rows_do_not_count_among_verls_tokens(step, monkeypatch):
    token_mean = "actor_rollout_ref.actor.loss_agg_mode=token-mean"
    gradients, rows, _ = step.run(token_mean)
    assert max(errors(step, gradients, rows, token_mean=True)) < AGREES
    gradients, rows, _ = step.run(token_mean, *PROMPTS["training"](step.folder))
    assert max(errors(step, gradients, rows, token_mean=True)) < AGREES
    forgotten_loss_mask(monkeypatch)
    gradients, rows, _ = step.run(token_mean, *PROMPTS["training"](step.folder))
    assert max(errors(step, gradients, rows, token_mean=True)) > DIFFERS
    gradients, rows, _ = step.run(token_mean)
    assert max(errors(step, gradients, rows, token_mean=True)) > DIFFERS
