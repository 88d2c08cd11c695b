"""What a shift table says: scores, the coefficients at which methods are compared, tables, and the paper's claims.

A shift table has a row per evaluated step; `bandit.shift.train.COLUMNS` are its columns. Method "base" is the policy
before the shift (step 0), "none" is GRPO without KL; role is "report", or "selection" for the seeds that only choose
coefficients. Every interval is a 95% t-interval over the reported seeds.

Every measurement of a claim is a mean over the reported seeds, a difference paired by seed but for what a score already
compares with GRPO's, and is written so that the paper expects it to be positive. The rules from measurements to
verdicts are in `cokl.support.verdicts`. Primary are, as the paper's experiments are, sampled groups, at the
coefficients of E.3: 1 for CoKL, its ablations and the forward KLs, 0.001 for the reverse KLs. What is compared at each
method's own best coefficient is a claim beside it. Secondary are expectations, other coefficients, and "equal
adaptation", interpolated between neighbouring coefficients. A table of one mode alone has that mode's measurement as
its primary one.

Assumption beyond the paper: the anchors are means over seeds, and each seed's score is that of the linearised ratio.
So scores average to the ratio of means, intervals include the spread of the anchors, and a seed that forgets little has
no extreme score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pandas as pd

from bandit.engine.divergence import diverged, divergence_note, without_diverged
from bandit.engine.tables import reported_seeds
from bandit.engine.two_tasks.plan import RUN
from bandit.lab import Analysis, Tables
from bandit.shift.config import PAPER_BETA, ShiftConfig
from cokl import methods
from cokl.metrics import dual_anchor
from cokl.support.errors import InputError
from cokl.support.statistics import mean_and_half_width, summarize, with_spread
from cokl.support.verdicts import SPREAD, Claim, Measurement, Origin, judged

MATCHED_ADAPTATION = 90.0
"""The common target: new-task correctness that is 10% of GRPO's gain short of GRPO's."""

ANCHORS = ("base", "none")

label = partial(methods.label, own={"base": "Base"})
"""How tables and figures call a method."""

_SCORES = (("retention", "prior_correct", "none", "base"), ("adaptation", "new_correct", "base", "none"))

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

NEGLIGIBLE = 1.0
"""Points of Overall; a gain whose interval ends below this is none. The paper's smallest lead is 1.40 points."""

EQUIVALENT = 5.0
"""Points of a score; two methods whose difference is shown to be smaller are as good as each other."""

VARIANTS = ("cokl", "cokl_floor", "cokl_without_term1")
"""What is no rival of CoKL's."""

FORWARD, REVERSE = ("forward_kl", "correct_forward_kl"), ("reverse_kl", "correct_reverse_kl")
REVERSE_BETA = 1e-3
"""The coefficient of the reverse KLs in the paper's tables (E.3)."""

SEARCHED = {**dict.fromkeys(FORWARD, (1.0, 0.1, 10.0)), **dict.fromkeys(REVERSE, (1e-3, 1e-2, 1.0))}
"""The coefficients that E.3 searches over for its baselines, the chosen one first."""

KL_BATCHES = (8, 16, 32)
"""Prompts per update in the paper's KL batch analysis."""

BETAS = (0.1, 10.0)
"""The ends of the paper's sensitivity analysis."""

BEST, EQUAL, PAPER = "best", "equal adaptation", f"beta {PAPER_BETA:g}"
"""Where methods are compared: each at its best coefficient, where every one adapts as much, all at CoKL's in E.3."""
E3 = "E.3's coefficients"
"""1 for CoKL, its ablations and the forward KLs, 0.001 for the reverse KLs."""

_Maybe = Measurement | None  # None, or a mean that is NaN, where the table lacks the rows


