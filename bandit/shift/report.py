"""The tables of the task-shift lab as CSV, one page of Markdown, and a summary for the screen.

Every interval is a 95% t-interval over the reported seeds; coefficients are chosen on the selection seeds alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from bandit.engine.tables import reported_seeds
from bandit.engine.two_tasks.plan import RUN
from bandit.shift import score as scores
from bandit.shift.claims import balance, judge
from bandit.shift.config import ShiftConfig
from cokl import methods
from cokl.support.files import write_text
from cokl.support.options import require
from cokl.support.statistics import csv_text, markdown_table, summarize, with_spread
from cokl.support.verdicts import SPREAD, Claim, answered, chance_findings, no_verdict

RAW = ["prior_correct", "new_correct"]
BESIDE_ACCURACY = ["prior_pass_at_k", "conditional_kl"]
"""What sees of the prior task's answers more than how often the first one is correct."""
NORMALIZED = ["retention", "adaptation", "overall"]
DRIFTS = ["mass_drift", "correct_drift", "incorrect_drift"]
EDGE = "Edge: the coefficient is the smallest or largest of its grid, so that a better one may lie outside."

CAPTIONS = {
    "table1_normalized": "Dual-anchor normalized scores (Table 1 in miniature): Base is 100 in retention and 0 in "
    "adaptation, GRPO w/o KL the reverse; Overall is their mean. Setting best: each method at the coefficient with the "
    "highest Overall on the selection seeds; matched: at the one whose adaptation there is closest to "
    f"{scores.MATCHED_ADAPTATION:g}. Note: edge, the coefficient is the smallest or largest of its grid, so a better "
    f"one may lie outside; missed, adaptation is more than {scores.MATCH_TOLERANCE:g} points from the target.",
    "table1_raw": "The same unnormalized: probability of a correct answer on the prior and on the new task; on the "
    "prior one pass@k, exact, which depends on each prompt's accuracy only, and D_KL(base+ || policy+), in nats.",
    "equal_adaptation": f"Retention, pass@k and conditional KL where adaptation is {scores.MATCHED_ADAPTATION:g}, "
    "interpolated between two neighbouring coefficients on the reported seeds; methods that never pass it are left "
    "out. The claims compare these retentions, which table1's nearest coefficients only approach.",
    "beta_search": "Beta search: every coefficient, on the selection seeds, which choose, and on the reported ones.",
    "kl_batch": "KL batch: prompts per update against scores on the reported seeds, at the coefficients that were "
    "trained with more than one batch size.",
    "zero_correct": "Expected share of rollout groups without a correct answer, mean over the evaluated steps after "
    "the first, on the prompts that the method trains on: all of the buffer, or, filtered, those with a correct "
    "reference response, which are easier; compare within one kind only.",
    "decomposition": "Drift on the prior task at the end of training, Eq. 7 in nats: D_KL(base || policy) = mass + "
    "correct + incorrect; correct_share is correct / (correct + mass). Prior correctness is itself the mean "
    "correctness mass, so loss of mass is what lowers it; drift within the correct answers changes which are given.",
}


def require_scores(names: Sequence[str], selection_seeds: int) -> None:
    """Raises InputError for an experiment whose results could not be scored or compared, and for unknown methods."""
    for name in names:
        methods.get(name)
    methods_text = ",".join(names)
    require("none" in names, "methods", "none among them, GRPO w/o KL, which scores relate to", methods_text)
    require(len(names) > 1, "methods", "at least one regularizer besides none", methods_text)
    require(selection_seeds > 0, "selection_seeds", "at least 1, to choose coefficients on", 0)


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every table of the lab by file name, numbers with their NAME_half_width beside them.

    Raises InputError if the shift table lacks the anchors or the selection seeds.
    """
    scored = scores.score(table)
    scored["drift"] = scored[DRIFTS].sum(axis=1)
    scored["correct_share"] = scored["correct_drift"] / (scored["correct_drift"] + scored["mass_drift"])
    compared = scores.settings(scored)
    last = scores.final_rows(compared)
    by = ["mode", "setting", "method", "beta", "kl_prompts", "edge", "missed"]
    measures = ["retention", *BESIDE_ACCURACY]
    return {
        "table1_normalized": summarize(last, by, NORMALIZED),
        "table1_raw": summarize(last, by, RAW + BESIDE_ACCURACY),
        "equal_adaptation": summarize(
            scores.at_equal_adaptation(scored, measures), ["mode", "method", "beta_below", "beta_above"], measures
        ),
        "beta_search": _beta_search(scored),
        "kl_batch": _kl_batch(scored),
        "zero_correct": _zero_correct(compared),
        "decomposition": summarize(
            last[last["method"] != "base"], by[:5], ["conditional_kl", *DRIFTS, "drift", "correct_share"]
        ),
        "dynamics": summarize(
            compared[compared["setting"] == "best"], [*RUN, "step"], [*RAW, "conditional_kl", *DRIFTS]
        ),
    }


def each_seed(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What `tables` has means of, for each reported seed: the rows behind "beta_search" and behind "dynamics"."""
    scored = scores.score(table)
    searched = scores.main_rows(scores.final_rows(scored))
    return {
        "beta_search": searched[searched["role"] == "report"].sort_values("beta"),
        "dynamics": scores.reported_rows(scored, scores.best_coefficients(scored)),
    }


def write(table: pd.DataFrame, config: ShiftConfig, folder: Path) -> str:
    """Write each table as FOLDER/NAME.csv and all with the verdicts as FOLDER/results.md; returns `on_screen`.

    Raises InputError if the shift table lacks the anchors or the selection seeds.
    """
    made, claims = tables(table), judge(scores.score(table))
    for name, frame in made.items():
        write_text(csv_text(frame), folder / f"{name}.csv")
    write_text(_page(table, made, claims), folder / "results.md")
    return on_screen(table, made["table1_normalized"], folder)


