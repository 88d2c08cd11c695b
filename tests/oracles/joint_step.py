"""The gradient of one joint optimizer step, written from the paper's equations over the rows themselves.

Rows are plain tuples; nothing is shared with the trainer: no groups, no weights, no batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
    lengths: str = "token-sum",
    aggregation: str = "seq-mean-token-mean",
    estimator: str = "grpo",
    kl: float = 0.0,
    reference: Callable[[Row], Tensor] | None = None,
    entropy: float = 0.0,
    entropies: Callable[[Row], Tensor] | None = None,
    factors: Callable[[Row], Tensor] | None = None,
) -> Tensor:
    """GRPO (Eq. 4) on the RL rows plus beta times CoKL's surrogate (Eqs. 11 to 17) on the others.

    now, sampled, reference: token log-probabilities of a row under the current policy, the one that sampled, and the
    reference, (T,). aggregation: of the GRPO loss over tokens and responses, by VeRL's names; a scale of 10 goes with
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
    prompts = len({row.group for row in rows if row.stream != "rl"})
    for (stream, _), members in groups.items():
        if stream == "rl":
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
                if reference is not None:
                    log_ratio = reference(row) - now(row)
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
            continue
        correct = [row for row in members if row.reward == 1]
        shares = []
        for row in correct:
            difference = float((now(row) - sampled(row)).detach().sum())
            clipped_ratio = min(max(math.exp(difference), 1 - epsilon_is), 1 + epsilon_is)
            shares.append(1.0 if stream == "reference" else clipped_ratio)
        for row, share in zip(correct, shares, strict=True):
            log_likelihood = now(row).sum()
            if lengths == "token-mean":
                log_likelihood = log_likelihood / len(row.response)
            sign = -1 if stream == "reference" else 1
            total = total + sign * beta * share / sum(shares) * log_likelihood / prompts
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
