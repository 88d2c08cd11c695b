"""One row format for every set: the columns that VeRL's RLHFDataset and reward workers read.

All files have one schema, so that VeRL can concatenate any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cokl.support.files import write_atomically

MATH_INSTRUCTION = (
    "Solve the following math problem. Please reason step by step, and put your final answer within \\boxed{}."
)
"""Appendix H; the problem follows after an empty line."""

Message = dict[str, str]
_TEXT, _MESSAGES = pa.string(), pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
_EXTRA = {"index": pa.int64(), "source_id": _TEXT, "multiple": pa.bool_(), "tolerances": pa.list_(pa.float64())}
SCHEMA = pa.schema(
    {
        "data_source": _TEXT,
        "prompt": _MESSAGES,
        "ability": _TEXT,
        "reward_model": pa.struct({"style": _TEXT, "ground_truth": _TEXT}),
        "extra_info": pa.struct({**_EXTRA, "conversation": _MESSAGES}),
    }
)


def math_row(
    source: str,
    index: int,
    source_id: str,
    problem: str,
    answer: str,
    multiple: bool = False,
    tolerances: Sequence[float] = (),
) -> dict[str, Any]:
    """A problem under Appendix H's prompt, with the gold answer that the verifier compares with.

    multiple: `answer` lists several values separated by commas, all of which a response must give.
    tolerances: largest absolute differences, one per answer or one for all; none for exact equality.
    """
    prompt = [{"role": "user", "content": f"{MATH_INSTRUCTION}\n\n{problem}"}]
    row = _row(source, index, source_id, "math", prompt, {"style": "rule", "ground_truth": answer})
    row["extra_info"] |= {"multiple": multiple, "tolerances": list(tolerances)}
    return row


def chat_row(source: str, index: int, source_id: str, conversation: list[Message]) -> dict[str, Any]:
    """A conversation as it is (Appendix H). It is in `extra_info` too, since VeRL hands a reward function no prompt."""
    row = _row(source, index, source_id, "chat", conversation, {"style": "model", "ground_truth": ""})
    row["extra_info"]["conversation"] = conversation
    return row


def _row(
    source: str, index: int, source_id: str, ability: str, prompt: list[Message], reward_model: dict[str, str]
) -> dict[str, Any]:
    extra_info = {"index": index, "source_id": source_id, "multiple": False, "tolerances": [], "conversation": []}
    columns = {"data_source": source, "prompt": prompt, "ability": ability}
    return {**columns, "reward_model": reward_model, "extra_info": extra_info}


def write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows atomically, in the order given, with the same bytes for the same rows."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))
