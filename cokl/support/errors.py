"""The one exception that the command line turns into a line for the user, and the nearest name for its message."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class InputError(ValueError):
    """What the user asked for cannot be done: the message says what was wrong, what was expected and what to do.

    The command line prints it without a traceback and ends with exit code 2; any other exception is a defect of ours.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ " (did you mean NEAREST?)", to follow a name that is none of `known`; empty where none is near."""
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


@contextlib.contextmanager
def told_of_users_code(name: str, where: str) -> Iterator[None]:
    """Raises InputError, "NAME: TYPE in its WHERE: ...", for whatever the user's own code in the block raises."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise InputError(f"{name}: {type(error).__name__} in its {where}: {said}") from error
