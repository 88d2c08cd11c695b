"""The finite-group lab's figure: final metrics against G beside the exact objective."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.finite_group.train import EXACT
from bandit.lab import Analysis
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import Style, method_style

_EXACT_LABEL = r"exact ($G \to \infty$)"
_DASHES = (4.0, 2.0)


def draw(analysis: Analysis) -> dict[str, Drawing]:
    """Metrics against group size."""
    drawing = metrics(analysis.tables["final"], analysis.seeds)
    return {"finite_group_metrics": replace(drawing, note=analysis.diverged)}


def metrics(final: pd.DataFrame, seeds: int) -> Drawing:
    """A row of panels per mu, for the largest coefficient; means over seeds with 95% t-intervals over G.

    final: of `final_table`. Dashed horizontal lines are the exact objective at the same mu; markers tell the reference
    groups apart.
    """
    none, final = final[final["method"] == "none"], final[final["method"] != "none"]
    final = final[final["beta"] == final["beta"].max()]
    coverage = coverage_column(final)
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
        f"{beta:g}: means over {seeds} seeds at the last step, 95% t-intervals."
    )
    return Drawing(
        join(parts), panels, 3, 0.7 + 1.9 * len(panels) / 3, caption, _styles(final),
        legend | {_EXACT_LABEL: EXACT}, legend_title=rf"Regularizer ($\beta = {beta:g}$) and its groups",
        shared={"sharex": True, "sharey": "col"}, letters=True,
    )  # fmt: skip


def _styles(final: pd.DataFrame) -> dict[str, Style]:
    """Each method's style; thin, darker and with open markers for cached groups; dashed lines without markers for the
    exact objective.
    """
    styles = {
        EXACT: Style("#555555", dashes=_DASHES, width=0.9),
        "none": Style("black", dashes=(1, 1.5), width=0.8),
    }
    for method, groups in final[["method", "groups"]].drop_duplicates().itertuples(index=False):
        look = replace(method_style(method), dashes=())
        if groups == EXACT:
            look = replace(look, dashes=_DASHES, marker="", width=0.9)
        elif groups == "cached":
            red, green, blue = to_rgb(look.color)
            look = replace(look, color=to_hex((red / 2, green / 2, blue / 2)), fill="none", width=0.8)
        styles[f"{method} {groups}"] = look
    return styles
