"""Scores of the sequence lab: the task shift's, differences at equal adaptation, and RL's Razor.

Retention and adaptation are dual-anchor scores of accuracy. Pass@k and the divergences stay as they are, beside it.
Every interval is a 95% t-interval over the reported seeds; coefficients are chosen on the selection seeds alone.

RL's Razor (arXiv 2509.04259) says that D_KL(base || policy) on the *new* task predicts what is forgotten on the prior
one. Its measure is R^2 of a parabola over trained policies.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bandit.engine.tables import reported_seeds
from bandit.engine.two_tasks.plan import RUN
from bandit.lab import Analysis, Tables
from bandit.sequences.config import SequenceConfig
from bandit.sequences.train import METRICS
from bandit.shift.analysis import (
    DRIFTS,
    EDGE,
    MATCH_TOLERANCE,
    MATCHED_ADAPTATION,
    NORMALIZED,
    anchors,
    at_equal_adaptation,
    final_rows,
    label,
    readable,
    score,
    settings,
    undetermined_as_nan,
    without_diverged_runs,
)
from cokl.support.statistics import spread_column, summarize, with_spread
from cokl.support.verdicts import SPREAD, Claim, Measurement, verdict_on

BESIDE_ACCURACY = ["prior_pass_at_k", "conditional_kl", "conditional_entropy"]
MEASURES = ["prior_correct", "retention", *BESIDE_ACCURACY]
"""What is compared where methods adapt alike."""

PRIMARY = ("sampled", "prior_correct", "correct_forward_kl")
"""Mode, measure and rival of the lab's one primary comparison: CoKL against replay's
normalisation, at equal adaptation. All other comparisons are secondary. The measure is accuracy itself: retention
divides by what GRPO forgets, which in this lab differs more between seeds than methods do."""

PREDICTORS = {
    "new_kl": "D_KL(base || policy) on the new task",
    "prior_kl": "the same on the prior task",
    "conditional_kl": "D_KL(base+ || policy+) on the prior task",
    "mass_drift": "D_KL of the correctness masses on the prior task",
}
"""What may predict forgetting, and how it is called."""

CAPTIONS = {
    "normalized": "Dual-anchor scores of accuracy, Base 100 in retention and 0 in adaptation, GRPO w/o KL the reverse. "
    "Setting best: the coefficient with the highest Overall on the selection seeds; matched: the one whose adaptation "
    f"there is closest to {MATCHED_ADAPTATION:g}. Note: edge, the coefficient is the smallest or largest of its "
    f"grid; missed, adaptation is more than {MATCH_TOLERANCE:g} points from the target.",
    "raw": "Unnormalized: accuracy and pass@k, which depends on each prompt's accuracy only; D_KL(base+ || policy+) "
    "and the entropy of the correct answers, in nats, on the prior task.",
    "equal_adaptation": f"Where adaptation is {MATCHED_ADAPTATION:g}, interpolated between two neighbouring "
    "coefficients; methods that never pass it are left out.",
    "leads": "CoKL less each other method there, paired by seed. Accuracy (prior_correct) and pass@k as "
    "probabilities; retention in points of GRPO's loss; conditional KL and entropy in nats, of which less and more are "
    "preserved better.",
    "razor": "RL's Razor: R^2 of a parabola from each divergence to the prior correctness lost.",
    "beta_search": "Every coefficient, on the selection seeds, which choose, and on the reported ones.",
}


def analyse(tables: Tables, config: SequenceConfig) -> Analysis:
    """The primary comparison, and every method's scores at its best coefficient."""
    table = tables["sequences"]
    made = tables_of(table)
    seeds = reported_seeds(table)
    mode = PRIMARY[0] if PRIMARY[0] in set(table["mode"]) else "exact"
    best = made["normalized"][(made["normalized"]["mode"] == mode) & (made["normalized"]["setting"] == "best")]
    compared = primary(made["leads"], seeds)
    return Analysis(
        answer=_told(made["leads"], seeds),
        seeds=seeds,
        claims=[compared],
        tables=made,
        captions=CAPTIONS,
        readable=named,
        screen=named(best)[["method", "beta", *NORMALIZED, "note"]],
        notes=[anchors(table), f"{SPREAD} {EDGE}"],
        picture=f"sequences_tradeoff_{mode}",
    )


