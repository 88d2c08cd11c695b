"""A bandit as a language model, and the gradient of the same samples in two worlds.

A tiny Qwen3 transformer whose vocabulary is the bandit's actions answers prompts that name a cluster. VeRL's own actor
worker (FSDP2, gloo) takes an optimizer step on the joint batch, and the gradient that reaches its optimizer is compared
with autograd's through `cokl.grpo.grpo_loss` and `cokl.groups.surrogate_loss`, whose groups never meet a micro-batch.

`python -m tests.llm_bridge.trainer.identity` prints the largest relative error for every number of ranks, averaging
mode and micro-batch size.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bandit.config import EnvironmentConfig
from bandit.engine.environment import Environment
from benchmarks.actor import actor_config, free_port, training_worker, update_settings
from cokl import methods, regularizers
from cokl.groups import RegularizationRows, ResponseGroups, RowIndex, SurrogateConfig, surrogate_loss
from cokl.grpo import group_advantages, grpo_loss
from cokl.methods import Method

METHODS = ("none", *regularizers.names(), "cokl_floor")
LENGTHS = {1: METHODS, 3: ("cokl", "reverse_kl")}
"""The longest response, in tokens, and the methods compared with it."""
PACKINGS: dict[str, dict[str, Any]] = {
    "packed": {"use_remove_padding": True},
    "dynamic": {"use_dynamic_bsz": True, "max_token_len_per_gpu": 12},
    "dynamic, packed": {"use_remove_padding": True, "use_dynamic_bsz": True, "max_token_len_per_gpu": 12},
}
"""How a GPU run cuts its micro-batches: without padding, and to a number of tokens rather than of rows."""
LIMIT = 1800.0
"""Seconds after which the ranks count as hung."""
MODES = ("token-mean", "seq-mean-token-mean")
RL_PROMPTS, KL_PROMPTS, GROUP = 4, 2, 4
BETA, EPSILON_IS, CLIP = 0.7, 0.2, 0.2
ENVIRONMENT = EnvironmentConfig(clusters=8, actions=32, correct_actions=10, train_inputs=1, test_inputs=1)


@dataclass(frozen=True, eq=False)
class Sample:
    """One response: rows of a group have the same prompt.

    stream: "rl", "reference" or "rollout". behavior, reference: (T,) token log-probabilities.
    """

    stream: str
    group: int
    prompt: list[int]
    response: list[int]
    reward: float
    behavior: Tensor
    reference: Tensor


def make_model(folder: Path) -> None:
    """A Qwen3 transformer of random weights, large enough to tell actions apart."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=ENVIRONMENT.actions,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def token_log_probs(model: torch.nn.Module, sample: Sample) -> Tensor:
    """(T,): of the response's tokens; each response is run by itself, without padding."""
    logits = model(torch.tensor([sample.prompt + sample.response])).logits[0, len(sample.prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(sample.response)[:, None])[:, 0]


def draw_samples(model: torch.nn.Module, longest: int) -> list[Sample]:
    """RL, cached and fresh groups in a random order; responses have 1 to `longest` tokens.

    The first action of a response decides its reward: of a group, the first and third response are correct and the
    second is not, but one rollout group has no correct response. Behaviour and reference differ from the model, so
    that ratios are clipped and importance weights are not one.
    """
    environment, generator = Environment(ENVIRONMENT, seed=0), torch.Generator().manual_seed(1)
    mask = environment.correct.mask.float()
    samples = []
    streams = {"rl": RL_PROMPTS, "reference": KL_PROMPTS, "rollout": KL_PROMPTS}
    for stream, prompts in streams.items():
        for group, member in itertools.product(range(prompts), range(GROUP)):
            cluster = group + RL_PROMPTS * (stream != "rl")
            allowed = mask[cluster] if member in (0, 2) else torch.ones(ENVIRONMENT.actions)
            if member == 1 or (stream, group) == ("rollout", 0):
                allowed = 1 - mask[cluster]
            length = int(torch.randint(1, longest + 1, (), generator=generator))
            first = int(torch.multinomial(allowed, 1, generator=generator))
            rest = torch.randint(ENVIRONMENT.actions, (length - 1,), generator=generator).tolist()
            noise = 0.8 * torch.rand(2, length, generator=generator) - 0.4
            sample = Sample(
                stream, group, [cluster] * (1 + cluster % 3), [first, *rest], float(mask[cluster, first]), *noise
            )
            with torch.no_grad():
                log_probs = token_log_probs(model, sample)
            samples.append(dataclasses.replace(sample, behavior=log_probs + noise[0], reference=log_probs + noise[1]))
    order = torch.randperm(len(samples), generator=generator).tolist()
    return [samples[place] for place in order]


def rows_of(method: Method, samples: list[Sample], training: bool = False) -> list[Sample]:
    """The rows of a joint batch: RL rows, and those of the streams that the method weights.

    training: whether the first RL prompts are the regularized ones, whose rollouts are RL rows already.
    """
    streams = [stream for stream in method.streams() if not (training and stream == "rollout")]
    return [sample for sample in samples if sample.stream in ("rl", *streams)]


def membership(method: Method, sample: Sample, training: bool) -> tuple[str, int] | None:
    """The stream and the prompt of a row of the regularizer's; None for another."""
    stream = sample.stream
    if training and stream == "rl" and sample.group < KL_PROMPTS:
        stream = "rollout"
    return (stream, sample.group) if stream in method.streams() else None


# ------------------------------ cokl's world ------------------------------


def cokl_gradient(
    model: torch.nn.Module,
    log_probs: dict[int, Tensor],
    method: Method,
    samples: list[Sample],
    mode: str,
    training: bool = False,
) -> Tensor:
    """Flat gradient of the GRPO loss plus the surrogate, over whole groups.

    log_probs: of each sample's tokens, (T,) with their graph. training: as `rows_of` has it.
    """
    loss = _grpo(log_probs, samples, mode)
    of_stream: dict[str, list[Sample]] = {stream: [] for stream in method.streams()}
    for sample in samples:
        if belongs := membership(method, sample, training):
            of_stream[belongs[0]].append(sample)
    groups = {stream: _response_groups(log_probs, members, stream) for stream, members in of_stream.items()}
    if groups:
        reference, rollout = groups.get("reference"), groups.get("rollout")
        weights = method.weights(reference, rollout, BETA, SurrogateConfig(EPSILON_IS))
        loss = loss + surrogate_loss(weights, reference, rollout)
    gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    return torch.cat([gradient.flatten() for gradient in gradients])


def _grouped(samples: list[Sample]) -> list[list[Sample]]:
    return [
        [sample for sample in samples if sample.group == group]
        for group in sorted({sample.group for sample in samples})
    ]


def _response_groups(log_probs: dict[int, Tensor], samples: list[Sample], stream: str) -> ResponseGroups:
    def table(value) -> Tensor:
        return torch.stack([torch.stack([value(sample) for sample in group]) for group in _grouped(samples)])

    rollout = stream == "rollout"
    return ResponseGroups(
        table(lambda sample: log_probs[id(sample)].sum()),
        table(lambda sample: torch.tensor(sample.reward)),
        table(lambda sample: sample.behavior.sum()) if rollout else None,
        table(lambda sample: sample.reference.sum()) if rollout else None,
    )


def _grpo(log_probs: dict[int, Tensor], samples: list[Sample], mode: str) -> Tensor:
    """`cokl.grpo.grpo_loss`, which averages over a response's tokens first, or the mean over all tokens."""
    groups = _grouped([sample for sample in samples if sample.stream == "rl"])
    advantages = group_advantages(torch.tensor([[sample.reward for sample in group] for group in groups]))
    if mode == "token-mean":
        losses = []
        for group, row in zip(groups, advantages, strict=True):
            for sample, advantage in zip(group, row, strict=True):
                ratio = (log_probs[id(sample)] - sample.behavior).exp()
                losses.append(-torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage))
        return torch.cat(losses).mean()

    def table(value) -> Tensor:
        flat = [value(sample) for group in groups for sample in group]
        return torch.nn.utils.rnn.pad_sequence(flat, batch_first=True).unflatten(0, (RL_PROMPTS, GROUP))

    return grpo_loss(
        table(lambda sample: log_probs[id(sample)]),
        table(lambda sample: sample.behavior),
        advantages,
        table(lambda sample: torch.ones(len(sample.response), dtype=torch.bool)),
    )


