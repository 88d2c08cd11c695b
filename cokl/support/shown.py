"""How an object that holds tensors is printed: by their types and shapes, in one line."""

from __future__ import annotations

import dataclasses
from typing import Any

LONGEST = 60
"""Characters of a value's own repr."""


def shapes(holder: Any) -> str:
    """The `__repr__` of a dataclass: "Policy(logits=float32(4, 8), ...)", without the fields that are None."""
    return _line(holder, [field.name for field in dataclasses.fields(holder)])


def _line(holder: Any, names: list[str]) -> str:
    fields = [f"{name}={_shown(value)}" for name in names if (value := getattr(holder, name)) is not None]
    return f"{type(holder).__name__}({', '.join(fields)})"


def _shown(value: Any) -> str:
    if hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"
    if hasattr(value, "_fields"):
        return _line(value, value._fields)
    if isinstance(value, list | tuple) and value:
        return f"{len(value)} x {_shown(value[0]) if hasattr(value[0], 'dtype') else type(value[0]).__name__}"
    if dataclasses.is_dataclass(value):
        return repr(value)
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
