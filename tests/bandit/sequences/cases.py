"""Small random policies over responses, with automata that accept some, none or all of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bandit.engine.sequences.automata import Automata
from bandit.engine.sequences.recursions import SequencePolicy, contexts
from tests.oracles.sequences import Machine


@dataclass(frozen=True)
class Case:
    """Two policies' logits by context, (R, B, S, V), and each prompt's machine; prompt 0 rejects every response."""

    steps: int
    symbols: int
    rows: Tensor
    reference_rows: Tensor
    machines: list[Machine]

    @property
    def automata(self) -> Automata:
        transitions, accepting = (torch.tensor(part) for part in zip(*self.machines, strict=True))
        return Automata(transitions, accepting)

    def policies(self) -> tuple[SequencePolicy, SequencePolicy]:
        """The policy (R runs) and the reference (one)."""
        return SequencePolicy(self.rows, self.automata), SequencePolicy(self.reference_rows, self.automata)

    def table(self, rows: Tensor) -> Tensor:
        """(T, V, V) from one policy's rows (S, V); what position 0 does not look at is zero."""
        table = rows.new_zeros(self.steps, self.symbols, self.symbols)
        table[0, 0] = rows[0]
        table[1:] = rows[1:].view(self.steps - 1, self.symbols, self.symbols)
        return table


def case(steps: int, symbols: int = 3, states: int = 3, runs: int = 2, prompts: int = 3, seed: int = 0) -> Case:
    """Random logits and machines."""
    rng = np.random.default_rng([seed, steps, symbols])
    machines: list[Machine] = []
    for prompt in range(prompts):
        accepting = rng.random(states) < 0.5
        accepting[:] = accepting if prompt else False
        machines.append((rng.integers(states, size=(states, symbols)).tolist(), accepting.tolist()))
    size = (prompts, contexts(steps, symbols), symbols)
    return Case(
        steps,
        symbols,
        torch.from_numpy(rng.normal(scale=1.5, size=(runs, *size))),
        torch.from_numpy(rng.normal(scale=1.5, size=(1, *size))),
        machines,
    )