# ------------------------------ VeRL's world ------------------------------


def run(ranks: int, folder: Path) -> pd.DataFrame:
    """All methods and modes on `ranks` processes; one row per gradient that VeRL computed.

    Packings and weights of zero are compared with the first method of each combination of streams.

    Columns: ranks, longest (response), mode, micro_batch (0 for a packing), packing, micro_batches (how many), method
    (None for a joint batch whose weights are zero), training (True where RL prompts are the regularized ones), error
    (relative, to cokl's gradient; for zero weights to that of VeRL's own loss on a GRPO-only batch), share (how large
    the regularizer's part of the gradient is, relative to GRPO's), loss_error (relative, of the logged loss of the
    regularization stream), metric_error (of VeRL's logged loss and KL, which must be those of the RL rows).
    """
    make_model(folder)
    port = free_port()
    results = folder / "results.parquet"
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=_rank, args=(rank, ranks, port, folder, results)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=LIMIT)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    if any(codes) or None in codes:
        raise RuntimeError(f"expected every rank to end within {LIMIT:.0f} s, got exit codes {codes}")
    return pd.read_parquet(results)


def _rank(rank: int, ranks: int, port: int, folder: Path, results: Path) -> None:
    torch.set_num_threads(1)
    from transformers import AutoModelForCausalLM

    actor = Actor(folder, rank, ranks, port)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    frames = [
        pd.DataFrame(_compare(model, actor, draw_samples(model, longest), names, mode, rank, ranks)).assign(
            ranks=ranks, longest=longest, mode=mode
        )
        for longest, names in LENGTHS.items()
        for mode in MODES
    ]
    if rank == 0:
        pd.concat(frames).to_parquet(results)
    torch.distributed.destroy_process_group()


