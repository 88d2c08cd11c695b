"""Exact expectations over all responses of T tokens, in time linear in T.

A policy chooses each token from the prompt, the position and the last token; an automaton that reads along decides
correctness. Last token and state together are a Markov chain. One backward pass in log space gives the probability of
a correct ending from each of its states, hence Z and pi+, which is a Markov chain again; one forward pass gives how
often pi+ passes each state, hence every expectation of a sum over tokens.

Given the state, pi+ takes a token with probability pi(v | m) e(v | q) / n(m, q), where e says how likely a correct
ending is after it: sums over last tokens and states factor, and nothing as large as M * Q * V lanes is kept.

Axes: M last tokens (1 at the first position, which has none, V later), Q states, V next tokens, R runs, B prompts;
S = 1 + (T - 1) V contexts, (position, last token) in order. Runs and prompts come last, so that what is summed over is
never the innermost, and one run (R = 1) broadcasts. All is in float64, whatever the network computes in. A token whose
log-probability is below -700 counts as impossible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bandit.engine.sequences.automata import Automata

# log 0, finite, so that impossible states need no cases.
_IMPOSSIBLE = -1e30
# The least that an expectation is divided by: far enough above the smallest number for costs to be multiplied with.
_TINY = math.exp(-700)


def contexts(steps: int, symbols: int) -> int:
    """S, the rows of a policy's table: the empty response, and each last token at each later position."""
    return 1 + (steps - 1) * symbols


def token_places(tokens: Tensor, symbols: int) -> Tensor:
    """Where each token of responses (..., T) lies among the S * V entries of a table."""
    first, rest = tokens[..., :1], 1 + torch.arange(tokens.shape[-1] - 1) * symbols + tokens[..., :-1]
    return torch.cat([first, rest * symbols + tokens[..., 1:]], dim=-1)


