"""What several responses to one prompt say together, averaged over prompts, as VeRL's validation metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import entropy


def validation_metrics(
    sources: Iterable[str], uids: Iterable[str], rewards: Sequence[float], answers: Sequence[str | None] | None
) -> dict[str, float]:
    """Averages over prompts, of R rows in any order; rows of one uid are responses to one prompt.

    sources, uids, rewards, answers: one entry per row; an answer is None where the response has none.

    "val/SOURCE/mean@n", and where answers are known, of sources whose rewards are all 0 or 1, of the correct ones as
    written "val/SOURCE/distinct@n", how many different ones a prompt got, and "val/SOURCE/entropy@n", of their
    frequencies in nats, over the prompts that got one. n: the most responses of a prompt; prompts with fewer are left
    out of all but the mean.
    """
    groups: dict[str, dict[str, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))
    for source, uid, reward, answer in zip(sources, uids, rewards, answers or [None] * len(rewards), strict=True):
        groups[source][uid].append((float(reward), answer or ""))
    metrics: dict[str, float] = {}
    for source, prompts in sorted(groups.items()):
        given = [tuple(zip(*rows, strict=True)) for rows in prompts.values()]
        n = max(len(scores) for scores, _ in given)
        measured: dict[str, list[Any]] = {f"mean@{n}": [np.mean(scores) for scores, _ in given]}
        if answers is not None and all(score in (0, 1) for scores, _ in given for score in scores):
            whole = [zip(*group, strict=True) for group in given if len(group[0]) == n]
            right = [Counter(text for score, text in group if score) for group in whole]
            measured[f"distinct@{n}"] = [len(counts) for counts in right]
            measured[f"entropy@{n}"] = [entropy([*counts.values()]) for counts in right if counts]
        metrics |= {f"val/{source}/{name}": float(np.mean(values)) for name, values in measured.items() if values}
    return metrics
