"""The sequence lab's runs: two families of prompts, answered token by token, whose expectations recursions give.

Each cluster of prompts has an automaton that decides which answers are correct, and next-token probabilities, by last
token, that the base model is pretrained on. Every step is on-policy. RL that makes the base model takes expectations
over all responses; afterwards groups are drawn. What is measured is exact.

Axes: R runs of one seed, mode and method, N or B prompts, S contexts, V symbols, T tokens, D input dimensions, P
parameters. Nothing couples the runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.networks import StackedMLP
from bandit.engine.sampled import Responses
from bandit.engine.sequences import exact, sampled
from bandit.engine.sequences.automata import Automata, decided_early, without_forbidden_tokens
from bandit.engine.sequences.recursions import SequencePolicy, contexts
from bandit.engine.two_tasks.config import Mode
from bandit.engine.two_tasks.plan import ShiftRun, kl_prompts
from bandit.engine.two_tasks.run import train_two_tasks
from bandit.engine.two_tasks.tasks import Cache, Minibatch, ShiftStream, TwoTasks
from bandit.engine.two_tasks.train import TwoTaskObjective, TwoTaskTrainer
from bandit.sequences.config import KNOWN, SequenceConfig
from cokl import methods
from cokl.methods import Method
from cokl.support.results import HERE, Execution

METRICS = (
    "prior_correct",
    "known_share",
    "known_correct",
    "new_correct",
    "conditional_kl",
    "conditional_entropy",
    "mass_drift",
    "correct_drift",
    "incorrect_drift",
)
COLUMNS = ("seed", "mode", "method", "beta", "step", *METRICS, "role", "kl_prompts")


def train(config: SequenceConfig, execution: Execution = HERE) -> dict[str, pd.DataFrame]:
    """Train everything that `config` asks for; the table "sequences" has a row per evaluated step, with COLUMNS.

    As in the task shift's table. known_share: of the prior task's test prompts that are known; known_correct: mean over
    all of them of the correctness on those that are known, 0 on the others.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    trainer = SequenceTrainer(config)
    return {"sequences": train_two_tasks(trainer, planned_runs(config), "sequences", COLUMNS, execution)}


def planned_runs(config: SequenceConfig) -> list[ShiftRun]:
    """All runs of the lab, by seed, method and coefficient. Raises InputError."""
    chosen = [methods.get(name) for name in config.methods]
    runs = []
    for seed, method in itertools.product(config.roles, chosen):
        method.streams()  # raises for a regularizer that cannot be sampled, before anything is trained
        betas = [0.0] if method.regularizer is None else sorted(config.betas)
        prompts = kl_prompts(config.kl_groups, method)
        if config.kl_prompts is not None and method.regularizer is not None:
            prompts = config.kl_prompts
        runs += [ShiftRun(seed, "sampled", method, beta, prompts) for beta in betas]
    return runs


_ADVICE = "--prior-steps or a smaller --forbidden, or enlarge --reference-group-size"


@dataclass(frozen=True)
class Prompts:
    """Inputs (N, D), the automaton of each and, of prompts of the buffer, the base model's logits on them (N, S, V)."""

    inputs: Tensor
    automata: Automata
    reference_rows: Tensor | None = None

    def __getitem__(self, index: slice | Tensor) -> Prompts:
        """Some of the prompts."""
        reference_rows = None if self.reference_rows is None else self.reference_rows[index]
        return Prompts(self.inputs[index], self.automata[index], reference_rows)

    def reference(self) -> SequencePolicy:
        """The base model on prompts of the buffer, as one run."""
        assert self.reference_rows is not None
        return SequencePolicy(self.reference_rows[None], self.automata)


@dataclass(frozen=True)
class Family:
    """One task: prompts to train and to test on, and the next-token probabilities (N, S, V) to pretrain on."""

    train: Prompts
    test: Prompts
    labels: Tensor


def layer_sizes(config: SequenceConfig) -> tuple[int, ...]:
    """Widths of the MLP's layers: in go the prompt, the position and the last token, out comes the next token."""
    return (config.input_dim + config.length + config.symbols + 1, *config.hidden, config.symbols)


