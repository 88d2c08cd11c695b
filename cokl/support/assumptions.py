"""Choices that the paper leaves open: each is a dataclass field whose docstring says what was chosen.

`python docs/make_tables.py` lists them in ASSUMPTIONS.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def assumption(default: Any, effect: str) -> Any:
    """A dataclass field with `default` for something that the paper does not say.

    effect: what changes when the choice changes. The docstring under the field says what is being chosen.
    """
    return dataclasses.field(default=default, metadata={"effect": effect})
