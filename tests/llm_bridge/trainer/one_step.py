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
import faulthandler
import functools
import os

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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

from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.trainer.agent_loop import CachedResponseLoop
from llm_bridge.trainer.core import CoKLTrainer
from llm_bridge.trainer.settings import RegularizationSettings
from tests.llm_bridge.trainer.actor import VOCABULARY, make_model, meeting_place, training_worker
from tests.oracles import joint_step
from tests.oracles.joint_step import Row

AGREES, DIFFERS = 1e-5, 1e-3
"""Relative errors of a gradient: at most without a bug, and at least with one."""
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")
UNCONDITIONAL = ("forward_kl", "reverse_kl", "jensen_shannon", "entropy")
"""Methods that do not leave out a prompt without a correct cached response (E.3)."""
ACTOR = "actor_rollout_ref.actor"
LORA = {"lora_rank": 4, "lora_alpha": 8}
LONGEST = 3
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


class Rank:
    """A rank of the worker group: the actor, whose gradients are kept."""

    def __init__(self, folder: Path, rank: int, ranks: int, lora: bool) -> None:
        torch.distributed.init_process_group("cpu:gloo", meeting_place(folder), rank=rank, world_size=ranks)
        self.worker = training_worker(folder, rank, ranks, **(LORA if lora else {}))
        self.worker.engine.optimizer_step, self.worker.engine.disable_adapter = self._look, self._reference
        self.gradients: list[torch.Tensor] = []
        self.start = [parameter.detach().clone() for parameter in self._trained()]

    def _trained(self) -> list[Any]:
        return [parameter for parameter in self.worker.engine.module.parameters() if parameter.requires_grad]

    def parameters(self) -> list[torch.Tensor]:
        """What is trained, whole."""
        return [parameter.full_tensor().detach().clone() for parameter in self._trained()]

    def reset(self) -> None:
        self.gradients = []
        for parameter, start in zip(self._trained(), self.start, strict=True):
            parameter.data.copy_(start)

    def _look(self) -> float:
        self.gradients.append(torch.cat([one.grad.full_tensor().flatten().clone() for one in self._trained()]))
        for parameter in self._trained():
            parameter.data.mul_(1 + DISPLACEMENT)
        return 0.0

    @contextlib.contextmanager
    def _reference(self) -> Iterator[None]:
        """The policy with a displacement is the reference, and what is left where VeRL switches an adapter off."""
        parameters = self._trained()
        before = [parameter.detach().clone() for parameter in parameters]
        for parameter, start in zip(parameters, self.start, strict=True):
            parameter.data.copy_(start * (1 - DISPLACEMENT))
        yield
        for parameter, value in zip(parameters, before, strict=True):
            parameter.data.copy_(value)

    def set_loss_fn(self, loss: Callable[..., Any]) -> None:
        self.worker.set_loss_fn(loss)

    def log_probs(self, share: Share, reference: bool) -> dict[str, list[torch.Tensor]]:
        with self._reference() if reference else contextlib.nullcontext():
            output = self.worker.infer_batch(share.rows())
        return {name: list(output[name].unbind()) for name in ("log_probs", "entropy") if name in output.keys()}  # noqa: SIM118

    def update(self, share: Share) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """All gradients since `reset`, and what VeRL logs."""
        output = self.worker.train_mini_batch(share.rows())
        return self.gradients, tu.get(output, "metrics")

    def end(self) -> None:
        """Together with all ranks: none closes its connections while another still waits for it."""
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


@dataclass(frozen=True)
class Share:
    """A rank's rows, as VeRL's dispatch hands them over. told: what VeRL sends along with them."""

    queue: Queue
    fields: Sequence[str]
    told: dict[str, Any]

    def rows(self) -> TensorDict:
        rows = self.queue.get(list(self.queue), select_fields=self.fields)
        tu.assign_non_tensor(rows, **self.told)
        return rows


