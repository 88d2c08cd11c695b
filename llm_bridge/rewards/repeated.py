"""What several responses to one prompt say together, averaged over prompts, as VeRL's validation metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from cokl.metrics import majority, sampled_pass_at_k


def validation_metrics(
    sources: Iterable[str], uids: Iterable[str], rewards: Sequence[float], answers: Sequence[str | None] | None
) -> dict[str, float]:
    """Averages over prompts, of R rows in any order; rows of one uid are responses to one prompt.

    sources, uids, rewards, answers: one entry per row; an answer is None where the response has none.

    "val/SOURCE/mean@n", and of sources whose rewards are all 0 or 1 "val/SOURCE/pass@k" for k = 2, 4, ... up to n and,
    where answers are known, "val/SOURCE/majority@n", and of the correct answers as written "val/SOURCE/distinct@n", how
    many different ones a prompt got, and "val/SOURCE/entropy@n", of their frequencies in nats, over the prompts that
    got one. n: the most responses of a prompt; prompts with fewer are left out of all but the mean.
    """
    groups: dict[str, dict[str, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))
    for source, uid, reward, answer in zip(sources, uids, rewards, answers or [None] * len(rewards), strict=True):
        groups[source][uid].append((float(reward), answer or ""))
    metrics = {}
    for source, prompts in sorted(groups.items()):
        given = [tuple(zip(*rows, strict=True)) for rows in prompts.values()]
        size = max(len(scores) for scores, _ in given)
        metrics[f"val/{source}/mean@{size}"] = float(np.mean([np.mean(scores) for scores, _ in given]))
        if any(score not in (0, 1) for scores, _ in given for score in scores):
            continue
        whole = [([score == 1 for score in scores], texts) for scores, texts in given if len(scores) == size]
        for k in (2**power for power in range(1, size.bit_length())):
            metrics[f"val/{source}/pass@{k}"] = float(np.mean([sampled_pass_at_k(correct, k) for correct, _ in whole]))
        if answers is not None:
            metrics[f"val/{source}/majority@{size}"] = float(np.mean([majority(*group) for group in whole]))
            counts = [_frequencies(*group) for group in whole]
            metrics[f"val/{source}/distinct@{size}"] = float(np.mean([len(shares) for shares in counts]))
            if solved := [shares for shares in counts if len(shares)]:
                entropies = [-(shares * np.log(shares)).sum() for shares in solved]
                metrics[f"val/{source}/entropy@{size}"] = float(np.mean(entropies))
    return metrics


def _frequencies(correct: Sequence[bool], answers: Sequence[str]) -> np.ndarray:
    """(A,): of each different correct answer among all correct ones."""
    counts = Counter(answer for answer, right in zip(answers, correct, strict=True) if right)
    return np.array([*counts.values()]) / max(1, counts.total())
