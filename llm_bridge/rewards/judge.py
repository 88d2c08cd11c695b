"""A reward function of VeRL's form as the judge of which responses are correct, for cached and for fresh ones alike.

Whoever judges a response gives it the text without special tokens, the ground truth and the `extra_info` as the data
set has them, and the function's own keyword arguments (VeRL's `reward_kwargs`).
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cokl.support.errors import InputError


@dataclass(frozen=True)
class Judge:
    """function: gives a number or a dictionary that has one at `key`, directly or awaited. It is called by the keywords
    data_source, solution_str, ground_truth and extra_info; one that has no data_source, as those of
    `verl.utils.reward_score`, is given solution and truth, as VeRL's dispatch gives them. options: its further keyword
    arguments. threshold: a score above it is correct.
    """

    function: Callable[..., Any]
    key: str = "score"
    options: Mapping[str, Any] = field(default_factory=dict)
    threshold: float = 0.5

    async def score(self, text: str, data_source: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
        """The score of one response. Raises InputError for an answer without a finite one."""
        truth, extra = copy.deepcopy(ground_truth), copy.deepcopy(dict(extra_info))
        row = {"data_source": data_source, "solution_str": text, "ground_truth": truth, "extra_info": extra}
        parameters = inspect.signature(self.function).parameters.values()
        if any(parameter.name == "data_source" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            call = functools.partial(self.function, **row, **self.options)
        else:
            call = functools.partial(self.function, text, truth, **self.options)
        given = await call() if inspect.iscoroutinefunction(self.function) else await asyncio.to_thread(call)
        try:
            score = float(given[self.key] if isinstance(given, Mapping) else given)
            if not math.isfinite(score):
                raise ValueError("no finite number")
            return score
        except (KeyError, TypeError, ValueError) as error:
            reason = f"expected a finite number, or a dictionary with one at {self.key!r}, got {str(given)[:60]!r}"
            raise InputError(f"the judge's answer: {reason}") from error


@functools.cache
def load_function(name: str) -> Callable[..., Any]:
    """FILE.py:NAME or pkg://MODULE:NAME, as VeRL loads a reward function. Raises InputError if it is not there."""
    from verl.utils.import_utils import load_extern_object

    path, _, function = name.rpartition(":")
    try:
        return load_extern_object(path, function)
    except (ImportError, AttributeError, OSError, ValueError) as error:
        raise InputError(f"reward function {name!r}: expected FILE.py:NAME or pkg://MODULE:NAME ({error})") from error
