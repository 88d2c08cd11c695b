"""The reference-correct buffer (E.3): math prompts with G_ref cached, verified responses of the reference model each.

Stored as Parquet of one schema (`llm_bridge.buffer.rows`). A buffer belongs to the model that sampled it: it carries
that model's fingerprint, and loading it for another model is refused.

Assumption beyond the paper: minibatches are drawn without replacement, in a new seeded order each time all prompts have
been drawn; all methods share the order.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cokl.support.errors import InputError
from cokl.support.extras import not_installed
from cokl.support.files import read_json, write_atomically, write_text
from cokl.support.shown import shapes
from llm_bridge.buffer.rows import OF_PROMPT, SCHEMA, check_rows, read_rows

FINGERPRINTED = ("model*.safetensors", "tokenizer.json", "vocab.json", "merges.txt")
"""The files of a Hugging Face model folder that identify a model: weights and tokenizer."""
DOWNLOADED = [*FINGERPRINTED, "*.json", "*.jinja", "tokenizer.model"]
"""The files of a model on the hub that are needed."""


@dataclass(frozen=True, eq=False)
class CachedGroup:
    """A prompt and the reference model's G_ref responses to it.

    Attributes:
        prompt: the messages, as VeRL's `prompt` column has them.
        data_source: what the verifier was given, with `ground_truth`.
        ground_truth: the gold answer, any JSON value.
        prompt_ids: (P,) token ids after the chat template.
        response_ids: G_ref arrays (T,) of token ids, the end token included.
        rewards: (G_ref,) verdicts, 0 or 1.
        extra_info: what else the reward function is told of the prompt.
        masks: G_ref arrays (T,), 1 on the tokens that the policy wrote, 0 on a tool's; if not given, it wrote all.
    """

    prompt: list[dict[str, str]]
    data_source: str
    ground_truth: Any
    prompt_ids: np.ndarray
    response_ids: list[np.ndarray]
    rewards: np.ndarray
    extra_info: dict[str, Any] = field(default_factory=dict)
    masks: list[np.ndarray] = field(default_factory=list)

    __repr__ = shapes

    def __post_init__(self) -> None:
        if not self.masks:
            object.__setattr__(self, "masks", [np.ones(len(ids), dtype=np.int64) for ids in self.response_ids])

    @property
    def key(self) -> str:
        """What a training set's row has to have in common with the prompt to be the same; see `prompt_key`."""
        return prompt_key(self.prompt, self.ground_truth)

    def drawn(self, count: int, seed: Sequence[int], correct_first: bool) -> CachedGroup:
        """Some of the responses, drawn without replacement; the same seed draws the same.

        Args:
            count: how many, at most G_ref.
            seed: of the draw, integers >= 0.
            correct_first: whether correct responses come before all others, for a method to which these are nothing.

        Returns:
            The group with `count` responses, in the order in which they are stored.

        Examples:
            >>> ids = [np.array([token]) for token in (4, 5, 6)]
            >>> group = CachedGroup([], "", "", np.array([1]), ids, np.array([0, 1, 0]))
            >>> group.drawn(1, seed=[0], correct_first=True).response_ids
            [array([5])]
        """
        order = np.random.default_rng(seed).permutation(len(self.rewards))
        if correct_first:
            order = order[np.argsort(-self.rewards[order], kind="stable")]
        kept = sorted(order[:count].tolist())
        return replace(
            self,
            response_ids=[self.response_ids[place] for place in kept],
            masks=[self.masks[place] for place in kept],
            rewards=self.rewards[kept],
        )


