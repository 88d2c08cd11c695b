"""What the sequence lab says: raw differences in correctness between CoKL and every other method, paired by seed.

Differences are taken at each coefficient, and at the one that each method has chosen on the selection seeds: with the
highest mean of known and new correctness (of all prior prompts where a seed knows none), so that what is learned of the
prior task does not choose. Nothing is divided by what GRPO forgets. Every interval is a 95% t-interval over the
reported seeds.
"""

from __future__ import annotations

import pandas as pd

from bandit.engine.tables import reported_seeds
from bandit.engine.two_tasks.plan import RUN
from bandit.engine.two_tasks.summary import (
    ANCHORS,
    diverged_note,
    final_rows,
    forgotten_and_learned,
    label,
    readable,
    without_diverged_runs,
)
from bandit.lab import Analysis, Tables
from bandit.sequences.config import KNOWN, SequenceConfig
from bandit.sequences.train import METRICS
from cokl.support.statistics import spread_column, summarize, with_spread
from cokl.support.verdicts import SPREAD, Measurement, claim_from

DIFFERENCES = {
    "prior_correct": "prior task",
    "known": "of it known",
    "others": "others",
    "new_correct": "new task",
    "overall": "Overall",
}
"""What is compared, in points of correctness, and how it is called. Overall is the mean of both tasks."""

LEVELS = {
    "role": "seeds",
    "beta": "coefficient",
    "kl_prompts": "prompts an update",
    "prior_correct": "prior task",
    "known_share": "known prompts",
    "known_correct": "prior task, known prompts",
    "new_correct": "new task",
    "conditional_kl": "drift, nats",
    "conditional_entropy": "entropy, nats",
    "mass_drift": "of correctness",
    "correct_drift": "within the correct",
    "incorrect_drift": "within the incorrect",
}
"""What the columns of the levels are called."""

PRIMARY = {"prior_correct": "correctness on the prior task", "new_correct": "correctness on the new task"}
REPLAY = "correct_forward_kl"

TITLES = {
    "differences": "Correctness of CoKL minus another method's, in points, at one coefficient and at each one's own, "
    "chosen on the selection seeds",
    "levels": "Every coefficient, on the selection seeds, which choose, and on the reported ones",
}
CAPTIONS = {
    "differences": f"{TITLES['differences']}. Primary are both tasks at the chosen ones. Known are prompts that the "
    f"base model answers correctly with probability {KNOWN:g} or more.",
    "levels": f"{TITLES['levels']}. Correctness on either task, and the part of the prior task's that known prompts "
    "give; on the prior task the drift D_KL(base+ || policy+), the entropy of the correct answers and the three parts "
    "of D_KL(base || policy), Eq. 7.",
}


def analyse(tables: Tables, config: SequenceConfig) -> Analysis:
    """CoKL minus replay on either task at their chosen coefficients, and all differences."""
    table = tables["sequences"]
    last = measured(table)
    made = {"differences": differences(last), "levels": levels(table)}
    seeds = reported_seeds(table)
    compared = primary(made["differences"], seeds)
    own = ", ".join(f"{label(row['method'])} {row['beta']:g}" for row in chosen(last).to_dict("records"))
    lost, gained = (with_spread(100 * mean, 100 * half, 1) for mean, half in forgotten_and_learned(table))
    told = [one.told(label(REPLAY), one.what) for one in compared.values()]
    return Analysis(
        answer=". ".join(told) or f"CoKL and {label(REPLAY)} cannot be compared: one was not trained or chose nothing",
        seeds=seeds,
        claims=[
            claim_from(name, f"CoKL is ahead of {label(REPLAY)} in {one.what}", "beyond", "beyond the paper", [one])
            for name, one in compared.items()
        ],
        tables=made,
        captions=CAPTIONS,
        titles=TITLES,
        readable=named,
        screen=named(made["differences"]),
        notes=[
            f"GRPO w/o KL loses {lost} points of the prior task and gains {gained} of the new one.",
            f"Chosen coefficients: {own}. {SPREAD}",
            diverged_note(table),
        ],
        picture="sequences_correctness",
        diverged=diverged_note(table),
    )


def levels(table: pd.DataFrame) -> pd.DataFrame:
    """METRICS of every run by role, with their half-widths. Raises InputError if GRPO w/o KL diverged."""
    return summarize(final_rows(without_diverged_runs(table)), ["role", *RUN], list(METRICS))


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """The regularized runs' last rows, with known and others, the correctness on these prior prompts, and overall.

    NaN where a seed has no such prompts. Raises InputError if GRPO w/o KL diverged.
    """
    last = final_rows(without_diverged_runs(table))
    last = last[~last["method"].isin(ANCHORS)]
    return last.assign(
        known=last["known_correct"] / last["known_share"],
        others=(last["prior_correct"] - last["known_correct"]) / (1 - last["known_share"]),
        overall=(last["prior_correct"] + last["new_correct"]) / 2,
    )


def chosen(last: pd.DataFrame) -> pd.DataFrame:
    """Each method's coefficient, from the selection seeds' rows of `measured`: method and beta."""
    merit = last["known"].fillna(last["prior_correct"]) + last["new_correct"]
    selection = last.assign(merit=merit)[last["role"] == "selection"]
    merits = selection.groupby(["method", "beta"], sort=False)["merit"].mean().reset_index()
    return merits.loc[merits.groupby("method", sort=False)["merit"].idxmax(), ["method", "beta"]]


def differences(last: pd.DataFrame) -> pd.DataFrame:
    """CoKL minus every other regularizer, paired by seed: method, at, DIFFERENCES in points, and half-widths.

    last: of `measured`. at: the coefficient, or "chosen". Seeds without a known prompt, or without another one, have no
    such difference.
    """
    reported = last[last["role"] == "report"]
    every = [
        chosen(last).merge(reported).assign(at="chosen"),
        reported.assign(at=[f"{beta:g}" for beta in reported["beta"]]),
    ]
    pairs = pd.concat(every, ignore_index=True)
    ours = pairs[pairs["method"] == "cokl"].set_index(["at", "seed"])[[*DIFFERENCES]]
    rivals = pairs[pairs["method"] != "cokl"]
    pair = pd.MultiIndex.from_frame(rivals[["at", "seed"]])
    points = 100 * (ours.reindex(pair).to_numpy() - rivals[[*DIFFERENCES]].to_numpy())
    rows, by = rivals.assign(**dict(zip(DIFFERENCES, points.T, strict=True))), ["method", "at"]
    parts = [summarize(rows.dropna(subset=name), by, [name]).set_index(by) for name in DIFFERENCES]
    return pd.concat(parts, axis=1).reset_index()


def primary(rows: pd.DataFrame, seeds: int) -> dict[str, Measurement]:
    """CoKL minus replay by task, prior and new, where both have chosen; empty where one was not trained.

    rows: of `differences`.
    """
    return {
        name: Measurement("each at its own coefficient", what, row[name], row[f"{name}_half_width"], seeds)
        for row in rows[(rows["method"] == REPLAY) & (rows["at"] == "chosen")].to_dict("records")
        for name, what in PRIMARY.items()
    }


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """With labels, and intervals in one column."""
    if "at" not in frame:
        return readable(frame).rename(columns=LEVELS)
    shown = pd.DataFrame({"CoKL minus": [label(name) for name in frame["method"]], "coefficient": frame["at"]})
    return shown.assign(**{called: spread_column(frame, name) for name, called in DIFFERENCES.items()})
