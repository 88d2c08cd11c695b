"""Scores of the sequence lab: those of the task-shift lab, differences at equal adaptation, and RL's Razor.

Retention and adaptation are dual-anchor scores of accuracy. Pass@k and the divergences stay as they are, beside it.

RL's Razor (arXiv 2509.04259) says that D_KL(base || policy) on the *new* task predicts what is forgotten on the prior
one. Its measure is R^2 of a parabola over trained policies.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bandit.shift.report import DRIFTS
from bandit.shift.score import at_equal_adaptation, final_rows, score, without_diverged_runs
from cokl.support.statistics import summarize

BESIDE_ACCURACY = ["prior_pass_at_k", "conditional_kl", "conditional_entropy"]
MEASURES = ["prior_correct", "retention", *BESIDE_ACCURACY]
"""What is compared where methods adapt alike."""

PRIMARY = ("sampled", "prior_correct", "correct_forward_kl")
"""Mode, measure and rival of the lab's one primary comparison: CoKL against replay, that is CoKL without term 2's
normalisation, at equal adaptation. All other comparisons are secondary. The measure is accuracy itself: retention
divides by what GRPO forgets, which in this lab differs more between seeds than methods do."""

PREDICTORS = {
    "new_kl": "D_KL(base || policy) on the new task",
    "prior_kl": "the same on the prior task",
    "conditional_kl": "D_KL(base+ || policy+) on the prior task",
    "mass_drift": "D_KL of the correctness masses on the prior task",
}
"""What may predict forgetting, and how it is called."""


def leads(table: pd.DataFrame) -> pd.DataFrame:
    """CoKL less every other method at equal adaptation, paired by seed: mode, method, MEASURES, and half-widths.

    Methods that never reach the common adaptation, or CoKL itself if it does not, have no rows.
    """
    matched = at_equal_adaptation(score(table), MEASURES)
    ours = matched[matched["method"] == "cokl"].set_index(["mode", "seed"])
    rivals = matched[(matched["method"] != "cokl") & matched["mode"].isin(ours.index.get_level_values("mode"))]
    seeds = pd.MultiIndex.from_frame(rivals[["mode", "seed"]])
    differences = ours[MEASURES].reindex(seeds).to_numpy() - rivals[MEASURES].to_numpy()
    rows = rivals[["mode", "method"]].assign(**dict(zip(MEASURES, differences.T, strict=True)))
    return summarize(rows, ["mode", "method"], MEASURES)


def primary_lead(table: pd.DataFrame) -> tuple[float, float] | None:
    """The primary comparison's mean and the half-width of its interval; None where it cannot be made."""
    mode, measure, rival = PRIMARY
    rows = leads(table)
    rows = rows[(rows["mode"] == mode) & (rows["method"] == rival)]
    return None if rows.empty else (float(rows[measure].iloc[0]), float(rows[f"{measure}_half_width"].iloc[0]))


def razor(table: pd.DataFrame) -> pd.DataFrame:
    """How much of the forgetting each of PREDICTORS explains: R^2 of a parabola, mean over reported seeds.

    Over all methods and coefficients at their last step ("all methods"), and over the evaluated steps of GRPO without
    KL ("GRPO over time"). Forgetting is the prior correctness lost since the base model. Columns: mode, over,
    predictor, r2 and its half-width; a seed in which nothing is forgotten has none.
    """
    table = without_diverged_runs(table)
    reported = table[table["role"] == "report"].assign(prior_kl=table[DRIFTS].sum(axis=1))
    trained = final_rows(reported[reported["method"] != "base"])
    chosen = {"all methods": trained, "GRPO over time": reported[reported["method"] == "none"]}
    base = reported[reported["method"] == "base"].set_index(["mode", "seed"])["prior_correct"]
    lines = []
    for over, rows in chosen.items():
        for (mode, seed), runs in rows.groupby(["mode", "seed"], sort=False):
            lost = base.to_dict()[mode, seed] - runs["prior_correct"]
            for predictor in PREDICTORS:
                r2 = _explained(runs[predictor].to_numpy(), lost.to_numpy())
                lines.append({"mode": mode, "over": over, "predictor": predictor, "r2": r2})
    return summarize(pd.DataFrame(lines).dropna(), ["mode", "over", "predictor"], ["r2"])


def _explained(values: np.ndarray, target: np.ndarray) -> float:
    """R^2 of the least-squares parabola; NaN for fewer than five points or a constant target."""
    spread = ((target - target.mean()) ** 2).sum()
    if len(values) < 5 or spread == 0:
        return np.nan
    design = np.vander(values / max(values.max(), 1e-300), 3)
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - (residual**2).sum() / spread)
