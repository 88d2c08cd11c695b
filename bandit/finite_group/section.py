"""The finite-group lab: final metrics against G beside the exact objective, and the recovery against its prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bandit.engine.tables import method_label
from bandit.finite_group import figures
from bandit.finite_group.report import slope_cells
from bandit.finite_group.score import ESTIMATE, final_table, read_results, slope_table
from figures.page import Section, legend, plot
from figures.page import table as html_table
from figures.plotly_renderer import render


def section(folder: Path) -> Section:
    """Metrics and recovery of one finished lab."""
    metrics, recovery = read_results(folder)
    name, drawn = folder.name, figures.metrics(metrics)
    first = dict(list(drawn.panels.items())[:3])
    plots = {f"{name}-metrics": render(replace(drawn, panels=first))}
    final = final_table(metrics).query("method != 'none'")
    methods = [str(method) for method in final["method"].unique()]
    beta, optimizer_steps = final["beta"].max(), final["optimizer_steps"].min()
    at = f"β = {beta:g}, mu = {optimizer_steps}"
    caption = (
        f"Final metrics against group size at {at}. Open markers: cached groups, dotted: unfiltered ones; lines "
        "without markers: the exact objective."
    )
    blocks = [plot(f"{name}-metrics", caption, tall=True)]
    if len(recovery):
        slopes = slope_table(recovery, ESTIMATE)
        plots[f"{name}-recovery"] = render(figures.means(slopes))
        blocks.append(
            plot(f"{name}-recovery", "Mean recovery on log Z, measured against predicted (Appendix B): a point per G.")
        )
        shown = slope_cells(slopes)[["method", "beta", "groups", "mu", "G", "slope"]].rename(columns={"beta": "β"})
        blocks.append(html_table(shown, "Slope of measured on predicted; 1 is the prediction."))
    return Section("finite-group", "Finite groups", legend(methods, method_label) + "".join(blocks), name, plots)
