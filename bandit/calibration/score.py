"""What each setting says of the paper's rows, and of the second term's worth, for every share of that term."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from bandit.calibration.config import REPLAY, WITHOUT_TERM_1, CalibrationConfig, method_name
from bandit.phase.score import is_meaningful
from bandit.shift.config import PAPER_BETA
from bandit.shift.score import anchors_diverged, at_equal_adaptation, final_rows, forgotten_and_learned, score
from cokl.support.statistics import mean_and_half_width
from cokl.support.verdicts import holm, p_value

NEAR_GRPO = 10.0
"""Points of retention within which w/o term 1 counts as GRPO's level; the paper's row has 3.85."""
NEAR_REPLAY = 5.0
"""Points of retention within which CoKL counts as replay's level; the paper's rows have -1.1, 1.8 and 2.7."""

_MEASURES = {"gain": "retention", "pass_gain": "prior_pass_at_k", "kl_gain": "conditional_kl"}
MEASURED = ("without_term1", "kept", "adapted", *_MEASURES)


def summarize(rows: pd.DataFrame, config: CalibrationConfig) -> pd.DataFrame:
    """A row per setting and share; of each measurement its mean over the reported seeds and NAME_half_width, 95%.

    rows: as `calibration` returns them. base_correct: of the reference. lost: of GRPO w/o KL, in percent of that.
    without_term1: retention of CoKL w/o term 1 at the share. kept, adapted: of CoKL with the share minus replay at the
    paper's coefficient. gain, pass_gain, kl_gain: the same in retention, pass@k and conditional KL on the prior task
    where both have the same adaptation, so that the frontier is higher. near_grpo, near_replay: whether the interval
    lies within the tolerance; None if it crosses it. better: whether the gain is above 0 ("held"), below, or undecided,
    by Holm's over all rows. Measurements are NaN where GRPO forgets or learns next to nothing, or a frontier never
    reaches the adaptation.
    """
    summary = pd.DataFrame(
        [
            {"cell": cell, "share": share, **measured}
            for cell in config.cells
            for share, measured in of_cell(rows[rows["cell"] == cell].drop(columns="cell"), config.shares).items()
        ]
    )
    known = summary.dropna(subset=["gain"])
    p_values = [p_value(mean, half, config.seeds) for mean, half in known[["gain", "gain_half_width"]].to_numpy()]
    sure = pd.Series(holm(p_values), index=known.index, dtype=bool).reindex(summary.index, fill_value=False)
    summary["better"] = [
        "undecided" if not decided else "held" if gain > 0 else "not held"
        for decided, gain in zip(sure, summary["gain"], strict=True)
    ]
    return summary


def of_cell(table: pd.DataFrame, shares: Sequence[float]) -> dict[float, dict[str, object]]:
    """The measurements of one setting by share, with NAME_half_width; table: its rows, without the column cell."""
    unknown: dict[str, object] = dict.fromkeys((*MEASURED, *(f"{name}_half_width" for name in MEASURED)), math.nan)
    unknown |= {"near_grpo": None, "near_replay": None}
    if anchors_diverged(table):
        lost: dict[str, object] = {"base_correct": math.nan, "lost": math.nan, "lost_half_width": math.nan}
        return {share: lost | unknown for share in shares}
    ends = final_rows(table[table["role"] == "report"])
    correct = ends[ends["method"] == "base"]["prior_correct"].mean()
    forgotten, learned = forgotten_and_learned(table)
    lost = {
        "base_correct": correct,
        "lost": 100 * forgotten[0] / correct,
        "lost_half_width": 100 * forgotten[1] / correct,
    }
    if not is_meaningful(forgotten, learned):
        return {share: lost | unknown for share in shares}
    scored = score(table)
    reported = scored[scored["role"] == "report"]
    equal = at_equal_adaptation(scored, ("retention", "prior_pass_at_k", "conditional_kl"))

    def values_at(method: str, beta: float, column: str) -> pd.Series:
        return reported[(reported["method"] == method) & (reported["beta"] == beta)].set_index("seed")[column]

    def matched(method: str, column: str) -> pd.Series:
        return equal[equal["method"] == method].set_index("seed")[column]

    by_share = {}
    for share in shares:
        ours = method_name(share)
        values = {
            "without_term1": values_at(WITHOUT_TERM_1, PAPER_BETA * share, "retention"),
            "kept": values_at(ours, PAPER_BETA, "retention") - values_at(REPLAY, PAPER_BETA, "retention"),
            "adapted": values_at(ours, PAPER_BETA, "adaptation") - values_at(REPLAY, PAPER_BETA, "adaptation"),
            **{name: matched(ours, column) - matched(REPLAY, column) for name, column in _MEASURES.items()},
        }
        intervals = {name: mean_and_half_width(one.astype(float)) for name, one in values.items()}
        by_share[share] = {
            **lost,
            **{name: mean for name, (mean, _) in intervals.items()},
            **{f"{name}_half_width": half for name, (_, half) in intervals.items()},
            "near_grpo": _within(*intervals["without_term1"], NEAR_GRPO),
            "near_replay": _within(*intervals["kept"], NEAR_REPLAY),
        }
    return by_share


def _within(mean: float, half_width: float, tolerance: float) -> bool | None:
    """Whether an interval lies within the tolerance of 0, beyond it, or neither."""
    if abs(mean) + half_width <= tolerance:
        return True
    return False if abs(mean) - half_width > tolerance else None
