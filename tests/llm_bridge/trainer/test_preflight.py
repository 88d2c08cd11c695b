"""Wrong starts end before Ray, all refusals at once, each a line with its remedy."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("verl")

import numpy as np
import ray
from hydra import compose, initialize_config_module
from ray.exceptions import RayTaskError

import llm_bridge.experiment.rewarded
import llm_bridge.trainer.buffer_filler  # noqa: F401  registers the trainers, as the plug-in does
from cokl.support.errors import InputError
from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.command import MODULES, PREFLIGHT, check_program, check_version, handed_on, has_options, is_main
from llm_bridge.trainer.checks import ACCEPTED, Refusal, accepted, draw_order, look
from llm_bridge.trainer.preflight import end, refusals
from llm_bridge.trainer.settings import row_multiple
from tests.llm_bridge.toy import answer, make_tokenizer, make_toy

MAIN = "verl.trainer.main_ppo"
main_ppo = importlib.import_module(MAIN)
OURS = ["python", "-m", MAIN, "+cokl.method=cokl"]
MODE = "trainer.v1.trainer_mode"
ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
CORRECTION = "algorithm.rollout_correction"
TRAINING = "~cokl.kl_prompts", "+cokl.prompts=training"
FILTER = "algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=acc"
OLD = "reward_model.reward_kwargs"
_OVERLONG = "overlong_buffer_cfg.enable=True", "overlong_buffer_cfg.len=100", "max_resp_len=500"
PENALTY = "reward.reward_manager.name=dapo", *(f"+reward.reward_kwargs.{option}" for option in _OVERLONG)
FUNCTION = "reward.custom_reward_function.path"
PROMPTS, RESPONSES = 10, 4
TEMPLATE = "{% for message in messages %}{{ message.content }} {{ message.content }}{% endfor %}"
"""Not the toy's."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the toy model, its data, a reward function and a buffer of 4 judged responses to 10 prompts."""
    from transformers import AutoTokenizer

    root = tmp_path_factory.mktemp("preflight")
    make_toy(root, steps=1)
    tokenizer = AutoTokenizer.from_pretrained(root / "model")
    rows = pd.read_parquet(root / "math_train.parquet")[:PROMPTS]
    groups = []
    for row in rows.to_dict("records"):
        prompt = [dict(message) for message in row["prompt"]]
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        prompt_ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        truth = int(row["reward_model"]["ground_truth"])
        texts = [answer(1 + wrong, truth - 1) for wrong in (0, 1, 0, 1)]
        ids = [np.array(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
        verdicts = np.array([1, 0, 1, 0])
        groups.append(CachedGroup(prompt, "math_train", str(truth), prompt_ids, ids, verdicts))
    fingerprint = model_fingerprint(root / "model")
    Buffer(tuple(groups), fingerprint).save(root / "buffer.parquet")
    unsolved = [CachedGroup(**{**vars(group), "rewards": np.zeros(4, dtype=int)}) for group in groups]
    Buffer(tuple(unsolved), fingerprint).save(root / "unsolved.parquet")
    (root / "rewards.py").write_text(
        "import re\n\n\n"
        "def right(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    numbers = [int(word) for word in solution_str.split() if word.isdecimal()]\n"
        "    return {'score': float(sum(numbers) == int(ground_truth))}\n\n\n"
        "def other(**told):\n    return 0.0\n\n\ndef lacking(**told):\n    return {'points': 1.0}\n\n\n"
        "def raising(**told):\n    return float(right_or_wrong)\n\n\n"
        "def keyed(solution_str, **told):\n"
        "    return float(dict(word.split('=') for word in solution_str.split() if '=' in word)['answer'] == '3')\n\n\n"
        "def searched(solution_str, **told):\n    return float(re.search('is ([0-9]+)', solution_str)[1] == '3')\n\n\n"
        "def picky(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(solution_str.split('####')[1] == ground_truth)\n\n\n"
        "def worded(data_source, solution_str, ground_truth, extra_info, word):\n"
        "    return right(data_source, solution_str, ground_truth)\n\n\n"
        "def short(solution_str, ground_truth):\n    return right('', solution_str, ground_truth)\n\n\n"
        "def asking(data_source, solution_str, ground_truth, extra_info, reward_router_address, **more):\n    pass\n"
    )
    others = [CachedGroup(**{**vars(group), "prompt_ids": group.prompt_ids + (group is groups[7])}) for group in groups]
    Buffer(tuple(others), fingerprint).save(root / "two-templates.parquet")
    images: list[Any] = [[{"path": "a.png"}]] * PROMPTS
    rows.assign(images=images).to_parquet(root / "images.parquet")
    (root / "broken.py").write_text("def right(:\n")
    (root / "empty.parquet").touch()
    (root / "half.parquet").write_bytes((root / "buffer.parquet").read_bytes()[:500])
    (root / "of-grpo" / "global_step_2").mkdir(parents=True)
    (root / "of-grpo" / "latest_checkpointed_iteration.txt").write_text("2")
    return root


def options(root: Path, *more: str) -> list[str]:
    base = [
        "algorithm.adv_estimator=grpo", "data.train_batch_size=64", f"data.train_files={root}/math_train.parquet",
        f"data.val_files={root}/math_val.parquet", "trainer.n_gpus_per_node=8", f"{ACTOR}.strategy=fsdp2",
        f"{ACTOR}.ppo_mini_batch_size=64", f"{ACTOR}.use_dynamic_bsz=True", f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.n=8",
        f"{ROLLOUT}.log_prob_use_dynamic_bsz=True", f"actor_rollout_ref.model.path={root}/model",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"{FUNCTION}={root}/rewards.py", "reward.custom_reward_function.name=right",
        f"trainer.default_local_dir={root}/checkpoints", f"{MODE}=cokl", "+cokl.method=cokl", "+cokl.kl_prompts=8",
        f"+cokl.buffer={root}/buffer.parquet",
    ]  # fmt: skip
    return [*base, *(option.replace("ROOT", str(root)) for option in more)]


def configuration(root: Path, *more: str):
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", options(root, *more))


def test_a_command_that_fits_is_not_refused(made):
    assert refusals(configuration(made)) == []
    terms = f"{ACTOR}.entropy_coeff=0.01", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean", f"{ACTOR}.use_kl_loss=True"
    assert refusals(configuration(made, *terms, f"{ACTOR}.kl_loss_type=abs", f"{CORRECTION}.rollout_is=token")) == []
    assert refusals(configuration(made, *FILTER, *PENALTY)) == []
    training = "~cokl.kl_prompts", "+cokl.prompts=training"
    assert refusals(configuration(made, *training, f"{ROLLOUT}.n=5", f"{ACTOR}.use_kl_loss=True")) == []
    schedule = f"{ACTOR}.optim.lr_warmup_steps=10", f"{ACTOR}.optim.lr_scheduler_type=cosine"
    assert refusals(configuration(made, f"{ACTOR}.ppo_mini_batch_size=8", *schedule)) == []
    for manager in ("dapo", "rate_limited", "remote"):
        assert refusals(configuration(made, f"reward.reward_manager.name={manager}")) == []
    model = "reward.reward_model.enable=True", "reward.custom_reward_function.name=asking"
    assert refusals(configuration(made, *model)) == []


MEGATRON = ["model_engine=megatron", f"{ACTOR}.strategy=megatron"]


def test_megatron_and_sglang_are_not_refused(made):
    assert refusals(configuration(made, *MEGATRON, f"{ROLLOUT}.name=sglang")) == []
    (refusal,) = refusals(configuration(made, *MEGATRON, f"{ACTOR}.megatron.router_replay.mode=R3"))
    assert refusal.remedy == f"{ACTOR}.megatron.router_replay.mode=disabled"


@pytest.mark.parametrize(
    ("changes", "multiple"),
    [
        ([], 8),
        ([f"{ACTOR}.ppo_micro_batch_size_per_gpu=6", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4"], 96),
        (MEGATRON, 8),
        ([*MEGATRON, f"{ACTOR}.megatron.tensor_model_parallel_size=2"], 4),  # the reference's is the actor's
        ([*MEGATRON, f"{ACTOR}.megatron.context_parallel_size=4", f"{REF}.megatron.context_parallel_size=2"], 4),
        (
            [
                *MEGATRON,
                f"{ACTOR}.megatron.pipeline_model_parallel_size=2",
                f"{ACTOR}.megatron.virtual_pipeline_model_parallel_size=3",
                f"{ACTOR}.ppo_micro_batch_size_per_gpu=4",
            ],
            4 * 4 * 2,  # as many micro-batches as stages, or a multiple
        ),
    ],
)
def test_rows_are_a_multiple_of_the_ranks_that_share_them_out(made, changes, multiple):
    """Of 8 devices. Those that hold parts of one model have the same rows."""
    assert row_multiple(configuration(made, *changes)) == multiple


WRONG: list[tuple[list[str], str, str]] = [
    (["trainer.use_v1=False"], "trainer.use_v1: expected True", "trainer.use_v1=True"),
    ([f"{MODE}=sync"], f"{MODE}: expected cokl, got sync", f"{MODE}=cokl"),
    ([f"{MODE}=cokl_bufer"], f"{MODE}: expected cokl_buffer, got cokl_bufer", f"{MODE}=cokl_buffer"),
    ([f"{MODE}=separate_async"], "got separate_async, with which cokl.* has no effect", f"{MODE}=cokl"),
    (["algorithm.adv_estimator=gae"], "adv_estimator: expected grpo or rloo or", "algorithm.adv_estimator=grpo"),
    ([f"{ACTOR}.policy_loss.loss_mode=sapo"], "loss_mode: expected vanilla", f"{ACTOR}.policy_loss.loss_mode=vanilla"),
    ([f"{ACTOR}.strategy=torchtitan"], "strategy: expected fsdp2 or fsdp or megatron", ""),
    ([f"{ACTOR}.strategy=megatron"], "model_engine: expected megatron, which has its", "model_engine=megatron"),
    (
        [f"{ROLLOUT}.enable_rollout_routing_replay=True"],
        "replay: expected False or null with a regularizer (cached responses have no routes",
        f"{ROLLOUT}.enable_rollout_routing_replay=False",
    ),
    ([f"{ACTOR}.shuffle=True"], "shuffle: expected False", f"{ACTOR}.shuffle=False"),
    ([f"{ROLLOUT}.top_p=0.9"], "top_p: expected 1", f"{ROLLOUT}.top_p=1"),
    ([f"{ROLLOUT}.name=trtllm"], "rollout.name: expected vllm or sglang", f"{ROLLOUT}.name=vllm"),
    ([f"{ACTOR}.ppo_mini_batch_size=8", "cokl.kl_prompts=7"], "one for each optimizer step", "cokl.kl_prompts=8"),
    (["actor_rollout_ref.model.lora_adapter_path=/a"], "_path: expected null", "actor_rollout_ref.model.lora_adapter"),
    ([f"{ACTOR}.ppo_mini_batch_size=60"], "a divisor of data.train_batch_size (64)", f"{ACTOR}.ppo_mini_batch_size=64"),
    (
        [f"{ACTOR}.ppo_epochs=2", *TRAINING],
        "ppo_epochs: expected 1 with cokl.prompts=training: its rows would have two ratios",
        f"{ACTOR}.ppo_epochs=1",
    ),
    (
        [f"{ACTOR}.ppo_mini_batch_size=4", *TRAINING],  # more steps than cokl.kl_prompts has by default
        "ppo_mini_batch_size: expected 64, data.train_batch_size, with cokl.prompts=training",
        f"{ACTOR}.ppo_mini_batch_size=64",
    ),
    ([f"{ROLLOUT}.temperature=0", "cokl.method=replay"], "temperature: expected a number > 0", f"{ROLLOUT}.temp"),
    (["~cokl.method"], "cokl.method: expected a name, such as +cokl.method=replay, got nothing", ""),
    (
        ["algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=seq_final_reward"],
        "filter_groups.metric: expected reward or score or acc with a regularizer (cached responses have no other)",
        "algorithm.filter_groups.metric=reward",
    ),
    (
        [*FILTER, *TRAINING],
        "(the cached rows of a dropped training prompt would stay)",
        "cokl.prompts=buffer",
    ),
    (
        [f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm", "data.max_response_length=777"],
        "loss_scale_factor: expected a number with seq-mean-token-sum-norm",
        f"{ACTOR}.loss_scale_factor=777",
    ),
    ([f"{CORRECTION}.rollout_rs=token"], "rollout_rs: expected null", f"{CORRECTION}.rollout_rs=null"),
    (
        [f"{CORRECTION}.rollout_is=token", f"{CORRECTION}.rollout_is_threshold=0.5_2.0", *TRAINING],
        "two bounds give factors of 0, which take the regularizer too",
        f"{CORRECTION}.rollout_is_threshold=2.0",
    ),
    (["+cokl.beta=0"], "cokl.beta: expected a number > 0, got 0", ""),
    (["cokl.kl_prompts=True"], "cokl.kl_prompts: expected neither True nor False, got True", ""),
    (["cokl.kl_prompts=0"], "cokl.kl_prompts: expected a number > 0, got 0", ""),
    (["cokl.kl_prompts=11"], "at most the 10 prompts that the buffer has for cokl, got 11", "cokl.kl_prompts=10"),
    (["+cokl.prompts=training"], "kl_prompts: expected nothing with cokl.prompts=training", "~cokl.kl_prompts"),
    (["+cokl.length=mean"], "cokl.length: expected token-sum or token-mean, got 'mean'", ""),
    (["cokl.method=unheard"], "unknown method 'unheard'", ""),
    (["cokl.method=repaly"], "unknown method 'repaly' (did you mean replay?)", ""),
    (
        ["cokl.method=Replay", "cokl.kl_prompts=11"],
        "that the buffer has for correct_forward_kl, got 11",
        "cokl.kl_prompts=10",
    ),
    (["+cokl.kl_prompt=8"], "cokl.kl_prompt: expected one of method, beta", ""),
    (["+cokl.kl_prompt=8"], "got an unknown name (did you mean kl_prompts?)", ""),
    (["~cokl.buffer"], "cokl.buffer: expected a file (step 2 of docs/how-to/verl.md makes it), got nothing", ""),
    (["cokl.buffer=ROOT"], "expected a buffer's file, such as ROOT/buffer.parquet, got a folder", ""),
    (["cokl.buffer=ROOT/empty.parquet"], "expected a Parquet file, got an empty one; make it again", ""),
    (["cokl.buffer=ROOT/half.parquet"], "half.parquet: expected a whole Parquet file", ""),
    (["cokl.buffer=ROOT/math_train.parquet"], "and no other; a file of prompts is no buffer", ""),
    (["cokl.buffer=/none.parquet"], "/none.parquet", ""),
    (["cokl.buffer=ROOT/unsolved.parquet"], "the buffer holds no correct response", ""),
    (["data.max_response_length=4"], "max_response_length: expected at least 5", "data.max_response_length=5"),
    (["data.max_prompt_length=5"], "data.max_prompt_length: expected at least", "data.max_prompt_length="),
    ([f"{ROLLOUT}.temperature=0.7"], "temperature: expected 1, at which the buffer", f"{ROLLOUT}.temperature=1"),
    ([f"{FUNCTION}=/none.py"], "reward function '/none.py:right': there is no file /none.py", ""),
    (["reward.custom_reward_function.name=nobody"], "short, asking, no nobody", ""),
    (["reward.custom_reward_function.name=other"], "stored as correct and this run's reward function gives it 0", ""),
    (["reward.custom_reward_function.name=raising"], "got NameError: name 'right_or_wrong' is not defined", ""),
    (["reward.custom_reward_function.name=lacking"], "_function: the reward function's answer to", ""),
    (["reward.custom_reward_function.name=short"], "VeRL calls it with data_source, solution_str,", ""),
    ([f"{FUNCTION}=ROOT/broken.py"], "broken.py ends with SyntaxError: invalid syntax", ""),
    (
        ["cokl.method=replay", "reward.custom_reward_function.name=raising"],
        "got NameError: name 'right_or_wrong' is not defined",
        "",
    ),
    (["critic.enable=True"], "critic.enable: expected null or False", "critic.enable=null"),
    (["trainer.default_local_dir=ROOT/of-grpo"], "global_step_2 holds no buffer_position.json: it is not a", ""),
    ([f"actor_rollout_ref.model.custom_chat_template='{TEMPLATE}'"], "other tokens than this run's chat template", ""),
    (["reward.reward_manager.name=gdpo"], "reward_manager.name: expected naive or dapo or", "reward.reward_manager"),
    (
        ["+reward.reward_kwargs.overlong_buffer_cfg.enable=True", "data.max_response_length=777"],
        "reward.reward_kwargs.max_resp_len: expected a number of tokens with a penalty on length",
        "++reward.reward_kwargs.max_resp_len=777",
    ),
    (["+cokl.beta=1e-60"], "cokl.beta: expected a number from 1e-38 to 1e38, which advantages in float32", ""),
    (["+cokl.beta=1e60"], "cokl.beta: expected a number from 1e-38 to 1e38, which advantages in float32", ""),
    (["cokl.buffer=ROOT/two-templates.parquet"], "cokl.buffer: 1 of its 10 prompts have other tokens than", ""),
    (
        ["~cokl.kl_prompts", "+cokl.prompts=training", "data.train_files=ROOT/math_val.parquet"],
        "prompts in data.train_files are regularized; build it from prompts of these files",
        "",
    ),
    (["data.train_files=ROOT/images.parquet"], "data.train_files: expected prompts of text, as a buffer's are", ""),
    (["reward.reward_model.enable=True", f"{FUNCTION}=null"], "raw logit would decide", ""),
    ([f"{FUNCTION}=null"], "VeRL has none of its own for the data_source 'math_train', got null", ""),
    (["data.train_files=/none.parquet"], "data.train_files: expected files, got /none.parquet, which is not there", ""),
    (["+cokl.cached_per_prompt=5"], "at most 4, the responses that the buffer has to", "cokl.cached_per_prompt=0"),
]  # fmt: skip


def test_a_node_of_another_kind_is_refused(made):
    """`+cokl=replay`, as VeRL's own options of one word may suggest."""
    given = [option for option in options(made) if not option.startswith("+cokl.")]
    for mode in ("cokl", "cokl_buffer"):
        with initialize_config_module("verl.trainer.config", version_base=None):
            found = refusals(compose("ppo_trainer", [*given, f"{MODE}={mode}", "+cokl=replay"]))
        assert [refusal.reason for refusal in found] == [
            "cokl: expected options of its own, such as +cokl.method=replay, got replay"
        ]


@pytest.mark.parametrize(
    ("option", "message", "remedy"),
    [
        (["reward.custom_reward_function.name=raising"], "got NameError: name 'right_or_wrong' is not defined", ""),
        (["reward.custom_reward_function.name=lacking"], "got KeyError: 'score'", ""),
        *((["reward.custom_reward_function.name=" + name], "", "") for name in ("picky", "keyed", "searched")),
        (
            ["data.max_prompt_length=5"],
            "tokens of the longest prompt: VeRL cuts off the",
            "data.max_prompt_length=LONGEST",
        ),
        (["data.max_prompt_length=5", "data.filter_overlong_prompts=True"], "", ""),
    ],
)
def test_a_buffer_that_could_not_be_made_right_is_refused_before_anything_is_sampled(made, option, message, remedy):
    """A function that fails on any answer, and prompts that VeRL would shorten; three ask for a form."""
    mode = f"{MODE}=cokl_buffer", "~cokl.method", "~cokl.kl_prompts", "cokl.buffer=ROOT/new.parquet"
    found = refusals(configuration(made, *mode, *option))
    assert len(found) == bool(message)
    tokenizer = make_tokenizer()
    prompts = [list(prompt) for prompt in pd.read_parquet(made / "math_train.parquet")["prompt"]]
    ids = [tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False) for prompt in prompts]
    for refusal in found:
        assert message in refusal.reason
        assert refusal.remedy == remedy.replace("LONGEST", str(max(map(len, ids))))


def test_verls_own_reward_function_is_not_refused_where_it_has_one(made):
    rows = pd.read_parquet(made / "math_train.parquet")
    rows.assign(data_source="openai/gsm8k").to_parquet(made / "gsm8k.parquet")
    mode = f"{MODE}=cokl_buffer", "~cokl.method", "~cokl.kl_prompts", "cokl.buffer=ROOT/new.parquet", f"{FUNCTION}=null"
    assert refusals(configuration(made, *mode, "data.train_files=ROOT/gsm8k.parquet")) == []
    (refusal,) = refusals(configuration(made, *mode))
    assert "VeRL has none of its own for the data_source 'math_train'" in refusal.reason


@pytest.mark.parametrize(("overrides", "message", "remedy"), WRONG)
def test_a_wrong_start_is_refused_with_its_remedy(made, overrides, message, remedy):
    found = refusals(configuration(made, *overrides))
    told = [refusal for refusal in found if message.replace("ROOT", str(made)) in refusal.reason]
    assert len(told) == 1, found
    (refusal,) = told
    assert "\n" not in refusal.reason
    assert refusal.remedy.startswith(remedy)
    assert bool(refusal.remedy) == bool(remedy)


_WORD = "reward.custom_reward_function.reward_kwargs.word='a, b'"
OLDER: list[tuple[list[str], list[str]]] = [
    (
        [
            "custom_reward_function.path=ROOT/rewards.py",
            "custom_reward_function.name=worded",
            f"+{_WORD.removeprefix('reward.')}",
            f"{FUNCTION}=null",
            "reward.custom_reward_function.name=compute_score",
        ],
        [f"{FUNCTION}=ROOT/rewards.py", "reward.custom_reward_function.name=worded", f"++{_WORD}"],
    ),
    (["reward_model.reward_manager=dapo"], ["reward.reward_manager.name=dapo"]),
    (["reward_model.reward_manager=prime"], ["reward_model.reward_manager=null"]),
    (
        ["reward_model.reward_manager=dapo", *(f"+{OLD}.{option}" for option in _OVERLONG)],
        ["reward.reward_manager.name=dapo", *(f"++reward.reward_kwargs.{option}" for option in _OVERLONG)],
    ),
    (
        ["+reward_model.overlong_buffer.enable=True", "data.max_response_length=777"],
        ["++reward.reward_kwargs.overlong_buffer_cfg.enable=True", "++reward.reward_kwargs.max_resp_len=777"],
    ),
    (
        [f"{MODE}=sync", "reward_model.reward_manager=torl", f"{ROLLOUT}.top_p=0.9"],
        [f"{ROLLOUT}.top_p=1", "reward_model.reward_manager=null", f"{MODE}=cokl"],
    ),
    ([f"+{OLD}.overlong_buffer_cfg.enable=False", "+reward_model.launch_reward_fn_async=True"], []),
    (["reward_model.model.path=judge"], []),  # which is not enabled
]
"""Options under names that VeRL's V1 trainer ignores, and the block."""


@pytest.mark.parametrize(("overrides", "block"), OLDER)
def test_older_names_are_settled_by_pasting_the_block_once(made, overrides, block):
    remedies = [refusal.remedy for refusal in refusals(configuration(made, *overrides))]
    assert remedies == [option.replace("ROOT", str(made)) for option in block]
    assert refusals(configuration(made, *overrides, *remedies)) == []


def test_the_block_is_quoted_for_a_shell(capsys):
    found = [Refusal("a", "~cokl.kl_prompts"), Refusal("b", "++reward.word='a, b'")]
    (*_, block) = lines_of(capsys, end, found)
    assert shlex.split(block.removeprefix("cokl: add ")) == ["~cokl.kl_prompts", "++reward.word='a, b'"]


def test_every_remedy_of_a_setting_is_an_accepted_value(made):
    everything = [f"++{name}=abc" for name in ACCEPTED]
    broken = configuration(made, *everything)
    found = list(accepted(broken, ACCEPTED))
    assert len(found) == len(ACCEPTED)
    assert not list(accepted(configuration(made, *everything, *(refusal.remedy for refusal in found)), ACCEPTED))


def test_a_buffer_is_made_with_the_same_command(made):
    written = configuration(made, f"{MODE}=cokl_buffer", "~cokl.method", "~cokl.kl_prompts")
    (refusal,) = refusals(written)
    assert "expected a file that is not there yet" in refusal.reason
    options = f"{MODE}=cokl_buffer", "~cokl.method", "~cokl.kl_prompts", "cokl.buffer=ROOT/new.parquet"
    assert refusals(configuration(made, *options)) == []
    (refusal,) = refusals(configuration(made, *options, f"{ROLLOUT}.top_p=0.9"))
    assert "top_p: expected 1" in refusal.reason
    assert refusals(configuration(made, f"{MODE}=cokl_buffer", options[-1])) == []
    (refusal,) = refusals(configuration(made, *options[:-1], "cokl.buffer=ROOT/rewards.py/new.parquet"))
    assert "cokl.buffer: cannot write to " in refusal.reason
    (refusal,) = refusals(configuration(made, *options, "data.train_files=ROOT/images.parquet"))
    assert "data.train_files: expected prompts of text" in refusal.reason
    (refusal,) = refusals(configuration(made, *options, "+cokl.correct_abov=0.9"))
    assert "cokl.correct_abov: expected one of" in refusal.reason


# ------------------------------ VeRL's own program ------------------------------


@pytest.fixture
def entered(made, tmp_path, monkeypatch) -> Callable[..., None]:
    """Make this process one that runs VeRL's main with the regularizer and further options."""

    def enter(*overrides: str) -> None:
        hydra = "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none", PREFLIGHT
        monkeypatch.setattr(sys, "argv", ["main_ppo.py", *options(made, *overrides), *hydra])
        monkeypatch.setattr(ray, "init", lambda **given: pytest.fail("Ray is started"))
        monkeypatch.chdir(tmp_path)

    return enter


def lines_of(capsys: pytest.CaptureFixture[str], refusing, *arguments) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        refusing(*arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


def test_all_refusals_come_at_once_with_one_block(entered, capsys):
    entered(f"{ACTOR}.shuffle=True", f"{ROLLOUT}.top_p=0.9", "+cokl.beta=0")
    lines = lines_of(capsys, main_ppo.main)
    assert all(line.startswith("cokl: ") for line in lines)
    assert len(lines) == 4
    assert lines[-1] == f"cokl: add {ACTOR}.shuffle=False {ROLLOUT}.top_p=1"


@pytest.mark.parametrize(("step", "refused"), [(2, True), (3, False)])
def test_a_checkpoint_is_looked_at_where_it_would_be_resumed(made, step, refused):
    """Step 2 is GRPO's; step 3 has this buffer's position."""
    folder = made / "of-grpo" / f"global_step_{step}"
    resume = "trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"
    config = configuration(made, *resume)
    if not refused:
        _, settings, groups = look(config)
        assert settings
        draw_order(settings, groups).save(folder)
    assert bool(refusals(config)) == refused
    assert refusals(configuration(made, *resume, "+cokl.seed=1"))
    assert refusals(configuration(made, *resume, "cokl.method=cokl_floor"))  # which draws the same prompts
    config.trainer.resume_mode = "disable"
    assert refusals(config) == []


def test_a_check_starts_nothing(entered, capsys):
    entered("+cokl.check=True")
    with pytest.raises(SystemExit) as ended:
        main_ppo.main()
    assert ended.value.code == 0
    assert "cokl: nothing is refused" in capsys.readouterr().out


def test_an_engine_that_was_not_run_is_warned_of_in_one_line(entered, capsys):
    entered("+cokl.check=True", *MEGATRON, f"{ROLLOUT}.name=sglang")
    with pytest.raises(SystemExit):
        main_ppo.main()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("cokl: ")]
    options = f"{ACTOR}.strategy=megatron, not installed here, {ROLLOUT}.name=sglang, not installed here"
    assert line.startswith(f"cokl: warning: {options}: read in VeRL's source and not run with a regularizer")


def test_another_template_than_the_buffers_is_warned_of_where_no_fresh_answers_are_drawn(made, capsys):
    template = f"actor_rollout_ref.model.custom_chat_template='{TEMPLATE}'"
    for given, warned in (([template], True), ([], False)):
        assert refusals(configuration(made, "cokl.method=replay", *given)) == []
        told = "cokl: warning: cokl.buffer: 10 of its 10 prompts have other tokens than this run's chat template gives"
        assert (told in capsys.readouterr().err) == warned


def test_an_asynchronous_trainer_that_is_replaced_is_told(entered, monkeypatch, capsys):
    entered("+cokl.check=True")
    monkeypatch.setattr(sys, "argv", [sys.argv[0], f"{MODE}=separate_async", *sys.argv[1:]])
    with pytest.raises(SystemExit):
        main_ppo.main()
    assert (
        f"cokl: warning: {MODE}=cokl replaces separate_async: rollouts and updates no longer overlap"
        in capsys.readouterr().err
    )


def test_training_prompts_that_are_regularized_are_counted_before_the_start(made, capsys):
    """10 of the toy's prompts have cached responses."""
    training = "~cokl.kl_prompts", "+cokl.prompts=training"
    assert refusals(configuration(made, *training)) == []
    count = len(pd.read_parquet(made / "math_train.parquet"))
    assert f"cokl: {PROMPTS} of the {count} prompts in data.train_files are regularized" in capsys.readouterr().out


def test_a_ray_cluster_that_runs_is_told_to_load_the_plug_in():
    """Ray refuses a variable that its job has and the program gives again."""
    own = {MODULES: "llm_bridge.cpu,llm_bridge.plugin"}
    (option,) = handed_on(own)
    with initialize_config_module("verl.trainer.config", version_base=None):
        told = compose("ppo_trainer", [option]).ray_kwargs.ray_init.runtime_env.env_vars
    assert told == own
    assert handed_on({}) == []
    assert (
        handed_on({**own, "RAY_JOB_CONFIG_JSON_ENV_VAR": f'{{"runtime_env": {{"env_vars": {{"{MODULES}": "a"}}}}}}'})
        == []
    )


def test_what_the_trainer_refuses_ends_the_command_in_one_line(entered, monkeypatch, capsys):
    """As Ray hands an error over from another process: with a traceback for its text."""
    error = RayTaskError("run", "Traceback (most recent call last):\n  ...\n", InputError("the buffer does not fit"))

    def failing(config, task_runner_class):
        raise error.as_instanceof_cause()

    entered()
    monkeypatch.setattr(main_ppo, "run_ppo", failing)
    assert lines_of(capsys, main_ppo.main)[-1] == "cokl: the buffer does not fit"


def test_a_defect_in_the_trainer_keeps_its_traceback(entered, monkeypatch):
    def failing(config, task_runner_class):
        raise RayTaskError("run", "Traceback", ValueError("a defect")).as_instanceof_cause()

    entered()
    monkeypatch.setattr(main_ppo, "run_ppo", failing)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ValueError, match="Traceback"):
        main_ppo.main()


def test_a_defect_in_the_preflight_does_not_start_a_run(entered, monkeypatch, capsys):
    """Hydra would make a warning of it."""
    from llm_bridge.trainer import preflight

    monkeypatch.setattr(preflight, "refusals", lambda config: 1 / 0)
    entered()
    with pytest.raises(SystemExit) as ended:
        main_ppo.main()
    assert ended.value.code == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_another_program_or_version_is_refused(capsys):
    for file in ("verl/experimental/one_step_off_policy/main_ppo.py", "recipe/dapo/main_dapo.py"):
        (line,) = lines_of(capsys, check_program, f"/code/{file}")
        assert f"{Path(file).name} does not select its trainer by name" in line
        assert "start verl/trainer/main_ppo.py, of VeRL's own, with which" in line
    check_program("/code/verl/trainer/main_ppo.py")
    for other in ("0.9.0", "0.9.10", "0.10.0.dev0"):
        assert f"verl is {other}, expected 0.9.1" in lines_of(capsys, check_version, other)[0]
    check_version("0.9.1+cu128")


@pytest.mark.parametrize(
    ("arguments", "options", "main"),
    [
        (OURS, True, True),
        (["python", "-X", "dev", "-W", "ignore", *OURS[1:]], True, True),
        (["python", "/code/my_training.py", "++cokl.beta=1"], True, False),
        (["python", "/code/verl/trainer/main_ppo.py", "+cokl={method:cokl}"], True, True),
        (["python", "-m", MAIN], False, True),
        (["python", "/environment/bin/cokl", "llm", "run", "+cokl.length=token-mean"], False, False),
        (["python", "-m", "cokl_cli", "llm", "run", "+cokl.length=token-mean"], False, False),
        (["python", "-m", "verl.model_merger", "cokl.yaml", "--out", "cokl.parquet"], False, False),
        (["python", "-m", "recipe.dapo.main_dapo", "trainer.project_name=cokl.runs"], False, False),
        (["python", "/ray/default_worker.py", "--node-ip=10.0.0.1"], False, False),
    ],
)
def test_what_a_process_was_started_with(arguments, options, main):
    assert (has_options(arguments), is_main(arguments)) == (options, main)


@pytest.mark.parametrize(
    ("program", "overrides", "modules", "message"),
    [
        (MAIN, ("trainer.use_v1=False", f"{MODE}=cokl"), "llm_bridge.cpu,llm_bridge.plugin", "trainer.use_v1"),
        (MAIN, (), "llm_bridge.cpu,llm_bridge.plugn", "there is no llm_bridge.plugn; expected llm_bridge.plugin"),
    ],
)
def test_a_real_start_ends_in_lines_and_starts_nothing(program, overrides, modules, message, tmp_path):
    own = {"VERL_USE_EXTERNAL_MODULES": modules, "VERL_USE_EXTERNAL_PLUGINS": "none", "PYTHONPATH": str(Path.cwd())}
    variables = {**os.environ, **own}
    command = [sys.executable, "-m", program, "+cokl.method=cokl", *overrides]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert message in " ".join(line for line in ended.stderr.splitlines() if line.startswith("cokl: "))
    assert "Started a local Ray instance" not in ended.stdout + ended.stderr


def test_another_verl_is_refused_before_the_trainers_that_extend_it_are_loaded(tmp_path):
    package = tmp_path / "verl"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '0.10.0'\nimport llm_bridge.plugin\n")
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    command = [sys.executable, "-c", "import verl"]
    ended = subprocess.run(command, check=False, cwd=tmp_path, env=variables, capture_output=True, text=True)
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, "verl is 0.10.0, expected 0.9.1, whose trainer" in line) == (2, True), line
