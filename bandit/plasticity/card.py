"""A regularizer on one card: what it keeps, what can be learned afterwards, and whether its surrogate is right.

The settings are the plasticity lab's, made small: its phase 1 is the controlled experiment.

Assumption beyond the paper: a surrogate is called right if its gradient's distance from the exact one falls at least
fourfold while groups grow 64-fold; sampling noise alone falls eightfold, an error of the surrogate's own stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from textwrap import fill, wrap

import pandas as pd
import torch

from bandit.engine.sampled import draw_responses, method_logit_gradient
from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.plasticity.analysis import at_match, runs
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.train import match
from cokl import methods, regularizers
from cokl.groups import SurrogateConfig
from cokl.policy import CorrectSet, Policy
from cokl.support.errors import told_of_users_code
from cokl.support.statistics import summarize, with_spread
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import method_style

BUILT_IN = ("none", "entropy", "forward_kl", "reverse_kl", "jensen_shannon", "cokl", "correct_forward_kl")
RIVALS = ("cokl", "correct_forward_kl")
"""What one's own is told beside: CoKL and replay."""
MATCHED = 0.01
"""How far a correctness may be from `matched_correctness` to be compared."""
WIDTH, NAME = 80, 18
"""Of a screen, and of a method's name on it, in columns."""
_MEASURED = ["p_correct", "conditional_kl", "plasticity"]
_SMALL, _LARGE = 512, 64 * 512
_CONTEXTS, _ACTIONS, _CORRECT = 8, 20, 6


def config(own: tuple[str, ...]) -> PlasticityConfig:
    """Every built-in regularizer and `own`, each at four coefficients."""
    return PlasticityConfig(
        methods=(*BUILT_IN, *own),
        betas=(0.01, 0.03, 0.1, 0.3),
        seeds=3,
        selection_seeds=1,
        steps=400,
        pretrain_steps=600,
        matched_correctness=0.93,
        changes=(PlasticityConfig.primary_change,),
        new_steps=150,
        evaluated_steps=(0, 5, 10, 20, 30, 50, 75, 100, 150),
        evaluated_inputs=500,
    )


def surrogate_check(name: str) -> str:
    """Its sampled gradient against the exact one, in words for the table.

    Raises InputError for weights that fail. `cokl_cli.regularizer_check` comes before it.
    """
    method, regularizer = methods.get(name), regularizers.get(name)
    if not regularizer.streams:
        return "none"
    generator = torch.Generator().manual_seed(0)
    sets = CorrectSet.from_mask((torch.arange(_ACTIONS) < _CORRECT).expand(1, _CONTEXTS, -1))
    shape = (1, _CONTEXTS, _ACTIONS)
    reference = Policy(torch.randn(shape, generator=generator, dtype=torch.float64), sets)
    policy = Policy(reference.logits + torch.randn(shape, generator=generator, dtype=torch.float64), sets)
    with told_of_users_code(name, f"gradient with {_ACTIONS} actions, where the card compares surrogate_weights"):
        exact = regularizer.logit_gradient(policy, reference)
    distances = []
    for size in (_SMALL, _LARGE):
        uniforms = torch.rand(2, _CONTEXTS, size, generator=generator, dtype=torch.float64)
        cached, rollout = (
            draw_responses(by, reference, u) for by, u in zip((reference, policy), uniforms, strict=True)
        )
        one = torch.ones(1, dtype=torch.float64)
        with told_of_users_code(name, "surrogate_weights"):
            sampled = method_logit_gradient(method, policy, cached, rollout, one, SurrogateConfig())
        distances.append(float((sampled - exact).norm() / exact.norm()))
    small, large = distances
    return f"{'right' if large < small / 4 else 'WRONG'}, {large:.1%}"


def facts(table: pd.DataFrame) -> pd.DataFrame:
    """A row per method and coefficient of the reported seeds: means and half-widths of everything that is measured."""
    scored = runs(table)
    rows = scored[(scored["role"] == "report") & (scored["mode"] == "sampled")]
    return summarize(rows, ["method", "beta"], [*_MEASURED, coverage_column(scored)])


def comparable(table: pd.DataFrame, settings: PlasticityConfig, own: tuple[str, ...]) -> PlasticityConfig:
    """The settings at the correctness that `own` reach on the selection seeds: the given one, or their nearest."""
    reached = match(table, settings).query("method in @own")["reached"].min()
    return settings if pd.isna(reached) else replace(settings, matched_correctness=float(reached))


def matched(table: pd.DataFrame, settings: PlasticityConfig) -> pd.DataFrame:
    """A row per method at `settings.matched_correctness`, interpolated between neighbouring coefficients.

    Means and half-widths over the reported seeds. between: those coefficients, which the selection seeds choose, in
    text. far: whether the correctness is further away from the match than `MATCHED`.
    """
    scored, chosen = runs(table), match(table, settings)
    measured = [*_MEASURED, coverage_column(scored)]
    rows = at_match(scored, chosen, measured)
    means = summarize(rows[rows["mode"] == "sampled"], ["method"], measured)
    between = chosen.groupby("method")["beta"].agg(lambda values: " to ".join(f"{beta:g}" for beta in values))
    far = (means["p_correct"] - settings.matched_correctness).abs() > MATCHED
    return means.assign(between=means["method"].map(between), far=far)


