"""The changed rewards of phase 2, and the random streams of the lab.

Axes: R runs, C clusters, A actions.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from bandit.engine.environment import Environment, RandomStream, some_of

LESS = 0.2
"""The reward of the correct actions that are not preferred."""


class PlasticityStream(IntEnum):
    """Independent random streams of a seed, `np.random.default_rng([seed, stream])`, apart from the engine's.

    The environment, the reference, and the minibatches of the exact phase 1 have the engine's own streams, so that an
    exact phase 1 is a run of the controlled experiment. Every policy, mode and change of a seed reads each stream here
    from its beginning, so that all share their draws; only a chain's later changes resume where the last one ended.

    MOVED: uniform numbers (C, A), for `some_of`, as the engine's NARROWED. CACHE: uniform numbers (N, largest G_ref),
    one a cached response of a training input; a smaller cache is the first columns. SAMPLED_BATCHES, NEW_BATCHES: for
    each step `prompts` integers below N. SAMPLED_ROLLOUTS, NEW_ROLLOUTS: for each step uniform numbers (prompts, G),
    one a response, by inversion of the cumulated probabilities.
    """

    MOVED = 201
    CACHE = 202
    SAMPLED_BATCHES = 203
    SAMPLED_ROLLOUTS = 204
    NEW_BATCHES = 205
    NEW_ROLLOUTS = 206


def stages(change: str) -> list[str]:
    """The rewards that are learned one after the other: several for a chain, one for any other change."""
    kind, *sizes = change.split("-")
    return [f"chain-{size}" for size in sizes] if kind == "chain" else [change]


def reward_table(environment: Environment, seed: int, stage: str, own: Tensor, reference: Tensor) -> Tensor:
    """(R or 1, C, A): the reward of each action in each cluster, in the arithmetic of `own`.

    own, reference: (R, C, A) and (1, C, A), mean probabilities on a cluster's training inputs after phase 1.
    """
    correct = environment.correct.mask.to(own.device)
    kind, *sizes = stage.split("-")
    if kind in ("narrowed", "chain", "moved"):
        eligible = ~correct if kind == "moved" else correct
        stream = PlasticityStream.MOVED if kind == "moved" else RandomStream.NARROWED
        chosen = some_of(eligible, int(sizes[0]), seed, stream)
        return torch.zeros_like(reference).scatter_(-1, chosen[None], 1)
    if kind == "repaired":
        among = (reference if sizes else own).masked_fill(~correct, -1)
        return correct.to(own).expand_as(among).clone().scatter_(-1, among.argmax(-1, keepdim=True), 0)
    least = reference.masked_fill(~correct, torch.inf).argsort(-1)[..., : environment.config.correct_actions // 2]
    return (LESS * correct.to(own))[None].scatter(-1, least, 1)
