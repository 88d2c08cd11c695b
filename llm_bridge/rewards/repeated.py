"""What several responses to one prompt say together: their mean reward, unbiased pass@k, and a majority vote.

Assumption beyond the paper: in a majority vote the correct answers are one party, however they are written, and
incorrect ones are told apart as they are written; responses without an answer do not vote, and a tie is drawn by lot.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np


def pass_at_k(correct: Sequence[bool], k: int) -> float:
    """Probability that k of these responses, drawn without replacement, hold a correct one, in [0, 1].

    1 - C(n - c, k) / C(n, k) (Chen et al., arXiv 2107.03374), unbiased for k fresh responses. Raises ValueError for k
    outside 1 to n.
    """
    n, c = len(correct), sum(correct)
    if not 1 <= k <= n:
        raise ValueError(f"k: expected 1 to {n}, got {k}")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def majority(correct: Sequence[bool], answers: Sequence[str]) -> float:
    """Probability that the answer given most often is correct, in [0, 1]; 0 without any answer."""
    right = sum(correct)
    wrong = Counter(answer for answer, ok in zip(answers, correct, strict=True) if answer and not ok)
    most = max([right, *wrong.values()])
    if most == 0 or right < most:
        return 0.0
    return 1 / (1 + sum(count == most for count in wrong.values()))


def validation_metrics(
    sources: Iterable[str], uids: Iterable[str], rewards: Sequence[float], answers: Sequence[str | None] | None
) -> dict[str, float]:
    """Averages over prompts, of rows in any order; rows of one uid are responses to one prompt.

    "val/SOURCE/mean@n", and of sources whose rewards are all 0 or 1 "val/SOURCE/pass@k" for k = 2, 4, ... up to n and,
    where answers are known, "val/SOURCE/majority@n". n: the most responses of a prompt; prompts with fewer are left out
    of the latter two.
    """
    groups: dict[str, dict[str, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))
    for source, uid, reward, answer in zip(sources, uids, rewards, answers or [None] * len(rewards), strict=True):
        groups[source][uid].append((float(reward), answer or ""))
    found = {}
    for source, prompts in sorted(groups.items()):
        size = max(len(rows) for rows in prompts.values())
        found[f"val/{source}/mean@{size}"] = float(
            np.mean([np.mean([row[0] for row in rows]) for rows in prompts.values()])
        )
        if any(row[0] not in (0, 1) for rows in prompts.values() for row in rows):
            continue
        whole = [
            ([row[0] == 1 for row in rows], [row[1] for row in rows]) for rows in prompts.values() if len(rows) == size
        ]
        k = 2
        while k <= size:
            found[f"val/{source}/pass@{k}"] = float(np.mean([pass_at_k(correct, k) for correct, _ in whole]))
            k *= 2
        if answers is not None:
            found[f"val/{source}/majority@{size}"] = float(np.mean([majority(*group) for group in whole]))
    return found