def analyse(tables: Tables, config: ShiftConfig) -> Analysis:
    """Whether CoKL has the best balance, the paper's claims, and every method's scores; the table is scored once."""
    table = tables["shift"]
    views = Views(score(table))
    made = tables_of(views)
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
        notes=[anchors(table), f"{SPREAD} {EDGE}"],
        picture=f"shift_tradeoff_{mode}",
        diverged=diverged_note(table),
    )


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last step."""
    return table[table["step"] == table.groupby([*RUN, "role", "seed"], dropna=False)["step"].transform("max")]


def score(table: pd.DataFrame) -> pd.DataFrame:
    """The shift table with columns retention, adaptation and their mean, overall; base 100 and GRPO 0 for retention.

    Seeds of one role are normalized by their own anchors: choosing on the selection seeds sees no reported seed.
    Reported scores have passed `undetermined_as_nan`. Coefficients with a diverged seed are left out.
    Raises InputError if an anchor is missing or diverged, or the anchors coincide.
    """
    table = without_diverged_runs(table).reset_index(drop=True)
    scored, last = table.copy(), final_rows(table)
    seeds = ["mode", "role", "seed"]
    anchors = {method: last[last["method"] == method].set_index(seeds) for method in ANCHORS}
    of_row = pd.MultiIndex.from_frame(table[seeds])
    for name, column, zero, hundred in _SCORES:
        ends = {"zero": anchors[zero][column].reindex(of_row), "hundred": anchors[hundred][column].reindex(of_row)}
        rows = table[[*RUN, "role", "step"]].assign(value=table[column], **{k: v.to_numpy() for k, v in ends.items()})
        if rows[["zero", "hundred"]].isna().any(axis=None):
            raise InputError("the shift table lacks base or none for some seeds; add none to the methods")
        means = rows.groupby([*RUN, "role", "step"], dropna=False)[["value", "zero", "hundred"]].transform("mean")
        ratio = dual_anchor(means["value"], means["zero"], means["hundred"], name)
        residual = 100 * (rows["value"] - rows["zero"]) - ratio * (rows["hundred"] - rows["zero"])
        scored[name] = ratio + residual / (means["hundred"] - means["zero"])
    scored["overall"] = (scored["retention"] + scored["adaptation"]) / 2
    return undetermined_as_nan(scored, "report")


def undetermined_as_nan(scored: pd.DataFrame, role: str) -> pd.DataFrame:
    """A scored table, with NaN for the role's scores whose denominator has a 95% interval that contains zero."""
    determined = scored.copy()
    ends = final_rows(scored[scored["role"] == role])
    for mode, rows in ends.groupby("mode"):
        of = {method: rows[rows["method"] == method].set_index("seed") for method in ANCHORS}
        for name, column, *_ in _SCORES:
            mean, half_width = mean_and_half_width(of["base"][column] - of["none"][column])
            if abs(mean) <= half_width:
                determined.loc[(determined["role"] == role) & (determined["mode"] == mode), [name, "overall"]] = (
                    math.nan
                )
    return determined


