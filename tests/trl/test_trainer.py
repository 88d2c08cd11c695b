"""GRPOTrainer with the regularizer: gradients of whole parameters, the log, resuming, evaluation, refusals."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("trl")  # in a folder of its own: with a current TRL beside it VeRL does not start
from cokl import methods, regularizers
from cokl.support.errors import InputError
from llm_bridge.buffer.groups import Buffer, model_fingerprint
from llm_bridge.trl.answers import totals
from tests.oracles.sampled import opened
from tests.trl import world

pytestmark = pytest.mark.trl

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("world")
    world.make_folder(root)
    return root


@pytest.fixture
def root(folder, tmp_path) -> Path:
    """A folder with the model and the buffer, to write into."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


def trained(trainer, **how: Any) -> world.Record:
    record = world.Record().attach(trainer)
    trainer.train(**how)
    return record


def drawn(root: Path, prompts: list[list[int]]) -> list[Any]:
    """The buffer's groups that these prompts name, each once, in their order."""
    groups = Buffer.load(root / "buffer.parquet", model_fingerprint(root / "model")).groups
    found = [next(group for group in groups if group.prompt_ids.tolist() == prompt) for prompt in prompts]
    return found[:: world.GROUP]


def error(record: world.Record, number: int, at: int, groups, fresh, method: str, twin, length="token-sum") -> float:
    """Relative, of a step's whole gradient. at: the step before which TRL generated."""
    step = record.steps[number]
    wanted, loss = world.expected(
        twin, step, record.steps[0].weights, record.steps[at].weights, groups, fresh, method, length
    )
    assert record.logs[number]["cokl/loss"] == pytest.approx(loss, rel=1e-3, abs=1e-4)
    assert wanted.norm() > 0
    return float((step.gradient - wanted).norm() / wanted.norm())


def split(responses: list[list[int]]) -> list[list[list[int]]]:
    return [responses[at : at + world.GROUP] for at in range(0, len(responses), world.GROUP)]


FRESH = ["cokl", "cokl_floor", "cokl_without_term1", "reverse_kl", "correct_reverse_kl", "jensen_shannon", "entropy"]
"""Methods for which answers to the buffer's prompts are sampled: all that there are."""


def test_every_method_has_a_gradient_test():
    known = {name: methods.get(name) for name in (*regularizers.names(), "cokl_floor")}
    assert {name for name, method in known.items() if "rollout" in method.streams()} == set(FRESH)
    assert {name for name, method in known.items() if method.streams() == ("reference",)} == set(CACHED)


@pytest.mark.parametrize("method", FRESH)
def test_the_gradient_over_accumulated_micro_batches_is_the_definitions(root, method, monkeypatch):
    """Four answers to a prompt, so that two may be right. The floor has a seed that opens its gate in a step."""
    monkeypatch.setattr(world, "GROUP", 4)
    floor, gates = method == "cokl_floor", []
    trainer = world.make_trainer(root, cokl_method=method, seed=4 if floor else 3)
    record = trained(trainer)
    assert [number for number, _, _ in record.sampled] == [0, 0, 1, 1]
    for number in (0, 1):
        _, prompts, responses = record.sampled[2 * number + 1]
        groups, fresh = drawn(root, prompts), split(responses)
        assert error(record, number, number, groups, fresh, method, world.twin(root, trainer)) < TOLERANCE
        verdicts = [[world.is_right(ids) for ids in answers] for answers in fresh]
        gates.append(opened([group.rewards.tolist() for group in groups], verdicts))
    assert any(gates) or not floor


CACHED = ["correct_forward_kl", "forward_kl"]


@pytest.mark.parametrize("method", CACHED)
def test_a_method_of_cached_answers_samples_none(root, method):
    """Its prompts are those that CoKL's engine is asked, in the same order."""
    order = trained(world.make_trainer(root))
    trainer = world.make_trainer(root, cokl_method=method)
    record = trained(trainer)
    assert len(record.sampled) == 2
    for number in (0, 1):
        groups = drawn(root, order.sampled[2 * number + 1][1])
        assert (
            error(record, number, number, groups, [[] for _ in groups], method, world.twin(root, trainer)) < TOLERANCE
        )


def test_means_over_tokens_divide_each_answer_by_its_length(root):
    trainer = world.make_trainer(root, cokl_length="token-mean")
    record = trained(trainer)
    _, prompts, responses = record.sampled[1]
    groups = drawn(root, prompts)
    assert error(record, 0, 0, groups, split(responses), "cokl", world.twin(root, trainer), "token-mean") < TOLERANCE