@dataclass(frozen=True, eq=False)
class Buffer:
    """The cached groups of one model, all of the same number of responses (E.3).

    Attributes:
        groups: at least one.
        fingerprint: of the model that sampled the responses.
        temperature: at which the responses were sampled.

    Raises:
        InputError: groups that no method could use.
    """

    groups: tuple[CachedGroup, ...]
    fingerprint: str
    temperature: float = 1.0

    __repr__ = shapes

    def __post_init__(self) -> None:
        if not self.groups:
            raise InputError("the buffer is empty: expected at least one prompt; build it with more prompts")
        for index, group in enumerate(self.groups):
            sizes = {len(group.response_ids), len(group.masks), len(group.rewards)}
            if sizes != {self.group_size}:
                raise InputError(
                    f"the buffer's prompt {index}: expected {self.group_size} responses, as for the first prompt, with "
                    f"rewards, got {', '.join(map(str, sorted(sizes)))}"
                )
            if not np.isin(group.rewards, (0, 1)).all():
                raise InputError(f"the buffer's prompt {index}: expected rewards 0 or 1, the verifier's verdicts")
            texts = [message for message in group.prompt if set(map(type, message.values())) == {str}]
            if any(set(message) != {"role", "content"} for message in texts) or len(texts) < len(group.prompt):
                raise InputError(f"the buffer's prompt {index}: expected messages of role and content, both text")
        check_rows(self.table(), "the buffer")

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def group_size(self) -> int:
        """G_ref, responses per prompt."""
        return len(self.groups[0].response_ids)

    def filtered(self) -> Buffer:
        """Without the prompts that have no correct response (E.3).

        Returns:
            The other prompts, in their order.

        Raises:
            InputError: no prompt is left.
        """
        kept = tuple(group for group in self.groups if group.rewards.any())
        if not kept:
            raise InputError(
                "the buffer holds no correct response: a method that regularizes correct responses needs a model that "
                "solves some prompts; train the math stage for longer or take easier prompts"
            )
        return replace(self, groups=kept)

    def missed(self, streams: Collection[str], length: int, temperature: float) -> Iterator[tuple[str, str, str]]:
        """What fresh responses lack that are to be weighed beside these, or against their verdicts.

        Fresh responses that are cut off shorter than correct cached ones would all count as wrong. Cached responses of
        another temperature are of another policy than the fresh ones'.

        Args:
            streams: which the method weights.
            length: the most tokens of a fresh response.
            temperature: of the fresh responses.

        Returns:
            "length" or "temperature", what is expected of it in words, and the value that mends it.
        """
        sizes = [len(ids) for group in self.groups for ids in itertools.compress(group.response_ids, group.rewards)]
        if "rollout" in streams and length < max(sizes, default=0):
            why = "tokens of the longest correct cached response: fresh ones that are cut off count as wrong"
            yield "length", f"at least {max(sizes)}, {why}", str(max(sizes))
        if len(streams) == 2 and not math.isclose(self.temperature, temperature):
            value = f"{self.temperature:g}"
            yield "temperature", f"{value}, at which the buffer's responses were sampled", value

    def table(self) -> pa.Table:
        """Its rows, of `llm_bridge.buffer.rows.SCHEMA`."""
        rows = [
            {
                "prompt": group.prompt,
                "data_source": group.data_source,
                "ground_truth": truth if isinstance(truth := group.ground_truth, str) else json.dumps(truth),
                "ground_truth_is_json": not isinstance(truth, str),
                "extra_info": json.dumps(group.extra_info),
                "prompt_ids": group.prompt_ids,
                "response_ids": response_ids,
                "response_mask": mask.astype(bool),
                "reward": float(reward),
            }
            for group in self.groups
            for response_ids, mask, reward in zip(group.response_ids, group.masks, group.rewards, strict=True)
        ]
        return pa.Table.from_pylist(rows, SCHEMA)

    def save(self, path: Path) -> None:
        """Write it whole or not at all. Raises InputError if the folder cannot be written."""
        of_model = {"model": self.fingerprint, "temperature": repr(float(self.temperature))}
        table = self.table().replace_schema_metadata(of_model)
        write_atomically(path, lambda temporary: pq.write_table(table, temporary, write_page_checksum=True))

    @classmethod
    def load(cls, path: Path, fingerprint: str) -> Buffer:
        """The buffer at `path`, for the model of this fingerprint.

        Args:
            path: a Parquet file that `save` has written.
            fingerprint: of the model in training, as `model_fingerprint` gives it.

        Returns:
            The buffer.

        Raises:
            InputError: there is none, its rows are refused, or it belongs to another model.
        """
        if path.is_dir():
            raise InputError(f"{path}: expected a buffer's file, such as {path / 'buffer.parquet'}, got a folder")
        if not path.is_file():
            raise InputError(f"no buffer at {path}; build it first (step 2 of docs/how-to/verl.md or trl.md)")
        table = read_rows(path, SCHEMA.names)
        of_model = table.schema.metadata or {}
        model, temperature = of_model.get(b"model", b"").decode(), of_model.get(b"temperature", b"1").decode()
        if model != fingerprint:
            raise InputError(
                f"the buffer {path} was sampled from another model ({model[:12] or 'not named'}) than the one in "
                f"training ({fingerprint[:12]}); build it from this model (step 2 of docs/how-to/verl.md or trl.md)"
            )
        return cls(groups_of(table, path), fingerprint, float(temperature))


