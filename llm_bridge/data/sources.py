"""Where the four public data sets come from, and how each is read: one function per schema."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tqdm import tqdm

from cokl.support.errors import InputError
from cokl.support.files import write_atomically

DOWNLOAD_SECONDS = 60.0


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
        from huggingface_hub import constants, hf_hub_download

        if self.host == "huggingface.co":
            return Path(
                hf_hub_download(
                    self.repository, name, repo_type="dataset", revision=self.revision, etag_timeout=DOWNLOAD_SECONDS
                )
            )
        path = Path(constants.HF_HOME) / "cokl" / self.repository / self.revision / name
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

NEMOTRON_FILE = "data/low.jsonl"
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


def read_nemotron(path: Path) -> list[Question]:
    """Problems by uuid. Trajectories of one problem, and problems worded alike under another uuid, count once."""
    by_id: dict[str, Question] = {}
    for row in _json_lines(path):
        if answer := str(row["expected_answer"] or ""):
            by_id.setdefault(row["uuid"], Question(row["uuid"], row["problem"], answer))
    by_wording = {question.problem: question for _, question in sorted(by_id.items(), reverse=True)}
    return sorted(by_wording.values(), key=lambda question: question.source_id)


def read_math500(path: Path) -> list[Question]:
    """All problems in their order."""
    return [Question(row["unique_id"], row["problem"], row["answer"]) for row in _json_lines(path)]


def read_olympiad(path: Path) -> list[Question]:
    """All problems in their order; `error` holds one tolerance or one per answer, or nothing."""
    return [
        Question(
            str(row["id"]),
            "\n\n".join(text for text in (row["context"], row["question"]) if text),
            ", ".join(row["final_answer"]),
            bool(row["is_multiple_answer"]) or len(row["final_answer"]) > 1,
            tuple(float(text) for text in (row["error"] or "").split(",") if text.strip()),
        )
        for row in pq.read_table(path).to_pylist()
    ]


def read_wildchat(path: Path) -> list[tuple[str, list[dict[str, str]]]]:
    """Identifiers and conversations, in their order."""
    return [
        (
            f"{row['extra_info']['split']}/{row['extra_info']['index']}",
            [{"role": message["role"], "content": message["content"]} for message in row["prompt"]],
        )
        for row in pq.read_table(path, columns=["prompt", "extra_info"]).to_pylist()
    ]


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    size = path.stat().st_size
    with path.open("rb") as file, tqdm(total=size, desc=path.name, unit="B", unit_scale=True) as progress:
        for line in file:
            progress.update(len(line))
            yield json.loads(line)
