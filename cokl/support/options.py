"""What the configurations of all stages share: lists on the command line, and checks of types and bounds.

Light: no heavy imports, since the command line loads it for help.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from cokl.support.errors import InputError

_C = TypeVar("_C")


def separated(parse: Callable[[str], Any], metavar: str) -> Any:
    """Command-line syntax of a list: values separated by commas or spaces."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar}[,{metavar}...]",
        instance_from_str=lambda texts: tuple(parse(part) for text in texts for part in text.split(",") if part),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(str(value) for value in values)],
    )


@dataclass(frozen=True)
class Bound:
    """What a value must satisfy beside its type. It stands in the field's annotation: `Annotated[int, at_least(1)]`.

    holds: the check. expected: how the message describes it. each: whether it applies to each element of a tuple.
    """

    holds: Callable[[Any], bool]
    expected: str
    each: bool = False


def at_least(least: int) -> Bound:
    """The bound of a number from `least` on."""
    return Bound(lambda value: value >= least, f"at least {least}")


def at_most(most: int) -> Bound:
    """The bound of a number up to `most`."""
    return Bound(lambda value: value <= most, f"at most {most}")


def above(limit: float, kind: str = "a number") -> Bound:
    """The bound of a number that is greater than `limit`."""
    return Bound(lambda value: value > limit, f"{kind} > {limit:g}")


@dataclass(frozen=True)
class Stored:
    """How a tuple's texts are stored, whichever way they were written: `Annotated[Names, Stored(canonical)]`."""

    under: Callable[[str], str]


SOME = Bound(lambda values: len(values) > 0, "at least one value")
DIFFERENT = Bound(lambda values: len(set(values)) == len(values), "different values")


@dataclass(frozen=True)
class Settings:
    """A configuration: a field's annotation says what it may hold, as a type and as bounds, and how it is stored."""

    def __post_init__(self) -> None:
        """Raises InputError for a value of the wrong type or out of range."""
        own: type = type(self)
        for name, stored in _marks(own, Stored):
            if isinstance(values := getattr(self, name), tuple):
                kept = tuple(stored.under(value) if isinstance(value, str) else value for value in values)
                object.__setattr__(self, name, kept)
        require_types(self, "")

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, nested as the dataclasses are."""
        return dataclasses.asdict(self)


def require_types(config: Any, prefix: str) -> None:
    """Check every field of a dataclass against its annotated type and bounds, and that every float is finite.

    prefix: goes before a field's name in the message. Raises InputError for the first field that fails.
    """
    config_class: type = type(config)
    for name, hint in _hints(config_class).items():
        value = getattr(config, name)
        if not _has_type(value, hint):
            kind = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
            if dataclasses.is_dataclass(hint):
                kind = "settings by name"
            if get_origin(hint) is Literal:
                kind = " or ".join(get_args(hint))
            if get_origin(hint) is tuple:
                members = [getattr(one, "__name__", str(one)) for one in get_args(hint) if one is not ...]
                kind = f"a tuple of {', '.join(members)}"
            remedy = f"; write {tuple(value)!r}" if isinstance(value, list) and get_origin(hint) is tuple else ""
            require(False, f"{prefix}{name}", kind, f"{value!r}{remedy}")
        for number in value if isinstance(value, tuple) else (value,):
            require(not isinstance(number, float) or math.isfinite(number), f"{prefix}{name}", "finite numbers", number)
    for name, bound in _marks(config_class, Bound):
        value = getattr(config, name)
        for number in value if bound.each else (value,):
            got = (",".join(map(str, number)) or "an empty list") if isinstance(number, tuple) else number
            require(bound.holds(number), f"{prefix}{name}", bound.expected, got)


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value is of its annotated type, in a tuple member by member; True is no integer, 1 is a float."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        return any(_has_type(value, alternative) for alternative in arguments)
    if kind is tuple and type(value) is tuple:
        members = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        return len(members) == len(value) and all(map(_has_type, value, members))
    if kind is Literal:
        return type(value) is str and value in arguments
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else kind or hint)


@cache
def _hints(config_class: type) -> dict[str, Any]:
    """Fields with their types, evaluated; once a class, since presets make many configurations of one."""
    hints = get_type_hints(config_class)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


@cache
def _marks(config_class: type, kind: type[_C]) -> tuple[tuple[str, _C], ...]:
    """Fields with what their annotations hold of a kind, as well where a subclass declares one for another default."""
    return tuple(
        (name, mark)
        for owner in reversed(config_class.__mro__)
        for name, hint in inspect.get_annotations(owner, eval_str=True).items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, kind)
    )


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