def _compare(
    model: torch.nn.Module,
    actor: Actor,
    samples: list[Sample],
    names: tuple[str, ...],
    mode: str,
    rank: int,
    ranks: int,
) -> Iterator[dict[str, Any]]:
    from verl.workers.utils.losses import ppo_loss

    from llm_bridge.trainer.loss import joint_loss

    rl = [sample for sample in samples if sample.stream == "rl"]
    mine = _share(rl, torch.zeros(len(rl)), rank, ranks)
    grpo_only, grpo_metrics = actor.gradient(ppo_loss, mode, mine, len(mine))
    log_probs = {id(sample): token_log_probs(model, sample) for sample in samples}
    moved = torch.cat([sample.behavior - log_probs[id(sample)].detach() for sample in rl])
    rl_metrics = {"actor/pg_loss": grpo_metrics["actor/pg_loss"], "actor/ppo_kl": float(moved.mean())}
    compared: set[tuple[str, ...]] = set()
    for name in names:
        method = methods.get(name)
        rows = rows_of(method, samples)
        log_likelihoods = torch.stack([log_probs[id(sample)].sum() for sample in rows]).detach()
        weights = _weights(log_likelihoods, method, rows)
        yield from _of_training_prompts(model, actor, log_probs, method, samples, mode, rank, ranks)
        expected = cokl_gradient(model, log_probs, method, rows, mode)
        surrogate = float(weights @ log_likelihoods)
        mine = _share(rows, weights, rank, ranks)
        sizes = (1, len(mine) // 2, len(mine))
        for size in sizes:
            gradient, metrics = actor.gradient(joint_loss, mode, mine, size)
            yield {
                "method": name,
                "micro_batch": size,
                "error": _relative(gradient, expected),
                "share": _relative(expected, grpo_only),
                "loss_error": abs(metrics["cokl/loss"] - surrogate) / max(abs(surrogate), 1e-3),
            }
        if method.streams() in compared:
            continue
        compared.add(method.streams())
        for packing, settings in PACKINGS.items():
            gradient, metrics = actor.gradient(joint_loss, mode, mine, len(mine), **settings)
            yield {
                "method": name,
                "micro_batch": 0,
                "packing": packing,
                "micro_batches": actor.micro_batches,
                "error": _relative(gradient, expected),
                "share": _relative(expected, grpo_only),
                "loss_error": abs(metrics["cokl/loss"] - surrogate) / max(abs(surrogate), 1e-3),
            }
        mine = _share(rows, torch.zeros(len(rows)), rank, ranks)
        for size in sizes:
            gradient, metrics = actor.gradient(joint_loss, mode, mine, size)
            differences = [abs(metrics[metric] - value) for metric, value in rl_metrics.items()]
            yield {
                "method": None,
                "micro_batch": size,
                "error": _relative(gradient, grpo_only),
                "metric_error": max(differences),
            }


def _of_training_prompts(
    model: torch.nn.Module,
    actor: Actor,
    log_probs: dict[int, Tensor],
    method: Method,
    samples: list[Sample],
    mode: str,
    rank: int,
    ranks: int,
) -> Iterator[dict[str, Any]]:
    """The comparison with RL rows that have a weight beside their advantage."""
    from llm_bridge.trainer.loss import joint_loss

    rows = rows_of(method, samples, training=True)
    log_likelihoods = torch.stack([log_probs[id(sample)].sum() for sample in rows]).detach()
    weights = _weights(log_likelihoods, method, rows, training=True)
    expected = cokl_gradient(model, log_probs, method, rows, mode, training=True)
    surrogate = float(weights @ log_likelihoods)
    mine = _share(rows, weights, rank, ranks)
    for size in (1, len(mine)):
        gradient, metrics = actor.gradient(joint_loss, mode, mine, size)
        yield {
            "method": method.name,
            "micro_batch": size,
            "training": True,
            "error": _relative(gradient, expected),
            "loss_error": abs(metrics["cokl/loss"] - surrogate) / max(abs(surrogate), 1e-3),
        }


def _relative(gradient: Tensor, expected: Tensor) -> float:
    return float((gradient - expected).norm() / expected.norm())


def _weights(log_likelihoods: Tensor, method: Method, samples: list[Sample], training: bool = False) -> Tensor:
    """(R,): what the trainer puts into the batch; RL rows get 0, unless their prompt is regularized."""
    rows = RegularizationRows(
        index=RowIndex.of(membership(method, sample, training) for sample in samples),
        log_probs=log_likelihoods.double(),
        rewards=torch.tensor([sample.reward for sample in samples]).double(),
        behavior_log_probs=torch.stack([sample.behavior.sum() for sample in samples]).double(),
        reference_log_probs=torch.stack([sample.reference.sum() for sample in samples]).double(),
    )
    return method.row_weights(rows, BETA, SurrogateConfig(EPSILON_IS)).float()


def _share(samples: list[Sample], weights: Tensor, rank: int, ranks: int) -> Any:
    """A rank's rows as VeRL's trainer and queue would hand them over."""
    import numpy as np
    from tensordict import TensorDict
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    from llm_bridge.trainer.loss import ADDED, WEIGHT

    lengths = [len(sample.response) for sample in samples]
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(length) for length in lengths], batch_first=True)
    rewards = torch.zeros_like(mask)
    rewards[:, 0] = torch.tensor([sample.reward for sample in samples])
    uids = np.array([f"{sample.stream}-{sample.group}" for sample in samples])
    advantages, _ = compute_grpo_outcome_advantage(rewards, mask, uids)
    added = torch.tensor([float(sample.stream != "rl") for sample in samples])
    columns: dict[str, list[Tensor]] = {
        "prompts": [torch.tensor(sample.prompt) for sample in samples],
        "responses": [torch.tensor(sample.response) for sample in samples],
        "input_ids": [torch.tensor(sample.prompt + sample.response) for sample in samples],
        "position_ids": [torch.arange(len(sample.prompt + sample.response)) for sample in samples],
        "response_mask": [torch.ones(length, dtype=torch.int64) for length in lengths],
        "loss_mask": [
            torch.full((length,), int(sample.stream == "rl")) for length, sample in zip(lengths, samples, strict=True)
        ],
        "old_log_probs": [sample.behavior for sample in samples],
        "advantages": [row[:length] for row, length in zip(advantages, lengths, strict=True)],
        WEIGHT: list(weights[:, None]),
        ADDED: list(added[:, None]),
    }
    size = len(samples) // ranks
    mine = slice(rank * size, (rank + 1) * size)
    nested = {name: torch.nested.as_nested_tensor(rows[mine], layout=torch.jagged) for name, rows in columns.items()}
    return TensorDict(nested, batch_size=size)