class Workers:
    """VeRL's worker group: rank 0 is this process, and each other rank one of its own, which does what it is told."""

    def __init__(self, folder: Path, queue: Queue, ranks: int, lora: bool) -> None:
        self._dispatch_info = {"actor": list(range(ranks))}
        self.queue, self.ranks = queue, ranks
        self.told: dict[str, Any] = {}
        self.gradients: list[torch.Tensor] = []
        self.keys: list[list[str]] = []
        self.said = [folder / f"rank-{rank}.txt" for rank in range(1, ranks)]
        start = torch.multiprocessing.get_context("spawn").Process
        self.others = [start(target=_serve, args=(folder, rank, ranks, lora), daemon=True) for rank in range(1, ranks)]
        for process, said in zip(self.others, self.said, strict=True):
            said.touch()
            process.start()
        with self._told_by_ranks():
            self.rank = Rank(folder, 0, ranks, lora)

    @contextlib.contextmanager
    def _told_by_ranks(self) -> Iterator[None]:
        """Where one rank fails the others lose their connections: the error gets that one's own output."""
        try:
            yield
        except Exception as error:
            for process, said in zip(self.others, self.said, strict=True):
                process.join(timeout=20)
                error.add_note(f"{said.stem}, exit code {process.exitcode}: {said.read_text()}")
            raise

    def _all(self, name: str, *arguments: Sequence[Any]) -> list[Any]:
        """What the method of this name returns on every rank. arguments: a value for each rank."""
        calls = [(name, [values[rank] for values in arguments]) for rank in range(self.ranks)]
        given, found = [None], [None] * self.ranks
        with self._told_by_ranks():
            torch.distributed.scatter_object_list(given, calls)
            done = getattr(self.rank, name)(*calls[0][1])
            torch.distributed.gather_object(done, found)
        return found

    def _shares(self, batch: KVBatchMeta) -> list[Share]:
        """In micro-batches that tear groups apart, more of them for more rows; a pass costs by the micro-batch."""
        parts = [keys.tolist() for keys in np.array_split(batch.keys, self.ranks)]
        size = max(size for size in (4, 8, 12) if len(parts[0]) % size == 0)
        fields, told = batch.fields or list(self.queue[batch.keys[0]]), batch.extra_info
        told = told | {"micro_batch_size_per_gpu": size} | self.told
        return [Share(Queue({key: self.queue[key] for key in keys}), fields, told) for keys in parts]

    def reset(self) -> None:
        self.keys = []
        self._all("reset")

    def parameters(self) -> list[torch.Tensor]:
        return self._all("parameters")[0]

    def set_loss_fn(self, loss: Callable[..., Any]) -> None:
        self._all("set_loss_fn", [loss] * self.ranks)

    def compute_log_prob(self, batch: KVBatchMeta, reference: bool = False) -> KVBatchMeta:
        found = self._all("log_probs", self._shares(batch), [reference] * self.ranks)
        for name in found[0]:
            for key, row in zip(batch.keys, [row for part in found for row in part[name]], strict=True):
                self.queue[key][name] = row
        return batch

    def compute_ref_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        return self.compute_log_prob(batch, reference=True)

    def update_actor(self, batch: KVBatchMeta) -> dict[str, Any]:
        self.keys.append(list(batch.keys))
        self.gradients, metrics = self._all("update", self._shares(batch))[0]
        return {"metrics": metrics | {"mfu": [0.0]}}

    def close(self) -> None:
        """Raises RuntimeError for a rank that did not end well."""
        with self._told_by_ranks():
            torch.distributed.scatter_object_list([None], [("end", [])] * self.ranks)
            self.rank.end()
            for process in self.others:
                process.join()
            if any(codes := [process.exitcode for process in self.others]):
                raise RuntimeError(f"expected ranks to end well, got exit codes {codes}")


def _serve(folder: Path, rank: int, ranks: int, lora: bool) -> None:
    """A rank other than the first. Its output is in a file, with the stacks of a crash in native code.

    It leaves the group where it fails too. PyTorch's gloo frees tensors in threads of its own, which outlive even that,
    and may crash if one is still at work while the interpreter ends (pytorch/pytorch#190489).
    """
    with (folder / f"rank-{rank}.txt").open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    faulthandler.enable()
    torch.set_num_threads(1)
    try:
        worker, name = Rank(folder, rank, ranks, lora), ""
        while name != "end":
            given: list[Any] = [None]
            torch.distributed.scatter_object_list(given)
            name, arguments = given[0]
            done = getattr(worker, name)(*arguments)
            if name != "end":
                torch.distributed.gather_object(done)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


@contextlib.contextmanager
def started(folder: Path, ranks: int = 1, lora: bool = False) -> Iterator[OneStep]:
    """A step whose ranks end with the block, in an environment that later tests do not inherit."""
    with patch.dict(os.environ):
        try:
            step = OneStep(folder, ranks, lora)
            yield step
            step.workers.close()
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


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


