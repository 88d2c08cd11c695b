"""What a plasticity table says: each run's plasticity, tables at the match, and the claims of the paper's title.

Assumption beyond the paper: plasticity is the mean over phase 2's steps of the expected new reward on the test inputs,
by the trapezoidal rule.

The two primary measurements are sampled, after the primary change, paired by seed, at matched correctness of phase 1:
CoKL's plasticity minus that of the best of the paper's other regularizers, which the selection seeds choose, and minus
replay's. Where wrong answers become correct CoKL is expected to have no advantage; that is a claim of its own. They
were declared before the runs. The rules from measurements to verdicts are in `cokl.support.verdicts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bandit.engine.divergence import divergence_note
from bandit.engine.tables import coverage_column, reported_seeds
from bandit.engine.tables import method_label as label
from bandit.lab import Analysis, Tables
from bandit.plasticity.config import PlasticityConfig, kind_of
from bandit.plasticity.train import NEW, START, match, without_diverged_runs
from cokl.support.statistics import spread_column, summarize
from cokl.support.verdicts import Claim, Measurement, claim_from

OTHERS = ("entropy", "forward_kl", "reverse_kl", "jensen_shannon")
"""The paper's other regularizers of the controlled experiment."""
REPLAY = "correct_forward_kl"
PLACE = "The title; beyond the paper's experiments"
_MEASURED = ["p_correct", "plasticity", "start", "to_half", "never"]
_TITLES = {
    "p_correct": "phase-1 correctness",
    "start": "new reward at its start",
    "to_half": "steps to one half",
    "never": "inputs below one half at the end",
}


@dataclass(frozen=True)
class Scored:
    """A plasticity table, scored: a row per run of phase 2, the coefficients of the match, and every method there."""

    config: PlasticityConfig
    runs: pd.DataFrame
    chosen: pd.DataFrame
    matched: pd.DataFrame

    @classmethod
    def of(cls, table: pd.DataFrame, config: PlasticityConfig) -> Scored:
        """From the lab's table."""
        scored, chosen = runs(table), match(table, config)
        return cls(config, scored, chosen, at_match(scored, chosen, _MEASURED))


def analyse(tables: Tables, config: PlasticityConfig) -> Analysis:
    """CoKL's lead over the best other regularizer, the claims, and every method at the match."""
    table = tables["plasticity"]
    scored = Scored.of(table, config)
    made = tables_of(scored)
    shown = made["at_match"]
    columns = [f"{name}{end}" for name in ("p_correct", "plasticity", "to_half") for end in ("", "_half_width")]
    shown = shown.loc[(shown["change"] == config.primary_change) & (shown["mode"] == "sampled"), ["method", *columns]]
    change = config.primary_change
    titles = {
        "at_match": "At matched correctness of phase 1, by change of the reward",
        "coefficients": f"Every coefficient, after {change} in sampled groups",
        "match": "The coefficients that the match takes, chosen on the selection seeds",
    }
    return Analysis(
        answer=lead(scored),
        seeds=reported_seeds(table),
        claims=judge(scored),
        tables={**made, "each_seed": scored.matched},
        captions={name: f"{title}." for name, title in titles.items() if name in made},
        titles=titles,
        readable=readable,
        screen=readable(shown),
        notes=[
            f"The new reward, {change}, is learned in sampled groups: two correct actions stay correct. "
            f"{legend(table, scored)}"
        ],
        picture="plasticity_tradeoff",
        diverged=diverged_note(table),
        scored=scored,
    )


