"""What the cells of a phase diagram say: the winner, CoKL's lead, and what GRPO's drift is made of."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from bandit.shift.claims import VARIANTS
from bandit.shift.report import BESIDE_ACCURACY, DRIFTS
from bandit.shift.score import (
    anchors_diverged,
    best_coefficients,
    final_rows,
    forgotten_and_learned,
    reported_rows,
    score,
    without_diverged_runs,
)
from cokl.support.statistics import mean_and_half_width

MEANINGFUL = 0.05
"""Correctness that GRPO without KL has to forget and to learn, interval and all: scores are divided by it."""

_UNKNOWN = math.nan, math.nan

UNDECIDED = "too little forgotten or learned"
"""What a cell without a winner says."""


def is_meaningful(forgotten: tuple[float, float], learned: tuple[float, float]) -> bool:
    """Whether GRPO forgets and learns enough for scores; means and half-widths of their intervals."""
    return min(forgotten[0] - forgotten[1], learned[0] - learned[1]) > MEANINGFUL


def summarize_cell(table: pd.DataFrame) -> dict[str, Any]:
    """One cell's winner on the selection seeds, CoKL's lead, and what GRPO's drift on the prior task is made of.

    table: a shift table of one mode. lead: the winner's Overall minus the runner-up's on the reported seeds, paired by
    seed, with the half-width of its 95% interval; it may be negative. prior_pass_at_k_lead, conditional_kl_lead: CoKL's
    minus its rival's, likewise; less of the latter is better. edges: methods whose best coefficient is the grid's
    smallest or largest. Names are "" and scores NaN where GRPO may forget or learn less than `MEANINGFUL` or diverged,
    or CoKL is absent.
    """
    lost = anchors_diverged(table)
    table = table if lost else without_diverged_runs(table)
    ends = final_rows(table[table["role"] == "report"]).set_index("seed")
    base, grpo = ends[ends["method"] == "base"], ends[ends["method"] == "none"]
    forgotten, learned = (_UNKNOWN, _UNKNOWN) if lost else forgotten_and_learned(table)
    cell: dict[str, Any] = {
        "seeds": len(base),
        "base_correct": base["prior_correct"].mean(),
        "forgotten": forgotten[0],
        "forgotten_half_width": forgotten[1],
        "learned": learned[0],
        "learned_half_width": learned[1],
        **{name: grpo[name].mean(skipna=False) for name in DRIFTS},
        "correct_share": (grpo["correct_drift"] / (grpo["correct_drift"] + grpo["mass_drift"])).mean(skipna=not lost),
        **dict.fromkeys(("winner", "runner_up", "rival", "edges"), ""),
        **dict.fromkeys(("winner_overall", "lead", "lead_half_width"), math.nan),
        **dict.fromkeys(("cokl_overall", "cokl_lead", "cokl_lead_half_width"), math.nan),
        **{f"{name}_lead{end}": math.nan for name in BESIDE_ACCURACY for end in ("", "_half_width")},
    }
    if lost or not is_meaningful(forgotten, learned):
        return cell
    scored = score(table)
    best = best_coefficients(scored[scored["method"] != "base"])
    chosen = final_rows(best.merge(scored[scored["role"] == "selection"])).groupby("method")["overall"].mean()
    trained = final_rows(reported_rows(scored, best))
    overall = trained.pivot(index="seed", columns="method", values="overall")
    winner, runner_up = chosen.nlargest(2).index
    cell |= {"winner": winner, "winner_overall": overall[winner].mean(), "runner_up": runner_up}
    cell["edges"] = ",".join(best[best["edge"]]["method"])
    cell["lead"], cell["lead_half_width"] = mean_and_half_width(overall[winner] - overall[runner_up])
    rivals = chosen[~chosen.index.isin(VARIANTS)]
    if "cokl" in overall and len(rivals):
        rival = rivals.idxmax()
        cell["rival"], cell["cokl_overall"] = rival, overall["cokl"].mean()
        cell["cokl_lead"], cell["cokl_lead_half_width"] = mean_and_half_width(overall["cokl"] - overall[rival])
        for name in BESIDE_ACCURACY:
            values = trained.pivot(index="seed", columns="method", values=name)
            lead = mean_and_half_width(values["cokl"] - values[rival])
            cell[f"{name}_lead"], cell[f"{name}_lead_half_width"] = lead
    return cell


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per cell of a diagram's rows, which are shift tables with columns x and y."""
    return pd.DataFrame([{"x": x, "y": y, **summarize_cell(cell)} for (x, y), cell in rows.groupby(["x", "y"])])


EXPLANATIONS = ("correct_share", "correct_drift", "mass_drift", "incorrect_drift", "base_correct", "forgotten")


def explain(cells: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rank correlation, over cells, of CoKL's lead with what the decomposition says of GRPO without KL.

    Columns: quantity, spearman, cells; without a row for quantities that are constant over the cells. There are no
    p-values, since cells share seeds and are not independent.
    """
    from scipy import stats  # takes a second to load, and no worker needs it

    known = cells.dropna(subset=["cokl_lead"])
    lines = []
    for quantity in EXPLANATIONS:
        if len(known) > 2 and known[quantity].nunique() > 1 and known["cokl_lead"].nunique() > 1:
            spearman = stats.spearmanr(known[quantity], known["cokl_lead"]).statistic
            lines.append({"quantity": quantity, "spearman": spearman, "cells": len(known)})
    return pd.DataFrame(lines, columns=["quantity", "spearman", "cells"])
