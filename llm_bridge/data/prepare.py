"""From the public data sets, at pinned revisions, to the six files that training and evaluation read.

Assumption beyond the paper: mathematics is drawn from Nemotron-Math-v2's split of low reasoning budget, with one seed.
The others add harder problems; all three are about 200 GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cokl.support.errors import InputError
from cokl.support.files import read_parquet, write_text
from llm_bridge.data import sources
from llm_bridge.data.rows import chat_row, math_row, write_rows

TABLE_E2: dict[str, int] = {
    "math_train": 50_000,
    "math_val": 1_000,
    "math500": 500,
    "olympiad": 674,
    "chat_train": 7_544,
    "chat_val": 250,
}
"""Rows of each set (Table E.2)."""
DRAW_SEED = 0
"""Of the draw of the mathematical training and validation problems."""


def prepare(out: Path, data_dir: Path | None = None, seed: int = 0) -> None:
    """Write OUT/NAME.parquet for each set of TABLE_E2, and at the end OUT/done; where that is, nothing is made.

    data_dir: folder of local copies DIR/REPOSITORY/FILE; without it files are downloaded. seed: changes nothing. Raises
    InputError, before writing, for a missing file, one of another schema, a count other than Table E.2's, or a download
    that fails.
    """
    if (out / "done").exists():
        return
    try:
        sets = _sets(data_dir)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError) as error:  # a column, a type, no JSON, no Parquet
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise InputError(f"a source's file is not as expected ({reason}); is it of the pinned revision?") from error
    for name, rows in sets.items():
        if len(rows) != TABLE_E2[name]:
            raise InputError(
                f"{name}: expected {TABLE_E2[name]} rows (Table E.2), got {len(rows)}; is a file incomplete?"
            )
    for name, rows in sets.items():
        write_rows(rows, out / f"{name}.parquet")
    write_text("done\n", out / "done")


def check_own(folder: Path, names: Sequence[str]) -> None:
    """Raises InputError unless `folder` holds NAME.parquet for every name, with the columns that VeRL reads, and an
    evaluation set's rows have its name as their data source, by which VeRL's log calls it.
    """
    for name in names:
        path = folder / f"{name}.parquet"
        if not path.is_file():
            raise InputError(f"{path} is missing; expected {', '.join(names)}.parquet in {folder}")
        rows = read_parquet(path, ("prompt", "data_source", "reward_model", "extra_info"))
        used = sorted(set(rows["data_source"]))
        if not name.endswith("_train") and used != [name]:
            raise InputError(f"{path}: expected the data source {name!r} in every row, got {', '.join(used)}")


def _sets(data_dir: Path | None) -> dict[str, list[dict[str, Any]]]:
    chat = {
        split: sources.read_wildchat(sources.WILDCHAT.file(name, data_dir))
        for split, name in sources.WILDCHAT_FILES.items()
    }
    olympiad = sources.read_olympiad(sources.OLYMPIAD.file(sources.OLYMPIAD_FILE, data_dir))
    math500 = sources.read_math500(sources.MATH500.file(sources.MATH500_FILE, data_dir))
    pool = sources.read_nemotron(sources.NEMOTRON.file(sources.NEMOTRON_FILE, data_dir))
    order = np.random.default_rng(DRAW_SEED).permutation(len(pool))
    split = TABLE_E2["math_train"], TABLE_E2["math_train"] + TABLE_E2["math_val"]
    return {
        "math_train": _math("math_train", [pool[index] for index in order[: split[0]]]),
        "math_val": _math("math_val", [pool[index] for index in order[split[0] : split[1]]]),
        "math500": _math("math500", math500),
        "olympiad": _math("olympiad", olympiad),
        "chat_train": _chat("chat_train", chat["train"]),
        "chat_val": _chat("chat_val", chat["val"]),
    }


def _math(name: str, questions: list[sources.Question]) -> list[dict[str, Any]]:
    return [math_row(name, index, **vars(question)) for index, question in enumerate(questions)]


def _chat(name: str, conversations: list[tuple[str, list[dict[str, str]]]]) -> list[dict[str, Any]]:
    return [chat_row(name, index, *conversation) for index, conversation in enumerate(conversations)]
