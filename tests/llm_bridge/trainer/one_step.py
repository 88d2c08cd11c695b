"""The trainer's own hooks on real rows, in this process: optimizer steps under VeRL's loss, and their gradients.

VeRL's trainer class, its advantages, its actor worker (FSDP2 on gloo) and our agent loop are the real ones. Of VeRL's
surroundings there are stand-ins: a dictionary is the queue, which gives workers the fields that the trainer names and
no others, random tokens are the rollouts, and instead of an optimizer step the gradient is kept and the parameters
are moved by a known displacement.
"""

# ruff: noqa: I001

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import os

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["VERL_ENGINE_DEVICE"] = "cuda"  # as which VeRL registers FSDP

import llm_bridge.cpu  # noqa: F401  before anything of VeRL asks for a device

import numpy as np
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from transformers import AutoModelForCausalLM
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from llm_bridge.buffer.buffer import Buffer, CachedGroup, model_fingerprint
from llm_bridge.trainer.agent_loop import CachedResponseLoop
from llm_bridge.trainer.core import CoKLTrainer
from llm_bridge.trainer.settings import RegularizationSettings
from tests.llm_bridge.trainer.actor import meeting_place, training_worker
from tests.llm_bridge.trainer.gradients import make_model
from tests.oracles.joint_step import Row

VOCABULARY, LONGEST = 32, 3
RL_PROMPTS, KL_PROMPTS, CACHED, FRESH = 4, 4, 4, 4
BETA, EPSILON_IS, CLIP = 0.7, 0.2, 0.2
DISPLACEMENT = 0.02
TRAINING_VERDICTS = ((1, 0, 1, 0), (0, 1, 1, 1), (0, 0, 0, 0))
"""Of the cached responses to the first RL prompts: the third was never solved, and the fourth has no responses."""


class Queue(dict):
    """VeRL's queue: rows by key."""

    def put(self, keys, partition_id=None, fields=None, tags=None) -> KVBatchMeta:
        names = fields.keys() if fields is not None else ()
        columns = {name: list(fields.get(name).unbind(0)) for name in names}
        for place, key in enumerate(keys):
            values = {name: column[place] for name, column in columns.items()}
            plain = {name: value if isinstance(value, torch.Tensor) else value.data for name, value in values.items()}
            plain = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in plain.items()}
            self.setdefault(key, {}).update(plain)
        return KVBatchMeta(list(keys), [{}] * len(keys), partition_id, sorted(self[keys[0]]))

    def get(self, keys, partition_id=None, select_fields=None) -> TensorDict:
        names = [name for name in select_fields or self[keys[0]] if name in self[keys[0]]]
        columns = {
            name: np.array([self[key][name] for key in keys], dtype=object)
            if isinstance(self[keys[0]][name], str | dict)
            else torch.nested.as_nested_tensor([self[key][name] for key in keys], layout=torch.jagged)
            for name in names
        }
        return tu.get_tensordict(columns)


class Tokenizer:
    """A text is its numbers, with spaces between them, and a prompt its question."""

    eos_token_id = 0

    def apply_chat_template(self, messages, **options) -> str:
        return " ".join(map(str, prompt_tokens(messages[0]["content"])))

    def __call__(self, text, **options) -> dict[str, list[int]]:
        return {"input_ids": [int(number) for number in text.split()]}

    def decode(self, ids, **options) -> str:
        return " ".join(map(str, ids))


