"""What the configurations of all stages share: lists on the command line, and fields held to their types.

Light: no heavy imports, since the command line loads it for help.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typeguard
import tyro

from cokl.support.errors import InputError

_C = TypeVar("_C")


def separated(parse: type, metavar: str) -> Any:
    """Command-line syntax of a list: values separated by commas or spaces."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar}[,{metavar}...]",
        instance_from_str=lambda texts: tuple(parse(part) for text in texts for part in text.split(",") if part),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(str(value) for value in values)],
    )


def require_types(config: Any, prefix: str) -> None:
    """Hold every field of a dataclass to its annotation, and every float to be finite.

    prefix: goes before a field's name in the message. Raises InputError for the first that is not.
    """
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name)
        try:
            typeguard.check_type(value, hint, collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS)
        except typeguard.TypeCheckError:
            kind = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
            require(False, f"{prefix}{name}", kind, repr(value))
        for number in value if isinstance(value, tuple) else (value,):
            require(not isinstance(number, float) or math.isfinite(number), f"{prefix}{name}", "finite numbers", number)


def from_json(config_class: type[_C], values: dict[str, Any]) -> _C:
    """The dataclass that `dataclasses.asdict` and JSON made `values` of, nested ones too; other keys are left out.

    Raises InputError for a value that the class does not take.
    """
    hints = get_type_hints(config_class)
    fields = {}
    for name in (field.name for field in dataclasses.fields(config_class) if field.name in values):  # type: ignore[arg-type]
        value, hint = values[name], hints[name]
        nested = dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict)
        fields[name] = from_json(hint, value) if nested else tuple(value) if isinstance(value, list) else value
    return config_class(**fields)


def require(holds: bool, name: str, expected: str, got: Any) -> None:
    """Raises InputError, which says what was expected of the option `name` and what it got, unless it holds."""
    if not holds:
        raise InputError(f"{name}: expected {expected}, got {got}")


Names = Annotated[tuple[str, ...], separated(str, "NAME")]
Coefficients = Annotated[tuple[float, ...], separated(float, "BETA")]
Integers = Annotated[tuple[int, ...], separated(int, "N")]
