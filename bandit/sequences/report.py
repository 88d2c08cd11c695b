"""The tables of the sequence lab as CSV, one page of Markdown, and a summary for the screen.

Every interval is a 95% t-interval over the reported seeds; coefficients are chosen on the selection seeds alone.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bandit.engine.tables import reported_seeds
from bandit.engine.two_tasks.plan import RUN
from bandit.sequences.config import SequenceConfig
from bandit.sequences.run import METRICS
from bandit.sequences.score import BESIDE_ACCURACY, MEASURES, PREDICTORS, PRIMARY, leads, primary_lead, razor
from bandit.shift import score as scores
from bandit.shift.report import EDGE, NORMALIZED, anchors, readable
from bandit.shift.score import label
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table, spread_column, summarize, with_spread
from cokl.support.verdicts import SPREAD, Claim, answered, no_verdict, verdict_on

CAPTIONS = {
    "normalized": "Dual-anchor scores of accuracy, Base 100 in retention and 0 in adaptation, GRPO w/o KL the reverse. "
    "Setting best: the coefficient with the highest Overall on the selection seeds; matched: the one whose adaptation "
    f"there is closest to {scores.MATCHED_ADAPTATION:g}. Note: edge, the coefficient is the smallest or largest of its "
    f"grid; missed, adaptation is more than {scores.MATCH_TOLERANCE:g} points from the target.",
    "raw": "Unnormalized: accuracy and pass@k, which depends on each prompt's accuracy only; D_KL(base+ || policy+) "
    "and the entropy of the correct answers, in nats, on the prior task.",
    "equal_adaptation": f"Where adaptation is {scores.MATCHED_ADAPTATION:g}, interpolated between two neighbouring "
    "coefficients; methods that never pass it are left out.",
    "leads": "CoKL less each other method there, paired by seed. Accuracy (prior_correct) and pass@k as "
    "probabilities; retention in points of GRPO's loss; conditional KL and entropy in nats, of which less and more are "
    "preserved better.",
    "razor": "RL's Razor: R^2 of a parabola from each divergence to the prior correctness lost.",
    "beta_search": "Every coefficient, on the selection seeds, which choose, and on the reported ones.",
}


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table of the lab by file name, numbers with their NAME_half_width beside them.

    Raises InputError if the table lacks the anchors or the selection seeds.
    """
    scored = scores.score(table)
    compared = scores.settings(scored)
    last = scores.final_rows(compared)
    by = ["mode", "setting", "method", "beta", "edge", "missed"]
    raw = ["prior_correct", "new_correct", *BESIDE_ACCURACY]
    equal = scores.at_equal_adaptation(scored, MEASURES)
    return {
        "normalized": summarize(last, by, NORMALIZED),
        "raw": summarize(last, by, raw),
        "equal_adaptation": summarize(equal, ["mode", "method", "beta_below", "beta_above"], MEASURES),
        "leads": leads(table),
        "razor": razor(table),
        "beta_search": summarize(
            scores.undetermined_as_nan(scores.final_rows(scored), "selection"), ["role", *RUN], [*NORMALIZED, *METRICS]
        ),
        "dynamics": summarize(compared[compared["setting"] == "best"], [*RUN, "step"], list(METRICS)),
    }


def write(table: pd.DataFrame, config: SequenceConfig, folder: Path) -> str:
    """Write each table as FOLDER/NAME.csv and all as FOLDER/results.md; returns, for a terminal, the primary comparison
    and the scores at each method's best coefficient. Raises InputError as `tables` does.
    """
    made = tables(table)
    for name, frame in made.items():
        write_text(csv_text(frame), folder / f"{name}.csv")
    parts = ["# Sequence lab", _setting(table, config), anchors(table), primary(table)]
    for name, caption in CAPTIONS.items():
        shown = markdown_table(named(made[name])) if len(made[name]) else "No such runs.\n"
        parts += [f"## {name}.csv", caption, shown]
    parts.append("Over training: dynamics.csv.")
    write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n", folder / "results.md")
    mode = PRIMARY[0] if PRIMARY[0] in set(table["mode"]) else "exact"
    scored = made["normalized"]
    scored = scored[(scored["mode"] == mode) & (scored["setting"] == "best")]
    lead = primary_lead(table)
    measured = f"by {with_spread(100 * lead[0], 100 * lead[1], 1)} points" if lead else "not to be had here"
    seeds = reported_seeds(table)
    verdict = verdict_on(*lead, seeds) if lead else None
    return answered(
        Claim(f"CoKL keeps more than {label(PRIMARY[2])}, adapting alike", "", measured, verdict),
        seeds,
        [anchors(table), f"{SPREAD} {EDGE}"],
        named(scored)[["method", "beta", *NORMALIZED, "note"]],
        None,
        folder / "results.md",
    )


def primary(table: pd.DataFrame) -> str:
    """The one primary comparison in a sentence, with a verdict from four seeds on."""
    mode, _, rival = PRIMARY
    lead = primary_lead(table)
    seeds = reported_seeds(table)
    compared = (
        f"Primary comparison: CoKL's accuracy on the prior task minus {label(rival)}'s at equal adaptation ({mode})"
    )
    if lead is None:
        return f"{compared}: not to be had, for one of them was not trained or never adapts as much."
    called = {"held": "CoKL ends higher", "not held": "CoKL ends lower", "undecided": "undecided"}
    verdict = verdict_on(*lead, seeds)
    judged = f"In this miniature: {called[verdict]}." if verdict else no_verdict(seeds)
    return f"{compared}: {with_spread(100 * lead[0], 100 * lead[1], 1)} points. {judged}"


def _setting(table: pd.DataFrame, config: SequenceConfig) -> str:
    counts = table.groupby("role")["seed"].nunique()
    return (
        f"Responses of {config.length} tokens over {config.symbols} symbols; k = {config.pass_draws}; the regularizer "
        f"is a {config.token_reduction} over tokens. Reported seeds: {counts['report']} from {config.first_seed} on; "
        f"selection seeds: {counts['selection']}. After a value, ± is the half-width of its 95% t-interval."
    )


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """With labels for methods and predictors, and intervals in one column."""
    if "predictor" in frame:
        shown = frame.assign(predictor=frame["predictor"].map(PREDICTORS), r2=spread_column(frame, "r2", 2))
        return shown.drop(columns="r2_half_width")
    return readable(frame)
