"""The plasticity lab's tables and verdicts, as a Markdown page and for a terminal."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bandit.engine.tables import coverage_column, reported_seeds
from bandit.engine.tables import method_label as label
from bandit.plasticity.claims import judge, lead
from bandit.plasticity.config import PRIMARY_CHANGE, PlasticityConfig
from bandit.plasticity.score import GROUP, START, at_match, diverged_note, match, ranking, runs
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table, spread_column, summarize
from cokl.support.verdicts import Claim, answered, no_verdict

CAPTIONS = {
    "at_match": "At matched correctness of the exact phase 1, by change of the reward",
    "cached": f"At matched correctness of the sampled phase 1, after {PRIMARY_CHANGE}, by cached responses",
    "coefficients": f"Every coefficient, after {PRIMARY_CHANGE} in sampled groups",
    "match": "The coefficients that the match takes, chosen on the selection seeds",
    "ranking": f"Spearman's rank correlation of plasticity after {PRIMARY_CHANGE} with what phase 1 reached",
}
_MEASURED = ["p_correct", "plasticity", "start", "to_half", "never"]


def tables(table: pd.DataFrame, config: PlasticityConfig) -> dict[str, pd.DataFrame]:
    """Every table by its name, means over the reported seeds with 95% half-widths; empty ones are left out."""
    scored, chosen = runs(table), match(table, config)
    matched = at_match(scored, chosen, _MEASURED)
    primary = scored[(scored["change"] == PRIMARY_CHANGE) & (scored["mode"] == "sampled")]
    facts = ["p_correct", "plasticity", coverage_column(scored), "conditional_kl"]
    made = {
        "at_match": summarize(matched[matched["phase"] != "sampled"], ["change", "mode", "method"], _MEASURED),
        "cached": summarize(matched[matched["phase"] == "sampled"], ["method", "cached"], _MEASURED),
        "coefficients": summarize(primary[primary["role"] == "report"], START, facts),
        "match": chosen.round(3),
        "ranking": ranking(scored, PRIMARY_CHANGE),
    }
    return {name: frame for name, frame in made.items() if len(frame)}


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """A table as people read it: labels, and each mean with its half-width."""
    shown = {}
    for name in map(str, frame.columns):
        if name.endswith("_half_width"):
            continue
        if f"{name}_half_width" in frame:
            shown[_TITLES.get(name, name)] = spread_column(frame, name, 0 if name == "to_half" else 3)
        else:
            shown[_TITLES.get(name, name)] = [label(v) if name == "method" else str(v) for v in frame[name]]
    return pd.DataFrame(shown)


_TITLES = {
    "p_correct": "phase-1 correctness",
    "start": "new reward at its start",
    "to_half": "steps to one half",
    "never": "inputs below one half at the end",
    "rank_correlation": "rank correlation",
}


def legend(table: pd.DataFrame, config: PlasticityConfig) -> str:
    """What stands under the tables."""
    chosen = match(table, config)
    targets = {"exact": config.matched_correctness, "sampled": config.sampled_matched_correctness}
    regularized = chosen[chosen["beta"] > 0].drop_duplicates(GROUP)
    missed = [
        f"{label(row['method'])}"
        + (f" with {row['cached']} cached" if row["cached"] else "")
        + f" at {row['reached']:.3f}"
        for row in regularized.to_dict("records")
        if abs(row["reached"] - targets[row["phase"]]) > 0.002
    ]
    seeds = reported_seeds(table)
    return (
        f"Seeds: {seeds} and {config.selection_seeds} for selection. After ± is half the width of a 95% t-interval. "
        f"The match is at a correctness of {targets['exact']:g}, after the sampled phase 1 {targets['sampled']:g}; "
        f"steps to one half are {config.new_steps} where it is never reached."
        + (f" No coefficients enclose the match, so the nearest one stands for {', '.join(missed)}." if missed else "")
        + (f" {note}." if (note := diverged_note(table)) else "")
    )


def _page(table: pd.DataFrame, config: PlasticityConfig, claims: list[Claim], made: dict[str, pd.DataFrame]) -> str:
    """The verdicts with every measurement, and the tables."""
    refused = no_verdict(reported_seeds(table))
    lines = ["# Plasticity\n", legend(table, config), *([refused] if refused else []), "\n## Claims\n"]
    for claim in claims:
        lines += [f"### {claim.statement}\n", f"Verdict: {claim.verdict or 'none'}.\n"]
        lines += [*(f"- {line}" for line in (claim.measured, *claim.evidence)), ""]
    for name, frame in made.items():
        lines += [f"## {CAPTIONS[name]}\n", markdown_table(readable(frame))]
    return "\n".join(lines)


def write(table: pd.DataFrame, config: PlasticityConfig, folder: Path) -> str:
    """Write results.md, each table and every seed at the match as CSV; returns what the screen shows."""
    page = folder / "results.md"
    claims, made = judge(table, config), tables(table, config)
    write_text(_page(table, config, claims, made), page)
    each_seed = at_match(runs(table), match(table, config), _MEASURED)
    for name, frame in {**made, "each_seed": each_seed}.items():
        write_text(csv_text(frame), folder / f"{name}.csv")
    shown = made["at_match"][["change", "mode", "method", *_both("p_correct"), *_both("plasticity"), *_both("to_half")]]
    shown = shown[(shown["change"] == PRIMARY_CHANGE) & (shown["mode"] == "sampled")]
    return answered(
        lead(table, config),
        reported_seeds(table),
        [f"After {PRIMARY_CHANGE}, learned in sampled groups. {legend(table, config)}"],
        readable(shown).drop(columns=["change", "mode"]),
        folder / "figures" / "plasticity_curves.png",
        page,
        f"cokl report --results {folder}",
    )


def _both(name: str) -> tuple[str, str]:
    return name, f"{name}_half_width"
