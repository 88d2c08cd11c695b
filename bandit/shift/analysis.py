"""What a shift table says: the answer, the claims, and tables of every method's scores.

A shift table has a row per evaluated step; `bandit.shift.train.COLUMNS` are its columns. Every interval is a 95%
t-interval over the reported seeds.
"""

from __future__ import annotations

import pandas as pd

from bandit.engine.tables import reported_seeds
from bandit.engine.two_tasks import summary
from bandit.engine.two_tasks.plan import RUN
from bandit.engine.two_tasks.summary import diverged_note, final_rows, forgotten_and_learned
from bandit.lab import Analysis, Tables
from bandit.shift.claims import Views, balance, judge
from bandit.shift.config import ShiftConfig
from bandit.shift.scores import Scored, main_rows, reported_rows, undetermined_as_nan
from cokl.support.statistics import summarize, with_spread
from cokl.support.verdicts import SPREAD

RAW = ["prior_correct", "new_correct"]
BESIDE_ACCURACY = ["prior_pass_at_k", "conditional_kl"]
"""What sees of the prior task's answers more than how often the first one is correct."""
NORMALIZED = ["retention", "adaptation", "overall"]
DRIFTS = ["mass_drift", "correct_drift", "incorrect_drift"]
EDGE = "Edge: the coefficient is the smallest or largest of its grid, so that a better one may lie outside."

TITLES = {
    "table1_normalized": "Dual-anchor normalized scores (Table 1 in miniature)",
    "beta_search": "Beta search",
    "kl_batch": "KL batch",
    "decomposition": "Drift on the prior task at the end of training, Eq. 7 in nats",
}
CAPTIONS = {
    "table1_normalized": f"{TITLES['table1_normalized']}: Base is 100 in retention and 0 in "
    "adaptation, GRPO w/o KL the reverse; Overall is their mean. Each method is at the coefficient with the highest "
    "Overall on the selection seeds. Note: edge, the coefficient is the smallest or largest of its grid, so a better "
    "one may lie outside.",
    "beta_search": f"{TITLES['beta_search']}: every coefficient, on the selection seeds, which choose, and on the "
    "reported ones: probability of a correct answer on either task, on the prior one pass@k, exact, which depends on "
    "each prompt's accuracy only, and D_KL(base+ || policy+), in nats.",
    "kl_batch": f"{TITLES['kl_batch']}: prompts per update against scores on the reported seeds, at the coefficients "
    "that were trained with more than one batch size.",
    "decomposition": f"{TITLES['decomposition']}: D_KL(base || policy) = mass + "
    "correct + incorrect; correct_share is correct / (correct + mass). Prior correctness is itself the mean "
    "correctness mass, so loss of mass is what lowers it; drift within the correct answers changes which are given.",
}


def analyse(tables: Tables, config: ShiftConfig) -> Analysis:
    """Whether CoKL has the best balance, the paper's claims, and every method's scores; the table is scored once."""
    table = tables["shift"]
    scored = Scored.of(table)
    views, made = Views(scored), tables_of(scored)
    normalized = made["table1_normalized"]
    mode = "sampled" if "sampled" in set(normalized["mode"]) else "exact"
    best = normalized[normalized["mode"] == mode]
    return Analysis(
        answer=balance(views, mode),
        seeds=reported_seeds(table),
        claims=judge(views),
        tables=made,
        captions=CAPTIONS,
        titles=TITLES,
        readable=readable,
        screen=readable(best)[["method", "beta", *NORMALIZED, "note"]],
        notes=[denominators(table), f"{SPREAD} {EDGE}"],
        picture=f"shift_tradeoff_{mode}",
        diverged=diverged_note(table),
    )


def tables_of(scored: Scored) -> dict[str, pd.DataFrame]:
    """Every table of the lab by file name, numbers with their NAME_half_width beside them."""
    table = scored.table.copy()
    table["drift"] = table[DRIFTS].sum(axis=1)
    table["correct_share"] = table["correct_drift"] / (table["correct_drift"] + table["mass_drift"])
    last = final_rows(reported_rows(table, scored.best))
    by = ["mode", "method", "beta", "kl_prompts"]
    drifts = ["conditional_kl", *DRIFTS, "drift", "correct_share"]
    return {
        "table1_normalized": summarize(last, [*by, "edge"], NORMALIZED),
        "beta_search": _beta_search(table, scored.best),
        "kl_batch": _kl_batch(table),
        "decomposition": summarize(last[last["method"] != "base"], by, drifts),
    }


def denominators(table: pd.DataFrame) -> str:
    """What GRPO w/o KL forgets and learns: the denominators of all scores, with a warning where they may be zero."""
    lines = []
    for mode, rows in table.groupby("mode", sort=False):
        forgotten, learned = forgotten_and_learned(rows)
        lost, gained = with_spread(*forgotten, 3), with_spread(*learned, 3)
        line = f"GRPO w/o KL ({mode}) forgets {lost} of correctness and learns {gained}."
        if min(forgotten[0] - forgotten[1], learned[0] - learned[1]) <= 0:
            line += " WARNING: not told from zero by these seeds, so that there are no scores to divide by it."
        lines.append(line)
    note = diverged_note(table)
    return "\n".join([*lines, f"{note}."] if note else lines)


def _beta_search(scored: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    rows = undetermined_as_nan(main_rows(final_rows(scored)), "selection")
    by = ["mode", "role", "method", "beta", "kl_prompts"]
    search = summarize(rows, by, RAW + BESIDE_ACCURACY + NORMALIZED)
    chosen = pd.MultiIndex.from_frame(best[["mode", "method", "beta"]])
    return search.assign(best=pd.MultiIndex.from_frame(search[["mode", "method", "beta"]]).isin(chosen))


def _kl_batch(scored: pd.DataFrame) -> pd.DataFrame:
    last = final_rows(scored[scored["role"] == "report"])
    sizes = last.groupby(["mode", "method", "beta"])["kl_prompts"].transform("nunique")
    return summarize(last[sizes > 1].sort_values("kl_prompts", kind="stable"), RUN, RAW + NORMALIZED)


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """A table as people read it; an edge of the grid is a note."""
    shown = summary.readable(frame, NORMALIZED)
    if "edge" in shown:
        shown = shown.assign(note=["edge" if edge else "" for edge in frame["edge"]]).drop(columns="edge")
    return shown
