"""What each setting of a map says of CoKL's retention beside replay's, and what GRPO's drift is made of there."""

from __future__ import annotations

import pandas as pd

from bandit.calibration.score import of_cell
from bandit.shift.claims import EQUIVALENT
from bandit.shift.report import DRIFTS
from bandit.shift.score import anchors_diverged, final_rows, score
from bandit.structure.config import REVERSE_KL, StructureConfig
from cokl.support.statistics import mean_and_half_width
from cokl.support.statistics import summarize as over_seeds
from cokl.support.verdicts import Measurement, holm

LEADS = {"kept": "outcome", "gain": "matched_outcome"}
"""CoKL's retention minus replay's at the paper's coefficient, which is primary, and at equal adaptation."""


def summarize(rows: pd.DataFrame, config: StructureConfig) -> pd.DataFrame:
    """A row per setting that trains CoKL; of each measurement the mean over reported seeds and NAME_half_width, 95%.

    rows: as `structure` returns them. prediction: of the primary outcome. mass_share: mass drift over total drift of
    GRPO on the prior task, in [0, 1]. All others as in `bandit.calibration.score.summarize`. outcome, matched_outcome:
    whether the retention lead at the paper's coefficient, or at equal adaptation, is "equal", by two one-sided tests
    within 5 points, or "behind" or "ahead" by more, or "undecided", by Holm's over the settings; "" without a lead.
    """
    lines = []
    for cell, (_, prediction) in config.chosen.items():
        if prediction:
            table = rows[rows["cell"] == cell].drop(columns="cell")
            grpo = final_rows(table[(table["role"] == "report") & (table["method"] == "none")])
            share, half_width = mean_and_half_width(grpo["mass_drift"] / grpo[list(DRIFTS)].sum(axis=1, skipna=False))
            shares = {"mass_share": share, "mass_share_half_width": half_width}
            lines.append({"cell": cell, "prediction": prediction, **shares, **of_cell(table, (1.0,))[1.0]})
    summary = pd.DataFrame(lines)
    for lead, outcome in LEADS.items():
        summary[outcome] = _outcomes(summary, lead, config.seeds)
    return summary


def _outcomes(summary: pd.DataFrame, lead: str, seeds: int) -> pd.Series:
    known = summary.dropna(subset=[lead])
    measured = [
        Measurement("", lead, mean, half_width, seeds, margin=EQUIVALENT, equal=True)
        for mean, half_width in known[[lead, f"{lead}_half_width"]].to_numpy()
    ]
    sure = holm([one.p_value for one in measured])
    outcomes = [
        "undecided" if not decided else "equal" if one.leaning == "held" else "behind" if one.mean < 0 else "ahead"
        for one, decided in zip(measured, sure, strict=True)
    ]
    return pd.Series(outcomes, index=known.index, dtype=object).reindex(summary.index, fill_value="")


def reverse_kls(rows: pd.DataFrame) -> pd.DataFrame:
    """The reverse KL's retention and adaptation in each setting that trains it: cell, beta, means and half-widths."""
    trained = []
    for cell, of_one in rows.groupby("cell", sort=False):
        table = of_one.drop(columns="cell")
        if REVERSE_KL in set(table["method"]) and not anchors_diverged(table):
            ends = score(table).query("role == 'report' and method == @REVERSE_KL")
            trained.append(over_seeds(ends.assign(cell=cell), ["cell", "beta"], ["retention", "adaptation"]))
    return pd.concat(trained, ignore_index=True) if trained else pd.DataFrame(columns=["cell", "beta"])
