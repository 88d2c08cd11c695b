"""What a sweep's table says: each method at matched correctness, and the claims of the paper's Results paragraph.

Intervals are 95% t-intervals over seeds, of a metric or of a paired difference.

Assumption beyond the paper: a method's matched coefficient is the one whose mean final correctness over seeds is
closest to 0.96; one coefficient per method, the same for all seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
from pandas.api.typing import DataFrameGroupBy

from bandit.engine.divergence import divergence_note, without_diverged
from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.lab import Analysis, Tables
from bandit.sweep.config import REPLAY, SweepConfig
from cokl.support.errors import InputError
from cokl.support.statistics import mean_and_half_width, with_spread
from cokl.support.verdicts import (
    ALPHA,
    SPREAD,
    Claim,
    Evidence,
    Measurement,
    Origin,
    Verdict,
    conjunction,
    no_verdict,
    of_each,
)

RUN = ("method", "beta")
"""What names a run, up to its seed."""
MATCHED_CORRECTNESS = 0.96
FAR = 0.03
"""How far a correctness may be from CoKL's to be compared at the match."""
MARKED = 0.01
"""Further than this from the match, a row of a table for people has a star."""
COLLAPSED = {"correctness above": 0.95, "coverage below": 0.15}


@dataclass(frozen=True)
class Scored:
    """A sweep's table, scored: what is compared in it, at the last step and at the match."""

    table: pd.DataFrame
    """All of its rows."""
    runs: pd.DataFrame
    """Those of coefficients of which no seed diverged."""
    final: pd.DataFrame
    """Their last steps, the reference's left out."""
    matched: pd.DataFrame
    """All evaluated steps of each regularizer's matched coefficient."""
    matched_ends: pd.DataFrame
    """The last steps of these."""

    @classmethod
    def of(cls, table: pd.DataFrame) -> Scored:
        """From the lab's table. Raises InputError for another one."""
        runs = without_diverged_runs(require_sweep(table))
        chosen = pd.DataFrame(matched_coefficients(runs).items(), columns=["method", "beta"])
        matched = chosen.merge(runs, on=["method", "beta"])
        return cls(table, runs, final_rows(runs), matched, final_rows(matched))


