"""Rollouts that VeRL or TRL has logged, as rows of `llm_bridge.buffer.rows`: kept whole, or refused at their line.

VeRL's `trainer.rollout_data_dir` holds JSON lines with input, output, gts and rewards; TRL's `completions_*.parquet`
rows with prompt, completion and rewards. Both are text. So a response is taken as complete and gets the end token, and
what text does not tell is refused: several turns, reasoning apart from the answer, tool calls, images.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cokl.support.errors import InputError
from cokl.support.options import require
from llm_bridge.buffer.bring_buffer import chat_text, tokenizer_of
from llm_bridge.buffer.groups import model_folder
from llm_bridge.buffer.rows import SCHEMA, check_rows, read_table

LOGGED = (("input", "output"), ("prompt", "completion"))
"""What VeRL and TRL call a rollout's prompt and its response."""
MEDIA = ("image", "images", "video", "videos", "audio", "audios")
BY_HAND = "which text does not tell; docs/how-to/responses.md says how to write such rows"


def rows_of(
    rollouts: Sequence[Path], prompts: Path, reference: str, reward: str, thinking: bool = True
) -> tuple[pa.Table, list[int]]:
    """What `llm_bridge.buffer.bring_buffer` takes, in the order of `prompts`, and the steps that the rollouts are of.

    rollouts: files of either kind. prompts: a file that VeRL trains on, with every prompt of theirs. reference: folder
    or hub's name of the model that answered. reward: the field that the verdicts are about. thinking: given to the chat
    template, by which prompts are recognised. Raises InputError, with file and line, for what would not be kept.
    """
    different = len({file.resolve() for file in rollouts})
    require(0 < different == len(rollouts), "rollouts", "one file or more, each once", ", ".join(map(str, rollouts)))
    tokenizer = tokenizer_of(model_folder(reference))
    end = tokenizer.eos_token_id
    require(end is not None, f"the tokenizer of {reference}", "an end token", "none")
    asked = Asked(prompts, tokenizer, thinking)
    rows: list[tuple[int, dict[str, Any]]] = []
    steps: set[int] = set()
    for where, record in (found for file in rollouts for found in _records(file)):
        asks, answers = next((pair for pair in LOGGED if record.keys() >= set(pair)), ("", ""))
        if not asks or reward not in record:
            lacks = repr(reward) if asks else "input and output (VeRL) or prompt and completion (TRL)"
            raise InputError(f"{where} lacks {lacks}; it has {', '.join(map(str, record))[:200] or 'nothing'}")
        _require_no_media(record, where)
        number = asked.number(record[asks], record.get("gts"), where)
        text = _answer(record[answers], f"{where}, {answers}")
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += [end] * (ids[-1:] != [end])
        inside = not {end, tokenizer.pad_token_id}.isdisjoint(ids[:-1])
        require(not inside, f"{where}, {answers}", "no end token or padding inside a response", _shown(text))
        given = {"response_ids": ids, "reward": _number(record[reward], f"{where}, {reward}")}
        rows.append((number, asked.rows[number] | given))
        if isinstance(record.get("step"), int):
            steps.add(record["step"])
    rows.sort(key=lambda row: row[0])
    schema = pa.schema([field for field in SCHEMA if field.name in rows[0][1]])
    table = pa.Table.from_pylist([row for _, row in rows], schema)
    check_rows(table, "the rollouts")
    return table, sorted(steps)


class Asked:
    """The prompts of a training file, and which of them a rollout answers.

    rows: for each, its columns of SCHEMA that are its prompt's. Raises InputError for a row that they do not hold.
    """

    def __init__(self, path: Path, tokenizer: Any, thinking: bool):
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._found: dict[str, list[int]] = {}
        for number, (where, row) in enumerate(_records(path)):
            for name in ("prompt", "data_source", "reward_model"):
                require(name in row, where, f"VeRL's columns, {name!r} among them", ", ".join(map(str, row)) or "none")
            _require_no_media(row, where)
            messages = _messages(row["prompt"], f"{where}, prompt")
            text = chat_text(tokenizer, messages, thinking, f"{where}, prompt")
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            for name in {json.dumps(messages), text, tokenizer.decode(ids, skip_special_tokens=True)}:
                self._found.setdefault(name, []).append(number)
            self.rows.append({"prompt": messages, **_told(row, where)})

    def number(self, prompt: Any, truth: Any, where: str) -> int:
        """The row that a rollout answers. prompt: text or messages. truth: as VeRL logs it, None where it does not.

        Raises InputError for no such row, and for several that differ in more than the truth tells apart.
        """
        name = prompt if isinstance(prompt, str) else json.dumps(_messages(prompt, f"{where}, prompt"))
        numbers = self._found.get(name, [])
        if not numbers:
            expected = f"a prompt of {self.path} by the model's chat template"
            raise InputError(f"{where}: expected {expected}, got {_shown(prompt)}")
        if truth is not None:
            truths = {number: self._truth(number) for number in numbers}
            numbers = [number for number in numbers if truths[number] == truth]
            known = " or ".join(dict.fromkeys(map(_shown, truths.values())))
            require(bool(numbers), f"{where}, gts", f"the truth that {self.path} has, {known}", _shown(truth))
        first, *others = (self.rows[number] for number in numbers)
        if differing := [name for name in first if any(other[name] != first[name] for other in others)]:
            several = f"rows {', '.join(map(str, numbers[:5]))} of {self.path} have its prompt"
            raise InputError(f"{where}: {several} and different {differing[0]}; keep the one that was asked")
        return numbers[0]

    def _truth(self, number: int) -> Any:
        row = self.rows[number]
        return json.loads(row["ground_truth"]) if row["ground_truth_is_json"] else row["ground_truth"]


