"""The finite-group lab: final metrics against G beside the exact objective, and recovery against R_G's prediction."""

from __future__ import annotations

from dataclasses import replace

import matplotlib as mpl
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.finite_group.analysis import diverged_note, final_table, slope_table
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.train import EXACT
from bandit.lab import Tables
from cokl.support.statistics import with_spread
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import Style, method_style

_EXACT_LABEL = r"exact ($G \to \infty$)"
_DASHES = {"unfiltered": (1.0, 1.65), EXACT: (4.0, 2.0)}


def draw(tables: Tables, config: FiniteGroupConfig) -> dict[str, Drawing]:
    """Metrics against group size and, where it was measured, the recovery."""
    drawn = {"finite_group_metrics": metrics(tables["finite_group"])}
    return drawn | ({"finite_group_recovery": recovery(tables["recovery"])} if len(tables["recovery"]) else {})


def metrics(table: pd.DataFrame) -> Drawing:
    """A row of panels per mu, for the largest coefficient; means over seeds with 95% t-intervals over G.

    Dashed horizontal lines are the exact objective at the same mu; markers tell the reference groups apart.
    """
    final = final_table(table)
    none, final = final[final["method"] == "none"], final[final["method"] != "none"]
    final = final[final["beta"] == final["beta"].max()]
    coverage = coverage_column(table)
    columns = {
        "p_correct": "Correctness",
        coverage: coverage_label(coverage),
        "conditional_kl": "Conditional KL [nats]",
    }
    sizes = sorted(final.loc[final["groups"] != EXACT, "group_size"].unique())
    panels, parts = {}, []
    for steps, of_steps in final.groupby("optimizer_steps"):
        for column, y in columns.items():
            panel = f"{column}, mu = {steps}"
            title = rf"$\mu = {steps}$ ({'on' if steps == 1 else 'off'}-policy)" if column == coverage else ""
            panels[panel] = Panel(title, "Group size $G$", y, "log2", sizes)
            for (method, groups), rows in of_steps.groupby(["method", "groups"], sort=False):
                look = {"method": method, "style": f"{method} {groups}"}
                if groups == EXACT:
                    look |= {"label": _EXACT_LABEL, "x_low": sizes[0], "x_high": sizes[-1]}
                    parts.append(marks(panel, "hline", y=rows[column].iloc[:1], **look))
                    continue
                look["label"] = method_label(str(method)) + ("" if groups == "fresh" else f", {groups}")
                ends = interval(rows, column, "_interval")
                parts.append(marks(panel, "line", x=rows["group_size"], y=rows[column], **look, **ends))
    if len(none):
        ends = {"x_low": sizes[0], "x_high": sizes[-1]}
        name = method_label("none")
        parts.append(marks(next(iter(panels)), "hline", style="none", y=none["p_correct"].iloc[:1], text=name, **ends))
    beta = final["beta"].max()
    sampled = final[final["groups"] != EXACT]
    legend = {
        method_label(str(method)) + ("" if groups == "fresh" else f", {groups}"): f"{method} {groups}"
        for method, groups in sampled[["method", "groups"]].drop_duplicates().itertuples(index=False)
    }
    caption = (
        f"Sampled groups of {sizes[0]:g} to {sizes[-1]:g} responses beside the exact objective (dashed) at β = "
        f"{beta:g}: means over {table['seed'].nunique()} seeds at the last step, 95% t-intervals."
    )
    return Drawing(
        join(parts), panels, 3, 0.7 + 1.9 * len(panels) / 3, caption, _styles(final),
        legend | {_EXACT_LABEL: EXACT}, legend_title=rf"Regularizer ($\beta = {beta:g}$) and its groups",
        shared={"sharex": True, "sharey": "col"}, letters=True, note=diverged_note(table),
    )  # fmt: skip


