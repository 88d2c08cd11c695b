"""The regularization minibatch of a step: what VeRL is asked to generate, and which of its rows answer.

VeRL answers a prompt of uid U with rows whose keys are "U_SESSION_INDEX". A regularized prompt is drawn from the
buffer, and then all its rows are added to the RL batch; or it is a training prompt, whose fresh rows are the RL batch's
own and whose cached ones are added. Rows that answer no prompt of the minibatch, padding included, are the RL batch's
alone.
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
    """origins: of its rows, by uid. group_rows: rows of one prompt in all its streams, if none is lost.

    cached: sequence log-likelihoods of the cached responses under the reference, by uid. training: the RL batch's uids,
    each with the prompt's number in the minibatch, or None for a prompt outside it.
    """

    origins: Mapping[str, Origin]
    group_rows: int
    cached: Mapping[str, float] = field(default_factory=dict)
    training: Mapping[str, int | None] = field(default_factory=dict)

    def origin(self, key: str) -> Origin | None:
        """Of a row; None for one of the RL batch alone."""
        return self.origins.get(uid_of(key))

    def prompt(self, key: str) -> int | None:
        """The number of the prompt that a row answers, of a regularized one."""
        origin = self.origin(key)
        return origin.prompt if origin else self.training.get(uid_of(key))

    def regularized(self, keys: Iterable[str], stream: Stream | None = None) -> list[str]:
        """The regularized rows, in order; those of one stream if it is named."""
        return [key for key in keys if (origin := self.origin(key)) and stream in (None, origin.stream)]

    def added(self, keys: Iterable[str], stream: Stream | None = None) -> list[str]:
        """Those of them that are not the RL batch's own."""
        return [key for key in self.regularized(keys, stream) if uid_of(key) not in self.training]

    def asked(self) -> int:
        """Prompts that VeRL is asked for beside the RL batch's, each cached response being one."""
        return sum(uid not in self.training for uid in self.origins)

    def index(self, keys: Iterable[str]) -> RowIndex:
        """Which of these rows answer which prompt; a prompt that lost a row to a failed rollout is left out whole."""
        origins = [self.origin(key) for key in keys]
        sizes = Counter(origin.prompt for origin in origins if origin)
        return RowIndex.of(origin if origin and sizes[origin.prompt] == self.group_rows else None for origin in origins)

    def mini_batches(self, keys: Sequence[str], count: int) -> list[list[str]]:
        """`keys` in `count` parts: equal shares of RL prompts and of added ones, and each prompt's rows together."""
        added = set(self.added(keys))
        ours = sorted({uid_of(key) for key in keys if key not in added} | set(self.training))
        homes = {str(uid): part for part, uids in enumerate(np.array_split(ours, count)) for uid in uids}
        of_prompt = {prompt: homes[uid] for uid, prompt in self.training.items()}
        parts: list[list[str]] = [[] for _ in range(count)]
        for key in [key for key in keys if key not in added]:
            parts[homes[uid_of(key)]].append(key)
        for key in self.added(keys):
            prompt = self.origins[uid_of(key)].prompt
            parts[of_prompt.get(prompt, prompt % count)].append(key)
        return parts

    def metrics(self, keys: Sequence[str], rewards: Sequence[float], tokens: Sequence[int]) -> dict[str, float]:
        """What the log shows of the regularized rows. rewards, tokens: verdicts, 0 or 1, and lengths of all R rows.

        `cokl/zero_correct` is the fraction of fresh groups without a correct response (E.4), `cokl/not_regularized` of
        training prompts outside the minibatch, and `cokl/added_tokens` counts the added responses'.
        """
        lengths: list[int] = []
        verdicts: dict[int, list[float]] = {}
        for key, verdict, length in zip(keys, rewards, tokens, strict=True):
            if origin := self.origin(key):
                lengths.append(length)
                if origin.stream == "rollout":
                    verdicts.setdefault(origin.prompt, []).append(verdict)
        added = set(self.added(keys))
        added_tokens = sum(length for key, length in zip(keys, tokens, strict=True) if key in added)
        logged = {"cokl/added_tokens": float(added_tokens)}
        if lengths:
            logged["cokl/response_length"] = float(np.mean(lengths))
        if self.training:
            logged["cokl/not_regularized"] = float(np.mean([prompt is None for prompt in self.training.values()]))
        if verdicts:
            logged["cokl/reward_mean"] = float(np.mean([verdict for group in verdicts.values() for verdict in group]))
            logged["cokl/zero_correct"] = float(np.mean([not any(group) for group in verdicts.values()]))
        return logged