def _told(row: dict[str, Any], where: str) -> dict[str, Any]:
    """What a reward function is told of a prompt, as SCHEMA has it. Raises InputError for what it cannot hold."""
    model, source, extra = row["reward_model"], row["data_source"], row.get("extra_info")
    truth = model.get("ground_truth") if isinstance(model, dict) else None
    extra = {} if extra is None else extra
    require(truth is not None, f"{where}, reward_model", "a ground_truth", _shown(model))
    require(isinstance(source, str), f"{where}, data_source", "text", _shown(source))
    require(isinstance(extra, dict), f"{where}, extra_info", "values by name", _shown(extra))
    try:
        told = {"ground_truth": truth if isinstance(truth, str) else json.dumps(truth, allow_nan=False)}
        told["extra_info"] = json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: expected a truth and extra_info of JSON's values ({error})") from error
    return {"data_source": source, "ground_truth_is_json": not isinstance(truth, str), **told}


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where a record stands, and the record. Raises InputError for a file of another kind, and one without records."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if content.startswith(b"PAR1"):
        found = ((f"{path}, row {row}", record) for row, record in enumerate(read_table(path).to_pylist()))
    else:
        lines = enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1)
        found = ((at := f"{path}, line {line}", _parsed(text, at)) for line, text in lines if text.strip())
    first = next(found, None)
    if first is None:
        raise InputError(f"{path}: expected at least one row, got none")
    yield first
    yield from found


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    """A JSON object. Raises InputError for a line that holds none, or not the whole of one."""
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: expected Parquet, or JSON lines in UTF-8 ({error.reason})") from error
    except json.JSONDecodeError as error:
        said = f"{error.msg}, column {error.colno}"
        raise InputError(f"{where}: expected a whole JSON object on each line ({said})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: expected a JSON object on each line ({error})") from error
    require(isinstance(record, dict), where, "a JSON object on each line", _shown(record))
    return dict(record)


def _messages(value: Any, where: str) -> list[dict[str, str]]:
    """Messages of role and content. Raises InputError for what else they have, unless it is empty."""
    require(isinstance(value, list) and bool(value), where, "messages of role and content", _shown(value))
    for message in value:
        require(isinstance(message, dict), where, "messages of role and content", _shown(message))
        more = [name for name in message if name not in ("role", "content") and message[name] not in (None, "", [], {})]
        require(not more, where, "role and content alone", f"{', '.join(more)}, {BY_HAND}")
        of_text = all(isinstance(message.get(name), str) for name in ("role", "content"))
        require(of_text, where, "a role and a content of text", f"{_shown(message)}, {BY_HAND}")
        _require_unicode(message["content"], where)
    return [{"role": message["role"], "content": message["content"]} for message in value]


def _answer(value: Any, where: str) -> str:
    """The text of a response. Raises InputError for several turns, and for what is no text."""
    if isinstance(value, str):
        _require_unicode(value, where)
        return value
    messages = _messages(value, where)
    roles = [message["role"] for message in messages]
    require(roles == ["assistant"], where, "one message of the assistant", f"{', '.join(roles)}, {BY_HAND}")
    return messages[0]["content"]


def _require_unicode(text: str, where: str) -> None:
    """Raises InputError for half of a character, as JSON can have it."""
    whole = not any("\ud800" <= character <= "\udfff" for character in text)
    require(whole, where, "whole characters of Unicode", _shown(text))


def _number(value: Any, where: str) -> float:
    """A finite number. Raises InputError for another value."""
    finite = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    require(finite, where, "a finite number", _shown(value))
    return float(value)


def _require_no_media(record: dict[str, Any], where: str) -> None:
    """Raises InputError for images and other media beside the text."""
    media = [name for name in MEDIA if record.get(name)]
    require(not media, where, "text alone", f"{', '.join(media)}, which a buffer does not hold")


def _shown(value: Any) -> str:
    return repr(value)[:80]
