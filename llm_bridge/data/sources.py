"""Where the four public data sets come from, and how each is read: one function per schema."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from cokl.support.errors import InputError
from cokl.support.files import write_atomically

DOWNLOAD_SECONDS = 60.0
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Source:
    """A public repository of data at a pinned revision."""

    repository: str
    revision: str
    host: str = "huggingface.co"

    def file(self, name: str, data_dir: Path | None) -> Path:
        """The local copy DATA_DIR/REPOSITORY/NAME, or without a folder the downloaded file. Raises InputError."""
        if data_dir is not None:
            path = data_dir / self.repository / name
            if not path.is_file():
                raise InputError(
                    f"{path} is missing: copy {name} of {self.repository} (revision {self.revision}) there"
                )
            return path
        try:
            return self._download(name)
        except (OSError, urllib.error.URLError) as error:  # the hub's errors are OSErrors
            reason = " ".join(str(error).split())[:120]
            raise InputError(
                f"cannot download {name} of {self.repository} ({reason}); without internet, copy it to "
                f"DIR/{self.repository}/{name} and give --data-dir DIR"
            ) from error

    def _download(self, name: str) -> Path:
        import huggingface_hub

        if self.host == "huggingface.co":
            return Path(
                huggingface_hub.hf_hub_download(
                    self.repository, name, repo_type="dataset", revision=self.revision, etag_timeout=DOWNLOAD_SECONDS
                )
            )
        path = Path(huggingface_hub.constants.HF_HOME) / "cokl" / self.repository / self.revision / name
        if not path.is_file():
            url = f"https://{self.host}/{self.repository}/{self.revision}/{name}"
            with urllib.request.urlopen(url, timeout=DOWNLOAD_SECONDS) as response:
                content = response.read()
            write_atomically(path, lambda temporary: temporary.write_bytes(content))
        return path


NEMOTRON = Source("nvidia/Nemotron-Math-v2", "ca84fab62560f5bf4407ff15775d2d4ea0bceeed")
MATH500 = Source("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be")
OLYMPIAD = Source("Hothan/OlympiadBench", "91184b52131e7fc9455fef848035173aea8cc01a")
WILDCHAT = Source("princeton-pli/RLMT", "2cde311b9dad4b71a9d49eacf8f921c0026a5a95", "raw.githubusercontent.com")

NEMOTRON_FILES = {
    "low": ("data/low.jsonl",),
    "medium": ("data/medium.jsonl",),
    "high": ("data/high.part_00.jsonl", "data/high.part_01.jsonl", "data/high.part_02.jsonl"),
}
MATH500_FILE = "test.jsonl"
OLYMPIAD_FILE = "OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet"
WILDCHAT_FILES = {split: f"training/ppo_grpo/data/wildchat-if_{split}.parquet" for split in ("train", "val")}


@dataclass(frozen=True)
class Question:
    """A problem with its gold answer, as `rows.math_row` wants them."""

    source_id: str
    problem: str
    answer: str
    multiple: bool = False
    tolerances: tuple[float, ...] = ()


def read_nemotron(paths: Sequence[Path]) -> list[Question]:
    """Problems by uuid. Trajectories of one problem, and problems worded alike under another uuid, count once."""

    def question(row: dict[str, Any]) -> Question:
        return Question(_text(row["uuid"]), _text(row["problem"]), str(row["expected_answer"] or ""))

    by_id: dict[str, Question] = {}
    for path in paths:
        for read in _read_rows(path, _json_lines(path, ("uuid", "problem", "expected_answer")), question):
            if read.answer:
                by_id.setdefault(read.source_id, read)
    by_wording = {question.problem: question for _, question in sorted(by_id.items(), reverse=True)}
    return sorted(by_wording.values(), key=lambda question: question.source_id)


def read_math500(path: Path) -> list[Question]:
    """All problems in their order."""

    def question(row: dict[str, Any]) -> Question:
        return Question(_text(row["unique_id"]), _text(row["problem"]), _text(row["answer"]))

    return list(_read_rows(path, _json_lines(path, ("problem", "answer", "unique_id")), question))


def read_olympiad(path: Path) -> list[Question]:
    """All problems in their order; `error` holds one tolerance or one per answer, or nothing."""
    columns = ("id", "question", "context", "final_answer", "is_multiple_answer", "error")

    def question(row: dict[str, Any]) -> Question:
        return Question(
            str(row["id"]),
            "\n\n".join(text for text in (row["context"], _text(row["question"])) if text),
            ", ".join(row["final_answer"]),
            bool(row["is_multiple_answer"]) or len(row["final_answer"]) > 1,
            tuple(float(text) for text in (row["error"] or "").split(",") if text.strip()),
        )

    return list(_read_rows(path, _parquet_rows(path, columns), question))


def read_wildchat(path: Path) -> list[tuple[str, list[dict[str, str]]]]:
    """Identifiers and conversations, in their order."""

    def conversation(row: dict[str, Any]) -> tuple[str, list[dict[str, str]]]:
        messages = [{name: _text(message[name]) for name in ("role", "content")} for message in row["prompt"]]
        return f"{row['extra_info']['split']}/{row['extra_info']['index']}", messages

    return list(_read_rows(path, _parquet_rows(path, ("prompt", "extra_info")), conversation))


def _read_rows(path: Path, rows: Iterable[dict[str, Any]], read: Callable[[dict[str, Any]], _Read]) -> Iterator[_Read]:
    """What `read` makes of every row. Raises InputError naming the first row that has another schema."""
    for number, row in enumerate(rows, 1):
        try:
            yield read(row)
        except (KeyError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(f"{path}: row {number} is not as expected ({type(error).__name__}: {reason})") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r:.80}")
    return value


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    with (
        path.open("rb") as file,
        tqdm(total=path.stat().st_size, desc=path.name, unit="B", unit_scale=True, mininterval=1.0) as progress,
    ):
        for number, line in enumerate(file, 1):
            progress.update(len(line))
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(f"{path}: line {number} is not JSON; download the file again") from error
            if not isinstance(row, dict):
                raise InputError(f"{path}: line {number}: expected a JSON object, got {line[:80].decode().strip()}")
            _require_columns(path, row, columns)
            yield row


def _parquet_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{path} is not a Parquet file ({' '.join(str(error).split())[:120]})") from error
    _require_columns(path, table.column_names, columns)
    return table.select(list(columns)).to_pylist()


def _require_columns(path: Path, present: Any, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in present]
    if missing:
        raise InputError(f"{path}: columns missing: {', '.join(missing)}; expected {', '.join(columns)}")