def on_screen(table: pd.DataFrame, normalized: pd.DataFrame, folder: Path) -> str:
    """For a terminal, whether CoKL has the best balance, and the scores of each method at its best coefficient."""
    mode = "sampled" if "sampled" in set(normalized["mode"]) else "exact"
    shown = normalized[(normalized["mode"] == mode) & (normalized["setting"] == "best")]
    columns = ["method", "beta", *NORMALIZED, "note"]
    return answered(
        balance(scores.score(table), mode),
        reported_seeds(table),
        [anchors(table), f"{SPREAD} {EDGE}"],
        readable(shown)[columns],
        folder / "figures" / f"shift_tradeoff_{mode}.png",
        folder / "results.md",
    )


_HOW_JUDGED = (
    'A verdict, of this lab alone, is that of the primary measurements, all of which a claim needs. It is "depends" '
    "where what is decided contradicts itself; secondary measurements are Holm-corrected within their claim. Intervals "
    "are 95% each, uncorrected."
)


def anchors(table: pd.DataFrame) -> str:
    """What GRPO w/o KL forgets and learns: the denominators of all scores, with a warning where they may be zero."""
    lines = []
    for mode, rows in table.groupby("mode", sort=False):
        forgotten, learned = scores.forgotten_and_learned(rows)
        lost, gained = with_spread(*forgotten, 3), with_spread(*learned, 3)
        line = f"GRPO w/o KL ({mode}) forgets {lost} of correctness and learns {gained}."
        if min(forgotten[0] - forgotten[1], learned[0] - learned[1]) <= 0:
            line += " WARNING: not told from zero by these seeds, so that there are no scores to divide by it."
        lines.append(line)
    note = scores.diverged_note(table)
    return "\n".join([*lines, f"{note}."] if note else lines)


def _beta_search(scored: pd.DataFrame) -> pd.DataFrame:
    rows = scores.undetermined_as_nan(scores.main_rows(scores.final_rows(scored)), "selection")
    by = ["mode", "role", "method", "beta", "kl_prompts"]
    search = summarize(rows, by, RAW + BESIDE_ACCURACY + NORMALIZED)
    chosen = {"best": scores.best_coefficients(scored), "matched": scores.matched_coefficients(scored)}
    for name, coefficients in chosen.items():
        settings = pd.MultiIndex.from_frame(coefficients[["mode", "method", "beta"]])
        search[name] = pd.MultiIndex.from_frame(search[["mode", "method", "beta"]]).isin(settings)
    return search


def _kl_batch(scored: pd.DataFrame) -> pd.DataFrame:
    last = scores.final_rows(scored[scored["role"] == "report"])
    sizes = last.groupby(["mode", "method", "beta"])["kl_prompts"].transform("nunique")
    return summarize(last[sizes > 1].sort_values("kl_prompts", kind="stable"), RUN, RAW + NORMALIZED)


def _zero_correct(compared: pd.DataFrame) -> pd.DataFrame:
    trained = compared[(compared["step"] > 0) & compared["zero_correct_rate"].notna()]
    by = ["mode", "setting", "method", "beta", "kl_prompts"]
    rates = trained.groupby([*by, "seed"], sort=False)["zero_correct_rate"].mean().reset_index()
    prompts = ["filtered" if methods.get(name).filtered else "all" for name in rates["method"]]
    return summarize(rates.assign(buffer=prompts), [*by, "buffer"], ["zero_correct_rate"])


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Labels instead of names, and "value ± half-width" in one column."""
    shown = frame.assign(method=[scores.label(name) for name in frame["method"]])
    for name in {"beta", "beta_below", "beta_above", "kl_prompts"}.intersection(frame):
        shown[name] = [f"{value:g}" for value in frame[name]]
    for half_width in [name for name in frame if str(name).endswith("_half_width")]:
        name = str(half_width).removesuffix("_half_width")
        digits = 1 if name in NORMALIZED else 3
        shown[name] = [with_spread(*pair, digits) for pair in zip(frame[name], frame[half_width], strict=True)]
        shown = shown.drop(columns=half_width)
    if "missed" in shown:
        flags = frame[["edge", "missed"]].to_dict("records")
        shown["note"] = [", ".join(str(word) for word, holds in row.items() if holds) for row in flags]
        shown = shown.drop(columns=["edge", "missed"])
    return shown


def _page(table: pd.DataFrame, made: dict[str, pd.DataFrame], claims: list[Claim]) -> str:
    counts = table.groupby("role")["seed"].nunique()
    parts = [
        "# Task-shift lab",
        f"Reported seeds: {counts['report']}; selection seeds: {counts['selection']}, which only choose coefficients. "
        "After a value, ± is the half-width of its 95% t-interval over the reported seeds.",
        anchors(table),
        "## Claims of the paper",
        _HOW_JUDGED,
    ]
    parts += filter(None, (no_verdict(reported_seeds(table)), chance_findings(claim.verdict for claim in claims)))
    for claim in claims:
        parts.append(f"### {claim.statement}" + (f": {claim.verdict}" if claim.verdict else ""))
        parts.append("\n".join(f"- {line}" for line in (claim.measured, *claim.evidence)))
    for name, caption in CAPTIONS.items():
        shown = markdown_table(readable(made[name])) if len(made[name]) else "No such runs.\n"
        parts += [f"## {name}.csv", caption, shown]
    parts.append(
        "Over training: dynamics.csv, prior and new correctness and the drifts at each method's best coefficient.\n"
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"