class Actor:
    """VeRL's training worker, of which every optimizer step is replaced by a look at the gradient."""

    def __init__(self, folder: Path, rank: int, ranks: int, port: int) -> None:
        self.worker = training_worker(folder, rank, ranks, port)
        self.worker.engine.optimizer_step = self._look

    def _look(self) -> float:
        parameters = self.worker.engine.module.parameters()
        self.seen = torch.cat([parameter.grad.full_tensor().flatten().clone() for parameter in parameters])
        return 0.0

    def gradient(self, loss, mode: str, rows: Any, micro_batch: int, **packing: Any) -> tuple[Tensor, dict[str, float]]:
        """Flat gradient and metrics of a mini-batch, through the worker's own splitting and reduction."""
        from verl.utils import tensordict_utils as tu
        from verl.utils.metric import reduce_metrics

        self.micro_batches = 0

        def counted(*arguments: Any, **options: Any) -> Any:
            self.micro_batches += 1
            return loss(*arguments, **options)

        self.worker.set_loss_fn(partial(counted, actor_config(loss_agg_mode=mode, clip_ratio=CLIP)))
        total = len(rows) * torch.distributed.get_world_size()
        rows = rows.copy()
        tu.assign_non_tensor(rows, **update_settings(total, RL_PROMPTS * GROUP, micro_batch), **packing)
        metrics = tu.get(self.worker.train_mini_batch(rows), "metrics")
        return self.seen, reduce_metrics(metrics)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Largest errors per longest response, ranks, mode and micro-batch size."""
    frame = frame.assign(grpo_error=frame["error"].where(frame["method"].isna()))
    frame["error"] = frame["error"].where(frame["method"].notna())
    columns = ["error", "grpo_error", "loss_error", "metric_error"]
    return frame.groupby(["longest", "ranks", "mode", "micro_batch"])[columns].max()


if __name__ == "__main__":
    frames = []
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as name:
            frames.append(run(count, Path(name)))
    print(table(pd.concat(frames)).to_string(float_format="{:.1e}".format))
