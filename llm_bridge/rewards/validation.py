"""How well the chat reward agrees with independent ratings (F.2).

Assumption beyond the paper: an interval is the 2.5 and 97.5 percentiles over resamples of whole prompts; resamples in
which a statistic is undefined are left out; a pair with equal ratings or equal rewards is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from cokl.support.errors import InputError

Array = npt.NDArray[np.float64]
FEW_PROMPTS = 30
"""Below this many clusters a percentile interval is known to be too short."""
_CHUNK_CELLS = 4_000_000  # of a resamples-by-rows matrix held at once


@dataclass(frozen=True)
class Estimate:
    """A statistic and its 95% prompt-cluster bootstrap interval; `undefined` resamples had no value."""

    value: float
    low: float
    high: float
    undefined: int


@dataclass(frozen=True)
class Validation:
    """What F.2 reports.

    reward_rating: Spearman's rho. agreement: share of comparisons that the reward orders as the rating does, 0 to 1;
    NaN without comparisons. reward_length: Spearman's rho, None without lengths.
    """

    responses: int
    prompts: int
    comparisons: int
    reward_rating: Estimate
    agreement: Estimate
    reward_length: Estimate | None


def validate(ratings: pd.DataFrame, resamples: int, seed: int) -> Validation:
    """ratings: a row per response: prompt, reward, rating, and length if known.

    Raises InputError for fewer than two prompts and where a column is constant, which leaves correlations undefined.
    """
    codes, names = pd.factorize(ratings["prompt"])
    if len(names) < 2:
        raise InputError(f"prompt: expected at least 2 different prompts to resample, got {len(names)}")
    measured = [name for name in ("reward", "rating", "length") if name in ratings]
    for name in measured:
        if ratings[name].nunique() == 1:
            raise InputError(f"{name}: every response has the same, so nothing can correlate with it")
    columns = {name: ratings[name].to_numpy(dtype=np.float64) for name in measured}
    agreeing, compared = _comparisons(columns["reward"], columns["rating"], codes, len(names))

    def spearman(one: str, other: str) -> Callable[[Array], Array]:
        return lambda counts: weighted_spearman(columns[one], columns[other], counts[:, codes])

    def agreement(counts: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return (counts @ agreeing) / (counts @ compared)

    def estimate(statistic: Callable[[Array], Array]) -> Estimate:
        return _bootstrap(statistic, len(names), len(codes), resamples, seed)

    return Validation(
        responses=len(codes),
        prompts=len(names),
        comparisons=int(compared.sum()),
        reward_rating=estimate(spearman("reward", "rating")),
        agreement=estimate(agreement),
        reward_length=estimate(spearman("reward", "length")) if "length" in columns else None,
    )


def weighted_spearman(x: Array, y: Array, weights: Array) -> Array:
    """Spearman's rho, (b,), of x and y, both (n,), with row i repeated weights[b, i] times; NaN where undefined."""
    ranks_x, ranks_y = (_repeated_midranks(values, weights) for values in (x, y))
    total = weights.sum(1, keepdims=True)
    dx, dy = (ranks - (weights * ranks).sum(1, keepdims=True) / total for ranks in (ranks_x, ranks_y))
    covariance, spread_x, spread_y = ((weights * product).sum(1) for product in (dx * dy, dx * dx, dy * dy))
    with np.errstate(invalid="ignore", divide="ignore"):
        return covariance / np.sqrt(spread_x * spread_y)


def _repeated_midranks(values: Array, weights: Array) -> Array:
    """The midrank of every value, (b, n), among all values repeated by their weights."""
    level = np.unique(values, return_inverse=True)[1]
    at_level = np.zeros((len(weights), level.max() + 1))
    for row, row_level in enumerate(level):
        at_level[:, row_level] += weights[:, row]
    midranks = np.cumsum(at_level, axis=1) - (at_level - 1) / 2
    return midranks[:, level]


def _comparisons(reward: Array, rating: Array, codes: npt.NDArray[np.intp], prompts: int) -> tuple[Array, Array]:
    """For each prompt, the pairs that the reward orders as the rating does, and all pairs tied in neither."""
    agreeing, compared = np.zeros(prompts), np.zeros(prompts)
    for prompt in range(prompts):
        rows = codes == prompt
        signs = [np.sign(np.subtract.outer(values[rows], values[rows])) for values in (reward, rating)]
        product = np.triu(signs[0] * signs[1], 1)
        agreeing[prompt], compared[prompt] = (product > 0).sum(), (product != 0).sum()
    return agreeing, compared


def _bootstrap(statistic: Callable[[Array], Array], prompts: int, rows: int, resamples: int, seed: int) -> Estimate:
    """statistic: of how often each prompt was drawn, (b, prompts), to (b,)."""
    rng = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_CELLS // rows)
    sizes = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
    even = np.full(prompts, 1 / prompts)
    drawn = np.concatenate([statistic(rng.multinomial(prompts, even, size).astype(float)) for size in sizes])
    value = statistic(np.ones((1, prompts)))[0]
    defined = drawn[np.isfinite(drawn)]
    low, high = np.quantile(defined, (0.025, 0.975)) if len(defined) else (np.nan, np.nan)
    return Estimate(float(value), float(low), float(high), len(drawn) - len(defined))


def render(validation: Validation) -> str:
    """F.2's sentences with these numbers, and what to be careful about."""
    estimates = {
        "reward and rating, Spearman's rho": validation.reward_rating,
        "agreement on non-tied pairs of a prompt": validation.agreement,
    }
    if validation.reward_length is not None:
        estimates["reward and length, Spearman's rho"] = validation.reward_length
    lines = [f"{validation.responses} responses to {validation.prompts} prompts, {validation.comparisons} comparisons"]
    for name, estimate in estimates.items():
        if np.isnan(estimate.value):
            lines.append(f"{name:41} undefined")
            continue
        remark = f"  ({estimate.undefined} resamples undefined)" if estimate.undefined else ""
        lines.append(f"{name:41} {estimate.value:6.3f}  [{estimate.low:.3f}, {estimate.high:.3f}]{remark}")
    lines.append("brackets: 95% intervals of a bootstrap over prompts")
    if validation.prompts < FEW_PROMPTS:
        lines.append(
            f"warning: with {validation.prompts} prompts the intervals are too short; {FEW_PROMPTS} or more are needed"
        )
    return "\n".join(lines)