def groups_of(table: pa.Table, path: Path) -> tuple[CachedGroup, ...]:
    """The groups of rows that `read_rows` has read.

    Args:
        table: rows, of which those of a prompt follow each other.
        path: of their file, for the message.

    Returns:
        A group for each prompt, in order. Where the table lacks a column, masks are 1, rewards 0 and everything else
        is empty.

    Raises:
        InputError: rows of one prompt that are apart, or differ in another column of the prompt.

    Example:
        >>> row = {"prompt": [{"role": "user", "content": "2 + 2?"}], "data_source": "sums", "ground_truth": "4"}
        >>> rows = [{**row, "response_ids": [4], "reward": 1.0}, {**row, "response_ids": [5, 6], "reward": 0.0}]
        >>> group = next(iter(groups_of(pa.Table.from_pylist(rows), Path("rows"))))
        >>> group.rewards.tolist()
        [1.0, 0.0]
    """
    prompts = table.select([name for name in OF_PROMPT if name in table.column_names]).to_pylist()
    lists = {
        name: [row.values.to_numpy(zero_copy_only=False) for row in table[name]]
        for name in ("response_ids", "response_mask")
        if name in table.column_names
    }
    ids = lists["response_ids"]
    masks = [mask.astype(np.int64) for mask in lists.get("response_mask", ())]
    rewards = table["reward"].to_numpy() if "reward" in table.column_names else np.zeros(len(table))
    groups: dict[str, CachedGroup] = {}
    for row, members in groupby(range(len(table)), key=prompts.__getitem__):
        first, *others = members
        rows, truth = slice(first, first + 1 + len(others)), row["ground_truth"]
        group = CachedGroup(
            prompt=row["prompt"],
            data_source=row["data_source"],
            ground_truth=json.loads(truth) if row.get("ground_truth_is_json") else truth,
            prompt_ids=np.array(row.get("prompt_ids", ()), dtype=np.int64),
            response_ids=ids[rows],
            rewards=rewards[rows],
            extra_info=json.loads(row.get("extra_info", "{}")),
            masks=masks[rows],
        )
        if group.key in groups:
            expected = f"rows of a prompt that follow each other and have the same {', '.join(list(row)[1:])}"
            raise InputError(f"{path}, column 'prompt', row {first}: expected {expected}, got a prompt of before")
        groups[group.key] = group
    return tuple(groups.values())


def prompt_key(messages: Iterable[Mapping[str, Any]], ground_truth: Any) -> str:
    """What names a prompt wherever it is stored: its messages, and the answer that verdicts are about.

    Args:
        messages: of the prompt, in order; a field that is None is no field.
        ground_truth: the gold answer.

    Returns:
        Hex SHA-256, the same in every process and for every order of a message's fields.

    Examples:
        >>> question = [{"role": "user", "content": "1 + 1?"}]
        >>> prompt_key(question, "2") == prompt_key(question, 2), prompt_key(question, "2") == prompt_key(question, "3")
        (True, False)
    """
    content = [{name: part for name, part in plain(message).items() if part is not None} for message in messages]
    answer = plain(ground_truth)
    answer = json.dumps(answer, sort_keys=True) if isinstance(answer, dict | list) else str(answer)
    return hashlib.sha256(json.dumps([content, answer], sort_keys=True).encode()).hexdigest()