def analyse(tables: Tables, config: SweepConfig) -> Analysis:
    """CoKL's lead in coverage, the paper's claims, and what each method ends with at matched correctness.

    Replay, where it was trained beside the sweep, is in the table and the pictures alone: the paper's claims are of the
    paper's regularizers.
    """
    scored, beside = Scored.of(tables["sweep"]), tables.get(f"{REPLAY}/sweep")
    shown = scored if beside is None else Scored.of(with_beside(scored.table, beside))
    matched, far = matched_table(shown, digits=3), off_the_match(shown)
    coverage = coverage_column(scored.table)
    columns = {
        "p_correct": "correctness",
        coverage: coverage_label(coverage).lower(),
        "conditional_kl": "conditional KL",
    }
    title = f"Final metrics at the coefficient whose correctness is closest to {MATCHED_CORRECTNESS}"
    seeds = scored.table["seed"].nunique()
    note = f"Seeds: {seeds}; steps: {scored.final['step'].max()}. {SPREAD} {diverged_note(shown.table)}"
    star = f"*: more than {MARKED:g} away from {MATCHED_CORRECTNESS}, so not to be compared." if any(far) else ""

    def starred(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(beta=[f"{beta}*" if off else beta for beta, off in zip(rows["beta"], far, strict=True)])

    return Analysis(
        answer=lead(scored),
        seeds=seeds,
        claims=judge(scored),
        tables={"matched": matched},
        captions={"matched": f"{title}."},
        titles={"matched": title},
        readable=starred,
        screen=starred(matched)[["method", "beta", *columns]].rename(columns=columns),
        notes=[f"{title}. {note}".strip(), star, _far_from_the_match(shown)],
        picture="figure2_tradeoff",
        scored=shown,
    )


def with_beside(table: pd.DataFrame, beside: pd.DataFrame) -> pd.DataFrame:
    """A sweep's rows, then those of methods that it lacks."""
    return pd.concat([table, beside[~beside["method"].isin(table["method"])]], ignore_index=True)


def _far_from_the_match(scored: Scored) -> str:
    """Which methods no coefficient brings near CoKL's correctness at the match; "" if there is none."""
    names = ", ".join(method_label(name) for name, off in off_cokl_at_the_match(scored).items() if off > FAR)
    return f"Not comparable, since more than {FAR:g} away from CoKL's correctness: {names}." if names else ""


def require_sweep(table: object, what: object = "table") -> pd.DataFrame:
    """The table, if it is a sweep's. Raises InputError, which calls it `what`, for one that lacks its columns."""
    if not isinstance(table, pd.DataFrame):
        raise InputError(f"{what}: expected the table that run_sweep returns, got {type(table).__name__}")
    missing = {"seed", "method", "beta", "step", "p_correct", "conditional_kl"} - set(table.columns)
    if missing or not any(str(name).startswith("coverage_at_") for name in table.columns):
        lacks = ", ".join(sorted(missing)) or "coverage_at_K"
        raise InputError(
            f"{what}: not a sweep table; missing columns: {lacks}; run_sweep and `cokl bandit sweep` make one"
        )
    return table


without_diverged_runs = partial(without_diverged, metric="p_correct", run=RUN)
"""The table without the coefficients of which some seed diverged. Raises InputError if none is left."""

diverged_note = partial(divergence_note, metric="p_correct", run=RUN)
"""What is to be said of diverged runs wherever the table is summarised; "" if there are none."""


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last step; the reference and coefficients that diverged are left out."""
    table = without_diverged_runs(table)
    trained = table[table["method"] != "reference"]
    return trained[trained["step"] == trained["step"].max()]


def matched_coefficients(table: pd.DataFrame) -> dict[str, float]:
    """For each regularized method, the coefficient whose mean final correctness is closest to 0.96."""
    final = final_rows(table)
    final = final[final["method"] != "none"]
    correctness = final.groupby(["method", "beta"], sort=False)["p_correct"].mean()
    distance = (correctness - MATCHED_CORRECTNESS).abs().reset_index()
    best = distance.loc[distance.groupby("method", sort=False)["p_correct"].idxmin()]
    return dict(zip(best["method"], best["beta"], strict=True))


def matched_table(scored: Scored, digits: int = 4) -> pd.DataFrame:
    """A row per method at its matched coefficient (and without regularizer): final metrics, ± half a 95% interval."""
    metrics = [name for name in scored.table.columns if name not in ("seed", "method", "beta", "step")]
    lines = []
    for (method, beta), group in _ends_at_the_match(scored):
        cells = {name: with_spread(*mean_and_half_width(group[name]), digits) for name in metrics}
        lines.append({"method": method_label(str(method)), "beta": f"{beta:g}", **cells})
    return pd.DataFrame(lines)


def off_the_match(scored: Scored) -> list[bool]:
    """Whether each row of `matched_table` is further than MARKED from the match."""
    return [abs(rows["p_correct"].mean() - MATCHED_CORRECTNESS) > MARKED for _, rows in _ends_at_the_match(scored)]


def _ends_at_the_match(scored: Scored) -> DataFrameGroupBy:
    """The final rows of each method at its matched coefficient, and without regularizer, by (method, beta) in order."""
    rows = pd.concat([scored.final[scored.final["method"] == "none"], scored.matched_ends])
    return rows.groupby(["method", "beta"], sort=False)


def judge(scored: Scored) -> list[Claim]:
    """Every claim that the sweep's methods allow to be judged: most need CoKL and another regularizer, those at the
    match one near CoKL's correctness. Coefficients of which some seed diverged take no part.
    """
    methods = scored.runs["method"].unique()
    others = [name for name in methods if name not in ("reference", "none", "cokl")]
    claims = [_collapse(scored)] if "none" in methods else []
    if "cokl" not in methods or not others:
        return claims
    coverage, coverage_correct, kl = _directions(scored.table)
    near = _near_the_match(scored)
    for judgement, compared, directions in (
        (_frontier, others, (coverage, kl)),
        (_matched, near, (coverage, coverage_correct, kl)),
        (_during_training, near, (coverage, kl)),
    ):
        found = [judgement(scored, compared or others, *direction) for direction in directions]
        claims += found if compared else [replace(claim, verdict=None) for claim in found]  # what was measured
    return claims


def _directions(table: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Column, name, and +1 where more is better or -1 where less is."""
    coverage = coverage_column(table)
    name = coverage.replace("_at_", "@")
    return [
        (coverage, name, 1),
        (f"{coverage}_correct", f"{name} under pi+", 1),
        ("conditional_kl", "conditional KL", -1),
    ]


def _collapse(scored: Scored) -> Claim:
    """The paper shows this in a figure; the thresholds are ours. Both have to be passed beyond their intervals."""
    unregularized = scored.final[scored.final["method"] == "none"]
    correctness, coverage = unregularized["p_correct"], unregularized[coverage_column(scored.table)]
    passed = [correctness - COLLAPSED["correctness above"], COLLAPSED["coverage below"] - coverage]
    shown = [with_spread(*mean_and_half_width(values), 4) for values in (correctness, coverage)]
    return Claim(
        "collapse",
        "Unregularized RL becomes correct and collapses onto few correct actions "
        f"(correctness above {COLLAPSED['correctness above']}, coverage below {COLLAPSED['coverage below']})",
        "paper",
        "Results, dynamics figure",
        Evidence("", f"correctness {shown[0]}, coverage {shown[1]} (95% intervals)"),
        _verdict_on_all(passed),
    )


def _matched(scored: Scored, others: list[str], column: str, name: str, sign: int) -> Claim:
    """Held if every paired difference is sure to be positive, not held if one is sure to be negative."""
    ends = scored.matched_ends
    correctness = ends.groupby("method")["p_correct"].mean()
    final = ends.pivot(index="seed", columns="method", values=column)
    advantages = leads_at_the_match(scored, others, column, sign)
    closest = min(others, key=lambda other: advantages[other].mean())
    mean, half_width = mean_and_half_width(advantages[closest])
    better = "higher" if sign > 0 else "lower"
    return Claim(
        f"match, {column}",
        f"At matched correctness, CoKL's {name} is {better} than every other regularizer's",
        "paper",
        "Results, dynamics figure at its last step",
        Evidence(
            "",
            f"CoKL {final['cokl'].mean():.3f}; next {method_label(closest)} {final[closest].mean():.3f}; "
            f"{better} by {with_spread(mean, half_width, 3)}, in {(advantages[closest] > 0).sum()} of {len(final)} "
            f"seeds; correctness {correctness.min():.3f} to {correctness.max():.3f}",
        ),
        _verdict_on_all(list(advantages.values())),
    )


def leads_at_the_match(scored: Scored, others: list[str], column: str, sign: int) -> dict[str, pd.Series]:
    """By how much CoKL is better in `column` than each other method at matched correctness, by seed."""
    final = scored.matched_ends.pivot(index="seed", columns="method", values=column)
    return {other: sign * (final["cokl"] - final[other]) for other in others}


def leads_in_coverage(scored: Scored) -> dict[str, pd.Series]:
    """CoKL's lead in coverage over each other regularizer, by seed, the smallest first; empty without two of them."""
    leads = leads_at_the_match(scored, _near_the_match(scored), coverage_column(scored.table), 1)
    return dict(sorted(leads.items(), key=lambda item: float(item[1].mean())))


def lead(scored: Scored) -> str:
    """CoKL's coverage beside that of the best other regularizer."""
    leads = leads_in_coverage(scored)
    if not leads:
        return "There is nothing to compare; sweep CoKL and another regularizer, up to the same correctness"
    closest, values = next(iter(leads.items()))
    name = coverage_column(scored.table).replace("_at_", "@")
    return Measurement.of("", "", values, "probability").told(method_label(closest), name)


def off_cokl_at_the_match(scored: Scored) -> dict[str, float]:
    """How far each other regularizer is from CoKL's correctness at the match; NaN without CoKL."""
    reached = scored.matched_ends.groupby("method", sort=False)["p_correct"].mean()
    return dict((reached - reached.get("cokl", float("nan"))).abs().drop("cokl", errors="ignore"))


def _near_the_match(scored: Scored) -> list[str]:
    """Those that are near enough to be compared with it."""
    return [name for name, off in off_cokl_at_the_match(scored).items() if off <= FAR]


def _during_training(scored: Scored, others: list[str], column: str, name: str, sign: int) -> Claim:
    """The same at every evaluated step after the first, with an interval for each step and regularizer."""
    curves = scored.matched.query("step > 0").pivot(index=["step", "seed"], columns="method", values=column)
    pairs = [(step, other) for step in curves.index.unique("step") for other in others]
    leads = [sign * (curves.loc[step, "cokl"] - curves.loc[step, other]) for step, other in pairs]
    sides = of_each([Measurement.of("", "", lead) for lead in leads])

    def steps(wanted: str) -> list[int]:
        return sorted({step for (step, _), side in zip(pairs, sides, strict=True) if side == wanted})

    behind = steps("not held")
    open_ = [step for step in steps("undecided") if step not in behind]
    count, seeds = curves.index.unique("step").size, scored.runs["seed"].nunique()
    if no_verdict(seeds):
        means = sign * curves.groupby("step").mean()
        behind, open_ = list(means.index[~(means["cokl"] > means[others].max(axis=1))]), []
    sure = "" if no_verdict(seeds) else ", each interval above 0,"
    described = [
        f"{words} at step {', '.join(map(str, listed))}"
        for words, listed in (("behind", behind), ("undecided", open_))
        if listed
    ]
    return Claim(
        f"training, {column}",
        f"At matched correctness, CoKL's {name} is {'highest' if sign > 0 else 'lowest'} throughout training",
        "beyond",
        "Results, dynamics figure; beyond the paper at every evaluated step: it says 'consistently'",
        Evidence(
            "",
            f"ahead of every other{sure} at {count - len(behind) - len(open_)} of {count} evaluated steps"
            + "".join(f"; {words}" for words in described),
        ),
        _verdict_on_all(leads),
    )


def _verdict_on_all(differences: list[pd.Series]) -> Verdict:
    """Whether all of several differences are positive."""
    leaning, p = conjunction([Measurement.of("", "", difference) for difference in differences])
    return leaning if p <= ALPHA else "undecided"


def _frontier(scored: Scored, others: list[str], column: str, name: str, sign: int) -> Claim:
    """Whether no other regularizer, at any coefficient, is as correct as a point of CoKL and better in `column`.

    Points are means over seeds. Where one is dominated, what is measured says from which correctness on, and how good
    any regularizer, CoKL included, still is there.
    """
    means = scored.final.groupby(["method", "beta"])[["p_correct", column]].mean()
    correctness, metric = means["p_correct"], sign * means[column]

    def dominates(one: tuple[str, float], other: tuple[str, float]) -> bool:
        return bool(correctness[one] >= correctness[other] and metric[one] >= metric[other])

    ours = [point for point in means.index if point[0] == "cokl"]
    theirs = [point for point in means.index if point[0] in others]
    beaten = [point for point in ours if any(dominates(other, point) for other in theirs)]
    worse = sum(any(dominates(point, other) for point in ours) for other in theirs)
    better = "higher" if sign > 0 else "lower"
    origin: Origin = "beyond" if sign > 0 else "paper"
    remark = {
        "beyond": "beyond the paper, which speaks of the deviation from the correct-mode distribution",
        "paper": "all pairs of the coefficients that were run is our stronger form",
    }[origin]
    crossed = ""
    if beaten:
        crossing = min(correctness[point] for point in beaten)
        there = metric[[point for point in [*ours, *theirs] if correctness[point] >= crossing]]
        crossed = (
            f" (all but {', '.join(f'{beta:g}' for _, beta in beaten)}: at a correctness of {crossing:.4f} or more, "
            f"where no regularizer's {name} is {better} than {sign * there.max():.3f})"
        )
    return Claim(
        f"frontier, {column}",
        "The other regularizers either sacrifice correctness or deviate more: none is as correct as CoKL with a "
        f"{better} {name}, at any of the coefficients that were run",
        origin,
        f"Results, trade-off figure; {remark}",
        Evidence(
            "",
            f"by means, {len(ours) - len(beaten)} of CoKL's {len(ours)} coefficients are not dominated{crossed}; "
            f"CoKL dominates {worse} of the others' {len(theirs)} points",
        ),
        "not held" if beaten else "held",
    )
