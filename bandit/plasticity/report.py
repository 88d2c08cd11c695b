"""The plasticity lab's tables and verdicts, as a Markdown page and for a terminal."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bandit.engine.tables import method_label as label
from bandit.engine.tables import reported_seeds
from bandit.plasticity.claims import judge, lead
from bandit.plasticity.config import TwoPhases
from bandit.plasticity.score import GROUP, START, at_match, diverged_note, match, of_primary, ranking, runs
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table, spread_column, summarize
from cokl.support.verdicts import Claim, answered, no_verdict

_MEASURED = ["p_correct", "plasticity", "start", "to_half", "never"]


def captions(config: TwoPhases) -> dict[str, str]:
    """What stands above each table."""
    change, phase = config.primary_change, config.phases[0].name
    return {
        "at_match": f"At matched correctness of the {phase} phase 1, by change of the reward",
        "cached": f"At matched correctness of the sampled phase 1, after {change}, by cached responses",
        "coefficients": f"Every coefficient, after {change} in sampled groups",
        "match": "The coefficients that the match takes, chosen on the selection seeds",
        "ranking": f"Spearman's rank correlation of plasticity after {change} with what phase 1 reached",
    }


def tables(table: pd.DataFrame, config: TwoPhases) -> dict[str, pd.DataFrame]:
    """Every table by its name, means over the reported seeds with 95% half-widths; empty ones are left out."""
    scored, chosen = runs(table), match(table, config)
    measured = [*_MEASURED, *config.beside]
    matched = at_match(scored, chosen, measured)
    first = of_primary(matched, config)
    primary = scored[(scored["change"] == config.primary_change) & (scored["mode"] == "sampled")]
    # Coverage under pi+ is that under pi and the correctness.
    facts = ["p_correct", "plasticity", *(name for name in config.reached[1:] if not name.endswith("_correct"))]
    made = {
        "at_match": summarize(first, ["change", "mode", "method"], measured),
        "cached": summarize(matched.drop(index=first.index), ["method", "cached"], measured),
        "coefficients": summarize(primary[primary["role"] == "report"], START, facts),
        "match": chosen.round(3),
        "ranking": ranking(scored, config),
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
    "distinct_at_64": "different correct answers of 64",
    "conditional_entropy": "entropy within the correct",
    "rank_correlation": "rank correlation",
}


def legend(table: pd.DataFrame, config: TwoPhases) -> str:
    """What stands under the tables."""
    chosen = match(table, config)
    first, *later = config.phases
    targets = {phase.name: phase.matched_correctness for phase in config.phases}
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
        f"The match is at a correctness of {first.matched_correctness:g}"
        + "".join(f", after the {phase.name} phase 1 {phase.matched_correctness:g}" for phase in later)
        + "; "
        f"steps to one half are {config.new_steps} where it is never reached."
        + (f" No coefficients enclose the match, so the nearest one stands for {', '.join(missed)}." if missed else "")
        + (f" {note}." if (note := diverged_note(table)) else "")
    )


def _page(table: pd.DataFrame, config: TwoPhases, claims: list[Claim], made: dict[str, pd.DataFrame]) -> str:
    """The verdicts with every measurement, and the tables."""
    refused = no_verdict(reported_seeds(table))
    lines = [f"# {config.title}\n", legend(table, config), *([refused] if refused else []), "\n## Claims\n"]
    for claim in claims:
        lines += [f"### {claim.statement}\n", f"Verdict: {claim.verdict or 'none'}.\n"]
        lines += [*(f"- {line}" for line in (claim.measured, *claim.evidence)), ""]
    titles = captions(config)
    for name, frame in made.items():
        lines += [f"## {titles[name]}\n", markdown_table(readable(frame))]
    return "\n".join(lines)


def write(table: pd.DataFrame, config: TwoPhases, folder: Path) -> str:
    """Write results.md, each table and every seed at the match as CSV; returns what the screen shows."""
    page = folder / "results.md"
    claims, made = judge(table, config), tables(table, config)
    write_text(_page(table, config, claims, made), page)
    each_seed = at_match(runs(table), match(table, config), [*_MEASURED, *config.beside])
    for name, frame in {**made, "each_seed": each_seed}.items():
        write_text(csv_text(frame), folder / f"{name}.csv")
    shown = made["at_match"][["change", "mode", "method", *_both("p_correct"), *_both("plasticity"), *_both("to_half")]]
    shown = shown[(shown["change"] == config.primary_change) & (shown["mode"] == "sampled")]
    return answered(
        lead(table, config),
        reported_seeds(table),
        [f"After {config.primary_change}, learned in sampled groups. {legend(table, config)}"],
        readable(shown).drop(columns=["change", "mode"]),
        folder / "figures" / f"{config.picture}.png",
        page,
    )


def _both(name: str) -> tuple[str, str]:
    return name, f"{name}_half_width"
