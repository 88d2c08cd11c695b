"""A map as a page, and its answer in a few words."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bandit.structure.config import StructureConfig
from bandit.structure.score import reverse_kls, summarize
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table, spread_column, with_spread
from cokl.support.verdicts import Claim, answered, no_verdict, withheld

LEGEND = (
    "In samples, means with 95% t-intervals over the reported seeds, uncorrected. Retention and adaptation are in "
    "points, CoKL's minus replay's at coefficient 1 or, in retention alone, where both adapt alike. An outcome is of "
    "the retention at 1: equal within 5 points, or behind or ahead by more (5% over the map, Holm). Mass share: of "
    "GRPO's drift on the prior task. The predictions were written before the map ran."
)


def judge(summary: pd.DataFrame) -> list[Claim]:
    """The primary claim, that CoKL retains as much as replay somewhere on the map, and the predictions.

    held if it does in some setting, or if every prediction came out; not held if every setting is decided against it,
    or some prediction is; else undecided.
    """
    known = summary[summary["outcome"] != ""]
    equal, undecided = (known["outcome"] == "equal", known["outcome"] == "undecided")
    right = known["outcome"] == known["prediction"]
    wrong = ~right & ~undecided
    return [
        Claim(
            "At coefficient 1 CoKL retains as much as replay in some setting, within 5 points",
            "beyond the paper: in its main table retentions differ by at most 2.7 points",
            f"equal in {equal.sum()} of {len(known)} settings, undecided in {undecided.sum()}; {_nearest(known)}",
            "held" if equal.any() else "not held" if len(known) and not undecided.any() else "undecided",
        ),
        Claim(
            "Each setting comes out as the interference theory predicts",
            "beyond the paper: replay adds beta |grad log Z|^2 to log Z",
            f"{right.sum()} of {len(known)} predictions came out, {wrong.sum()} did not, {undecided.sum()} undecided",
            "not held" if wrong.any() else "held" if len(known) and right.all() else "undecided",
        ),
    ]


def _nearest(known: pd.DataFrame) -> str:
    if known.empty:
        return "nothing is forgotten or learned"
    nearest = known.sort_values("kept", key=abs).iloc[0]
    return f"closest to 0: {with_spread(nearest['kept'], nearest['kept_half_width'], 1)} points ({nearest['cell']})"


def rows(summary: pd.DataFrame) -> pd.DataFrame:
    """A row per setting, as people read it."""
    return pd.DataFrame(
        {
            "setting": summary["cell"],
            "base correctness": summary["base_correct"].map("{:.2f}".format),
            "GRPO loses, %": spread_column(summary, "lost", 0),
            "mass share": spread_column(summary, "mass_share", 2),
            "w/o term 1: retention": spread_column(summary, "without_term1"),
            "CoKL - replay at beta 1: retention": spread_column(summary, "kept"),
            "adaptation": spread_column(summary, "adapted"),
            "predicted": summary["prediction"],
            "outcome": summary["outcome"],
            "at equal adaptation: retention": spread_column(summary, "gain"),
            "outcome there": summary["matched_outcome"],
        }
    )


def page(trained: pd.DataFrame, config: StructureConfig) -> str:
    """The page: the claims, a row per setting, and the reverse KL where it is trained."""
    summary, reverse = summarize(trained, config), reverse_kls(trained)
    claims = [
        f"{claim.statement}: {claim.verdict or 'no verdict'}, {claim.measured}."
        for claim in withheld(judge(summary), config.seeds)
    ]
    text = f"# The structure of correctness: {config.map}\n\n{' '.join(claims)}\n\n{LEGEND}\n\n"
    text += markdown_table(rows(summary))
    if len(reverse):
        scores = {name: spread_column(reverse, name) for name in ("retention", "adaptation")}
        shown = reverse[["cell", "beta"]].assign(**scores)
        text += "\n## Reverse KL\n\nWith k1 in the reward, or as VeRL's loss in the setting's name.\n\n"
        text += markdown_table(shown)
    return text


def write(trained: pd.DataFrame, config: StructureConfig, folder: Path) -> str:
    """Write FOLDER/settings.csv, reverse_kl.csv and results.md; returns, for a terminal, the answer and a row each."""
    summary = summarize(trained, config)
    write_text(csv_text(summary), folder / "settings.csv")
    write_text(csv_text(reverse_kls(trained)), folder / "reverse_kl.csv")
    write_text(page(trained, config), folder / "results.md")
    equal, predictions = judge(summary)
    known = summary[summary["outcome"] != ""]
    shown = rows(summary)[["setting", "mass share", "predicted", "outcome"]]
    leads = {"retention": "kept", "adaptation": "adapted", "adapting alike": "gain"}
    for place, (title, name) in enumerate(leads.items(), start=2):
        shown.insert(place, title, spread_column(summary, name))
    return answered(
        Claim("Somewhere CoKL retains as much as replay", "", _nearest(known), equal.verdict),
        config.seeds,
        [LEGEND, "" if no_verdict(config.seeds) else f"{predictions.statement}: {predictions.measured}."],
        shown.drop(columns=["outcome"] if no_verdict(config.seeds) else []),
        folder / "figures" / f"structure_{config.map}.png",
        folder / "results.md",
    )
