"""The plasticity lab's pictures: correctness against plasticity, and learning curves at the match."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from bandit.engine.tables import method_label as label
from bandit.engine.tables import reported_seeds
from bandit.lab import Tables
from bandit.plasticity.analysis import Scored, at_match, diverged_note, of_primary
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.train import match, without_diverged_runs
from cokl.support.statistics import summarize
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import SEED_LINES, Style, method_style

_COLUMNS = 4
_TICKS = (0.1, 0.5, 0.8, 0.9, 0.96)
_STYLES = {"match": Style("#999999", dashes=(2, 2), order=1)}


def draw(tables: Tables, config: PlasticityConfig) -> dict[str, Drawing]:
    """Both pictures by their file's name."""
    table = tables["plasticity"]
    return {
        "plasticity_tradeoff": tradeoff(table, Scored.of(table, config), config),
        "plasticity_curves": curves(table, config),
    }


def tradeoff(table: pd.DataFrame, scored: Scored, config: PlasticityConfig) -> Drawing:
    """A point per coefficient of the primary phase 1, for phase 2 in groups and in expectation; and by cache at the
    match of the sampled one.
    """
    primary, target = config.changes[0], config.phases[0].matched_correctness
    rows = scored.runs[(scored.runs["role"] == "report") & (scored.runs["change"] == primary)]
    rows = of_primary(rows, config)
    low, high = rows["p_correct"].min(), rows["p_correct"].max()
    axes = Panel(
        x="Correctness after phase 1", y=f"Plasticity after {primary}", scale="stretched", y_limits=(0, 1),
        x_ticks=[tick for tick in _TICKS if low <= tick <= high],
    )  # fmt: skip
    panels, parts = {}, []
    for mode in rows["mode"].unique():
        panels[mode] = replace(axes, title=f"phase 2 {mode}")
        parts.append(marks(mode, "seed", style="match", x=[target, target], y=[0, 1]))
        means = summarize(rows[rows["mode"] == mode], ["method", "beta"], ["p_correct", "plasticity"])
        for method, points in means.sort_values("beta").groupby("method", sort=False):
            betas = points["beta"].map("β = {:g}".format)
            parts.append(_line(mode, str(method), points, "p_correct", table).assign(text=betas.to_numpy()))
    cached = scored.matched.drop(index=of_primary(scored.matched, config).index)
    if len(cached):
        parts += _by_cache(summarize(cached, ["method", "cached"], ["plasticity"]), table)
        sizes = sorted(set(cached["cached"]) - {0})
        panels["cache"] = replace(
            axes, title="phase 1 sampled", x=r"Cached responses $G_{\mathrm{ref}}$", scale="log2", x_ticks=sizes
        )
    caption = (
        f"Correctness after phase 1 against plasticity, the mean new reward over {config.new_steps} steps after "
        f"{primary}: a point per coefficient, {_intervals('bars', table)}; lines join neighbouring coefficients; "
        "dashed, the matched correctness."
    )
    if len(cached):
        at = config.phases[-1].matched_correctness
        caption += f" (c) by cached responses after the sampled phase 1, at {at:g}."
    return Drawing(
        join(parts), panels, len(panels), 2.9, caption, _STYLES, legend_columns=5, shared={"sharey": True},
        letters=len(panels) > 1, note=diverged_note(table),
    )  # fmt: skip


def _by_cache(means: pd.DataFrame, table: pd.DataFrame) -> list[pd.DataFrame]:
    """A line over the caches for each method that weights cached responses, across the panel for the others."""
    parts = []
    for method, points in means.groupby("method", sort=False):
        if (points["cached"] > 0).all():
            parts.append(_line("cache", str(method), points, "cached", table))
        else:
            across = {"x_low": means["cached"][means["cached"] > 0].min(), "x_high": means["cached"].max()}
            height = points["plasticity"]
            parts.append(marks("cache", "hline", label=label(str(method)), method=method, y=height, **across))
    return parts


def curves(table: pd.DataFrame, config: PlasticityConfig) -> Drawing:
    """The new reward by step at the match of the primary phase 1: a panel per change in sampled groups, and one of the
    first change in expectation.
    """
    matched = at_match(without_diverged_runs(table), match(table, config), ["reward"])
    means = summarize(of_primary(matched, config), ["mode", "change", "method", "step"], ["reward"])
    shown = [(change, "sampled") for change in means["change"].unique()]
    shown += [(config.changes[0], "exact")] if "exact" in set(means["mode"]) else []
    panels, parts = {}, []
    for change, mode in shown:
        name = change if mode == "sampled" else f"{change}, {mode}"
        panels[name] = Panel(title=name, x="Step of phase 2", y="New reward", y_limits=(0, 1))
        rows = means[(means["change"] == change) & (means["mode"] == mode)]
        for method, points in rows.groupby("method", sort=False):
            parts.append(_line(name, str(method), points, "step", table, "band"))
    caption = (
        f"Learning a changed reward in groups of {config.group_size}, "
        + ("the first change also in expectation, " if "exact" in set(means["mode"]) else "")
        + f"from policies of a correctness of {config.phases[0].matched_correctness:g}, from unregularized RL and from "
        f"the reference: {_intervals('bands', table)}."
    )
    plain = {method: replace(method_style(method), marker="") for method in map(str, means["method"].unique())}
    height = 0.8 + 1.6 * -(-len(shown) // _COLUMNS)
    return Drawing(
        join(parts), panels, min(_COLUMNS, len(shown)), height, caption,
        plain | {"reference": replace(plain["reference"], dashes=(1, 1))}, legend_columns=5, shared={"sharey": True},
        note=diverged_note(table),
    )  # fmt: skip


def _line(
    panel: str, method: str, means: pd.DataFrame, x: str, table: pd.DataFrame, kind: str = "line"
) -> pd.DataFrame:
    """A method's means with their intervals, unless the seeds are few; a single point without a line."""
    y = "reward" if kind == "band" else "plasticity"
    ends = interval(means, y) if reported_seeds(table) >= SEED_LINES else {}
    kind = "point" if len(means) == 1 else kind
    return marks(panel, kind, label=label(method), method=method, x=means[x], y=means[y], **ends)


def _intervals(drawn: str, table: pd.DataFrame) -> str:
    return f"means over {reported_seeds(table)} seeds" + (
        f", {drawn} 95% t-intervals" if reported_seeds(table) >= SEED_LINES else ""
    )
