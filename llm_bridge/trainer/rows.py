"""The rows of a step: what VeRL is asked for beside the RL batch, and which of its answers are regularized.

VeRL answers a prompt of uid U with rows whose keys are "U_SESSION_INDEX". A regularized prompt is drawn from the
buffer, and then all its rows are added to the RL batch; or it is a training prompt, whose fresh rows are the RL batch's
own and whose cached ones are added. A row that answers no regularized prompt, padding included, is the RL batch's
alone. Each added row is a prompt of its own to VeRL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import NonTensorData, TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from cokl.groups import RowIndex
from cokl.regularizers.base import Stream
from cokl.support.errors import InputError
from llm_bridge.buffer.groups import CachedGroup

CACHED_LOOP = "cached_response"
"""The agent loop that answers with the column of the same name."""
AGENT = "agent_name"
"""The column that selects a row's agent loop; a buffer has it in its prompts' `extra_info`."""
MEMBER = "cokl_member"
"""The column with a fresh added row's number in its group, 0 to G - 1."""


class Membership(NamedTuple):
    """The stream of a regularized row, and its prompt's number in the step."""

    stream: Stream
    prompt: int


@dataclass(frozen=True, eq=False)
class StepRows:
    """members: the regularized rows, by uid. asked: how many of them VeRL is asked for beside the RL batch's.
    group_rows: rows of one prompt in all its streams, if none is lost.

    training: the RL batch's uids where its prompts are the regularized ones, and whether each one is.
    """

    members: Mapping[str, Membership] = field(default_factory=dict)
    asked: int = 0
    group_rows: int = 0
    training: Mapping[str, bool] = field(default_factory=dict)

    def member(self, key: str) -> Membership | None:
        """Of a row; None for one of the RL batch alone."""
        return self.members.get(uid_of(key))

    def added(self, key: str) -> bool:
        """Whether a row is there for the regularizer alone."""
        uid = uid_of(key)
        return uid in self.members and uid not in self.training

    def index(self, keys: Iterable[str]) -> RowIndex:
        """Which of these rows answer which prompt; a prompt that lost a row to a failed rollout is left out whole."""
        members = [self.member(key) for key in keys]
        sizes = Counter(member.prompt for member in members if member)
        return RowIndex.of(member if member and sizes[member.prompt] == self.group_rows else None for member in members)

    def mini_batches(self, keys: Sequence[str], count: int) -> list[list[str]]:
        """`keys` in `count` parts: equal shares of RL prompts and of regularized ones, each prompt's rows together."""
        own = sorted({uid_of(key) for key in keys if not self.added(key)})
        homes = {uid: part for part, uids in enumerate(np.array_split(own, count)) for uid in uids.tolist()}
        parts: list[list[str]] = [[] for _ in range(count)]
        for key in sorted(keys, key=lambda key: (self.added(key), key)):
            member = self.member(key)
            parts[member.prompt % count if member else homes[uid_of(key)]].append(key)
        return parts


def ask(
    drawn: Sequence[CachedGroup],
    training: Mapping[str, CachedGroup | None],
    streams: Sequence[Stream],
    size: int,
    step: int,
) -> tuple[list[dict[str, Any]], StepRows]:
    """What VeRL is asked to generate beside the RL batch, a row per uid, and the rows of the step.

    drawn: prompts of the buffer. training: the RL batch's prompts by uid, with what is cached for them, or None for one
    that is not regularized. streams: of the method. size: fresh responses to a prompt, G. step: of training, which
    names the rows.
    """
    rows: list[dict[str, Any]] = []
    members: dict[str, Membership] = {}
    regularized = [("", group) for group in drawn]
    regularized += [(uid, group) for uid, group in training.items() if group is not None]
    for prompt, (own, group) in enumerate(regularized):
        if own and "rollout" in streams:
            members[own] = Membership("rollout", prompt)
        brought = _cached(group) if "reference" in streams else []
        brought += [{MEMBER: member} for member in range(size)] if "rollout" in streams and not own else []
        for row in brought:
            stream: Stream = "rollout" if MEMBER in row else "reference"
            uid = f"cokl-{step}-{len(rows):06d}"  # VeRL wants no "_"; the order of names is the order of rows
            members[uid] = Membership(stream, prompt)
            rows.append(_columns(prompt, group) | row | {"uid": uid, "__rollout_n__": 1})
    cached = len(regularized[0][1].response_ids) if regularized and "reference" in streams else 0
    fresh = size if "rollout" in streams else 0
    known = {uid: group is not None for uid, group in training.items()}
    return rows, StepRows(members, len(rows), cached + fresh, known)


