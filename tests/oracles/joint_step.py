"""The gradient of one joint optimizer step, written from the paper's equations over the rows themselves.

Rows are plain tuples; nothing is shared with the trainer: no groups, no weights, no batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.oracles.sampled import opened, surrogate_weights


@dataclass(frozen=True)
class Row:
    """A response: its stream ("rl", "reference" or "rollout"), its prompt's name, tokens, and reward or verdict."""

    stream: str
    group: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    reward: float


def loss(
    rows: Sequence[Row],
    now: Callable[[Row], Tensor],
    sampled: Callable[[Row], Tensor],
    beta: float,
    epsilon_is: float,
    clip: float,
    reference: Callable[[Row], Tensor],
    method: str = "cokl",
    lengths: str = "token-sum",
    aggregation: str = "seq-mean-token-mean",
    estimator: str = "grpo",
    kl: float = 0.0,
    entropy: float = 0.0,
    entropies: Callable[[Row], Tensor] | None = None,
    factors: Callable[[Row], Tensor] | None = None,
) -> Tensor:
    """GRPO (Eq. 4) on the RL rows plus a method's surrogate (Eqs. 11 to 17 and 20) on the others.

    now, sampled, reference: token log-probabilities of a row under the current policy, the one that sampled, and the
    reference, (T,). method: a regularizer's name, or one with "_floor" behind it, which beta does not scale.
    aggregation: of the GRPO loss over tokens and responses, by VeRL's names; a scale of 10 goes with
    seq-mean-token-sum-norm. estimator: of the advantages, "grpo", "rloo" or "reinforce_plus_plus". kl: coefficient of
    the KL to the reference on the RL rows, Schulman's third estimator, averaged as the loss is. entropy: coefficient of
    the policy's entropy at each token of the RL rows, `entropies`, (T,) with a graph, averaged likewise. factors: (T,),
    by which the policy's loss on an RL row's tokens is multiplied.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.stream, row.group), []).append(row)
    total = torch.zeros((), dtype=torch.float64)
    rl_rows = sum(row.stream == "rl" for row in rows)
    rl_tokens = sum(len(row.response) for row in rows if row.stream == "rl")
    rl_groups = [members for (stream, _), members in groups.items() if stream == "rl"]
    for members in rl_groups:
        for place, row in enumerate(members):
            others = [other.reward for other in members[:place] + members[place + 1 :]]
            advantage = _advantage(estimator, row.reward, others, [row for row in rows if row.stream == "rl"])
            ratio = (now(row) - sampled(row)).exp()
            clipped = torch.minimum(torch.maximum(ratio, torch.tensor(1 - clip)), torch.tensor(1 + clip))
            gained = torch.minimum(ratio * advantage, clipped * advantage)
            if factors is not None:
                gained = gained * factors(row)
            if entropies is not None:
                gained = gained + entropy * entropies(row)
            if kl:
                log_ratio = reference(row).detach() - now(row)
                gained = gained - kl * (log_ratio.exp() - log_ratio - 1)
            total = (
                total
                - {
                    "token-mean": gained.sum() / rl_tokens,
                    "token-sum": gained.sum(),
                    "seq-mean-token-mean": gained.mean() / rl_rows,
                    "seq-mean-token-sum": gained.sum() / rl_rows,
                    "seq-mean-token-sum-norm": gained.sum() / rl_rows / 10,
                }[aggregation]
            )
    named = {row.group: None for row in rows if row.stream != "rl"}
    asked = [(groups.get(("reference", name), []), groups.get(("rollout", name), [])) for name in named]
    verdicts = [[[row.reward for row in members] for members in pair] for pair in asked]
    gate = opened([cached for cached, _ in verdicts], [fresh for _, fresh in verdicts]) if "_floor" in method else 0.0
    for (cached, fresh), (right_before, right) in zip(asked, verdicts, strict=True):
        current, before, of_start = (
            [float(told(row).detach().sum()) for row in fresh] for told in (now, sampled, reference)
        )
        weights = surrogate_weights(
            method.removesuffix("_floor"), right_before, right, current, before, of_start, epsilon_is
        )
        pull = [-gate * verdict / len(cached) for verdict in right_before]  # Eq. 20
        on_cached = [beta * weight + floor for weight, floor in zip(weights[0], pull, strict=True)]
        for row, weight in zip([*cached, *fresh], [*on_cached, *(beta * weight for weight in weights[1])], strict=True):
            tokens = len(row.response) if lengths == "token-mean" else 1
            total = total + weight * now(row).sum() / tokens / len(asked)
    return total


def _advantage(estimator: str, reward: float, others: Sequence[float], rl_rows: Sequence[Row]) -> float:
    """Of a response whose group got the rewards `others` besides, in a batch of `rl_rows`.

    GRPO: in standard deviations of the group. RLOO (Ahmadian et al. 2024): over the others' mean. REINFORCE++ (Hu
    2025): in standard deviations of the batch, in which every token has its response's reward.
    """
    if estimator == "rloo":
        return reward - sum(others) / len(others)
    values = [reward, *others]
    if estimator == "reinforce_plus_plus":
        values = [row.reward for row in rl_rows for _ in row.response]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return (reward - mean) / (math.sqrt(variance) + 1e-6)
