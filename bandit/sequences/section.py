"""The sequence lab: answers of many tokens, retention against adaptation, and CoKL's leads at equal adaptation."""

from __future__ import annotations

from pathlib import Path

from bandit.engine.tables import reported_seeds
from bandit.sequences.report import CAPTIONS, named, tables
from bandit.sequences.run import SEQUENCES
from bandit.shift.figures import frontier
from bandit.shift.report import anchors
from bandit.shift.score import label
from cokl.support.files import read_result
from figures.page import Section, folded, legend, plot, text
from figures.plotly_renderer import render
from figures.style import SEED_LINES

_SHOWN = ("normalized", "leads", "equal_adaptation", "razor", "raw")


def section(folder: Path) -> Section:
    """Figures and tables of one finished lab, for each of its modes."""
    lab = read_result(folder / "sequences.parquet", SEQUENCES.columns)
    made = tables(lab)
    name, search = folder.name, made["beta_search"].assign(best=False)
    methods = [str(method) for method in made["dynamics"]["method"].unique() if method != "base"]
    plots, blocks_of_plots = {}, []
    for mode, rows in search.groupby("mode", sort=False):
        key = f"{name}-{mode}-frontier"
        plots[key] = render(frontier(rows, bars=reported_seeds(lab) >= SEED_LINES))
        caption = (
            f"Retention against adaptation ({mode}): a point is a coefficient, bars are 95% t-intervals; crosses mark "
        )
        blocks_of_plots.append(plot(key, f"{caption}Base (0, 100) and GRPO w/o KL (100, 0)."))
    blocks = folded({key: made[key] for key in _SHOWN}, named, CAPTIONS)
    intervals_note = f"<p>{text(anchors(lab))} Intervals are over the reported seeds.</p>"
    body = f"{intervals_note}{legend(methods, label)}{''.join(blocks_of_plots)}{blocks}"
    return Section("sequences", "Answers of many tokens", body, name, plots)