def plain(value: Any) -> Any:
    """What a row of a data set holds, as JSON values, which numpy's arrays and numbers are not.

    Args:
        value: what a row of a data set holds.

    Returns:
        The same in Python's lists and numbers.

    Examples:
        >>> plain({"numbers": np.arange(2)})
        {'numbers': [0, 1]}
    """
    return json.loads(json.dumps(value, default=lambda array: array.tolist()))


class DrawOrder:
    """Which prompts come next: a new seeded permutation each time all have been drawn.

    Args:
        size: prompts in the buffer.
        seed: of the permutations, >= 0.
        position: prompts drawn so far; it is all the state there is, so that a run resumes from its checkpoint.
        content: what tells the run from one with another buffer of that size, such as a digest of its file.

    Examples:
        >>> order = DrawOrder(size=3, seed=0)
        >>> order.draw(2), order.draw(2)
        ([2, 0], [1, 2])
    """

    FILE = "buffer_position.json"
    """In a checkpoint's folder."""

    def __init__(self, size: int, seed: int, position: int = 0, content: str = "") -> None:
        self.size = size
        self.seed = seed
        self.position = position
        self.content = content

    def draw(self, count: int) -> list[int]:
        """The next prompts, from the next permutation where this one ends.

        Args:
            count: how many.

        Returns:
            Their indices, 0 to size - 1.
        """
        positions = range(self.position, self.position + count)
        self.position += count
        orders = {epoch: self._order(epoch) for epoch in {position // self.size for position in positions}}
        return [int(orders[position // self.size][position % self.size]) for position in positions]

    def save(self, folder: Path) -> None:
        """Write the position into a checkpoint's folder."""
        write_text(json.dumps(vars(self)), folder / self.FILE)

    def resume(self, folder: Path) -> None:
        """Resume from a checkpoint folder's position. Raises InputError if it holds none, or another buffer's."""
        path = folder / self.FILE
        if not path.is_file():
            raise InputError(
                f"{folder} holds no {self.FILE}: it is not a checkpoint of a regularized run; start a new run in a "
                "folder of its own"
            )
        state = read_json(path, dict)
        position = state.pop("position", None)
        expected = {"size": self.size, "seed": self.seed, "content": self.content}
        if state != expected or not isinstance(position, int):
            raise InputError(f"{path} belongs to another buffer, method or seed; start a new run")
        self.position = position

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, epoch]).permutation(self.size)


def model_fingerprint(model: str | Path) -> str:
    """Hex SHA-256 of a model's weights and tokenizer.

    Args:
        model: a Hugging Face model folder, or a model's name on the hub.

    Returns:
        64 digits.

    Raises:
        InputError: no weights in safetensors, or a name that the hub does not give.
    """
    folder = model_folder(model)
    files = sorted({path for pattern in FINGERPRINTED for path in folder.glob(pattern)})
    if not any(path.suffix == ".safetensors" for path in files):
        raise InputError(f"no weights (model*.safetensors) in {folder}; expected a Hugging Face model folder")
    return _digest(files)


def model_folder(model: str | Path, revision: str = "") -> Path:
    """The folder of a model, whose files are fetched from the hub unless they are here.

    Args:
        model: a folder, or a name on the hub.
        revision: a commit of the hub's repository; its newest if empty.

    Returns:
        The folder.

    Raises:
        InputError: it is neither a folder nor on the hub.
    """
    folder = Path(model).expanduser()
    if folder.exists() or Path(model).is_absolute():
        return folder
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(str(model), revision=revision or None, allow_patterns=DOWNLOADED))
    except ImportError as error:
        raise InputError(not_installed("huggingface_hub")) from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{model}: expected a model folder or a model on the hub ({reason})") from error


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        found = path.stat()
        state = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        digest.update(f"{path.name} {_content(path.resolve(), state)}\n".encode())
    return digest.hexdigest()


@functools.cache
def _content(path: Path, state: tuple[int, ...]) -> str:
    """Hex SHA-256 of a file, of gigabytes: read again only where `state`, its inode, size and times, is new."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