def network_inputs(config: SequenceConfig, inputs: Tensor) -> Tensor:
    """(1, B * S, input width) from prompts (B, D): each prompt in every context, in one-hot codes."""
    symbols = config.symbols
    size = contexts(config.length, symbols)
    codes = inputs.new_zeros(size, config.length + symbols + 1)
    rows = torch.arange(size)
    codes[rows, (rows + symbols - 1) // symbols] = 1
    last = torch.where(rows == 0, symbols, (rows - 1) % symbols)
    codes[rows, config.length + last] = 1
    together = [inputs[:, None].expand(-1, size, -1), codes.expand(len(inputs), -1, -1)]
    return torch.cat(together, dim=-1).flatten(0, 1)[None]


def rows(config: SequenceConfig, mlp: StackedMLP, inputs: Tensor) -> Tensor:
    """(R, B, S, V): the networks' logits in every context of prompts (B, D)."""
    logits = mlp.forward(network_inputs(config, inputs))
    return logits.view(len(logits), len(inputs), -1, config.symbols)


def families(config: SequenceConfig, seed: int) -> tuple[Family, Family]:
    """The prior task of a seed, of which `config.deciding` tokens decide, and the new one."""
    return family(config, 2 * seed, config.deciding), family(config, 2 * seed + 1)


def family(config: SequenceConfig, number: int, deciding: int | None = None) -> Family:
    """A task by its number; only the first `deciding` tokens of a response decide, all if None."""
    rng, dtype = random_generator(number, RandomStream.ENVIRONMENT), getattr(torch, config.dtype)
    centers = rng.normal(size=(config.clusters, config.input_dim))
    automata = without_forbidden_tokens(config.clusters, config.states, config.symbols, config.forbidden, rng)
    if deciding is not None:
        automata = decided_early(automata, deciding)
    parameters = [config.concentration / config.symbols] * config.symbols
    by_last_token = torch.from_numpy(rng.dirichlet(parameters, size=(config.clusters, config.symbols + 1)))
    later = by_last_token[:, 1:].repeat(1, config.length - 1, 1)
    table = _given_correct(torch.cat([by_last_token[:, :1], later], dim=1), automata)
    rng = random_generator(number, RandomStream.INPUTS)

    def drawn(count: int) -> tuple[Prompts, Tensor]:
        clusters = rng.integers(config.clusters, size=count)
        inputs = centers[clusters] + rng.normal(scale=config.noise, size=(count, config.input_dim))
        chosen = torch.from_numpy(clusters)
        return Prompts(torch.from_numpy(inputs).to(dtype), automata[chosen]), chosen

    train, clusters = drawn(config.train_inputs)
    return Family(train, drawn(config.test_inputs)[0], table[clusters].to(dtype))


def _given_correct(table: Tensor, automata: Automata) -> Tensor:
    """(C, S, V): next-token probabilities `table` given that the response will be correct.

    They depend on the automaton's state; a context has their mean over how often each state is there. A context that no
    correct response visits keeps its own.
    """
    visits = SequencePolicy(table.log()[None], automata).correct.visits[:, :, 0].permute(2, 0, 1)
    visited = visits.sum(-1, keepdim=True)
    return torch.where(visited > 0, visits / visited, table)


def sequence_task(config: SequenceConfig, seed: int, parameters: Tensor) -> TwoTasks:
    """Rebuild a seed's task from the base model's parameters (P,)."""
    prior, new = families(config, seed)
    rng = random_generator(seed, ShiftStream.BUFFER)
    chosen = torch.from_numpy(rng.choice(config.train_inputs, config.buffer_size, replace=False))
    prompts = prior.train[chosen]
    reference_rows = rows(config, StackedMLP(layer_sizes(config), parameters[None]), prompts.inputs)
    prompts = Prompts(prompts.inputs, prompts.automata, reference_rows[0].clone())
    reference = prompts.reference()
    rng = random_generator(seed, ShiftStream.REFERENCE_RESPONSES)
    uniforms = torch.from_numpy(rng.random((config.buffer_size, config.reference_group_size, config.length)))
    buffer = Cache(prompts, sampled.draw_sequences(reference, reference, uniforms), _ADVICE)
    return TwoTasks(seed, parameters, new.train, prior.test, new.test, buffer)


_TEST_PROMPTS_PER_BLOCK = 32


class SampledSequences(TwoTaskObjective):
    """Groups of G fresh rollouts, and G_ref cached responses of the base model."""

    def roll_out(self, policy: SequencePolicy, minibatch: Minibatch) -> Responses:
        """G responses to each prompt, (R, B, G, T); only those to prompts of the buffer know the base model."""
        reference = policy if minibatch.cached is None else minibatch.prompts.reference()
        return sampled.draw_sequences(policy, reference, minibatch.uniforms)

    def rl(self, policy: SequencePolicy, rollout: Responses) -> Tensor:
        """(S, V, R, B): gradient of each prompt's -J_GRPO."""
        return sampled.grpo_gradient(policy, rollout)

    def regularization(self, policy: SequencePolicy, rollout: Responses, minibatch: Minibatch) -> Tensor:
        """(S, V, R, B): gradient of what the method adds on each prompt of the buffer."""
        assert minibatch.cached is not None
        return sampled.method_gradient(self.method, policy, minibatch.cached, rollout, self.betas)


class Expected(SampledSequences):
    """The expectation of GRPO over its groups, with which the base model is made; a rollout is the policy itself."""

    def roll_out(self, policy: SequencePolicy, minibatch: Minibatch) -> Any:
        """The policy, for every step is on-policy."""
        return policy

    def rl(self, policy: SequencePolicy, rollout: Any) -> Tensor:
        """(S, V, R, B): gradient of each prompt's expected -J_GRPO."""
        return exact.grpo_gradient(policy, self.config.group_size)


class SequenceTrainer(TwoTaskTrainer):
    """Trains networks whose logits (R, B * S, V) are policies over sequences: a row for every prompt and context."""

    layer_sizes = staticmethod(layer_sizes)
    families = staticmethod(families)
    task = staticmethod(sequence_task)

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__(config)
        self.response_shape = (config.length,)

    def labelled(self, family: Family) -> tuple[Tensor, Tensor]:
        """Training prompts and next-token probabilities (N, S, V)."""
        return family.train.inputs, family.labels

    def rl_prompts_of(self, family: Family, parameters: Tensor) -> Prompts:
        """The training prompts; RL alone needs no reference."""
        return family.train

    def network_inputs(self, inputs: Tensor) -> Tensor:
        """Each prompt in every context."""
        return network_inputs(self.config, inputs)

    def objective(self, mode: Mode, method: Method, betas: Tensor) -> TwoTaskObjective:
        """Of drawn groups; in expectation for the base model alone."""
        return (Expected if mode == "exact" else SampledSequences)(self.config, method, betas)

    def policies(self, logits: Tensor, minibatches: list[Minibatch]) -> list[SequencePolicy]:
        """One for each minibatch, of logits (R, B, S, V)."""
        sizes = [len(minibatch.prompts.inputs) for minibatch in minibatches]
        parts = logits.view(len(logits), sum(sizes), -1, self.config.symbols).split(sizes, dim=1)
        return [
            SequencePolicy(part, minibatch.prompts.automata) for part, minibatch in zip(parts, minibatches, strict=True)
        ]

    def joined(self, gradients: list[Tensor], logits: Tensor) -> Tensor:
        """(R, B * S, V) from gradients (S, V, R, B) of each minibatch's prompts."""
        together = torch.cat([gradient / gradient.shape[-1] for gradient in gradients], dim=-1)
        summed = together.permute(2, 3, 0, 1) * logits.shape[1]
        return summed.to(logits.dtype).contiguous().view_as(logits)

    def averages(
        self, mlp: StackedMLP, task: TwoTasks, prompts: Prompts, metrics: Callable[..., Any]
    ) -> dict[str, Any]:
        """Means over the prompts, in blocks."""
        base = StackedMLP(layer_sizes(self.config), task.parameters[None])
        totals: dict[str, Tensor] = {}
        for start in range(0, len(prompts.inputs), _TEST_PROMPTS_PER_BLOCK):
            block = prompts[start : start + _TEST_PROMPTS_PER_BLOCK]
            policy, reference = (
                SequencePolicy(rows(self.config, model, block.inputs), block.automata) for model in (mlp, base)
            )
            for name, values in metrics(policy, reference).items():
                totals[name] = totals.get(name, 0) + values.sum(-1)
        return {name: (total / len(prompts.inputs)).tolist() for name, total in totals.items()}

    def prior_metrics(self, policy: SequencePolicy, reference: SequencePolicy) -> dict[str, Tensor]:
        """Correctness, on all prompts and on those that are known, drifts and entropies."""
        drift = exact.drifts(reference, policy)
        known = (reference.mass >= KNOWN).to(policy.mass).expand_as(policy.mass)
        return {
            "prior_correct": policy.mass,
            "known_share": known,
            "known_correct": known * policy.mass,
            "conditional_kl": exact.conditional_kl(reference, policy),
            "conditional_entropy": policy.conditional_entropy(),
            "mass_drift": drift.mass,
            "correct_drift": drift.correct,
            "incorrect_drift": drift.incorrect,
        }

    def new_metrics(self, policy: SequencePolicy, reference: SequencePolicy) -> dict[str, Tensor]:
        """Correctness."""
        return {"new_correct": policy.mass}
