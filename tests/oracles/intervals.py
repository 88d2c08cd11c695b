"""A t-interval by its definition, beside `cokl.support.statistics`."""

import math
import statistics
from collections.abc import Iterable

from scipy import stats


def half_width(values: Iterable[float]) -> float:
    """Half of a 95% t-interval of the mean of two values or more."""
    sample = list(values)
    return float(stats.t.ppf(0.975, len(sample) - 1) * statistics.stdev(sample) / math.sqrt(len(sample)))
