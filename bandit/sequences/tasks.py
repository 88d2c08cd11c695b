"""The two families of prompts, the network that answers them token by token, the base model's buffer.

Each cluster of prompts has an automaton that decides which answers are correct, and next-token probabilities, by last
token, that the base model is pretrained on.

Axes: N or B prompts, S contexts, V symbols, T tokens, D input dimensions, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.networks import StackedMLP
from bandit.engine.two_tasks.tasks import Cache, ShiftStream, TwoTasks
from bandit.sequences.automata import Automata, decided_early, without_forbidden_tokens
from bandit.sequences.config import SequenceConfig, SequenceWorld
from bandit.sequences.recursions import SequencePolicy, contexts
from bandit.sequences.sampled import draw

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


def layer_sizes(config: SequenceWorld) -> tuple[int, ...]:
    """Widths of the MLP's layers: in go the prompt, the position and the last token, out comes the next token."""
    return (config.input_dim + config.length + config.symbols + 1, *config.hidden, config.symbols)


def network_inputs(config: SequenceWorld, inputs: Tensor) -> Tensor:
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


def rows(config: SequenceWorld, mlp: StackedMLP, inputs: Tensor) -> Tensor:
    """(R, B, S, V): the networks' logits in every context of prompts (B, D)."""
    logits = mlp.forward(network_inputs(config, inputs))
    return logits.view(len(logits), len(inputs), -1, config.symbols)


def families(config: SequenceWorld, seed: int) -> tuple[Family, Family]:
    """The prior and the new task of a seed; few tokens decide in the lab alone."""
    deciding = config.deciding if isinstance(config, SequenceConfig) else None
    prior = family(config, 2 * seed, config.forbidden, deciding=deciding)
    return prior, family(config, 2 * seed + 1, config.forbidden)


def family(config: SequenceWorld, number: int, forbidden: int, moved: int = 0, deciding: int | None = None) -> Family:
    """A task by its number, with other answers correct if `forbidden` is another one, `moved` > 0 or `deciding` few."""
    rng, dtype = random_generator(number, RandomStream.ENVIRONMENT), getattr(torch, config.dtype)
    centers = rng.normal(size=(config.clusters, config.input_dim))
    automata = without_forbidden_tokens(config.clusters, config.states, config.symbols, forbidden, rng, moved)
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
    buffer = Cache(prompts, draw(reference, reference, uniforms), _ADVICE)
    return TwoTasks(seed, parameters, new.train, prior.test, new.test, buffer)