class Workers:
    """The worker group of one rank: the actor, whose gradients are kept."""

    _dispatch_info = {"actor": [0]}  # noqa: RUF012  as VeRL has it

    def __init__(self, folder: Path, queue: Queue) -> None:
        torch.distributed.init_process_group("cpu:gloo", meeting_place(folder), rank=0, world_size=1)
        self.worker, self.queue = training_worker(folder, 0, 1), queue
        self.worker.engine.optimizer_step, self.worker.engine.disable_adapter = self._look, self._reference
        self.gradients: list[torch.Tensor] = []
        self.keys: list[list[str]] = []
        self.start = [parameter.detach().clone() for parameter in self.worker.engine.module.parameters()]

    def reset(self) -> None:
        self.gradients, self.keys = [], []
        for parameter, start in zip(self.worker.engine.module.parameters(), self.start, strict=True):
            parameter.data.copy_(start)

    def _look(self) -> float:
        parameters = list(self.worker.engine.module.parameters())
        self.gradients.append(torch.cat([parameter.grad.full_tensor().flatten().clone() for parameter in parameters]))
        for parameter in parameters:
            parameter.data.mul_(1 + DISPLACEMENT)
        return 0.0

    def _rows(self, batch: KVBatchMeta) -> TensorDict:
        """In micro-batches that tear groups apart, more of them for more rows; a pass costs by the micro-batch."""
        rows = self.queue.get(batch.keys, select_fields=batch.fields or list(self.queue[batch.keys[0]]))
        size = max(size for size in (4, 8, 12) if len(batch) % size == 0)
        tu.assign_non_tensor(rows, **batch.extra_info, micro_batch_size_per_gpu=size)
        return rows

    def set_loss_fn(self, loss: Callable[..., Any]) -> None:
        self.worker.set_loss_fn(loss)

    def compute_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        output = self.worker.infer_batch(self._rows(batch))
        self.queue.put(batch.keys, fields=output.select("log_probs", "entropy", strict=False))
        return batch

    def compute_ref_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        with self._reference():
            return self.compute_log_prob(batch)

    @contextlib.contextmanager
    def _reference(self) -> Iterator[None]:
        """The policy with a displacement is the reference, and what is left where VeRL switches an adapter off."""
        parameters = list(self.worker.engine.module.parameters())
        before = [parameter.detach().clone() for parameter in parameters]
        for parameter, start in zip(parameters, self.start, strict=True):
            parameter.data.copy_(start * (1 - DISPLACEMENT))
        yield
        for parameter, value in zip(parameters, before, strict=True):
            parameter.data.copy_(value)

    def update_actor(self, batch: KVBatchMeta) -> TensorDict:
        self.keys.append(list(batch.keys))
        output = self.worker.train_mini_batch(self._rows(batch))
        output["metrics"]["mfu"] = [0.0]
        return output


def make_buffer(folder: Path, name: str, verdicts: Sequence[Sequence[int]]) -> Buffer:
    """A prompt for each row of verdicts, with as many responses, of different lengths.

    name: of the file, and of the prompts, "rl 0", ... or "0", ...
    """
    random = np.random.default_rng(3 + len(name))
    groups = []
    for prompt, rewards in enumerate(verdicts):
        responses = [random.integers(VOCABULARY, size=size) for size in random.integers(1, LONGEST + 1, len(rewards))]
        question = f"rl {prompt}" if name == "training" else str(prompt)
        groups.append(
            CachedGroup(
                prompt=[{"role": "user", "content": question}],
                data_source="math_train",
                ground_truth=str(prompt),
                prompt_ids=np.array(prompt_tokens(question)),
                response_ids=responses,
                rewards=np.array(rewards),
            )
        )
    buffer = Buffer(tuple(groups), model_fingerprint(folder))
    buffer.save(folder / f"{name}.parquet")
    return buffer


def prompt_tokens(question: str) -> list[int]:
    return [int(question) + 10, int(question) + 11] if question.isdecimal() else [int(question[3:])]


def of_training_prompts(folder: Path) -> tuple[str, ...]:
    """Options under which the RL prompts themselves are regularized, and no others."""
    return "~cokl.kl_prompts", "+cokl.prompts=training", f"cokl.buffer={folder}/training.parquet"


def configuration(folder: Path, *overrides: str) -> Any:
    options = [
        f"actor_rollout_ref.model.path={folder}", f"+cokl.buffer={folder}/buffer.parquet", "+cokl.method=cokl",
        f"+cokl.beta={BETA}", f"+cokl.kl_prompts={KL_PROMPTS}", "algorithm.adv_estimator=grpo", "trainer.device=cpu",
        f"data.train_batch_size={RL_PROMPTS}", f"actor_rollout_ref.rollout.n={FRESH}", "trainer.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.name=vllm",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={RL_PROMPTS}", "trainer.v1.trainer_mode=cokl",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean", "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "actor_rollout_ref.rollout.calculate_log_probs=False",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        *overrides,
    ]  # fmt: skip
    config = copy.deepcopy(_verls_own())
    OmegaConf.set_struct(config, False)
    for option in options:
        name, _, value = option.lstrip("+~").partition("=")
        if option.startswith("~"):
            del config[name.partition(".")[0]][name.partition(".")[2]]
        else:
            OmegaConf.update(config, name, OmegaConf.create(f"value: {value or 'null'}").value)
    return config


