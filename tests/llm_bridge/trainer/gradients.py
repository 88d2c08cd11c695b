"""A bandit as a language model, and the gradient of the same samples in two worlds.

A tiny Qwen3 transformer whose vocabulary is the bandit's actions answers prompts that name a cluster. VeRL's own actor
worker (FSDP2, gloo) takes an optimizer step on RL rows, added rows and padding under VeRL's own loss. The gradient that
reaches its optimizer is compared with the sum of VeRL's own on the RL rows alone, and autograd's through
`cokl.groups.surrogate_loss`, whose groups never meet a micro-batch.

`python -m tests.llm_bridge.trainer.gradients` prints the largest relative errors.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bandit.config import EnvironmentConfig
from bandit.engine.environment import Environment
from cokl import methods, regularizers
from cokl.groups import RegularizationRows, ResponseGroups, RowIndex, SurrogateConfig, surrogate_loss
from cokl.methods import Method
from tests.llm_bridge.trainer.actor import actor_config, training_worker, update_settings

METHODS = (*regularizers.names(), "cokl_floor")
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")
SETTINGS: dict[str, dict[str, Any]] = {
    "packed": {"use_remove_padding": True},
    "dynamic": {"use_dynamic_bsz": True, "max_token_len_per_gpu": 12},
    "dynamic, packed": {"use_remove_padding": True, "use_dynamic_bsz": True, "max_token_len_per_gpu": 12},
    "training prompts": {},
    "KL loss": {},
    "entropy": {"calculate_entropy": True},
    "gspo": {},
    "gpg": {},
    "cispo": {},
}
"""What else VeRL is told, or how its loss differs, in comparisons of one method of each combination of streams."""
LIMIT = 1800.0
"""Seconds after which the ranks count as hung."""
RL_PROMPTS, KL_PROMPTS, GROUP, LONGEST = 4, 2, 4, 3
BETA, KL, NORM = 0.7, 0.3, 10.0
ENVIRONMENT = EnvironmentConfig(clusters=8, actions=32, correct_actions=10, train_inputs=1, test_inputs=1)


@dataclass(frozen=True, eq=False)
class Sample:
    """One response: rows of a group have the same prompt.

    stream: "rl", "reference", "rollout" or "padding". old, reference: (T,) token log-probabilities.
    """

    stream: str
    group: int
    prompt: list[int]
    response: list[int]
    reward: float
    old: Tensor
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


def draw_samples(model: torch.nn.Module) -> list[Sample]:
    """RL, cached and fresh groups and padding in a random order; responses have 1 to `LONGEST` tokens.

    The first action of a response decides its reward: of a group, the first and third response are correct and the
    second is not, but one rollout group has no correct response.
    """
    environment, generator = Environment(ENVIRONMENT, seed=0), torch.Generator().manual_seed(1)
    mask = environment.correct.mask.float()
    samples = []
    streams = {"rl": RL_PROMPTS, "reference": KL_PROMPTS, "rollout": KL_PROMPTS, "padding": 2}
    for stream, prompts in streams.items():
        for group, member in itertools.product(range(prompts), range(GROUP)):
            cluster = group + RL_PROMPTS * (stream != "rl")
            allowed = mask[cluster] if member in (0, 2) else torch.ones(ENVIRONMENT.actions)
            if member == 1 or (stream, group) == ("rollout", 0):
                allowed = 1 - mask[cluster]
            length = int(torch.randint(1, LONGEST + 1, (), generator=generator))
            first = int(torch.multinomial(allowed, 1, generator=generator))
            rest = torch.randint(ENVIRONMENT.actions, (length - 1,), generator=generator).tolist()
            nothing = torch.zeros(length)
            sample = Sample(
                stream,
                group,
                [cluster] * (1 + cluster % 3),
                [first, *rest],
                float(mask[cluster, first]),
                nothing,
                nothing,
            )
            with torch.no_grad():
                old = token_log_probs(model, sample)
            noise = 0.8 * torch.rand(length, generator=generator) - 0.4
            samples.append(replace(sample, old=old, reference=old + noise))
    order = torch.randperm(len(samples), generator=generator).tolist()
    return [samples[place] for place in order]


def membership(method: Method, sample: Sample, training: bool) -> tuple[str, int] | None:
    """The stream and the prompt of a regularized row. training: whether the first RL prompts are the regularized ones,
    whose rollouts are RL rows.
    """
    stream = sample.stream
    if training and stream == "rl" and sample.group < KL_PROMPTS:
        stream = "rollout"
    return (stream, sample.group) if stream in method.streams() else None


# ------------------------------ cokl's world ------------------------------


def surrogate(log_probs: dict[int, Tensor], method: Method, samples: list[Sample], training: bool) -> Tensor:
    """The surrogate over whole groups. log_probs: of each sample's tokens, (T,) with their graph."""
    members: dict[str, dict[int, list[Sample]]] = {}
    for sample in samples:
        if belongs := membership(method, sample, training):
            members.setdefault(belongs[0], {}).setdefault(belongs[1], []).append(sample)
    groups = {}
    for stream, of_prompt in members.items():
        rows = [of_prompt[prompt] for prompt in sorted(of_prompt)]
        groups[stream] = ResponseGroups(
            _table(rows, lambda sample: log_probs[id(sample)].sum()),
            _table(rows, lambda sample: torch.tensor(sample.reward)),
            None,
            _table(rows, lambda sample: sample.reference.sum()) if stream == "rollout" else None,
        )
    reference, rollout = groups.get("reference"), groups.get("rollout")
    weights = method.weights(reference, rollout, BETA, SurrogateConfig())
    return surrogate_loss(weights, reference, rollout)