def tables_of(scored: Scored) -> dict[str, pd.DataFrame]:
    """Every table by its name, means over the reported seeds with 95% half-widths; empty ones are left out."""
    rows = scored.runs[scored.runs["role"] == "report"]
    primary = rows[(rows["change"] == scored.config.primary_change) & (rows["mode"] == "sampled")]
    made = {
        "at_match": summarize(scored.matched, ["change", "mode", "method"], _MEASURED),
        "coefficients": summarize(primary, START, ["p_correct", "plasticity", coverage_column(rows), "conditional_kl"]),
        "match": scored.chosen.round(3),
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


def legend(table: pd.DataFrame, scored: Scored) -> str:
    """What stands under the tables."""
    config = scored.config
    regularized = scored.chosen[scored.chosen["beta"] > 0].drop_duplicates("method")
    missed = [
        f"{label(row['method'])} at {row['reached']:.3f}"
        for row in regularized.to_dict("records")
        if abs(row["reached"] - config.matched_correctness) > 0.002
    ]
    seeds = reported_seeds(table)
    return (
        f"Seeds: {seeds} and {config.selection_seeds} for selection. After ± is half the width of a 95% t-interval. "
        f"The match is at a correctness of {config.matched_correctness:g}; "
        f"steps to one half are {config.new_steps} where it is never reached."
        + (f" No coefficients enclose the match, so the nearest one stands for {', '.join(missed)}." if missed else "")
        + (f" {note}." if (note := diverged_note(table)) else "")
    )


def diverged_note(table: pd.DataFrame) -> str:
    """What is to be said of diverged runs wherever the table is summarised; "" if there are none."""
    ends = table.drop_duplicates(["seed", *START])
    return divergence_note(ends, "reward", START)


def runs(table: pd.DataFrame) -> pd.DataFrame:
    """A row per run of phase 2: its plasticity, the reward at its start and end, and the share below one half then."""
    table = without_diverged_runs(table)
    by = ["seed", *START, *NEW]
    curves = table.pivot(index=by, columns="step", values="reward")
    steps = curves.columns.to_numpy()
    ends = table[table["step"] == steps[-1]].reset_index(drop=True)
    reward = curves.reindex(pd.MultiIndex.from_frame(ends[by])).to_numpy()
    return (
        ends.drop(columns="step")
        .rename(columns={"reward": "end", "below_half": "never"})
        .assign(
            plasticity=np.trapezoid(reward, steps) / steps[-1],
            start=reward[:, 0],
            to_half=[_steps_to_half(steps, curve) for curve in reward],
        )
    )


def _steps_to_half(steps: np.ndarray, reward: np.ndarray) -> float:
    """The first step with a mean reward of one half, between evaluations; the last step if there is none."""
    above = np.flatnonzero(reward >= 0.5)
    if not len(above):
        return float(steps[-1])
    first = above[0]
    return float(
        steps[0] if first == 0 else np.interp(0.5, reward[first - 1 : first + 1], steps[first - 1 : first + 1])
    )


def at_match(scored: pd.DataFrame, chosen: pd.DataFrame, columns: list[str], role: str = "report") -> pd.DataFrame:
    """`columns` of every method at the match, a row per seed, change and mode, and step if `scored` has steps."""
    rows = chosen.merge(scored[scored["role"] == role], on=START)
    by = ["seed", "method", *NEW, *(["step"] if "step" in scored else [])]
    rows = rows[np.isclose(rows.groupby(by)["weight"].transform("sum"), 1)]  # less where one did not meet the change
    rows[columns] = rows[columns].mul(rows["weight"], axis=0)
    return rows.groupby(by, sort=False)[columns].sum().reset_index()


def per_seed(matched: pd.DataFrame, method: str, change: str, mode: str) -> pd.Series:
    """Plasticity by seed of one method at the match; empty where the table has none."""
    wanted = {"method": method, "change": change, "mode": mode}
    kept = np.logical_and.reduce([matched[name] == value for name, value in wanted.items()])
    return matched[kept].set_index("seed")["plasticity"]


def best_rival(scored: pd.DataFrame, chosen: pd.DataFrame, change: str) -> str:
    """Of the paper's other regularizers the one with the highest sampled plasticity at the match, by selection.

    "" where the table has none.
    """
    rows = at_match(scored, chosen, ["plasticity"], "selection")
    rows = rows[(rows["change"] == change) & (rows["mode"] == "sampled") & rows["method"].isin(OTHERS)]
    means = rows.groupby("method")["plasticity"].mean()
    return str(means.idxmax()) if len(means) else ""


def judge(scored: Scored) -> list[Claim]:
    """Every claim whose primary measurement the methods and changes of a table allow."""
    primary = scored.config.primary_change
    if primary not in set(scored.runs["change"]):
        return []
    rival = best_rival(scored.runs, scored.chosen, primary)
    # The primary change first, whatever the configuration's order.
    changes = sorted(scored.runs["change"].unique(), key=lambda change: change != primary)
    narrowed = f"learns a narrowed reward ({primary}) better"
    than_others = "than that of the best other regularizer in the paper's controlled experiment"
    moved = [change for change in changes if kind_of(change)[0] == "moved"]
    others = [change for change in changes if change not in moved]
    at_match = "At matched correctness, CoKL's policy"
    elsewhere = "Where wrong actions become correct, CoKL's policy also learns better"
    compared = {
        "others": (f"{at_match} {narrowed} {than_others}", "cokl", rival, others),
        "replay": (f"{at_match} {narrowed} than replay's, which lacks term 2", "cokl", REPLAY, others),
        "replay and others": (f"Replay's policy {narrowed} {than_others}", REPLAY, rival, others),
        "reference": (f"CoKL's policy {narrowed} than the reference does", "cokl", "reference", others),
        "moved": (f"{elsewhere} {than_others}, at matched correctness", "cokl", rival, moved),
    }
    claims = []
    for name, (statement, one, other, after) in compared.items():
        sampled = list(differences(scored, one, other, after, ["sampled"]))
        if sampled:
            secondary = [*sampled[1:], *differences(scored, one, other, after, ["exact"])]
            claims.append(claim_from(name, statement, "beyond", PLACE, sampled[:1], [[part] for part in secondary]))
    return claims


def lead(scored: Scored) -> str:
    """CoKL's plasticity beside that of the best rival and of replay, in sampled groups where there are any."""
    primary = scored.config.primary_change
    rival = best_rival(scored.runs, scored.chosen, primary)
    told = [
        measured[0].told(label(other), "plasticity")
        for other in dict.fromkeys((rival, REPLAY))
        if (measured := list(differences(scored, "cokl", other, [primary])))
    ]
    return ". ".join(told) or "There is no plasticity of CoKL and of another method to compare"


def differences(
    scored: Scored, one: str, other: str, changes: Iterable[str], modes: Iterable[str] = ("sampled", "exact")
) -> Iterator[Measurement]:
    """Plasticity of one method minus another's at the match, in each mode after each change, if the table has both."""
    for mode, change in itertools.product(modes, changes):
        ours, theirs = (per_seed(scored.matched, method, change, mode) for method in (one, other))
        if len(ours) and len(theirs):
            what = f"plasticity of {label(one)} minus {label(other)}"
            yield Measurement.of(f"{change}, {mode}", what, ours - theirs, "mean reward")
