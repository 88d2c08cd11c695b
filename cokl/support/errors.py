"""The one exception that the command line turns into a line for the user, and what helps its reader on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping


class InputError(ValueError):
    """What the user asked for cannot be done: the message says what was wrong, what was expected and what to do.

    The command line prints it without a traceback and ends with exit code 2; any other exception is a defect of ours.
    """


def did_you_mean(name: str, known: Mapping[str, str] | Iterable[str]) -> str:
    """A question in parentheses that names what is known by a near spelling, whatever its case and signs, or "".

    known: names, or what to call them by their names.

    Examples:
        >>> did_you_mean("forwardKL", ["reverse_kl", "forward_kl"])
        ' (did you mean forward_kl?)'
    """
    called = known if isinstance(known, Mapping) else {one: one for one in known}
    by_letters = {_letters(one): shown for one, shown in called.items()}
    near = difflib.get_close_matches(_letters(name), by_letters, 1, 0.7)
    return f" (did you mean {by_letters[near[0]]}?)" if near else ""


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
