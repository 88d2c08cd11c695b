"""Fields held to their types, lists on the command line, and configurations that come back from JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import pytest
import tyro

from cokl.support.errors import InputError
from cokl.support.options import (
    Bound,
    Coefficients,
    Integers,
    Names,
    above,
    at_least,
    at_most,
    from_json,
    require_types,
)


@dataclass(frozen=True)
class Inner:
    """What lies inside."""

    rate: float = 0.5
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Outer:
    """A configuration."""

    names: Names = ("a", "b")
    """Names."""
    betas: Coefficients = (0.1, 1.0)
    """Coefficients."""
    steps: Integers = (1, 2)
    """Steps."""
    mode: Literal["exact", "sampled"] = "exact"
    """A mode."""
    count: int = 3
    """A count."""
    scale: float = 1.0
    """A scale."""
    inner: Inner = Inner()
    """Inner."""


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--names x,y z", "names", ("x", "y", "z")),
        ("--names x,,y,", "names", ("x", "y")),
        ("--betas 1e-3,2 3", "betas", (0.001, 2.0, 3.0)),
        ("--steps 4,8", "steps", (4, 8)),
        ("--steps", "steps", ()),
    ],
)
def test_lists_are_separated_by_commas_or_spaces(arguments, field, value):
    assert getattr(tyro.cli(Outer, args=arguments.split()), field) == value


def test_what_has_its_types_passes():
    require_types(Outer(), "outer.")
    require_types(Outer(betas=(), scale=-1e308), "outer.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": "three"}, "lab.count: expected int, got 'three'"),
        ({"count": 1.5}, "lab.count: expected int, got 1.5"),
        ({"scale": None}, "lab.scale: expected float, got None"),
        ({"betas": (0.1, "b")}, "lab.betas: expected a tuple of float, got (0.1, 'b')"),
        ({"names": ["a"]}, "lab.names: expected a tuple of str, got ['a']; write ('a',)"),
        ({"scale": [0.1]}, "lab.scale: expected float, got [0.1]"),
        ({"mode": "fast"}, "lab.mode: expected exact or sampled, got 'fast'"),
        ({"inner": 1}, "lab.inner: expected settings by name, got 1"),
        ({"scale": float("nan")}, "lab.scale: expected finite numbers, got nan"),
        ({"betas": (0.1, float("-inf"))}, "lab.betas: expected finite numbers, got -inf"),
    ],
)
def test_a_field_of_another_type_is_named(changes, message):
    with pytest.raises(InputError) as refused:
        require_types(Outer(**changes), "lab.")
    assert str(refused.value) == message


@dataclass(frozen=True)
class Bounded:
    """Fields with bounds."""

    count: Annotated[int, at_least(1), at_most(9)] = 3
    rate: Annotated[float, above(0, "a finite number")] = 0.5
    sizes: Annotated[Integers, Bound(lambda size: size % 2 == 0, "even numbers", each=True)] = (2, 4)


@dataclass(frozen=True)
class OtherDefault(Bounded):
    """Declares a field again, without its bound."""

    count: int = 5


@pytest.mark.parametrize("config_class", [Bounded, OtherDefault])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "lab.count: expected at least 1, got 0"),
        ({"count": 10}, "lab.count: expected at most 9, got 10"),
        ({"rate": 0.0}, "lab.rate: expected a finite number > 0, got 0.0"),
        ({"sizes": (2, 3, 5)}, "lab.sizes: expected even numbers, got 3"),
        ({"count": "0"}, "lab.count: expected int, got '0'"),
    ],
)
def test_a_field_out_of_bounds_is_named_in_subclasses_too(config_class, changes, message):
    require_types(config_class(count=1, sizes=()), "lab.")
    require_types(config_class(count=9), "lab.")
    with pytest.raises(InputError) as refused:
        require_types(config_class(**changes), "lab.")
    assert str(refused.value) == message


def test_a_configuration_comes_back_from_its_json():
    config = Outer(names=("x",), betas=(0.25,), inner=Inner(rate=2.0, sizes=()))
    values = json.loads(json.dumps(asdict(config)))
    assert from_json(Outer, values) == config
    assert from_json(Outer, {**values, "format": 1, "code": {}}) == config
    assert from_json(Outer, {"count": 5}) == Outer(count=5)
    assert from_json(Outer, {"inner": Inner(rate=3.0)}) == Outer(inner=Inner(rate=3.0))
    assert from_json(Outer, {"inner": {"rate": 3.0, "unknown": 1}}) == Outer(inner=Inner(rate=3.0))


def test_a_field_that_is_a_dictionary_stays_one():
    @dataclass(frozen=True)
    class Config:
        options: dict[str, float]

    assert from_json(Config, {"options": {"a": 1.0}}) == Config({"a": 1.0})
