"""The score that the reward function itself gave, which cached and fresh responses are judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cokl.support.errors import InputError


def raw_scores(rewards: Sequence[Tensor], extra_fields: Sequence[Any] | None) -> Tensor:
    """(R,): of each row, before a reward manager shaped it, as DAPO's does with a penalty on length.

    rewards: (T,) each, VeRL's. extra_fields: what VeRL keeps of each row; its managers keep the score as "score", or as
    "acc" where the function gives a number. Raises InputError for a reward that is not finite, with which VeRL would
    skip every update and log the rest as usual.
    """
    scores = []
    for row, extra in zip(rewards, extra_fields or [{}] * len(rewards), strict=True):
        reward = float(row.sum())
        if not math.isfinite(reward):
            raise InputError(f"a response got the reward {reward}: expected finite numbers from the reward function")
        said = getattr(extra, "data", extra).get("reward_extra_info") or {}
        scores.append(float(said.get("score", said.get("acc", reward))))
    return torch.tensor(scores, dtype=torch.float64)