def positions(table: Tensor) -> Sequence[Tensor]:
    """The parts (M, V, R, B) of a table (S, V, R, B) that belong to each position."""
    contexts, symbols = table.shape[:2]
    return table.split([1] + [symbols] * ((contexts - 1) // symbols))


@dataclass(frozen=True, eq=False)
class Chain:
    """pi conditioned on what an automaton accepts, as a Markov chain.

    probs: for each position (M, V, R, B), pi of the next token. endings: for each position (Q, V, R, B), e, which is
    proportional to how likely the condition is after a token. norms: for each position (M, Q, R, B), n, the sum of
    pi * e over tokens. successors: (Q, V, B), where last token and state lie among V * Q after a token.
    log_mass: (R, B), log-probability of the condition under pi; an impossible one has -inf and visits nothing.
    """

    probs: Sequence[Tensor]
    endings: list[Tensor]
    norms: list[Tensor]
    successors: Tensor
    log_mass: Tensor

    @classmethod
    def conditioned(cls, probs: Sequence[Tensor], automata: Automata) -> Chain:
        """pi given that `automata`, one per prompt, accept. probs: for each position (M, V, R, B), float64."""
        _, symbols, runs, prompts = probs[0].shape
        states = automata.states
        successors = (automata.transitions + states * torch.arange(symbols)).permute(1, 2, 0).contiguous()
        accepted = torch.zeros(prompts, states, dtype=torch.float64).masked_fill(~automata.accepting, _IMPOSSIBLE)
        # log-probability of an accepted ending from each last token and state, (M, Q, R, B)
        ahead = accepted.T[None, :, None].expand(symbols, states, runs, prompts)
        endings, norms = [], []
        for current in reversed(probs):
            after = _follow(ahead, successors)
            largest = after.amax(1)
            endings.append((after - largest[:, None]).exp_())
            norms.append((current[:, None] * endings[-1]).sum(2).clamp_min_(_TINY))
            ahead = norms[-1].log() + largest
        log_mass = ahead[0, 0].masked_fill(ahead[0, 0] < _IMPOSSIBLE / 2, -torch.inf)
        return cls(probs, endings[::-1], norms[::-1], successors, log_mass)

    @cached_property
    def arrivals(self) -> list[Tensor]:
        """For each position, how often each last token and state is there, (M, Q, R, B)."""
        start = (self.log_mass > -torch.inf).to(torch.float64)
        arrivals = [torch.cat([start[None], start.new_zeros(self.norms[0].shape[1] - 1, *start.shape)])[None]]
        for current, ending, norm in zip(self.probs[:-1], self.endings, self.norms, strict=False):
            flow = ending * _over_last_tokens(arrivals[-1] / norm, current)
            arrivals.append(_arrive(flow, self.successors))
        return arrivals

    @cached_property
    def visits(self) -> Tensor:
        """(S, V, R, B): how often the next token v is chosen in each context; every position sums to 1."""
        steps = zip(self.arrivals, self.probs, self.endings, self.norms, strict=True)
        return torch.cat([current * _over_states(arrival / norm, ending) for arrival, current, ending, norm in steps])

    def expectation(self, costs: Tensor) -> Tensor:
        """(R, B): the mean over responses of the sum over tokens of `costs` (S, V, R, B)."""
        return (self.visits * costs).sum((0, 1))


def _over_states(visits: Tensor, ending: Tensor) -> Tensor:
    """(M, V, R, B): sum over q of (M, Q, R, B) * (Q, V, R, B)."""
    return (visits[:, :, None] * ending).sum(1)


def _over_last_tokens(visits: Tensor, tokens: Tensor) -> Tensor:
    """(Q, V, R, B): sum over m of (M, Q, R, B) * (M, V, R, B)."""
    return (visits[:, :, None] * tokens[:, None]).sum(0)


def _follow(values: Tensor, successors: Tensor) -> Tensor:
    """(Q, V, R, B): what `values` (M, Q, R, B) hold after each next token."""
    runs = values.shape[2]
    index = successors.flatten(0, 1)[:, None].expand(-1, runs, -1)
    return values.flatten(0, 1).gather(0, index).unflatten(0, successors.shape[:2])


def _arrive(flow: Tensor, successors: Tensor) -> Tensor:
    """(V, Q, R, B): the sum of `flow` (Q, V, R, B) where each next token leads."""
    states, symbols, runs, _ = flow.shape
    index = successors.flatten(0, 1)[:, None].expand(-1, runs, -1)
    arrived = torch.zeros_like(flow).flatten(0, 1).scatter_add_(0, index, flow.flatten(0, 1))
    return arrived.unflatten(0, (symbols, states))


class SequencePolicy:
    """A policy over responses and the correctness of these, as `cokl.policy.Policy` is over actions.

    rows: (R, B, S, V), logits of the next token in each context. automata: one for each of the B prompts.
    """

    def __init__(self, rows: Tensor, automata: Automata) -> None:
        self.automata = automata
        logits = rows.permute(2, 3, 0, 1).to(torch.float64, memory_format=torch.contiguous_format)
        self._logits = logits - logits.amax(1, keepdim=True)
        exponentials = self._logits.exp()
        self._totals = exponentials.sum(1, keepdim=True)
        self.probs = exponentials.div_(self._totals)
        """(S, V, R, B): pi of the next token."""

    @cached_property
    def log_probs(self) -> Tensor:
        """(S, V, R, B): log pi of the next token."""
        return self._logits - self._totals.log()

    @cached_property
    def correct(self) -> Chain:
        """pi+ (Eq. 6)."""
        return Chain.conditioned(positions(self.probs), self.automata)

    @cached_property
    def incorrect(self) -> Chain:
        """pi-, pi given that the response is incorrect."""
        return Chain.conditioned(positions(self.probs), self.automata.complement())

    @property
    def log_mass(self) -> Tensor:
        """(R, B): log Z, -inf where no response is correct."""
        return self.correct.log_mass

    @cached_property
    def mass(self) -> Tensor:
        """(R, B): Z (Eq. 5)."""
        return self.log_mass.exp()

    @cached_property
    def log_incorrect_mass(self) -> Tensor:
        """(R, B): log(1 - Z), from log Z, hence to the arithmetic's precision over 1 - Z."""
        few = torch.log1p(-self.mass)
        return torch.where(self.log_mass < -1, few, torch.log(-torch.expm1(self.log_mass.clamp_max(0))))

    def through_softmax(self, weights: Tensor) -> Tensor:
        """Logit gradient of the sum of `weights` * log pi of the next tokens, both (S, V, R, B)."""
        return weights - weights.sum(1, keepdim=True) * self.probs

    def log_mass_logit_gradient(self) -> Tensor:
        """(S, V, R, B): logit gradient of log Z; zero where no response is correct."""
        return self.through_softmax(self.correct.visits)

    def conditional_entropy(self) -> Tensor:
        """(R, B): of the correct responses, H(pi+), in nats; its exponential is their effective number."""
        return torch.where(self.mass > 0, finite(self.log_mass) - self.correct.expectation(self.log_probs), 0)


def finite(log_mass: Tensor) -> Tensor:
    """log_mass with a finite stand-in for -inf."""
    return log_mass.clamp_min(_IMPOSSIBLE)
