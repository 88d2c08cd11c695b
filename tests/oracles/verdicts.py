"""The verdict on a claim from raw values, one a seed, by SciPy's tests; and the same by rules of which one is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy import stats

WRONG = (
    "the 90 % interval also where equal means are refused",
    "the 95 % interval where means are equal",
    "a refused equality tested at its positive margin",
    "a refused equality tested at zero",
    "a one-sided claim tested without its margin",
    "a one-sided claim with a margin leans by the sign of its mean",
    "a conjunction refused by its weakest part",
    "a conjunction refused without a correction",
    "a conjunction refused after Bonferroni's correction",
    "a conjunction held by its strongest part",
    "secondary measurements without a correction",
    "secondary measurements after Bonferroni's correction",
    "a contradiction is not looked for",
    "an undecided primary measurement gives way to a secondary one",
    "three seeds of one part are enough where another has more",
)
"""One rule each that is not the one of `cokl.support.verdicts`."""


@dataclass(frozen=True)
class Part:
    """A measurement: a value a seed, which the claim expects above minus the margin, or with a mean within it."""

    values: tuple[float, ...]
    margin: float = 0.0
    equal: bool = False


@cache
def p_value(
    values: tuple[float, ...], at: float, alternative: Literal["two-sided", "less", "greater"] = "two-sided"
) -> float:
    """Of Student's test that the mean is `at`."""
    return float(stats.ttest_1samp(values, at, alternative=alternative).pvalue)


def leaning_and_p(part: Part, wrong: str = "") -> tuple[str, float]:
    """What the mean says, and the p-value of the test that decides for it."""
    mean = float(np.mean(part.values))
    if not part.equal:
        at = 0.0 if "without its margin" in wrong else -part.margin
        held = mean > (0.0 if "by the sign" in wrong else -part.margin)
        return ("held" if held else "not held"), p_value(part.values, at)
    if abs(mean) < part.margin:
        above, below = p_value(part.values, -part.margin, "greater"), p_value(part.values, part.margin, "less")
        return "held", max(above, below) * (2 if "95 %" in wrong else 1)
    at = part.margin if mean > 0 or "positive margin" in wrong else -part.margin
    p = p_value(part.values, 0.0 if "at zero" in wrong else at)
    return "not held", p / (2 if "90 %" in wrong else 1)


def rejected(p_values: Sequence[float], level: float) -> list[bool]:
    """Holm's procedure, step by step: the smallest p against level / n, the next against level / (n - 1), and so on."""
    decided = [False] * len(p_values)
    for step, place in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[place] * (len(p_values) - step) > level:
            break
        decided[place] = True
    return decided


def adjusted(p_values: Sequence[float], place: int) -> float:
    """The smallest level at which Holm rejects a hypothesis; 1 if none below does."""
    levels = sorted({p * count for p in p_values for count in range(1, len(p_values) + 1)})
    return next((level for level in levels if level < 1 and rejected(p_values, level)[place]), 1.0)


def of_conjunction(parts: Sequence[Part], wrong: str = "") -> tuple[str, float]:
    """What several measurements say of a claim that needs them all, and the p-value that decides for it."""
    each = [leaning_and_p(part, wrong) for part in parts]
    p_values = [p for _, p in each]
    against = [place for place, (leaning, _) in enumerate(each) if leaning == "not held"]
    if not against:
        return "held", min(p_values) if "strongest" in wrong else max(p_values)
    if "refused without" in wrong:
        return "not held", min(p_values[place] for place in against)
    if "refused after" in wrong:
        return "not held", min(1.0, len(parts) * min(p_values[place] for place in against))
    corrected = [adjusted(p_values, place) for place in against]
    return "not held", max(corrected) if "weakest" in wrong else min(corrected)


def verdict(parts: Sequence[Part], elsewhere: Sequence[Sequence[Part]], wrong: str = "") -> str | None:
    """On the claim whose primary measurement is `parts`; None below four seeds."""
    seeds = [len(part.values) for part in parts]
    if (max(seeds) if "seeds" in wrong else min(seeds)) < 4:
        return None
    leaning, p = of_conjunction(parts, wrong)
    primary = leaning if p <= 0.05 else "undecided"
    others = [of_conjunction(group, wrong) for group in elsewhere]
    sure = rejected([p for _, p in others], 0.05)
    if "measurements without a correction" in wrong:
        sure = [p <= 0.05 for _, p in others]
    if "measurements after Bonferroni's" in wrong:
        sure = [p * len(others) <= 0.05 for _, p in others]
    decided = {primary} | {leaning for (leaning, _), known in zip(others, sure, strict=True) if known}
    if {"held", "not held"} <= decided and "contradiction" not in wrong:
        return "depends"
    if primary == "undecided" and "gives way" in wrong:
        return next((one for one in ("held", "not held") if one in decided), "undecided")
    return primary