def without_diverged_runs(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the coefficients with a diverged seed. Raises InputError if GRPO w/o KL is one of them."""
    if anchors_diverged(table):
        raise InputError(f"GRPO w/o KL, which all scores relate to, diverged: {diverged_note(table)}")
    return without_diverged(table, "prior_correct", RUN)


def anchors_diverged(table: pd.DataFrame) -> bool:
    """Whether the base model or GRPO w/o KL, which all scores relate to, diverged for some seed."""
    return bool(diverged(table, "prior_correct")["method"].isin(ANCHORS).any())


diverged_note = partial(divergence_note, metric="prior_correct", run=RUN)
"""The note on diverged runs that goes with every summary of the table; "" if there are none."""


def forgotten_and_learned(table: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """Prior correctness that GRPO w/o KL loses, and new correctness that it gains. All scores are divided by these.

    Means over the reported seeds of a table of one mode, each with the half-width of its 95% interval.
    """
    ends = final_rows(without_diverged_runs(table)).query("role == 'report'").set_index("seed")
    base, grpo = (ends[ends["method"] == method] for method in ANCHORS)
    return (
        mean_and_half_width(base["prior_correct"] - grpo["prior_correct"]),
        mean_and_half_width(grpo["new_correct"] - base["new_correct"]),
    )


def main_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the coefficient search, with which the selection seeds were trained too; not the KL-batch sweep."""
    return table.merge(table.loc[table["role"] == "selection", RUN].drop_duplicates(), on=RUN)


def best_coefficients(scored: pd.DataFrame) -> pd.DataFrame:
    """For each mode and method the coefficient with the highest Overall on the selection seeds.

    Columns: those of RUN; edge, whether it is the grid's smallest or largest. Raises InputError without such seeds.
    """
    rows = main_rows(final_rows(scored[scored["role"] == "selection"]))
    if rows.empty:
        raise InputError("the shift table has no selection seeds, on which coefficients are chosen")
    means = rows.groupby(RUN, sort=False)["overall"].mean().reset_index()
    groups = means.groupby(["mode", "method"], sort=False)
    low, high = groups["beta"].transform("min"), groups["beta"].transform("max")
    edge = (low < high) & ((means["beta"] == low) | (means["beta"] == high))
    return means.assign(edge=edge).loc[groups["overall"].idxmax(), [*RUN, "edge"]].reset_index(drop=True)


def reported_rows(scored: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The reported seeds' rows of the chosen coefficients, all steps, in the chosen order."""
    return chosen.merge(scored[scored["role"] == "report"], on=RUN)


def at_equal_adaptation(scored: pd.DataFrame) -> pd.DataFrame:
    """The reported seeds' retention where their mean adaptation is 90, between two neighbouring coefficients.

    If the mean passes 90 between several pairs, the pair counts that retains most on the selection seeds. A seed's
    retention is its own, moved to an adaptation of 90 along the line through the means, so that intervals include
    the noise of its adaptation. A method that never passes 90 has no rows. Columns: mode, method, seed, retention.
    """
    last = main_rows(final_rows(scored))
    columns = ["mode", "method", "seed", "retention"]
    frames = []
    for (mode, method), runs in last.groupby(["mode", "method"], sort=False):
        means = runs.groupby(["role", "beta"])[["retention", "adaptation"]].mean()
        reported, selection = means.loc["report"], means.loc["selection"]
        pairs = []
        for below, above in itertools.pairwise(sorted(reported.index)):
            excess, next_excess = reported.loc[[below, above], "adaptation"] - MATCHED_ADAPTATION
            if excess * next_excess <= 0 and excess != next_excess:
                weight = excess / (excess - next_excess)
                ends = selection["retention"].loc[[below, above]]
                pairs.append(((1 - weight) * ends[below] + weight * ends[above], below, above, weight))
        if pairs:
            _, below, above, weight = max(pairs)
            seeds = runs[runs["role"] == "report"].set_index(["beta", "seed"])[["retention", "adaptation"]]
            mixed = (1 - weight) * seeds.loc[below] + weight * seeds.loc[above]
            rise = reported.loc[above] - reported.loc[below]
            missing = MATCHED_ADAPTATION - mixed["adaptation"]
            retention = mixed["retention"] + rise["retention"] / rise["adaptation"] * missing
            frames.append(retention.rename("retention").reset_index().assign(mode=mode, method=method))
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def tables_of(views: Views) -> dict[str, pd.DataFrame]:
    """Every table of the lab by file name, numbers with their NAME_half_width beside them."""
    scored = views.scored.copy()
    scored["drift"] = scored[DRIFTS].sum(axis=1)
    scored["correct_share"] = scored["correct_drift"] / (scored["correct_drift"] + scored["mass_drift"])
    last = final_rows(reported_rows(scored, views.best))
    by = ["mode", "method", "beta", "kl_prompts"]
    drifts = ["conditional_kl", *DRIFTS, "drift", "correct_share"]
    return {
        "table1_normalized": summarize(last, [*by, "edge"], NORMALIZED),
        "beta_search": _beta_search(scored, views.best),
        "kl_batch": _kl_batch(scored),
        "decomposition": summarize(last[last["method"] != "base"], by, drifts),
    }


def anchors(table: pd.DataFrame) -> str:
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
    """Labels instead of names, and "value ± half-width" in one column."""
    shown = frame.assign(method=[label(name) for name in frame["method"]])
    for name in {"beta", "kl_prompts"}.intersection(frame):
        shown[name] = [f"{value:g}" for value in frame[name]]
    for half_width in [name for name in frame if str(name).endswith("_half_width")]:
        name = str(half_width).removesuffix("_half_width")
        digits = 1 if name in NORMALIZED else 3
        shown[name] = [with_spread(*pair, digits) for pair in zip(frame[name], frame[half_width], strict=True)]
        shown = shown.drop(columns=half_width)
    if "edge" in shown:
        shown = shown.assign(note=["edge" if edge else "" for edge in frame["edge"]]).drop(columns="edge")
    return shown


class Views:
    """The reported seeds' final rows of a scored table in each mode and setting.

    Raises InputError if the table lacks the selection seeds.
    """

    def __init__(self, scored: pd.DataFrame) -> None:
        self.scored = scored
        self.best = best_coefficients(scored)
        selection = final_rows(self.best.merge(scored[scored["role"] == "selection"]))
        self.chosen = selection.groupby(["mode", "method"])["overall"].mean()
        runs = main_rows(scored)[["mode", "method", "beta", "kl_prompts"]].drop_duplicates()
        unregularized = runs["method"] == "none"
        in_e3 = runs["beta"] == runs["method"].map(dict.fromkeys(REVERSE, REVERSE_BETA)).fillna(PAPER_BETA)
        self.all = final_rows(reported_rows(scored, runs))
        self.rows = {
            BEST: final_rows(reported_rows(scored, self.best)),
            EQUAL: at_equal_adaptation(scored),
            PAPER: final_rows(reported_rows(scored, runs[(runs["beta"] == PAPER_BETA) | unregularized])),
            E3: final_rows(reported_rows(scored, runs[in_e3])),
        }
        self.rivals = [m for m in scored["method"].unique() if m not in (*VARIANTS, "base")]

    def values(self, mode: str, setting: str, method: str, column: str) -> pd.Series:
        """A value per seed; empty where the table has none."""
        rows = self.rows[setting]
        return rows[(rows["mode"] == mode) & (rows["method"] == method)].set_index("seed")[column]

    def level(self, mode: str, setting: str, method: str, column: str) -> Measurement:
        """A score itself."""
        values = self.values(mode, setting, method, column)
        return Measurement.of(f"{mode}, {setting}", f"{column} of {label(method)}", values)

    def compare(
        self, mode: str, setting: str, one: str, other: str, column: str, margin: float = 0.0, equal: bool = False
    ) -> Measurement:
        """One method's score minus another's."""
        values, others = (self.values(mode, setting, method, column) for method in (one, other))
        what = f"{column} of {label(one)} minus {label(other)}"
        return Measurement.of(f"{mode}, {setting}", what, values - others, margin=margin, equal=equal)

    def searched(self, mode: str, method: str) -> Iterator[_Maybe]:
        """Overall at the coefficient that E.3 chose minus Overall at each other one that it tried."""
        runs = self.all[(self.all["mode"] == mode) & (self.all["method"] == method)]
        overall = runs.pivot(index="seed", columns="beta", values="overall")
        chosen, *others = SEARCHED[method]
        for other in others:
            what = f"Overall of {label(method)} at {chosen:g} minus at {other:g}"
            known = {chosen, other} <= set(overall)
            yield Measurement.of(mode, what, overall[chosen] - overall[other]) if known else None

    def best_rival(self, mode: str) -> str | None:
        """The rival that is best on the selection seeds; None without one, or without CoKL."""
        rivals = [rival for rival in self.rivals if (mode, rival) in self.chosen.index]
        if not rivals or (mode, "cokl") not in self.chosen.index:
            return None
        return max(rivals, key=lambda rival: float(self.chosen[mode, rival]))

    def over_the_best_rival(self, mode: str) -> _Maybe:
        """CoKL's best Overall minus that of the best rival."""
        rival = self.best_rival(mode)
        if rival is None:
            return None
        ours, theirs = (self.values(mode, BEST, method, "overall") for method in ("cokl", rival))
        what = f"overall of CoKL minus {label(rival)}, the best on the selection seeds"
        return Measurement.of(f"{mode}, {BEST}", what, ours - theirs)

    def collapse(self, mode: str, setting: str) -> Measurement:
        """Retention below zero counts as none, so that CoKL has to retain something."""
        ours, without = (self.values(mode, setting, method, "retention") for method in ("cokl", "cokl_without_term1"))
        what = "half of CoKL's retention minus CoKL w/o term 1's, a negative one counted as 0"
        return Measurement.of(f"{mode}, {setting}", what, ours / 2 - without.clip(lower=0))

    def batches(self, mode: str, larger: float, smaller: float) -> Iterator[list[_Maybe]]:
        """CoKL's retention with a larger KL batch minus with a smaller one, at each coefficient trained with both."""
        rows = self.scored[(self.scored["method"] == "cokl") & (self.scored["role"] == "report")]
        for beta, runs in final_rows(rows[rows["mode"] == mode]).groupby("beta", sort=False):
            retention = runs.pivot(index="seed", columns="kl_prompts", values="retention")
            if {larger, smaller} <= set(retention):
                what = f"retention with {larger:g} minus with {smaller:g} prompts at beta {beta:g}"
                yield [Measurement.of(mode, what, retention[larger] - retention[smaller])]

    def _main(self, mode: str) -> pd.DataFrame:
        """CoKL's reported rows of the main KL batch."""
        main = main_rows(self.scored)
        return main[(main["method"] == "cokl") & (main["role"] == "report") & (main["mode"] == mode)]

    def coefficients(self, mode: str) -> list[_Maybe]:
        """CoKL at the ends of the paper's range, or of what its grid has of it."""
        runs = final_rows(self._main(mode))
        runs = runs[runs["beta"].between(*BETAS)]
        low, high = runs["beta"].min(), runs["beta"].max()
        if not low < high:
            return [None]
        parts: list[_Maybe] = []
        for column, one, other in (("retention", high, low), ("adaptation", low, high)):
            ends = runs.pivot(index="seed", columns="beta", values=column)
            parts.append(Measurement.of(mode, f"{column} at beta {one:g} minus at {other:g}", ends[one] - ends[other]))
        return parts

    def zero_correct(self, mode: str) -> Measurement:
        """Of CoKL's rollout groups after the first step, how far the share without a correct response is below half."""
        rows = self._main(mode)
        rows = rows[(rows["beta"] == PAPER_BETA) & (rows["step"] > 0)].dropna(subset=["zero_correct_rate"])
        rates = 100 * rows.groupby("seed")["zero_correct_rate"].mean()
        what = "how far the share of groups without a correct response is below 50%"
        return Measurement.of(f"{mode}, {PAPER}", what, 50 - rates)

    def drifts(self, mode: str) -> Iterator[list[_Maybe]]:
        """Correct drift minus mass drift: of GRPO at the end and at the first evaluated step, of CoKL at the end."""
        reported = self.scored[self.scored["role"] == "report"]
        grpo = reported[(reported["mode"] == mode) & (reported["method"] == "none") & (reported["step"] > 0)]
        for step in sorted(set(grpo["step"].agg(["min", "max"]).dropna()), reverse=True):
            rows = grpo[grpo["step"] == step].set_index("seed")
            what = f"correct minus mass drift of GRPO w/o KL at step {step:g}"
            yield [Measurement.of(mode, what, rows["correct_drift"] - rows["mass_drift"], "nats")]
        correct, mass = (self.values(mode, BEST, "cokl", f"{drift}_drift") for drift in ("correct", "mass"))
        yield [Measurement.of(f"{mode}, {BEST}", "correct minus mass drift of CoKL", correct - mass, "nats")]


class PaperClaim(NamedTuple):
    """What is judged, who claims it, and where the paper does, of language models.

    parts: the measurements in one mode, in the order of preference; a claim needs all of a list.
    """

    statement: str
    origin: Origin
    place: str
    parts: Callable[[Views, str], Iterable[Sequence[_Maybe]]]


_PAIRS = tuple(zip(FORWARD, REVERSE, strict=True))
PAPER_CLAIMS = {
    "overall": PaperClaim(
        f"At {E3} CoKL has a higher Overall than each of the paper's four baselines with a KL",
        "paper",
        "Main Results, main table",
        lambda of, mode: [[of.compare(mode, E3, "cokl", rival, "overall") for rival in (*FORWARD, *REVERSE)]],
    ),
    "tuned": PaperClaim(
        "Each at its best coefficient, CoKL has a higher Overall than every method that is no variant of it",
        "beyond",
        "Main Results; a search over CoKL's own coefficient and other regularizers are beyond the paper",
        lambda of, mode: [[of.over_the_best_rival(mode)]],
    ),
    "pattern": PaperClaim(
        f"At {PAPER}, CoKL has a higher Overall than replay, retaining as much and adapting more",
        "paper",
        "Main Results, main table",
        lambda of, mode: [
            [
                of.compare(mode, PAPER, "cokl", "correct_forward_kl", "overall"),
                of.compare(mode, PAPER, "cokl", "correct_forward_kl", "retention", EQUIVALENT, equal=True),
                of.compare(mode, PAPER, "cokl", "correct_forward_kl", "adaptation"),
            ]
        ],
    ),
    "reverse": PaperClaim(
        f"At {E3} reverse KLs forget more than forward KLs",
        "paper",
        "Main Results",
        lambda of, mode: [[of.compare(mode, E3, *pair, "retention") for pair in _PAIRS]],
    ),
    "constrained": PaperClaim(
        f"At {E3} forward KLs adapt less than reverse KLs",
        "beyond",
        "beyond the paper, which says that forward KLs may constrain adaptation, and compares them with none in it",
        lambda of, mode: [[of.compare(mode, E3, *pair[::-1], "adaptation") for pair in _PAIRS]],
    ),
    "tuned reverse": PaperClaim(
        "Each at its best coefficient, reverse KLs forget more than forward KLs",
        "beyond",
        "beyond the paper: Main Results at other coefficients than E.3's",
        lambda of, mode: [[of.compare(mode, at, *pair, "retention") for pair in _PAIRS] for at in (BEST, EQUAL)],
    ),
    "search": PaperClaim(
        "Of E.3's coefficients forward KLs have the highest Overall at 1, reverse KLs at 0.001",
        "paper",
        "E.3, search over the baselines' coefficients",
        lambda of, mode: [[part for method in SEARCHED for part in of.searched(mode, method)]],
    ),
    "dynamics": PaperClaim(
        f"At {PAPER} CoKL ends with the prior task better than GRPO without KL and the new one as well",
        "paper",
        "E.6, training dynamics",
        lambda of, mode: [
            [
                of.level(mode, PAPER, "cokl", "retention"),
                of.compare(mode, PAPER, "cokl", "none", "adaptation", EQUIVALENT, equal=True),
            ]
        ],
    ),
    "collapse": PaperClaim(
        "CoKL without term 1 retains less than half of what CoKL does",
        "paper",
        "Ablation of the loss structure",
        lambda of, mode: [[of.collapse(mode, at)] for at in (PAPER, BEST, EQUAL)],
    ),
    "level": PaperClaim(
        f"Without term 1, CoKL at {PAPER} retains no less than GRPO without KL",
        "beyond",
        "beyond the paper, whose table has 3.85 and whose text makes no such claim",
        lambda of, mode: [[of.level(mode, PAPER, "cokl_without_term1", "retention")]],
    ),
    "term 2": PaperClaim(
        "Without its second term, as replay, CoKL adapts less, or at equal adaptation retains less",
        "paper",
        "Ablation of the loss structure",
        lambda of, mode: [
            [of.compare(mode, at, "cokl", "correct_forward_kl", score)]
            for at, score in ((PAPER, "adaptation"), (BEST, "adaptation"), (EQUAL, "retention"))
        ],
    ),
    "floor": PaperClaim(
        f"The correctness floor gains CoKL less than {NEGLIGIBLE:g} point",
        "paper",
        "Batch-level correctness floor",
        lambda of, mode: [
            [of.compare(mode, at, "cokl", "cokl_floor", score, NEGLIGIBLE)]
            for at, score in ((PAPER, "overall"), (BEST, "overall"), (EQUAL, "retention"))
        ],
    ),
    "batches": PaperClaim(
        "Larger KL batches retain more, 32 against 8 prompts",
        "paper",
        "KL batch analysis",
        lambda of, mode: [part for sizes in ((32, 8), (16, 8), (32, 16)) for part in of.batches(mode, *sizes)],
    ),
    "larger batches": PaperClaim(
        "KL batches above the paper's retain more, against 8 prompts",
        "beyond",
        "beyond the paper: KL batch analysis",
        lambda of, mode: [
            part
            for larger in sorted(size for size in of.scored["kl_prompts"].unique() if size > max(KL_BATCHES))[::-1]
            for part in of.batches(mode, larger, min(KL_BATCHES))
        ],
    ),
    "beta": PaperClaim(
        "Beta trades off between 0.1 and 10: the larger one retains more, the smaller one adapts more",
        "paper",
        "Sensitivity analysis",
        lambda of, mode: [of.coefficients(mode)],
    ),
    "zero-correct": PaperClaim(
        f"At {PAPER} most of CoKL's rollout groups hold a correct response",
        "paper",
        "E.4",
        lambda of, mode: [[of.zero_correct(mode)]],
    ),
    "drift": PaperClaim(
        "Forgetting is more drift within the correct answers than drift of the correctness mass",
        "paper",
        "Batch-level correctness floor",
        lambda of, mode: of.drifts(mode),
    ),
}


def judge(views: Views) -> list[Claim]:
    """Every claim that the methods, modes, coefficients and KL batches of a scored table allow to be judged.

    The first list of measurements that the table has whole is the primary one, sampled before exact.
    """
    claims = []
    for name, (statement, origin, place, parts) in PAPER_CLAIMS.items():
        lists = [list(part) for mode in ("sampled", "exact") for part in parts(views, mode)]
        known = [[m for m in part if m is not None and math.isfinite(m.mean)] for part in lists]
        complete = [some for some, part in zip(known, lists, strict=True) if part and len(some) == len(part)]
        if complete:
            claims.append(judged(name, statement, origin, place, complete[0], complete[1:]))
    return claims


def balance(views: Views, mode: str) -> str:
    """CoKL's Overall beside that of the best rival, each method at its best coefficient."""
    lead, rival = views.over_the_best_rival(mode), views.best_rival(mode)
    if lead is None or rival is None or not math.isfinite(lead.mean):
        return "There is no Overall of CoKL and of another method to compare"
    return lead.told(label(rival), "Overall")
