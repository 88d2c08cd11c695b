"""All regularizers, one file each. A new file in this package registers itself and appears everywhere.

Assumption beyond the paper: expectations are in nats, and a context's value is not normalised by anything.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from importlib.metadata import entry_points

from cokl.names import CALLED, canonical, listed
from cokl.regularizers.base import Regularizer
from cokl.support.errors import InputError, did_you_mean

_registry: dict[str, Regularizer] = {}
_STREAMS = ((), ("reference",), ("rollout",), ("reference", "rollout"))


def register(regularizer_class: type[Regularizer]) -> type[Regularizer]:
    """Class decorator: make a regularizer known under its name, with its default options.

    Registering a name again replaces it, so that a notebook cell can be run twice; a warning says so if the name is one
    of this package's.

    Args:
        regularizer_class: a subclass of `Regularizer` with `name` and `label`.

    Returns:
        The class itself.

    Raises:
        ValueError: no subclass, one without a usable `name`, `label` or `streams`, or with `surrogate_weights` but no
            `streams`.

    Examples:
        >>> register(type(get("cokl"))).label
        'CoKL'
    """
    if not issubclass(regularizer_class, Regularizer):
        raise ValueError(f"{regularizer_class.__name__}: expected a class that inherits from regularizers.Regularizer")
    for attribute in ("name", "label"):
        given = getattr(regularizer_class, attribute, None)
        if not isinstance(given, str) or not given.strip():
            raise ValueError(
                f"{regularizer_class.__name__}.{attribute}: expected a string that is not blank, such as name, label = "
                f'"hellinger", "Squared Hellinger", got {given!r}'
            )
    if not regularizer_class.name.isidentifier() or regularizer_class.name in ("none", "reference"):
        raise ValueError(
            f"{regularizer_class.__name__}.name: expected letters, digits and underscores, as in smooth_tv, other than "
            f"'none' and 'reference', got {regularizer_class.name!r}"
        )
    if (ours := canonical(regularizer_class.name)) != regularizer_class.name:
        raise ValueError(
            f"{regularizer_class.__name__}.name: expected a name of its own, got {regularizer_class.name!r}, as people "
            f"call {ours!r}"
        )
    weighs = regularizer_class.surrogate_weights is not Regularizer.surrogate_weights
    if regularizer_class.streams not in _STREAMS[int(weighs) :]:
        raise ValueError(
            f"{regularizer_class.__name__}.streams: expected the streams that surrogate_weights weights, "
            f"{' or '.join(map(str, _STREAMS[1:]))}, got {regularizer_class.streams!r}"
        )
    known, own = (
        f"{known.__module__}.{known.__qualname__}"
        for known in (type(_registry.get(regularizer_class.name)), regularizer_class)
    )
    if known.startswith(f"{__name__}.") and own != known:  # the same if its module is loaded again
        warnings.warn(
            f"{own} replaces the built-in regularizer {regularizer_class.name!r} everywhere; give it another name to "
            "have both",
            stacklevel=2,
        )
    _registry[regularizer_class.name] = regularizer_class()
    return regularizer_class


def get(name: str) -> Regularizer:
    """The regularizer called `name`, with its default options.

    Args:
        name: one of `names()`, or what tables call it, as `cokl.names.canonical` reads it.

    Returns:
        The registered instance.

    Raises:
        InputError: an unknown name; the message has the nearest and all known ones.

    Examples:
        >>> round(get("forward_kl").optimal_mass(q=0.1, beta=0.05), 4)
        0.9552
    """
    found = _registry.get(canonical(name))
    if found is None:
        near = did_you_mean(name, [*_registry, *CALLED])
        raise InputError(f"unknown regularizer {name!r}{near}; known: {listed(names())}")
    return found


def names() -> list[str]:
    """Names of all registered regularizers.

    Returns:
        The names, sorted.

    Examples:
        >>> "cokl" in names()
        True
    """
    return sorted(_registry)


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
for _plug_in in entry_points(group="cokl.regularizers"):  # of other packages, each a registered class or its module
    _plug_in.load()

__all__ = ["Regularizer", "get", "names", "register"]