def requests(
    groups: Sequence[CachedGroup],
    training: Mapping[str, CachedGroup | None],
    streams: Sequence[Stream],
    size: int,
    step: int,
    fresh: Mapping[str, Any] | None = None,
) -> tuple[list[dict], Minibatch]:
    """What VeRL is asked to generate beside the RL batch, a row per uid, and the minibatch that both make.

    groups: the drawn prompts. training: the RL batch's prompts by uid, with what is cached for them, or None for one
    that is not regularized. streams: of the method. size: fresh responses to a prompt, G. step: of training, which
    names the rows. fresh: further columns of the rows that ask for fresh responses. A cached response is a prompt of
    its own, which our agent loop answers with it; the fresh ones to a drawn prompt are one row, which VeRL repeats G
    times, and those to a training prompt the RL batch has already.
    """
    rows: list[dict] = []
    origins: dict[str, Origin] = {}
    log_probs: dict[str, float] = {}
    numbers: dict[str, int | None] = dict.fromkeys(training)
    regularized = [("", group) for group in groups]
    regularized += [(uid, group) for uid, group in training.items() if group is not None]
    for prompt, (own, group) in enumerate(regularized):
        if own:
            numbers[own] = prompt
        if own and "rollout" in streams:
            origins[own] = Origin("rollout", prompt)
        for row in _rows(prompt, group, streams, asked=not own):
            stream: Stream = "reference" if "cached_response" in row else "rollout"
            uid = f"cokl-{step}-{len(rows):06d}"  # VeRL wants no "_"; the order of names is the order of rows
            origins[uid] = Origin(stream, prompt)
            if stream == "reference":
                cached = row["cached_response"]
                log_probs[uid] = float(np.dot(cached["log_probs"], cached["mask"]))
            rows.append({**row, **((fresh or {}) if stream == "rollout" else {}), "uid": uid})
    size_cached = len(regularized[0][1].response_ids) if regularized and "reference" in streams else 0
    return rows, Minibatch(origins, size_cached + size * ("rollout" in streams), log_probs, numbers)


def _rows(prompt: int, group: CachedGroup, streams: Sequence[Stream], asked: bool) -> Iterator[dict[str, Any]]:
    """asked: whether VeRL is to be asked for fresh responses, where the method looks at them."""
    columns = {
        "raw_prompt": group.prompt,
        "data_source": group.data_source,
        "reward_model": {"ground_truth": group.ground_truth, "style": "rule"},
        "extra_info": dict(group.extra_info),
        "index": prompt,
        "tools_kwargs": {},
        "interaction_kwargs": {},
    }
    if "reference" in streams:
        members = zip(group.response_ids, group.log_probs, group.masks, group.rewards, strict=True)
        for response_ids, log_probs, mask, reward in members:
            cached = {
                "prompt_ids": group.prompt_ids.tolist(),
                "response_ids": response_ids.tolist(),
                "log_probs": log_probs.tolist(),
                "mask": mask.tolist(),
                "reward": float(reward),
            }
            yield columns | {"agent_name": "cached_response", "__rollout_n__": 1, "cached_response": cached}
    if asked and "rollout" in streams:
        yield columns


def uid_of(key: str) -> str:
    """The uid of the prompt that a row answers."""
    return key.split("_", maxsplit=1)[0]