def _table(rows: list[list[Sample]], value: Callable[[Sample], Tensor]) -> Tensor:
    return torch.stack([torch.stack([value(sample) for sample in group]) for group in rows])


# ------------------------------ VeRL's world ------------------------------


def run(ranks: int, folder: Path, lora: bool = False) -> pd.DataFrame:
    """All comparisons on `ranks` processes; one row per gradient that VeRL computed.

    lora: whether an adapter is trained, with CoKL alone.

    Columns: ranks, method, mode, micro_batch ("one" row, "half" of a rank's or "all"), setting ("" or one of
    `SETTINGS`), error (relative, of the whole gradient), share (how large the regularizer's part of it is), clipped
    (what VeRL logs of it).
    """
    make_model(folder)
    results = folder / "results.parquet"
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=_rank, args=(rank, ranks, folder, results, lora)) for rank in range(ranks)]
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


def _rank(rank: int, ranks: int, folder: Path, results: Path, lora: bool) -> None:
    torch.set_num_threads(1)
    from transformers import AutoModelForCausalLM

    actor = Actor(folder, rank, ranks, **({"lora_rank": 4, "lora_alpha": 8} if lora else {}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    samples = draw_samples(model)  # an adapter begins as nothing, so that these are its log-probabilities too

    def autograds(loss: Callable[[torch.nn.Module], Tensor]) -> Tensor:
        if lora:
            return actor.backward(loss)
        gradients = torch.autograd.grad(loss(model), list(model.parameters()))
        return torch.cat([gradient.flatten() for gradient in gradients])

    combinations = itertools.product(["cokl"], [""], MODES, ["half"]) if lora else _combinations()
    found = pd.DataFrame(_compare(autograds, actor, samples, combinations, rank, ranks)).assign(ranks=ranks)
    if rank == 0:
        found.to_parquet(results)
    torch.distributed.destroy_process_group()


def _compare(
    autograds: Callable[[Callable[[torch.nn.Module], Tensor]], Tensor],
    actor: Actor,
    samples: list[Sample],
    combinations: Iterable[tuple[str, str, str, str]],
    rank: int,
    ranks: int,
) -> Iterator[dict[str, Any]]:
    """autograds: the flat gradient of a loss of the model."""
    rl = [sample for sample in samples if sample.stream == "rl"]
    expectations: dict[tuple, Tensor] = {}
    own: dict[tuple, Tensor] = {}  # VeRL's own gradient by its loss
    for turn, (name, setting, mode, size) in enumerate(combinations):
        method, training = methods.get(name), setting == "training prompts"
        streams = [stream for stream in method.streams() if not (training and stream == "rollout")]
        rows = [sample for sample in samples if sample.stream in ("rl", *streams, "padding")]
        loss: dict[str, Any] = {"use_kl_loss": setting == "KL loss", "loss_agg_mode": mode}
        loss["entropy_coeff"] = KL if setting == "entropy" else 0.0
        if setting in ("gspo", "gpg", "cispo"):
            loss["policy_loss"] = {"loss_mode": setting}
        if (grpo := own.get((setting, mode))) is None:
            mine = _share(rl, *_columns(rl, None, loss, training), rank, ranks)
            grpo = own[setting, mode] = actor.gradient(
                loss, mine, 2, len(rl), 0, calculate_entropy=setting == "entropy"
            )[0]
        if (name, training) not in expectations:

            def loss_of(model: torch.nn.Module, method=method, rows=rows, training=training) -> Tensor:
                return surrogate({id(row): token_log_probs(model, row) for row in rows}, method, rows, training)

            expectations[name, training] = autograds(loss_of)
        expected = grpo + expectations[name, training]
        mine = _share(rows, *_columns(rows, method, loss, training), rank, ranks)
        micro_batch = {"one": 1, "half": len(mine) // 2, "all": len(mine)}[size]
        gradient, metrics = actor.gradient(loss, mine, micro_batch, len(rows), len(rl), **SETTINGS.get(setting, {}))
        yield {
            "turn": turn,
            "method": name,
            "mode": mode,
            "micro_batch": size,
            "setting": setting,
            "error": float((gradient - expected).norm() / expected.norm()),
            "share": float((expected - grpo).norm() / grpo.norm()),
            "clipped": metrics.get("actor/pg_clipfrac", 0) + metrics.get("actor/pg_clipfrac_lower", 0),
        }


def _combinations() -> Iterator[tuple[str, str, str, str]]:
    """Method, setting, mode and size of micro-batches: all of them for CoKL, and in turns for the other methods."""
    for setting in ("", *SETTINGS):
        yield from itertools.product(["cokl"], [setting], MODES, ["half"])
    yield from itertools.product(["cokl"], [""], MODES, ["one", "all"])
    others = [name for name in METHODS if name != "cokl" and methods.get(name).streams()]
    for number, (name, mode) in enumerate(itertools.product(others, MODES)):
        yield name, "", mode, ("half", "all", "one")[number % 3]
    for number, (name, setting) in enumerate(itertools.product(("reverse_kl", "correct_forward_kl"), SETTINGS)):
        yield name, setting, MODES[number % len(MODES)], "half"


def _columns(
    rows: list[Sample], method: Method | None, loss: dict[str, Any], training: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Advantages and masks of the rows, as the trainer hands them to VeRL; VeRL's own for RL rows without a method."""
    import numpy as np
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    from llm_bridge.trainer.advantages import Aggregation, regularized_advantages

    ones = [torch.ones(len(sample.response)) * (sample.stream != "padding") for sample in rows]
    counted = [mask * (sample.stream == "rl") for mask, sample in zip(ones, rows, strict=True)]
    mask = torch.nn.utils.rnn.pad_sequence(counted, batch_first=True)
    rewards = torch.zeros_like(mask)
    rewards[:, 0] = torch.tensor([sample.reward for sample in rows])
    uids = np.array([f"{sample.stream}-{sample.group}" for sample in rows])
    padded, _ = compute_grpo_outcome_advantage(rewards, mask, uids)
    own = [row[: len(sample.response)] for row, sample in zip(padded, rows, strict=True)]
    if method is None:
        return own, ones, counted
    table = RegularizationRows(
        index=RowIndex.of(membership(method, sample, training) for sample in rows),
        log_probs=torch.stack([sample.old.sum() for sample in rows]).double(),
        rewards=torch.tensor([sample.reward for sample in rows]).double(),
        reference_log_probs=torch.stack([sample.reference.sum() for sample in rows]).double(),
    )
    weights = method.row_weights(table, BETA, SurrogateConfig())
    added = torch.tensor([sample.stream in ("reference", "rollout") for sample in rows])
    rl_rows = sum(sample.stream == "rl" for sample in rows)
    aggregation = Aggregation(loss["loss_agg_mode"], len(rows), rl_rows, NORM)
    return regularized_advantages(own, ones, weights, added, aggregation, ones), ones, counted


def _share(
    samples: list[Sample], advantages: list[Tensor], masks: list[Tensor], counted: list[Tensor], rank: int, ranks: int
) -> Any:
    """A rank's rows as VeRL's trainer and queue would hand them over."""
    from tensordict import TensorDict

    columns: dict[str, list[Tensor]] = {
        "prompts": [torch.tensor(sample.prompt) for sample in samples],
        "responses": [torch.tensor(sample.response) for sample in samples],
        "input_ids": [torch.tensor(sample.prompt + sample.response) for sample in samples],
        "position_ids": [torch.arange(len(sample.prompt + sample.response)) for sample in samples],
        "response_mask": [mask.long() for mask in masks],
        "loss_mask": [mask.long() for mask in counted],
        "old_log_probs": [sample.old for sample in samples],
        "ref_log_prob": [sample.reference for sample in samples],
        "advantages": advantages,
    }
    size = len(samples) // ranks
    mine = slice(rank * size, (rank + 1) * size)
    nested = {name: torch.nested.as_nested_tensor(rows[mine], layout=torch.jagged) for name, rows in columns.items()}
    return TensorDict(nested, batch_size=size)


class Actor:
    """VeRL's training worker, of which every optimizer step is replaced by a look at the gradient."""

    def __init__(self, folder: Path, rank: int, ranks: int, **changes: Any) -> None:
        self.worker = training_worker(folder, rank, ranks, **changes)
        self.worker.engine.optimizer_step = self._look

    def _look(self) -> float:
        parameters = [parameter for parameter in self.worker.engine.module.parameters() if parameter.requires_grad]
        self.seen = torch.cat([parameter.grad.full_tensor().flatten().clone() for parameter in parameters])
        return 0.0

    def backward(self, loss: Callable[[torch.nn.Module], Tensor]) -> Tensor:
        """Flat gradient of a loss of the worker's own module, without VeRL's passes."""
        module = self.worker.engine.module
        module.zero_grad()
        loss(module).backward()
        self._look()
        module.zero_grad()
        return self.seen

    def gradient(
        self, loss: dict[str, Any], rows: Any, micro_batch: int, total: int, rl_rows: int, **told: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Flat gradient and metrics of a mini-batch of `total` rows, through the worker's own splitting, loss and
        reduction. loss: of VeRL's actor configuration. rl_rows: 0 for VeRL's own loss, else ours.
        """
        from verl.utils import tensordict_utils as tu
        from verl.utils.metric import reduce_metrics
        from verl.workers.config.actor import PolicyLossConfig
        from verl.workers.utils.losses import ppo_loss

        from llm_bridge.trainer.loss import loss_of_rl_rows

        options = {"kl_loss_coef": KL, "loss_scale_factor": NORM} | loss
        if "policy_loss" in options:
            options["policy_loss"] = PolicyLossConfig(**options["policy_loss"])
        config = actor_config(**options)
        self.worker.set_loss_fn(loss_of_rl_rows(config, rl_rows) if rl_rows else partial(ppo_loss, config))
        rows = rows.copy()
        tu.assign_non_tensor(rows, **update_settings(total, micro_batch) | told)
        metrics = tu.get(self.worker.train_mini_batch(rows), "metrics")
        return self.seen, reduce_metrics(metrics)


if __name__ == "__main__":
    frames = []
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as name:
            frames.append(run(count, Path(name)))
    found = pd.concat(frames)
    for columns in (["ranks", "mode"], ["ranks", "setting"], ["ranks", "method"]):
        print(found.groupby(columns)[["error", "share", "clipped"]].max().to_string(float_format="{:.1e}".format))
    print(len(found), "gradients")
