"""Ratios of seconds that were taken in turns, so that a slow moment falls on all alike; and where they were taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scipy.stats import quantile_test


@dataclass(frozen=True)
class Ratio:
    """A median over `count` turns or blocks, and its 95 % interval by order statistics; NaN below six of them."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio:
        """ratios: one a turn or block."""
        interval: Any = quantile_test(ratios, p=0.5).confidence_interval()
        return cls(median(ratios), float(interval.low), float(interval.high), len(ratios))

    def __str__(self) -> str:
        return f"{self.median:.3f}, 95% interval {self.low:.3f} to {self.high:.3f}"


def where(device: str) -> str:
    """The device's name and PyTorch's version."""
    import torch

    from cokl.support.results import cpu_model

    name = torch.cuda.get_device_name() if device == "cuda" else cpu_model()
    return f"{name}, PyTorch {torch.__version__}"


def now(device: str, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the clock once the device has done all that it was given."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    return clock()