@functools.cache
def _verls_own() -> Any:
    """VeRL's configuration, which takes a second to compose."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


class Step:
    """A trainer over `folder`'s model and buffer, and its one step."""

    def __init__(self, folder: Path) -> None:
        make_model(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.folder, self.queue = folder, Queue()
        self.buffer = make_buffer(folder, "buffer", [(1, 0, 1, 0)] * KL_PROMPTS)
        self.training = make_buffer(folder, "training", TRAINING_VERDICTS)
        self.workers = Workers(folder, self.queue)
        self.answered: dict[str, Row] = {}
        self.lost = ""
        self.number, self.shaped, self.adapter = 1, 0.0, False
        self.penalty = 0.0  # on a response of `LONGEST` tokens, as VeRL's manager of DAPO would shape its score
        self.chance = 0.6  # of a fresh response to be correct
        self.said: Sequence[int] = ()  # by every fresh response to a prompt of the buffer, if it is not random

    def run(self, *overrides: str, lose: int = 0) -> tuple[list[torch.Tensor], list[Row], dict[str, float]]:
        """The gradients of the optimizer steps, the rows that should have gone into them, and the trainer's metrics.

        lose: cached responses whose rollouts fail, all to the prompt `lost`. `answered` then has the rows by key, and
        `workers.keys` what each step was given.
        """
        with patch.multiple(tq, kv_batch_get=self.queue.get, kv_batch_put=self.queue.put):
            return self._run(overrides, lose)

    def _run(self, overrides: Sequence[str], lose: int) -> tuple[list[torch.Tensor], list[Row], dict[str, float]]:
        self.queue.clear()
        self.workers.reset()
        trainer = CoKLTrainer(configuration(self.folder, *overrides))
        trainer.actor_rollout_wg, trainer.global_steps, trainer.total_training_steps = self.workers, self.number, 5
        trainer.tokenizer = Tokenizer()
        trainer.train_dataloader, trainer.train_dataloader_it = [self._prompts(0), self._prompts(RL_PROMPTS)], None
        trainer.distillation_config = None
        with patch.object(PPOTrainerSync, "_setup"):  # which starts Ray's workers
            trainer._setup()
        self.answered.clear()
        batch = self._roll_out(trainer._next_train_batch(), lose)
        if trainer.config.algorithm.filter_groups.enable:
            batch = self._filter(trainer, batch)
        rows = self._expected(trainer.settings)
        metrics: dict[str, float] = {}
        batch = trainer._balance_batch(batch, metrics)
        batch = trainer._compute_old_log_prob(batch, metrics)
        if trainer.use_reference_policy:
            trainer.ref_in_actor, trainer.ref_policy_wg = self.adapter, self.workers
            batch = trainer._compute_ref_log_prob(batch, metrics)
        batch = trainer._compute_advantage(batch, metrics)
        trainer._update_actor(batch, metrics)
        return self.workers.gradients, rows, metrics

    def _filter(self, trainer: CoKLTrainer, batch: KVBatchMeta) -> KVBatchMeta:
        """As VeRL does with `filter_groups`: an RL group is dropped, more are asked for, and the surplus goes."""
        more = self._roll_out(trainer._next_train_batch(RL_PROMPTS), 0)
        tags = dict(zip([*batch.keys, *more.keys], [*batch.tags, *more.tags], strict=True))
        groups = {key.partition("_")[0] for key in tags} - {batch.keys[0].partition("_")[0]}
        count = RL_PROMPTS + trainer.step_rows.asked
        chosen = trainer.replay_buffer._select_prompt_uids("train", groups, count)[0]
        keys = [key for key in tags if key.partition("_")[0] in chosen]
        self.answered = {key: self.answered[key] for key in keys}
        return KVBatchMeta(keys, [tags[key] for key in keys], "train", None, batch.extra_info)

    def _prompts(self, first: int) -> dict[str, Any]:
        rows = [
            {
                "raw_prompt": [{"role": "user", "content": f"rl {row}"}],
                "reward_model": {"ground_truth": str(row)},
                "index": row,
                "dummy_tensor": torch.zeros(1),
            }
            for row in range(first, first + RL_PROMPTS)
        ]
        return collate_fn(rows)

    def _roll_out(self, prompts: TensorDict, lose: int) -> KVBatchMeta:
        """Answers to every prompt, as VeRL's agent loops put them into the queue."""
        random, keys, tags = np.random.default_rng(5), [], []
        for place in range(len(prompts)):
            columns: dict[str, Any] = {
                "agent_name": "single_turn_agent",
                "__rollout_n__": FRESH,
            }  # VeRL's, where there are no others
            names = {"uid", "raw_prompt", *columns} & set(prompts.keys())
            columns |= {name: prompts[name][place] for name in names}
            cached = list(prompts["cached_response"])[place] if "cached_response" in prompts.keys() else None  # noqa: SIM118
            question = columns["raw_prompt"][0]["content"]
            prompt = prompt_tokens(question)
            for session in range(columns["__rollout_n__"]):
                if columns["agent_name"] == "cached_response":
                    if lose:
                        lose, self.lost = lose - 1, question
                        continue
                    answer = asyncio.run(
                        CachedResponseLoop.run(None, {"logprobs": False}, cached_response=cached, global_steps=1)  # type: ignore[arg-type]
                    )
                    prompt_ids, response, reward = answer.prompt_ids, answer.response_ids, answer.reward_score
                else:
                    prompt_ids, response = prompt, random.integers(VOCABULARY, size=random.integers(1, LONGEST + 1))
                    response = np.array(self.said) if self.said and question.isdecimal() else response
                    reward = float(random.random() < self.chance)
                key = f"{columns['uid']}_{session}_0"
                keys.append(key)
                tags.append({"seq_len": len(prompt_ids) + len(response), "response_len": len(response)})
                fresh = columns["agent_name"] != "cached_response"
                stream = ("rollout" if question.isdecimal() else "rl") if fresh else "reference"
                self.answered[key] = Row(stream, question, tuple(prompt), tuple(map(int, response)), reward)
                shaped = fresh * (self.shaped + self._penalty(response))
                self.queue[key] = _fields(columns["uid"], prompt_ids, response, reward, shaped)
        return KVBatchMeta(keys, tags, "train", None, {"temperature": 1.0})

    def _penalty(self, response: Sequence[int]) -> float:
        return self.penalty * (len(response) == LONGEST)

    def _expected(self, settings: RegularizationSettings) -> list[Row]:
        """The fresh rows as they were rolled out, and what must have been taken from the files.

        All that is cached for the drawn prompts, or for the RL prompts that were ever solved; unless a prompt brings
        some of its cached responses only: then those that it brought.
        """
        answered = list(self.answered.values())
        rows = [row for row in answered if row.stream != "reference"]
        of_training = [group for group in self.training.groups if group.rewards.any()]
        groups = of_training if settings.prompts == "training" else self.buffer.groups
        asked = {row.group for row in answered if row.stream != "rl" or settings.prompts == "training"}
        if settings.cached_per_prompt:
            rows += [row for row in answered if row.stream == "reference"]
        else:
            rows += [row for group in groups for row in cached_rows(group) if row.group in asked]
        return [
            replace(row, reward=row.reward + self._penalty(row.response)) if row.stream == "rl" else row
            for row in as_the_oracle_has_them(rows)
        ]


def cached_rows(group: CachedGroup) -> list[Row]:
    return [
        Row("reference", group.prompt[0]["content"], tuple(group.prompt_ids.tolist()), tuple(ids.tolist()), reward)
        for ids, reward in zip(group.response_ids, map(float, group.rewards), strict=True)
    ]


def as_the_oracle_has_them(rows: Sequence[Row]) -> list[Row]:
    """An RL row whose prompt has cached responses is in the loss a second time, as a rollout."""
    regularized = {row.group for row in rows if row.stream == "reference"}
    shared = [replace(row, stream="rollout") for row in rows if row.stream == "rl" and row.group in regularized]
    return [*rows, *shared]


def rollout_log_probs(tokens: int) -> torch.Tensor:
    """(T,): what the rollout engine is to have told of a response's tokens."""
    return torch.linspace(-4.0, -2.0, tokens)


def _fields(uid: str, prompt: list[int], response: Any, reward: float, shaped: float) -> dict[str, Any]:
    """shaped: what a reward manager adds to the function's score."""
    tokens = torch.tensor([*prompt, *map(int, response)])
    ones = torch.ones(len(response), dtype=torch.int64)
    scores = torch.zeros(len(response))
    scores[-1] = reward + shaped
    return {
        "uid": str(uid),
        "prompts": tokens[: len(prompt)],
        "responses": tokens[len(prompt) :],
        "input_ids": tokens,
        "position_ids": torch.arange(len(tokens)),
        "response_mask": ones,
        "loss_mask": ones.clone(),
        "rm_scores": scores,
        "rollout_log_probs": rollout_log_probs(len(response)),
        "extra_fields": {"reward_extra_info": {"acc": reward}},
    }
