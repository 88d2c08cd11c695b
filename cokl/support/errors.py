"""The one exception that the command line turns into a line for the user."""

from __future__ import annotations


class InputError(ValueError):
    """What the user asked for cannot be done: the message says what was wrong, what was expected and what to do.

    The command line prints it without a traceback and ends with exit code 2; any other exception is a defect of ours.
    """
