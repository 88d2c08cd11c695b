"""The preset among a command's arguments, found before they are parsed: it sets the defaults of all other options."""

import itertools
from collections.abc import Collection
from typing import Any


def preset_among(arguments: list[str], known: Collection[str], default: str) -> Any:
    """The name after --preset if it is one of `known`, else `default`; the parser refuses other names."""
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.partition("=")
        if name == "--preset":
            name = value if equals else following
            return name if name in known else default
    return default
