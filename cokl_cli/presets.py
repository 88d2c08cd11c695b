"""The preset among a command's arguments: it decides the defaults of all other options, so it is needed before them."""

import itertools
from collections.abc import Collection
from typing import Any


def preset_among(arguments: list[str], known: Collection[str], default: str) -> Any:
    """The name, one of `known`, that follows --preset; `default` if there is none. The parser refuses others."""
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.partition("=")
        if name == "--preset":
            asked = value if equals else following
            return asked if asked in known else default
    return default