def _columns(prompt: int, group: CachedGroup) -> dict[str, Any]:
    """Of a prompt's rows, as VeRL's data set has them: its own agent loop, and what its tools are told."""
    extra = dict(group.extra_info)
    return {
        "raw_prompt": group.prompt,
        "data_source": group.data_source,
        "reward_model": {"ground_truth": group.ground_truth, "style": "rule"},
        "extra_info": extra,
        "index": prompt,
        "tools_kwargs": extra.get("tools_kwargs") or {},
        "interaction_kwargs": extra.get("interaction_kwargs") or {},
        **({AGENT: extra[AGENT]} if AGENT in extra else {}),
    }


def _cached(group: CachedGroup) -> list[dict[str, Any]]:
    return [
        {
            AGENT: CACHED_LOOP,
            "cached_response": {
                "prompt_ids": group.prompt_ids.tolist(),
                "response_ids": response_ids.tolist(),
                "mask": mask.tolist(),
                "reward": float(reward),
            },
        }
        for response_ids, mask, reward in zip(group.response_ids, group.masks, group.rewards, strict=True)
    ]


def join(batch: TensorDict, rows: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]) -> TensorDict:
    """`batch` with `rows` after it, a row per prompt, (B + R); neither argument is changed.

    batch: B prompts, as VeRL's dataset collates them: tensors of shape (B, ...), a stack of values for every other
    column, and single values, which hold for the whole batch. rows: R added prompts, a value by column each.
    defaults: the value of a missing column, for a prompt of either kind; without one it is None, and zero in a tensor.
    """
    columns = dict(batch.items())
    joined: dict[str, Any] = {}
    for name in dict.fromkeys([*columns, *defaults, *(name for row in rows for name in row)]):
        column, default = columns.get(name), defaults.get(name)
        if isinstance(column, torch.Tensor):
            joined[name] = torch.cat([column, column.new_zeros(len(rows), *column.shape[1:])])
        elif not isinstance(column, NonTensorData):
            present = [default] * len(batch) if column is None else [value.data for value in column.unbind(0)]
            joined[name] = present + [row.get(name, default) for row in rows]
    result = tu.get_tensordict(joined)
    for name, column in columns.items():
        if isinstance(column, NonTensorData):
            result[name] = column
    return result


def uid_of(key: str) -> str:
    """The uid of the prompt that a row answers."""
    return key.split("_", maxsplit=1)[0]


def finite_sums(rewards: Sequence[Tensor]) -> Tensor:
    """(R,): each row's reward. rewards: (T,) each, VeRL's.

    Raises InputError for one that is not finite, with which VeRL would skip every update and log the rest as usual.
    """
    sums = torch.stack([row.double().sum() for row in rewards])
    if not sums.isfinite().all():
        got = float(sums[~sums.isfinite()][0])
        raise InputError(f"a response got the reward {got}: expected finite numbers from the reward function")
    return sums


def scores_of_function(scores: Tensor, told: Sequence[Any]) -> Tensor:
    """(R,): each row's score by the reward function itself, without the penalty that VeRL's manager of DAPO adds.

    scores: (R,), with the penalty. told: a row's `extra_fields` each, where that manager leaves what the function said;
    a row of which it leaves nothing, such as a cached one, keeps its score.
    """
    said = [getattr(row, "data", row).get("reward_extra_info") or {} for row in told]
    own = [row.get("score", row.get("acc", score)) for row, score in zip(said, scores.tolist(), strict=True)]
    return torch.tensor([float(score) for score in own], dtype=scores.dtype)
