"""The plasticity lab on the page: correctness against plasticity, learning curves at the match, and the tables."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from bandit.engine.tables import method_label as label
from bandit.plasticity.claims import judge
from bandit.plasticity.config import TwoPhases
from bandit.plasticity.figures import curves, tradeoff
from bandit.plasticity.report import captions, legend, readable, tables
from figures.page import Section, folded, plot, text
from figures.page import legend as chips
from figures.plotly_renderer import render


def section(name: str, table: pd.DataFrame, config: TwoPhases) -> Section:
    """Figures and tables of one finished lab, whose folder is called `name`."""
    first = config.changes[0]
    against, learning = tradeoff(table, config), curves(table, config)
    shown = {"plasticity": (against, "sampled", f"Correctness after phase 1 against plasticity after {first}.")}
    for change in learning.panels:
        if change == first or change.startswith("moved"):
            shown[change] = (learning, change, f"The new reward during phase 2 at the match: {change}.")
    plots = {
        f"{name}-{key}": render(replace(drawing, panels={panel: drawing.panels[panel]}))
        for key, (drawing, panel, _) in shown.items()
    }
    blocks_of_plots = "".join(plot(f"{name}-{key}", caption) for key, (_, _, caption) in shown.items())
    claims = "".join(f"<li>{text(claim.statement)}: {text(claim.measured)}</li>" for claim in judge(table, config))
    methods = [str(method) for method in learning.marks["method"].unique()]
    blocks = folded(tables(table, config), readable, captions(config))
    body = f"<p>{text(legend(table, config))}</p>{chips(methods, label)}{blocks_of_plots}<ul>{claims}</ul>{blocks}"
    return Section("plasticity", "What can still be learned", body, name, plots)
