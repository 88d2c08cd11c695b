"""The LLM experiment's figures: validation during the chat stage, and what many seeds end with."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture, method_style
from llm_bridge.experiment.workloads import CHAT, DISTINCT, WORKLOADS
from llm_bridge.report.results import Results
from llm_bridge.report.tables import HEADERS, method_label


def draw(results: Results) -> dict[str, Picture]:
    """The figure by its name, if the results have rows for it."""
    return {"llm_training_dynamics": render(dynamics(results))} if len(results.dynamics) else {}


def dynamics(results: Results) -> Drawing:
    """Math accuracy, chat reward and their mean over the steps of the chat stage, a line per method (E.6).

    Where different right answers are counted, accuracy over their number stands in the mean's place. A workload
    without a chat set has no panel of it.
    """
    rows, counted = results.dynamics, DISTINCT in results.dynamics
    if not counted:
        rows = rows.assign(mean=(rows["math_val"] + rows[CHAT]) / 2)
    first, model = HEADERS.get(results.math_columns[0], results.math_columns[0]), str(rows["model"].iloc[0])
    last = (DISTINCT, "math_val") if counted else ("step", "mean")
    drawn = {"math": ("step", "math_val"), "chat": ("step", CHAT), "last": last}
    drawn = {panel: axes for panel, axes in drawn.items() if axes[1] in rows}
    labels = {"step": "Chat-stage step", DISTINCT: HEADERS[DISTINCT], "mean": "Mean of both"}
    labels |= {"math_val": f"{first} accuracy [%]", CHAT: f"{HEADERS[CHAT]} reward"}
    title = (WORKLOADS[model].title if model in WORKLOADS else "") or model
    middle = [*drawn][(len(drawn) - 1) // 2]
    panels = {
        panel: Panel(x=labels[x], y=labels[y], x_limits=(0, None), title=title if panel == middle else "")
        for panel, (x, y) in drawn.items()
    }
    parts = [
        marks(panel, "band", x=curve[x], y=curve[y], label=method_label(str(method)), method=method)
        for panel, (x, y) in drawn.items()
        for method, curve in rows.sort_values("step").groupby("method", sort=False)
    ]
    ends = rows[rows["step"] == rows.groupby("method")["step"].transform("max")]
    at_end = {
        name: ", ".join(f"{method_label(row['method'])} {row[name]:.1f}" for _, row in ranked.iterrows())
        for name in ("math_val", CHAT)
        if name in rows
        for ranked in [ends.sort_values(name, ascending=False)]
    }
    caption = f"Validation during the chat stage ({model}). {first} at the end: {at_end['math_val']}."
    if CHAT in at_end:
        caption += f" {HEADERS[CHAT]}: {at_end[CHAT]}."
    return Drawing(join(parts), panels, len(panels), 2.7, caption, letters=True)


def ends_by_seed(scores: pd.DataFrame) -> Drawing:
    """What each method keeps and learns on each seed, a point for its end. scores: SmolLM2's, main settings alone.

    Points of one seed stand side by side, in the table's order.
    """
    panels = {
        column: Panel(title, "Seed", label, x_ticks=sorted(scores["seed"].unique()), y_limits=(-4, 104))
        for column, title, label in (
            ("known", "Sums that it knew: higher is better", "Right [%]"),
            (CHAT, "Small talk: higher is better", "Reward [%]"),
        )
    }
    parts, names = [], list(scores["method"].unique())
    for panel in panels:
        for place, name in enumerate(names):
            rows = scores[scores["method"] == name].sort_values("seed")
            beside = rows["seed"] + 0.1 * (place - (len(names) - 1) / 2)
            text = [f"seed {seed}, β = {beta:g}" for seed, beta in zip(rows["seed"], rows["beta"], strict=True)]
            parts.append(
                marks(panel, "point", label=method_label(name), method=name, x=beside, y=rows[panel], text=text)
            )
    caption = (
        "SmolLM2-135M after small talk: known sums right (a) and small talk's reward (b), in percent. Each of "
        f"{scores['seed'].nunique()} seeds has one run a method. Base is before small talk."
    )
    star = {"base": replace(method_style("base"), size=6)}
    return Drawing(join(parts), panels, len(panels), 2.7, caption, star, legend_columns=len(names), letters=True)
