"""How well the chat reward agrees with independent ratings (F.2).

Assumption beyond the paper: an interval is the 2.5 and 97.5 percentiles over resamples of whole prompts; resamples in
which a statistic is undefined are left out; a pair with equal ratings or equal rewards is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata

from cokl.support.errors import InputError

Array = npt.NDArray[np.float64]
FEW_PROMPTS = 30
"""Below this many clusters a percentile interval is known to be too short."""


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
    columns = ratings[measured].to_numpy(dtype=np.float64)
    agreeing, compared = _comparisons(columns, codes, len(names))

    def statistics(counts: npt.NDArray[np.int64]) -> Array:
        """(3,): of the rows with each prompt's as often as it was drawn; NaN where undefined."""
        ranks = rankdata(np.repeat(columns, counts[codes], axis=0), axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = np.asarray(np.corrcoef(ranks, rowvar=False))
            return np.array([rho[0, 1], (counts @ agreeing) / (counts @ compared), rho[0, -1]])

    random, even = np.random.default_rng(seed), np.full(len(names), 1 / len(names))
    drawn = np.array([statistics(random.multinomial(len(names), even)) for _ in range(resamples)])
    values = statistics(np.ones(len(names), dtype=np.int64))
    rating, agreement, length = (_estimate(value, drawn[:, place]) for place, value in enumerate(values))
    return Validation(
        len(codes), len(names), int(compared.sum()), rating, agreement, length if "length" in measured else None
    )


def _comparisons(columns: Array, codes: npt.NDArray[np.intp], prompts: int) -> tuple[Array, Array]:
    """For each prompt, the pairs that the reward orders as the rating does, and all pairs tied in neither."""
    agreeing, compared = np.zeros(prompts), np.zeros(prompts)
    for prompt in range(prompts):
        reward, rating = columns[codes == prompt, :2].T
        product = np.triu(np.sign(np.subtract.outer(reward, reward)) * np.sign(np.subtract.outer(rating, rating)), 1)
        agreeing[prompt], compared[prompt] = (product > 0).sum(), (product != 0).sum()
    return agreeing, compared


def _estimate(value: float, drawn: Array) -> Estimate:
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
