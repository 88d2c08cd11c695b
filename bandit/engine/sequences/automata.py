"""Which responses are correct: finite automata that read a response token by token.

Axes: N automata, Q states, V symbols, T tokens of a response.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Automata:
    """N complete deterministic automata that start in state 0; a response is correct if it ends in an accepting state.

    transitions: (N, Q, V) int64, the next state. accepting: (N, Q) bool.
    Raises ValueError for shapes that disagree and for states out of range.
    """

    transitions: Tensor
    accepting: Tensor

    def __post_init__(self) -> None:
        if self.transitions.shape[:2] != self.accepting.shape:
            raise ValueError(
                f"accepting: expected shape {tuple(self.transitions.shape[:2])}, got {tuple(self.accepting.shape)}"
            )
        if self.transitions.numel() and not 0 <= self.transitions.min() <= self.transitions.max() < self.states:
            raise ValueError(f"transitions: expected states 0 to {self.states - 1}")

    @property
    def states(self) -> int:
        """Q."""
        return self.transitions.shape[1]

    @property
    def symbols(self) -> int:
        """V."""
        return self.transitions.shape[2]

    def __getitem__(self, index: slice | Tensor) -> Automata:
        """Some of the automata, or one of them several times."""
        return Automata(self.transitions[index], self.accepting[index])

    def complement(self) -> Automata:
        """Automata that accept what these reject."""
        return Automata(self.transitions, ~self.accepting)

    def accept(self, tokens: Tensor) -> Tensor:
        """Whether each automaton accepts each of its responses: tokens (..., N, G, T) int64 to (..., N, G) bool."""
        prompts = torch.arange(len(self.transitions), device=tokens.device)[:, None]
        states = torch.zeros_like(tokens[..., 0])
        for token in tokens.unbind(-1):
            states = self.transitions[prompts, states, token]
        return self.accepting[prompts, states]


def decided_early(automata: Automata, deciding: int) -> Automata:
    """Automata whose verdict stands after `deciding` >= 1 tokens: they count these, and the others change nothing."""
    count, states, symbols = automata.transitions.shape
    accepted, rejected = deciding * states, deciding * states + 1
    counted = [automata.transitions + states * read for read in range(1, deciding)]
    verdicts = automata.accepting.gather(1, automata.transitions.flatten(1)).view_as(automata.transitions)
    last = torch.where(verdicts, accepted, rejected)
    ends = torch.tensor([accepted, rejected])
    transitions = torch.cat([*counted, last, ends[None, :, None].expand(count, -1, symbols)], dim=1)
    return Automata(transitions, (torch.arange(rejected + 1) == accepted).expand(count, -1))


def without_forbidden_tokens(
    count: int, states: int, symbols: int, forbidden: int, rng: np.random.Generator
) -> Automata:
    """`count` random automata that reject a response as soon as it takes a token that its state forbids.

    Each of the `states` forbids `forbidden` of the symbols, which lead to one more state, without return; every other
    symbol leads to a random state. Under uniform tokens a response is correct with probability (1 - forbidden /
    symbols)^T, whatever was drawn.
    """
    transitions = rng.integers(states, size=(count, states + 1, symbols))
    forbids = rng.random((count, states, symbols)).argsort(-1) < forbidden
    transitions[:, :states][forbids] = states
    transitions[:, states] = states
    accepting = np.arange(states + 1) < states
    return Automata(torch.from_numpy(transitions), torch.from_numpy(np.tile(accepting, (count, 1))))
