"""Choices that the paper leaves open: each is a dataclass field whose docstring says what was chosen.

`ASSUMPTIONS.md` is made from these fields: `python -m cokl_cli.assumptions > ASSUMPTIONS.md`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import docstring_parser


def assumption(default: Any, effect: str) -> Any:
    """A dataclass field with `default` for something that the paper does not say.

    effect: what changes when the choice changes. The docstring under the field says what is being chosen.
    """
    return dataclasses.field(default=default, metadata={"effect": effect})


def assumptions_of(config_class: type) -> list[dataclasses.Field[Any]]:
    """The fields that a dataclass itself, and no base of it, declares with `assumption`, in order."""
    own = inspect.get_annotations(config_class)
    return [field for field in dataclasses.fields(config_class) if field.name in own and "effect" in field.metadata]


COLUMNS = ("field", "default", "what it decides", "what changes with it")


def choices(config_classes: Iterable[type]) -> list[tuple[str, str, str, str]]:
    """One row per assumption of the classes, with the columns COLUMNS."""
    rows = []
    for config_class in config_classes:
        documented = docstring_parser.parse_from_object(config_class).params
        decided = {parameter.arg_name: " ".join(str(parameter.description).split()) for parameter in documented}
        for field in assumptions_of(config_class):
            name = f"{config_class.__name__}.{field.name}"
            rows.append((name, str(field.default), decided[field.name], field.metadata["effect"]))
    return rows


def stated(modules: Iterable[ModuleType]) -> list[tuple[str, str]]:
    """Every assumption that a module's docstring states, after the module's name."""
    return [
        (module.__name__, " ".join(paragraph.split(":", 1)[1].split()))
        for module in modules
        for paragraph in (module.__doc__ or "").split("\n\n")
        if paragraph.startswith("Assumption beyond the paper:")
    ]


def render(config_classes: Iterable[type], modules: Iterable[ModuleType] = ()) -> str:
    """A Markdown table over all assumptions of `config_classes`, and those that `modules` state in their docstrings."""
    from cokl.support.statistics import plain_markdown_table  # loads pandas, which configurations need not

    rows = [(f"`{name}`", f"`{default}`", *words) for name, default, *words in choices(config_classes)]
    fixed = [f"- `{name}`: {words}" for name, words in stated(modules)]
    parts = [
        "# What the paper leaves open",
        "Each row is a configuration field. Made from the code: `python -m cokl_cli.assumptions > ASSUMPTIONS.md`.",
        plain_markdown_table(COLUMNS, rows),
    ]
    if fixed:
        parts += ["Fixed in the code, not configurable:", "\n".join(fixed)]
    return "\n\n".join(parts) + "\n"