def rows(means: pd.DataFrame, checks: Mapping[str, str]) -> pd.DataFrame:
    """The rows of `matched` in text. beta: with a star where the row is far. checks: of each method's surrogate."""
    coverage = coverage_column(means)
    digits = {"p_correct": 3, coverage: 3, "conditional_kl": 2, "plasticity": 3}
    titles = {"p_correct": "correct", coverage: coverage_label(coverage).lower(), "conditional_kl": "cond. KL"}
    shown = []
    for row in means.to_dict("records"):
        method = str(row["method"])
        cells = {titles.get(c, c): with_spread(row[c], row[f"{c}_half_width"], n) for c, n in digits.items()}
        beta = f"{row['between']}{'*' if row['far'] else ''}"
        shown.append({"method": method_label(method), "beta": beta, **cells, "surrogate": checks.get(method, "")})
    return pd.DataFrame(shown)


def answer(means: pd.DataFrame, method: str) -> str:
    """The first line: what a method keeps and what can be learned after it, beside `RIVALS`. means: of `matched`.

    A rival that was not trained, or is far from the match, is not told.
    """
    found, coverage = {row["method"]: row for row in means.to_dict("records")}, coverage_column(means)
    if method not in found or found[method]["far"]:
        return (
            f"{method_label(method)} is not comparable: its coefficients diverge or do not reach this correctness; "
            "scale its value"
        )
    rivals = [rival for rival in RIVALS if rival in found and not found[rival]["far"] and rival != method]
    told = []
    for column, name in ((coverage, coverage_label(coverage).lower()), ("plasticity", "plasticity")):
        cells = {one: with_spread(found[one][column], found[one][f"{column}_half_width"], 3) for one in found}
        beside = "".join(f", {method_label(rival)}'s {cells[rival]}" for rival in rivals)
        told.append(f"{name} {cells[method]}{beside}")
    return f"{method_label(method)}: " + "; ".join(told)


def words(own: tuple[str, ...], settings: PlasticityConfig, correctness: float) -> list[str]:
    """What explains the table, whose rows are at this correctness: its columns, its signs, and what is in it."""
    names = ", ".join(map(method_label, own))
    tried = ", ".join(f"{beta:g}" for beta in settings.betas)
    return [
        f"{names} beside the built-in regularizers, all set to a correctness of {correctness:.3f} on other seeds, "
        f"between two of the coefficients {tried}",
        f"*: more than {MATCHED:g} away from it, so that the row cannot be compared",
        f"{method_label('correct_forward_kl')}: training on the reference's correct answers, CoKL without its second "
        "term",
        f"± is half of a 95% interval over {settings.seeds} seeds: for looking, not for verdicts",
        "plasticity: mean reward of plain RL that starts there, when 2 of "
        f"{settings.environment.correct_actions} correct actions stay correct",
        "surrogate: distance of its gradient in large groups from the exact one",
        "all gradients are by `logit_gradient`; `cokl bandit sweep` computes the built-in ones a second time for "
        "speed, within 2e-6 times one plus the coefficient times the largest log-ratio",
    ]


def on_screen(shown: pd.DataFrame, correctness: pd.Series) -> str:
    """The table of `rows` within `WIDTH` columns: correctness without its interval, surrogates below, long names on
    several lines. correctness: of each row.
    """
    checks = [f"{row['method']} {row['surrogate']}" for row in shown.to_dict("records") if row["surrogate"]]
    narrow = shown.drop(columns="surrogate").assign(correct=[with_spread(one, math.inf, 3) for one in correctness])
    lines = []
    for row in narrow.to_dict("records"):
        first, *more = wrap(row["method"], NAME)
        lines += [{**row, "method": first}, *({**dict.fromkeys(row, ""), "method": name} for name in more)]
    return pd.DataFrame(lines).to_string(index=False) + "\n\n" + fill(f"surrogates: {'; '.join(checks)}", WIDTH)


def drawing(table: pd.DataFrame) -> Drawing:
    """What each coefficient keeps and costs: coverage, conditional KL and plasticity by correctness."""
    measured = facts(table)
    coverage = coverage_column(measured)
    ends = {
        coverage: Panel("Kept: better ↗", y=coverage_label(coverage), y_limits=(0, 1)),
        "conditional_kl": Panel("Drift: better ↘", y="Conditional KL [nats]", y_limits=(0, None)),
        "plasticity": Panel("Learned then: better ↗", y="Plasticity: mean new reward", y_limits=(0, 1)),
    }
    panels = {
        column: replace(panel, x="Correctness (axis stretched)", scale="stretched", x_ticks=(0.1, 0.5, 0.8, 0.9, 0.96))
        for column, panel in ends.items()
    }
    parts = []
    for method, points in measured.sort_values("beta").groupby("method", sort=False):
        kind = "line" if len(points) > 1 else "point"
        own = {"label": method_label(str(method)), "method": method}
        for column in ends:
            spans = interval(points, column)
            parts.append(marks(column, kind, **own, x=points["p_correct"], y=points[column], **spans))
    seeds = table.loc[table["role"] == "report", "seed"].nunique()
    caption = (
        "Correctness against coverage (a), conditional KL (b) and plasticity (c), a point per coefficient, means over "
        f"{seeds} seeds with 95% intervals."
    )
    others = set(measured["method"]) - {"reference", *BUILT_IN}
    boldest = {str(method): replace(method_style(str(method)), width=2.6, size=5) for method in others}
    return Drawing(join(parts), panels, 3, 3.0, caption, boldest, letters=True)