@pytest.mark.parametrize("method", ["cokl", "reverse_kl"])
def test_later_optimizer_steps_have_weights_of_the_policy_of_the_moment(root, method, monkeypatch):
    """Two optimizer steps a generation, each with prompts of its own, twice over. Of four answers two may be right,
    whose shares are those of their ratios.
    """
    monkeypatch.setattr(world, "GROUP", 4)
    trainer = world.make_trainer(
        root,
        cokl_method=method,
        per_device_train_batch_size=4,
        steps_per_generation=4,
        num_iterations=2,
        max_steps=4,
        learning_rate=2e-3,
    )
    record = trained(trainer)
    assert [number for number, _, _ in record.sampled] == [0, 0]
    _, prompts, responses = record.sampled[1]
    groups, fresh = drawn(root, prompts), split(responses)
    assert len(groups) == 4
    for number in range(4):
        part = slice(0, 2) if number % 2 == 0 else slice(2, 4)
        assert error(record, number, 0, groups[part], fresh[part], method, world.twin(root, trainer)) < TOLERANCE


def test_the_batchs_own_prompts_are_regularized(root):
    """Cached answers are the only added rows; the responses of a prompt that the buffer lacks have no weight."""
    rows = [world.OLD[0], world.NEW[0]] * 4
    trainer = world.make_trainer(root, rows, cokl_prompts="training", per_device_train_batch_size=4, max_steps=3)
    record = trained(trainer)
    assert [number for number, _, _ in record.sampled] == [0, 1, 2]
    for number in range(3):
        _, prompts, responses = record.sampled[number]
        known = [at for at in range(0, len(prompts), world.GROUP) if prompts[at] in asked(root)]
        groups = drawn(root, [prompts[at] for at in known for _ in range(world.GROUP)])
        fresh = [responses[at : at + world.GROUP] for at in known]
        assert error(record, number, number, groups, fresh, "cokl", world.twin(root, trainer)) < TOLERANCE
        share = 1 - len(known) / (len(prompts) / world.GROUP)
        assert record.logs[number]["cokl/not_regularized"] == pytest.approx(share)


def asked(root: Path) -> list[list[int]]:
    groups = Buffer.load(root / "buffer.parquet", model_fingerprint(root / "model")).groups
    return [group.prompt_ids.tolist() for group in groups]


@pytest.mark.parametrize("method", ["cokl", "reverse_kl"])
def test_an_adapters_gradient_is_the_definitions(root, method):
    """LoRA; the reference is the model without the adapter. At LoRA's usual, larger learning rate: reverse KL's costs
    are differences of log-likelihoods, which float32 rounds, and after a smaller step they are small.
    """
    from peft import LoraConfig

    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    trainer = world.make_trainer(root, cokl_method=method, peft_config=adapter, learning_rate=5e-2)
    record, twin = trained(trainer), world.twin(root, trainer)
    for number in (0, 1):
        _, prompts, responses = record.sampled[2 * number + 1]
        assert error(record, number, number, drawn(root, prompts), split(responses), method, twin) < TOLERANCE


def test_the_log_has_verls_names(root):
    record = trained(world.make_trainer(root))
    logged = record.logs[0]
    _, _, responses = record.sampled[1]
    verdicts = [[world.is_right(ids) for ids in group] for group in split(responses)]
    assert logged["cokl/kl_rows"] == 2 * 3 + 2 * world.GROUP
    assert logged["cokl/reward_mean"] == pytest.approx(sum(map(sum, verdicts)) / 4)
    assert logged["cokl/zero_correct"] == pytest.approx(sum(not any(group) for group in verdicts) / 2)
    assert 0 < logged["cokl/gradient_share"] <= 1
    assert "cokl/not_regularized" not in logged


def test_the_share_of_the_gradient_is_that_of_the_tokens_log_probabilities(root):
    """GRPO's part: at a ratio of 1, of each token the advantage over tokens and responses; equal responses summed."""
    record = trained(world.make_trainer(root, cokl_method="replay", max_steps=1))
    rl: dict[tuple, list[float]] = {}
    for prompt, ids, advantage in record.steps[0].rl:
        found = rl.setdefault((*prompt, -1, *ids), [0.0, len(ids)])
        found[0] += advantage / len(ids) / len(record.steps[0].rl)
    order = trained(world.make_trainer(root, max_steps=1)).sampled[1][1]
    kl = 0.0
    for group in drawn(root, order):
        weight = world.BETA / group.rewards.sum() / 2
        kl += sum(weight**2 * mask.sum() for mask, right in zip(group.masks, group.rewards, strict=True) if right)
    of_rl = sum(weight**2 * tokens for weight, tokens in rl.values())
    assert record.logs[0]["cokl/gradient_share"] == pytest.approx(kl / (kl + of_rl), rel=1e-5)