class OneStep:
    """A trainer over `folder`'s model and buffer, and its one step.

    ranks: processes that share the rows; the first is this one. lora: whether an adapter is trained.
    """

    def __init__(self, folder: Path, ranks: int = 1, lora: bool = False) -> None:
        make_model(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.folder, self.queue = folder, Queue()
        self.buffer = make_buffer(folder, "buffer", [(1, 0, 1, 0)] * KL_PROMPTS)
        self.training = make_buffer(folder, "training", TRAINING_VERDICTS)
        self.workers = Workers(folder, self.queue, ranks, lora)
        if lora:
            self.model = _with_adapter(self.model, self.workers.parameters())
        self.answered: dict[str, Row] = {}
        self.lost = ""
        self.number, self.shaped, self.adapter = 1, 0.0, False
        self.penalty = 0.0  # on a response of `LONGEST` tokens, as VeRL's manager of DAPO would shape its score
        self.chance = 0.6  # of a fresh response to be correct
        self.said: Sequence[int] = ()  # by every fresh response to a prompt of the buffer, if it is not random

    def run(
        self, *overrides: str, lose: int = 0, **told: Any
    ) -> tuple[list[torch.Tensor], list[Row], dict[str, float]]:
        """The gradients of the optimizer steps, the rows that should have gone into them, and the trainer's metrics.

        lose: cached responses whose rollouts fail, all to the prompt `lost`. told: of VeRL's workers, beside what its
        trainer sends them. `answered` then has the rows by key, and `workers.keys` what each step was given.
        """
        with patch.multiple(tq, kv_batch_get=self.queue.get, kv_batch_put=self.queue.put):
            return self._run(overrides, lose, told)

    def _run(
        self, overrides: Sequence[str], lose: int, told: dict[str, Any]
    ) -> tuple[list[torch.Tensor], list[Row], dict[str, float]]:
        self.queue.clear()
        self.workers.reset()
        ranks = f"trainer.n_gpus_per_node={self.workers.ranks}"
        trainer = CoKLTrainer(configuration(self.folder, ranks, *overrides))
        self.workers.told = told
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

        All that is cached for the drawn prompts, or for the RL prompts that the method regularizes; unless a prompt
        brings some of its cached responses only: then those that it brought.
        """
        answered = list(self.answered.values())
        rows = [row for row in answered if row.stream != "reference"]
        unsolved_too = settings.method.name in UNCONDITIONAL
        of_training = [group for group in self.training.groups if unsolved_too or group.rewards.any()]
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


def _with_adapter(model: torch.nn.Module, values: Sequence[torch.Tensor]) -> torch.nn.Module:
    """A twin of what VeRL trains. values: of the adapter's parameters, in their order."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=LORA["lora_rank"], lora_alpha=LORA["lora_alpha"], target_modules="all-linear")
    twin: torch.nn.Module = get_peft_model(model, config)
    with torch.no_grad():
        for parameter, value in zip(_trained(twin), values, strict=True):
            parameter.copy_(value)
    return twin


def _trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def errors(step: OneStep, gradients: Sequence[torch.Tensor], rows: Sequence[Any], **oracle: Any) -> list[float]:
    """Relative error of each optimizer step's gradient. rows: of every step, or a list of each step's."""
    found = []
    for number, gradient in enumerate(gradients):
        model, reference = copy.deepcopy(step.model), copy.deepcopy(step.model)
        with torch.no_grad():
            for parameter, start in zip(_trained(model), _trained(reference), strict=True):
                parameter.mul_((1 + DISPLACEMENT) ** number)
                start.mul_(1 - DISPLACEMENT)

        def logits(row: Row, model: torch.nn.Module) -> torch.Tensor:
            return model(torch.tensor([row.prompt + row.response])).logits[0, len(row.prompt) - 1 : -1]

        def log_probs(row: Row, model: torch.nn.Module = model) -> torch.Tensor:
            told = logits(row, model).log_softmax(-1)
            return told.gather(-1, torch.tensor(row.response)[:, None])[:, 0].double()

        @functools.cache
        def sampled(row: Row) -> torch.Tensor:
            return log_probs(row, step.model).detach()

        def entropies(row: Row, model: torch.nn.Module = model) -> torch.Tensor:
            told = logits(row, model).double()
            return -(told.softmax(-1) * told.log_softmax(-1)).sum(-1)

        if "entropy" in oracle:
            oracle["entropies"] = entropies
        if "factor" in oracle:
            told = oracle.pop("factor")
            oracle["factors"] = lambda row, told=told: told(sampled(row) - rollout_log_probs(len(row.response)))
        total = joint_step.loss(
            rows[number] if isinstance(rows[0], list) else rows,
            functools.cache(log_probs),
            sampled,
            BETA,
            EPSILON_IS,
            CLIP,
            functools.partial(log_probs, model=reference),
            **oracle,
        )
        expected = torch.cat([part.flatten() for part in torch.autograd.grad(total, _trained(model))])
        found.append(float((gradient - expected).norm() / expected.norm()))
    return found


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
