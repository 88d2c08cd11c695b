"""A reward function of VeRL's form as the judge of which responses are correct, for cached and for fresh ones alike.

Whoever judges a response gives it the text without special tokens, the ground truth and the `extra_info` as the data
set has them, and the function's own keyword arguments (VeRL's `reward_kwargs`).
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cokl.support.errors import InputError


def reward_of(
    function: Callable[..., Any],
    text: str,
    data_source: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    **more: Any,
) -> float:
    """The score of one response: a number, or that of a dictionary at "score", directly or awaited.

    more: further keyword arguments of the function. Raises InputError without a finite score.
    """
    truth, extra = copy.deepcopy(ground_truth), copy.deepcopy(dict(extra_info))
    try:
        given = function(data_source=data_source, solution_str=text, ground_truth=truth, extra_info=extra, **more)
        given = asyncio.run(given) if inspect.iscoroutine(given) else given
        score = float(given["score"] if isinstance(given, Mapping) else given)
        if not math.isfinite(score):
            raise ValueError(score)
    except (Exception, SystemExit) as error:
        expected = "a finite number, or a dictionary with one at 'score'"
        got = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise InputError(f"the reward function's answer to {text[:60]!r}: expected {expected}, got {got}") from error
    return score


def load_function(name: str, **more: Any) -> Callable[..., Any]:
    """FILE.py:NAME or pkg://MODULE:NAME, as VeRL loads a reward function. more: its further keyword arguments.

    Raises InputError if it is not there, or not of the form that VeRL calls.
    """
    from verl.utils.import_utils import load_module

    path, _, attribute = name.rpartition(":")
    if not path:
        raise InputError(f"reward function {name!r}: expected FILE.py:NAME or pkg://MODULE:NAME")
    if not path.startswith("pkg://") and not Path(path.removeprefix("file://")).exists():
        raise InputError(f"reward function {name!r}: there is no file {path}")
    try:
        module: Any = load_module(path)
    except (Exception, SystemExit) as error:  # whatever the file does
        cause = error.__cause__ or error  # VeRL's own error says nothing
        raise InputError(f"reward function {name!r}: {path} ends with {type(cause).__name__}: {cause}") from error
    if not hasattr(module, attribute):
        own = [own for own, part in vars(module).items() if getattr(part, "__module__", "") == module.__name__]
        raise InputError(f"reward function {name!r}: {path} has {', '.join(own) or 'nothing'}, no {attribute}")
    function: Callable[..., Any] = getattr(module, attribute)
    told = {"data_source": "", "solution_str": "", "ground_truth": "", "extra_info": {}}
    try:
        inspect.signature(function).bind(**told, **more)
    except (TypeError, ValueError) as error:  # the latter where there is no signature
        keywords = ", ".join([*told, *more])
        raise InputError(f"reward function {name!r}: VeRL calls it with {keywords} as keywords ({error})") from error
    return function