def test_a_resumed_run_takes_the_same_steps(root):
    """Prompts, cached answers, samples and gradients after the checkpoint are those of the run that went on."""
    options: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "cokl_cached_per_prompt": 1}
    whole = trained(world.make_trainer(root, **options))
    resumed = trained(world.make_trainer(root, **options), resume_from_checkpoint=str(root / "out" / "checkpoint-2"))
    assert [rows for _, *rows in whole.sampled[4:]] == [rows for _, *rows in resumed.sampled]
    for one, other in zip(whole.steps[2:], resumed.steps, strict=True):
        assert torch.equal(one.gradient, other.gradient)


@pytest.mark.parametrize(
    ("change", "said"), [({"cokl_method": "replay"}, "another buffer"), (None, "not a checkpoint")]
)
def test_a_checkpoint_of_another_run_is_refused(root, change, said):
    trained(world.make_trainer(root, max_steps=1, save_strategy="steps", save_steps=1))
    checkpoint = root / "out" / "checkpoint-1"
    if change is None:
        (checkpoint / "buffer_position.json").unlink()
    with pytest.raises(InputError, match=said):
        world.make_trainer(root, **(change or {})).train(resume_from_checkpoint=str(checkpoint))


def test_an_evaluation_is_trls_alone(root):
    """It draws no prompt, samples for its own rows only, and its loss and log have no part of the regularizer."""
    import datasets

    held_out = datasets.Dataset.from_dict({"prompt": [world.messages(world.NEW[0])] * 2, "ground_truth": ["new"] * 2})
    trainer = world.make_trainer(root, eval_dataset=held_out, eval_strategy="steps", eval_steps=1, max_steps=1)
    record = trained(trainer)
    position = trainer.order.position
    calls = len(record.sampled)
    trainer.evaluate()
    assert position == trainer.order.position == 2
    assert {tuple(prompt) for _, prompts, _ in record.sampled[calls:] for prompt in prompts}.isdisjoint(
        map(tuple, asked(root))
    )
    (evaluated, *_) = [logs for logs in record.logs if "eval_reward" in logs]
    assert not any("cokl" in name for name in evaluated)


def test_an_evaluation_between_steps_changes_no_gradient(root):
    """But for the random numbers that it draws; a method that samples nothing shows it."""
    import datasets

    constant: dict[str, Any] = {"cokl_method": "replay"}
    constant["reward_funcs"] = lambda completions, **columns: [0.0] * len(completions)
    held_out = datasets.Dataset.from_dict({"prompt": [world.messages(world.NEW[0])] * 2, "ground_truth": ["new"] * 2})
    plain = trained(world.make_trainer(root, **constant))
    between = trained(world.make_trainer(root, **constant, eval_dataset=held_out, eval_strategy="steps", eval_steps=1))
    for one, other in zip(plain.steps, between.steps, strict=True):
        torch.testing.assert_close(one.gradient, other.gradient, rtol=1e-4, atol=1e-7)