def _styles(final: pd.DataFrame) -> dict[str, Style]:
    """Each method's style; thin with open markers for other groups, darker for cached ones and lighter for unfiltered
    ones; dashed lines without markers for the exact objective.
    """
    styles = {
        EXACT: Style("#555555", dashes=_DASHES[EXACT], width=0.9),
        "none": Style("black", dashes=(1, 1.5), width=0.8),
    }
    for method, groups in final[["method", "groups"]].drop_duplicates().itertuples(index=False):
        look = replace(method_style(method), dashes=_DASHES.get(groups, ()))
        if groups == EXACT:
            look = replace(look, marker="", width=0.9)
        elif groups != "fresh":
            red, green, blue = to_rgb(look.color)
            darker, lighter = (red / 2, green / 2, blue / 2), ((1 + red) / 2, (1 + green) / 2, (1 + blue) / 2)
            shade = to_hex(darker if groups == "cached" else lighter)
            look = replace(look, color=shade, fill="none", width=0.8)
        styles[f"{method} {groups}"] = look
    return styles


def recovery(table: pd.DataFrame, method: str = "cokl") -> Drawing:
    """Measured against predicted pressure on log Z of one method: a point per cluster, step, seed and coefficient.

    A panel per kind of reference group and mu, and another for off-policy rollouts with the rollout policy's gate. The
    slopes are those of the tables, over all coefficients.
    """
    shown = table[table["method"] == (method if method in set(table["method"]) else table["method"].iloc[0])]
    sizes = sorted(shown["group_size"].unique())
    colors = mpl.colormaps["viridis"]([index / max(len(sizes) - 1, 1) for index in range(len(sizes))])
    styles = {f"G = {size:g}": Style(to_hex(color), ".", size=2.5, edge="none", width=0, alpha=0.5)
              for size, color in zip(sizes, colors, strict=True)}  # fmt: skip
    styles["slope 1"] = Style("black", dashes=(4, 2), width=0.8)
    gates = {
        "predicted": ("slope", r"predicted, $(1 - Z_\theta)^G\,|\nabla \log Z|^2$ [nats]"),
        "predicted_at_rollout": (
            "slope_at_rollout",
            r"predicted, $(1 - Z_{\mathrm{old}})^G\,|\nabla \log Z|^2$ [nats]",
        ),
    }
    panels, parts, slopes_shown = {}, [], []
    for (groups, steps), rows in shown.groupby(["groups", "optimizer_steps"], sort=False):
        slopes = slope_table(rows, ["groups", "optimizer_steps"]).iloc[0]
        slopes_shown.append(
            f"{groups} groups, mu = {steps}: {with_spread(slopes['slope'], slopes['slope_interval'], 3)}"
        )
        for column, (slope, x) in gates.items():
            if column == "predicted" or int(str(steps)) > 1:
                panel = f"{groups}, mu = {steps}, {column}"
                panels[panel] = Panel(f"{groups} reference groups, $\\mu = {steps}$", x, "measured [nats]")
                ends = [0, rows[column].max()]
                parts.append(marks(panel, "line", label="slope 1", style="slope 1", x=ends, y=ends))
                for size, points in rows.groupby("group_size"):
                    look = {"label": f"$G = {size:g}$", "method": shown["method"].iloc[0], "style": f"G = {size:g}"}
                    parts.append(marks(panel, "point", x=points[column], y=points["measured"], **look))
                text = f"slope {with_spread(slopes[slope], slopes[f'{slope}_interval'], 3)}"
                parts.append(marks(panel, "text", x=0.03, y=0.95, text=text))
    caption = (
        f"Pressure on log Z that finite groups add, measured cluster by cluster against Appendix B's prediction "
        f"({method_label(str(shown['method'].iloc[0]))}). Slope of measured on predicted, {'; '.join(slopes_shown)}."
    )
    columns = 2 if len(panels) > 1 else 1
    height = 0.5 + 2.5 * -(-len(panels) // columns)
    return Drawing(join(parts), panels, columns, height, caption, styles, legend_columns=len(styles), letters=True)
