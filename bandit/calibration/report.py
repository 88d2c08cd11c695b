"""The search for the paper's pattern as a page, and its answer in a few sentences."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bandit.calibration.config import CalibrationConfig
from bandit.calibration.score import NEAR_GRPO, NEAR_REPLAY, summarize
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table, spread_column, with_spread
from cokl.support.verdicts import SPREAD, Claim, Verdict, answered, no_verdict

_COLUMNS = {
    "without_term1": "w/o term 1: retention",
    "kept": "CoKL - replay at beta 1: retention",
    "adapted": "adaptation",
    "gain": "at equal adaptation: retention",
    "pass_gain": "pass@k",
    "kl_gain": "conditional KL",
}


LEGEND = (
    "In samples, means with 95% t-intervals over the reported seeds, uncorrected but for the last column. A share s of "
    "the second term is s CoKL + (1 - s) replay, and log Z at the coefficient s without term 1. Retention and "
    "adaptation are in points, pass@k is a probability, conditional KL is in nats, lower is better."
)


def answer(summary: pd.DataFrame, seeds: int) -> str:
    """Where the paper's table rows appear, and whether term 2 improves the trade-off anywhere."""
    sentences = [f"{claim.statement}: {claim.verdict}, {claim.measured}." for claim in judge(summary)]
    return no_verdict(seeds) or " ".join(sentences)


def judge(summary: pd.DataFrame) -> list[Claim]:
    """Two claims: the paper's rows with all of term 2, and that term's worth.

    held if some setting shows it, not held if every setting is decided against it, else undecided.
    """
    known = summary.dropna(subset=["kept"])
    pattern = [_pattern(*pair) for pair in zip(known["near_grpo"], known["near_replay"], strict=True)]
    return [_rows_of_the_paper(known.assign(pattern=pattern)), _worth(known.dropna(subset=["gain"]))]


def _rows_of_the_paper(known: pd.DataFrame) -> Claim:
    whole, parts = known[known["share"] == 1]["pattern"], known[known["share"] < 1]
    shown = parts[parts["pattern"] == "yes"]
    shares = ", ".join(f"{share:g}" for share in sorted(shown["share"].unique()))
    return Claim(
        "With all of term 2, in some setting CoKL w/o term 1 retains as much as GRPO and CoKL as much as replay",
        "beyond the paper: rows of its main and ablation tables at beta 1, which its text does not claim",
        f"in {(whole == 'yes').sum()} of {len(whole)} settings where GRPO is seen to forget, "
        f"{(whole == 'undecided').sum()} undecided, within {NEAR_GRPO:g} and {NEAR_REPLAY:g} points; "
        f"with a part of term 2 in {len(shown)} of {len(parts)} rows" + (f", at shares of {shares}" if shares else ""),
        "held" if (whole == "yes").any() else "not held" if len(whole) and (whole == "no").all() else "undecided",
    )


def _worth(measured: pd.DataFrame) -> Claim:
    better, worse = (int((measured["better"] == verdict).sum()) for verdict in ("held", "not held"))
    counts = f"more in {better} of {len(measured)} settings and shares, less in {worse} (5% over all, Holm)"
    if len(measured):
        best = measured.sort_values("gain").iloc[-1]
        interval = with_spread(best["gain"], best["gain_half_width"], 1)
        counts += f"; the most {interval} points ({best['cell']}, share {best['share']:g})"
    return Claim(
        "Some share of term 2 keeps more of the prior task than replay at equal adaptation",
        "beyond the paper, which has no shares of term 2",
        counts,
        "held" if better else "not held" if len(measured) and worse == len(measured) else "undecided",
    )


def write(trained: pd.DataFrame, config: CalibrationConfig, folder: Path) -> str:
    """Write a row per setting and share as FOLDER/settings.csv, and FOLDER/results.md; returns the answer."""
    summary = summarize(trained, config)
    write_text(csv_text(summary), folder / "settings.csv")
    write_text(page(summary, config.seeds), folder / "results.md")
    shown = summary[["cell", "share"]].assign(
        **{
            title: spread_column(summary, name)
            for name, title in (("lost", "GRPO loses, %"), ("gain", "points kept more"))
        },
        verdict=summary["better"].where(summary["gain"].notna(), ""),
    )
    pattern, worth = judge(summary)
    return answered(
        _gain(summary, worth.verdict),
        config.seeds,
        ["" if no_verdict(config.seeds) else f"{pattern.statement}: {pattern.verdict}, {pattern.measured}.", SPREAD],
        shown.drop(columns=["verdict"] if no_verdict(config.seeds) else []),
        None,
        folder / "results.md",
    )


def _gain(summary: pd.DataFrame, verdict: Verdict | None) -> Claim:
    """What term 2 is worth where it is worth most, in a few words."""
    known, statement = (
        summary.dropna(subset=["gain"]).sort_values("gain"),
        "Some of term 2 keeps more than replay alone",
    )
    if known.empty:
        return Claim(statement, "", "nothing is forgotten, or the two never adapt alike", None)
    best = known.iloc[-1]
    most = with_spread(best["gain"], best["gain_half_width"], 1)
    return Claim(statement, "", f"at most {most} points ({best['cell']}, share {best['share']:g})", verdict)


def rows(summary: pd.DataFrame) -> pd.DataFrame:
    """A row per setting and share, as people read it."""
    return pd.DataFrame(
        {
            "setting": summary["cell"],
            "base correctness": summary["base_correct"].map("{:.2f}".format),
            "GRPO loses, %": spread_column(summary, "lost", 0),
            "share of term 2": summary["share"].map("{:g}".format),
            **{title: spread_column(summary, name, 1 if name in ("without_term1", "kept", "adapted", "gain") else 3)
               for name, title in _COLUMNS.items()},
            "pattern": [_pattern(*pair) for pair in zip(summary["near_grpo"], summary["near_replay"], strict=True)],
            "keeps more": summary["better"].where(summary["gain"].notna(), ""),
        }
    )  # fmt: skip


def page(summary: pd.DataFrame, seeds: int) -> str:
    """The page: the answer, and a row per setting and share."""
    return (
        f"# With which share of term 2 the paper's table rows appear\n\n{answer(summary, seeds)}\n\n"
        f"{LEGEND}\n\n"
        f"{markdown_table(rows(summary))}"
    )


def _pattern(near_grpo: bool | None, near_replay: bool | None) -> str:
    if near_grpo is False or near_replay is False:
        return "no"
    return "yes" if near_grpo and near_replay else "undecided"