def test_the_starting_model_fills_a_buffer_with_trls_own_parts(root):
    import datasets
    from trl import GRPOConfig, GRPOTrainer

    from llm_bridge.trl import fill_buffer

    rows = {"prompt": [world.messages(text) for text in world.OLD], "answer": ["0", "1", "2"], "level": [7, 8, 9]}
    settings: dict[str, Any] = {
        "output_dir": str(root / "out"), "per_device_train_batch_size": 4, "num_generations": 4, "use_cpu": True,
        "max_completion_length": 7, "report_to": [], "temperature": 0.7, "bf16": False,
    }  # fmt: skip
    seen: list[Any] = []

    def judge(completions, answer, level, **columns):
        seen.extend(zip(answer, level, strict=True))
        return world.right(completions)

    trainer = GRPOTrainer(str(root / "model"), judge, GRPOConfig(**settings), datasets.Dataset.from_dict(rows))
    made = fill_buffer(trainer, root / "made.parquet")
    loaded = Buffer.load(root / "made.parquet", model_fingerprint(root / "model"))
    assert loaded.temperature == 0.7
    assert [group.ground_truth for group in loaded.groups] == ["0", "1", "2"]
    assert [group.extra_info for group in loaded.groups] == [{"level": level} for level in (7, 8, 9)]
    assert seen == [(str(number), 7 + number) for number in range(3) for _ in range(4)]
    for group, other in zip(loaded.groups, made.groups, strict=True):
        assert group.rewards.tolist() == [world.is_right(ids) for ids in group.response_ids]
        assert group.prompt_ids.tolist() == other.prompt_ids.tolist()
        assert all(len(ids) <= 7 for ids in group.response_ids)
    with pytest.raises(InputError, match="not there yet"):
        fill_buffer(trainer, root / "made.parquet")
    with pytest.raises(InputError, match="a folder that can be written"):
        fill_buffer(trainer, root / "made.parquet" / "another.parquet")
    trainer.args.top_p = 0.9
    with pytest.raises(InputError, match="top_p: expected 1"):
        fill_buffer(trainer, root / "another.parquet")
    path = str(root / "made.parquet")
    record = trained(world.make_trainer(root, cokl_buffer=path, cokl_method="forward_kl", max_steps=1))
    assert record.logs[0]["cokl/kl_rows"] == 2 * 4


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cokl_buffer": ""}, "cokl_buffer: expected a file"),
    ({"cokl_buffer": "none.parquet"}, "no buffer at"),
    ({"cokl_method": "ckol"}, "did you mean cokl"),
    ({"cokl_method": "grpo"}, "cokl_method: expected a regularizer"),
    ({"cokl_beta": 0.0}, "cokl_beta: expected a number from 1e-38 to 1e38"),
    ({"cokl_beta": 1e-50}, "cokl_beta: expected a number from 1e-38 to 1e38"),
    ({"cokl_beta": "1e-3"}, "cokl_beta: expected a number from 1e-38 to 1e38"),
    ({"cokl_kl_prompts": 0}, "cokl_kl_prompts: expected a whole number of at least 1"),
    ({"cokl_kl_prompts": 4}, "cokl_kl_prompts: expected at most the 3 prompts"),
    ({"cokl_cached_per_prompt": 4}, "cokl_cached_per_prompt: expected at most 3, the answers that the buffer has"),
    ({"cokl_prompts": "mine"}, "cokl_prompts: expected buffer or training"),
    ({"cokl_prompts": "training"}, "no training prompt has the messages and the ground_truth"),
    ({"cokl_prompts": "training", "num_iterations": 2}, "cokl_prompts: training expects"),
    ({"cokl_length": "mean"}, "cokl_length: expected token-sum or token-mean"),
    ({"cokl_correct_above": 1.0}, "stored as correct and this run's reward functions give it 1"),
    ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, "steps_per_generation: expected a multiple"),
    ({"top_p": 0.9}, "top_p: expected 1"),
    ({"top_k": 20}, "top_k: expected 0"),
    ({"temperature": 1.0}, "temperature: expected 0.7"),
    ({"max_completion_length": 4}, "max_completion_length: expected at least"),
    ({"reward_funcs": lambda completions, solution, **columns: []}, "reward_funcs: expected functions that judge"),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_what_would_be_wrong_is_refused_in_one_line_before_training(root, change, said):
    with pytest.raises(InputError) as caught:
        world.make_trainer(root, **change)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_without_a_regularizer_is_refused(root):
    from trl import GRPOConfig

    from llm_bridge.trl import CoKLGRPOTrainer

    with pytest.raises(InputError, match="args: expected a CoKLGRPOConfig, got GRPOConfig"):
        CoKLGRPOTrainer(str(root / "model"), world.right, GRPOConfig(output_dir=str(root / "out"), use_cpu=True))


def test_trls_own_trainer_with_the_regularizers_config_is_refused_before_its_first_step(root):
    """It would train plain RL, with the regularizer's options in its log."""
    from trl import GRPOTrainer

    trainer = world.make_trainer(root, kind=GRPOTrainer)
    with pytest.raises(InputError, match="trainer: expected CoKLGRPOTrainer with a CoKLGRPOConfig, got another"):
        trainer.train()


def test_another_models_buffer_and_another_template_are_refused(root):
    buffer = json.loads((root / "model" / "tokenizer_config.json").read_text())
    template = root / "model" / "chat_template.jinja"
    assert template.is_file() or "chat_template" in buffer
    template.write_text(template.read_text().replace("<|{{", "<|im_end|><|{{"))
    with pytest.raises(InputError, match="other tokens than this run's chat template"):
        world.make_trainer(root)
    with (root / "model" / "tokenizer.json").open("a") as file:
        file.write(" ")
    with pytest.raises(InputError, match="sampled from another model"):
        world.make_trainer(root)


def test_ten_steps_without_a_weight_end_the_run(root):
    """No fresh answer is ever right, and the method weights right ones alone."""
    calls = {"first": True}

    def never(completions, **columns):
        if calls.pop("first", False):
            return world.right(completions)  # the stored verdicts, before training
        return [0.0] * len(completions)

    trainer = world.make_trainer(root, reward_funcs=never, cokl_method="cokl_without_term1", max_steps=12)
    with pytest.raises(InputError, match="10 steps in a row were plain RL"):
        trainer.train()
    assert trainer.state.global_step == 9


def test_a_reward_is_the_functions_weighted_by_trls_weights():
    """One function alone leaves a response out with NaN; if all do, it has none."""
    rewards = torch.tensor([[1.0, 1.0], [1.0, 0.0], [math.nan, 1.0], [math.nan, math.nan]])
    weighted: Any = SimpleNamespace(reward_weights=torch.tensor([0.25, 2.0]))
    assert totals(weighted, rewards).tolist() == [2.25, 0.25, 2.0, 0.0]
