"""The task-shift lab: the frontier of retention against adaptation, its tables, and correctness during training."""

from __future__ import annotations

from pathlib import Path

from bandit.engine.tables import reported_seeds
from bandit.shift.figures import frontier, tasks
from bandit.shift.report import CAPTIONS, anchors, readable, tables
from bandit.shift.run import COLUMNS
from bandit.shift.score import label
from cokl.support.files import read_result
from figures.page import Section, folded, legend, plot, text
from figures.plotly_renderer import render
from figures.style import SEED_LINES

_SHOWN = ("table1_normalized", "equal_adaptation", "decomposition", "zero_correct", "kl_batch", "table1_raw")


def section(folder: Path) -> Section:
    """Figures and tables of one finished lab, for each of its modes."""
    lab = read_result(folder / "shift.parquet", COLUMNS)
    made = tables(lab)
    name, search = folder.name, made["beta_search"]
    modes = [str(mode) for mode in search["mode"].unique()]
    methods = [str(method) for method in made["dynamics"]["method"].unique() if method != "base"]
    blocks_of_plots, plots = [], {}
    for mode in modes:
        ours = {key: frame[frame["mode"] == mode] for key, frame in made.items()}
        first, second = f"{name}-{mode}-frontier", f"{name}-{mode}-dynamics"
        plots[first] = render(frontier(ours["beta_search"], bars=reported_seeds(lab) >= SEED_LINES))
        plots[second] = render(tasks(ours["dynamics"]))
        caption = (
            f"Retention against adaptation ({mode}): a point is a coefficient, bars are 95% t-intervals (none below "
            f"{SEED_LINES} seeds); crosses mark Base (0, 100) and GRPO w/o KL (100, 0), a star the coefficient chosen "
            "as best."
        )
        blocks_of_plots += [
            plot(first, caption),
            plot(second, f"Correctness on both tasks at the best coefficients ({mode}).", tall=True),
        ]
    blocks = folded({key: made[key] for key in _SHOWN}, readable, CAPTIONS)
    intervals_note = f"<p>{text(anchors(lab))} Intervals are over the reported seeds.</p>"
    body = f"{intervals_note}{legend(methods, label)}{''.join(blocks_of_plots)}{blocks}"
    return Section("shift", "Forgetting under task shift", body, name, plots)