def tables_of(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table of the lab by file name, numbers with their NAME_half_width beside them.

    Raises InputError if the table lacks the anchors or the selection seeds.
    """
    scored = score(table)
    compared = settings(scored)
    last = final_rows(compared)
    by = ["mode", "setting", "method", "beta", "edge", "missed"]
    raw = ["prior_correct", "new_correct", *BESIDE_ACCURACY]
    equal = at_equal_adaptation(scored, MEASURES)
    return {
        "normalized": summarize(last, by, NORMALIZED),
        "raw": summarize(last, by, raw),
        "equal_adaptation": summarize(equal, ["mode", "method", "beta_below", "beta_above"], MEASURES),
        "leads": leads(equal),
        "razor": razor(table),
        "beta_search": summarize(
            undetermined_as_nan(final_rows(scored), "selection"), ["role", *RUN], [*NORMALIZED, *METRICS]
        ),
        "dynamics": summarize(compared[compared["setting"] == "best"], [*RUN, "step"], list(METRICS)),
    }


def leads(matched: pd.DataFrame) -> pd.DataFrame:
    """CoKL less every other method at equal adaptation, paired by seed: mode, method, MEASURES, and half-widths.

    matched: of `at_equal_adaptation`. Methods that never reach the common adaptation, or CoKL itself if it does not,
    have no rows.
    """
    ours = matched[matched["method"] == "cokl"].set_index(["mode", "seed"])
    rivals = matched[(matched["method"] != "cokl") & matched["mode"].isin(ours.index.get_level_values("mode"))]
    seeds = pd.MultiIndex.from_frame(rivals[["mode", "seed"]])
    differences = ours[MEASURES].reindex(seeds).to_numpy() - rivals[MEASURES].to_numpy()
    rows = rivals[["mode", "method"]].assign(**dict(zip(MEASURES, differences.T, strict=True)))
    return summarize(rows, ["mode", "method"], MEASURES)


def primary(leads: pd.DataFrame, seeds: int) -> Claim:
    """The lab's one primary comparison, from the table of `leads`; without a verdict where it cannot be made."""
    mode, measure, rival = PRIMARY
    statement = f"CoKL keeps more than {label(rival)}, adapting alike"
    rows = leads[(leads["mode"] == mode) & (leads["method"] == rival)]
    if rows.empty:
        return Claim(statement, "beyond the paper", "not to be had: one was not trained or never adapts as much", None)
    mean, half_width = float(rows[measure].iloc[0]), float(rows[f"{measure}_half_width"].iloc[0])
    measured = f"by {with_spread(100 * mean, 100 * half_width, 1)} points"
    return Claim(statement, "beyond the paper", measured, verdict_on(mean, half_width, seeds))


def _told(leads: pd.DataFrame, seeds: int) -> str:
    """The primary comparison as a sentence."""
    mode, measure, rival = PRIMARY
    for row in leads[(leads["mode"] == mode) & (leads["method"] == rival)].to_dict("records"):
        points = 100 * row[measure], 100 * row[f"{measure}_half_width"]
        return Measurement("", "", *points, seeds).told(label(rival), "what is kept, adapting alike")
    return f"CoKL and {label(rival)} cannot be compared: one was not trained or never adapts as much"


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


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """With labels for methods and predictors, and intervals in one column."""
    if "predictor" in frame:
        shown = frame.assign(predictor=frame["predictor"].map(PREDICTORS), r2=spread_column(frame, "r2", 2))
        return shown.drop(columns="r2_half_width")
    return readable(frame)
