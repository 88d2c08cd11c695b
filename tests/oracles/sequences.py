"""Responses of several tokens by enumeration: every response, its probability and its verdict, one at a time.

logits: by position, last token and next token; at position 0 only last token 0 is looked at. A machine is a list of
transitions, by state and token, and a list of accepting states; it starts in state 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.oracles import sampled

Machine = tuple[Sequence[Sequence[int]], Sequence[bool]]


def responses(steps: int, symbols: int) -> list[tuple[int, ...]]:
    """All of them."""
    return list(itertools.product(range(symbols), repeat=steps))


def accepts(machine: Machine, response: Sequence[int]) -> bool:
    """Whether the machine ends in an accepting state."""
    transitions, accepting = machine
    state = 0
    for token in response:
        state = transitions[state][token]
    return accepting[state]


def log_prob(logits: Any, response: Sequence[int], library: Any) -> Any:
    """log pi of a response."""
    total, last = 0, 0
    for step, token in enumerate(response):
        row = logits[step][last]
        total = total + row[token] - library.log(sum(library.exp(logit) for logit in row))
        last = token
    return total


def probabilities(logits: Any, symbols: int, library: Any) -> list[Any]:
    """pi of every response."""
    return [library.exp(log_prob(logits, y, library)) for y in responses(len(logits), symbols)]


def verdicts(machine: Machine, steps: int, symbols: int) -> list[bool]:
    """Of every response."""
    return [accepts(machine, response) for response in responses(steps, symbols)]


def autograd(function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Gradient of a scalar function of the logits; zeros where it does not depend on them."""
    logits = logits.detach().clone().requires_grad_()
    result = function(logits)
    return torch.autograd.grad(result, logits)[0] if result.requires_grad else torch.zeros_like(logits)


def expected_grpo(logits: Tensor, machine: Machine, size: int) -> Tensor:
    """-J_GRPO averaged over every group of `size` responses, whose probabilities carry no gradient; ratios do."""
    steps, symbols = logits.shape[0], logits.shape[-1]
    every = responses(steps, symbols)
    behavior = probabilities(logits.detach(), symbols, torch)
    rewards = [float(accepts(machine, response)) for response in every]
    token_log_ratios = [_token_log_ratios(logits, response) for response in every]
    total = torch.zeros((), dtype=logits.dtype)
    for group in itertools.product(range(len(every)), repeat=size):
        chance = 1.0
        for index in group:
            chance = chance * float(behavior[index])
        for index, advantage in zip(group, sampled.advantages([rewards[i] for i in group], 1e-6, True), strict=True):
            total = total - chance / size * advantage * sum(r.exp() for r in token_log_ratios[index]) / steps
    return total


def _token_log_ratios(logits: Tensor, response: Sequence[int]) -> list[Tensor]:
    """log(pi / pi_old) of each token, zero in value at the policy that drew them."""
    return [token - token.detach() for token in token_log_probs(logits, response)]


def token_log_probs(logits: Tensor, response: Sequence[int]) -> list[Tensor]:
    """log pi of each token of a response."""
    terms, last = [], 0
    for step, token in enumerate(response):
        terms.append(logits[step][last].log_softmax(-1)[token])
        last = token
    return terms
