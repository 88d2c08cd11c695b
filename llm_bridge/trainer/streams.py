"""The regularization minibatch of a step: what VeRL is asked to generate, and which of its rows answer.

VeRL answers a prompt of uid U with rows whose keys are "U_SESSION_INDEX". Rows that answer no prompt of the
minibatch, padding included, are the RL batch's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cokl.groups import RowIndex
from cokl.regularizers.base import Stream
from cokl.responses.buffer import CachedGroup


class Origin(NamedTuple):
    """Where a row belongs: its stream, and its prompt's number in the minibatch."""

    stream: Stream
    prompt: int


@dataclass(frozen=True, eq=False)
class Minibatch:
    """origins: of the added prompts, by uid. group_rows: rows of one prompt in all its streams, if none is lost.

    cached: sequence log-likelihoods of the cached responses under the reference, by uid.
    """

    origins: Mapping[str, Origin]
    group_rows: int
    cached: Mapping[str, float] = field(default_factory=dict)

    def origin(self, key: str) -> Origin | None:
        """Of a row; None for one of the RL batch."""
        return self.origins.get(uid_of(key))

    def added(self, keys: Iterable[str], stream: Stream | None = None) -> list[str]:
        """The added rows, in order; those of one stream if it is named."""
        return [key for key in keys if (origin := self.origin(key)) and stream in (None, origin.stream)]

    def index(self, keys: Iterable[str]) -> RowIndex:
        """Which of these rows answer which prompt; a prompt that lost a row to a failed rollout is left out whole."""
        origins = [self.origin(key) for key in keys]
        sizes = Counter(origin.prompt for origin in origins if origin)
        return RowIndex.of(origin if origin and sizes[origin.prompt] == self.group_rows else None for origin in origins)

    def mini_batches(self, keys: Sequence[str], count: int) -> list[list[str]]:
        """`keys` in `count` parts: RL rows in order and equal shares, and each prompt's rows together."""
        rl = np.array_split([key for key in keys if not self.origin(key)], count)
        added: list[list[str]] = [[] for _ in range(count)]
        for key in keys:
            if origin := self.origin(key):
                added[origin.prompt % count].append(key)
        return [[*map(str, ours), *theirs] for ours, theirs in zip(rl, added, strict=True)]

    def metrics(self, keys: Sequence[str], rewards: Sequence[float], tokens: Sequence[int]) -> dict[str, float]:
        """What the log shows of the added rows. rewards, tokens: verdicts, 0 or 1, and lengths of all R rows.

        `cokl/zero_correct` is the fraction of fresh groups without a correct response (E.4).
        """
        lengths: list[int] = []
        verdicts: dict[int, list[float]] = {}
        for key, verdict, length in zip(keys, rewards, tokens, strict=True):
            if origin := self.origin(key):
                lengths.append(length)
                if origin.stream == "rollout":
                    verdicts.setdefault(origin.prompt, []).append(verdict)
        logged = {"cokl/response_length": float(np.mean(lengths))}
        if verdicts:
            logged["cokl/reward_mean"] = float(np.mean([verdict for group in verdicts.values() for verdict in group]))
            logged["cokl/zero_correct"] = float(np.mean([not any(group) for group in verdicts.values()]))
        return logged


def requests(
    groups: Sequence[CachedGroup], streams: Sequence[Stream], size: int, step: int
) -> tuple[list[dict], Minibatch]:
    """What VeRL is asked to generate for these prompts, a row per uid, and the minibatch that it makes.

    streams: of the method. size: fresh responses to a prompt, G. step: of training, which names the rows. A cached
    response is a prompt of its own, which our agent loop answers with it; the fresh ones to a prompt are one row, which
    VeRL repeats G times.
    """
    rows: list[dict] = []
    origins: dict[str, Origin] = {}
    log_probs: dict[str, float] = {}
    for prompt, group in enumerate(groups):
        for row in _rows(prompt, group, streams):
            stream: Stream = "reference" if "cached_response" in row else "rollout"
            uid = f"cokl-{step}-{len(rows):06d}"  # VeRL wants no "_"; the order of names is the order of rows
            origins[uid] = Origin(stream, prompt)
            if stream == "reference":
                log_probs[uid] = float(sum(row["cached_response"]["log_probs"]))
            rows.append({**row, "uid": uid})
    cached = len(groups[0].response_ids) if "reference" in streams else 0
    return rows, Minibatch(origins, cached + size * ("rollout" in streams), log_probs)


def _rows(prompt: int, group: CachedGroup, streams: Sequence[Stream]) -> Iterator[dict[str, Any]]:
    columns = {
        "raw_prompt": group.prompt,
        "data_source": group.data_source,
        "reward_model": {"ground_truth": group.ground_truth, "style": "rule"},
        "extra_info": {**group.extra_info, "index": prompt},
        "index": prompt,
        "tools_kwargs": {},
        "interaction_kwargs": {},
    }
    if "reference" in streams:
        for response_ids, log_probs, reward in zip(group.response_ids, group.log_probs, group.rewards, strict=True):
            cached = {
                "prompt_ids": group.prompt_ids.tolist(),
                "response_ids": response_ids.tolist(),
                "log_probs": log_probs.tolist(),
                "reward": float(reward),
            }
            yield columns | {"agent_name": "cached_response", "__rollout_n__": 1, "cached_response": cached}
    if "rollout" in streams:
        yield columns


def uid_of(key: str) -> str:
    """The uid of the prompt that a row answers."""
    return key.split("_", maxsplit=1)[0]
