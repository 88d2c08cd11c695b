"""CoKL's retention and adaptation less replay's in each setting of a map, and how the prediction fared.

`python -m bandit.structure.figures` draws figures/rendered/structure_MAP from both runs in RESULTS.csv.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bandit.shift.claims import EQUIVALENT
from bandit.structure.config import MAPS, StructureConfig
from bandit.structure.score import LEADS, summarize
from cokl.support.statistics import with_spread
from figures.marks import Drawing, Panel, interval, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture, Style, save_all

RESULTS = Path(__file__).with_name("RESULTS.csv")
RUNS = {"first": "first run", "again": "once more, everything random anew"}
"""What a picture calls each run of RESULTS.csv."""
_PANELS = {"kept": "Retention at coefficient 1", "adapted": "Adaptation at 1", "gain": "Retention, adapting alike"}
_UNPREDICTED, _ANEW = "nothing predicted", " (anew)"
_POINTS = {
    "prediction came out": Style("#009E73", "o", size=4.5),
    "undecided": Style("#777777", "D"),
    "prediction refuted": Style("#D55E00", "^", size=4.5),
    _UNPREDICTED: Style("#000000", "s"),
}
_EQUAL = f"within {EQUIVALENT:g} points"
_STYLES = {
    **_POINTS,
    **{f"{name}{_ANEW}": replace(look, fill="#ffffff") for name, look in _POINTS.items()},
    _EQUAL: Style("#56B4E9", dashes=(4, 2), width=0.8),
    "zero": Style("#555555", width=0.8),
}


def draw_all(trained: pd.DataFrame, config: StructureConfig) -> dict[str, Picture]:
    """The map's one picture."""
    return {f"structure_{config.map}": render(drawing({"": summarize(trained, config)}))}


def of_both_runs(rows: pd.DataFrame, config: StructureConfig) -> Drawing:
    """The same of a map's two runs beside each other. rows: those of RESULTS.csv, which lacks what is not shown."""
    whole = rows.assign(mode="sampled", kl_prompts=0, prior_pass_at_k=math.nan)
    return drawing({name: summarize(whole[whole["run"] == run], config) for run, name in RUNS.items()})


def drawing(runs: Mapping[str, pd.DataFrame]) -> Drawing:
    """A panel per measurement and a row per setting, with a point and its 95% t-interval for each run.

    runs: what `bandit.structure.score.summarize` returns of one run or two of a map, by the run's name; the second's
    markers are open. Shaded is the margin within which retention is equal.
    """
    settings = next(iter(runs.values()))[["cell", "prediction"]].to_dict("records")
    heights = {setting["cell"]: float(-place) for place, setting in enumerate(settings)}
    names = {heights[setting["cell"]]: f"{setting['cell']}: {setting['prediction']}" for setting in settings}
    ends = [0.5 - len(settings), 0.5]
    panels, parts = {}, []
    for column, title in _PANELS.items():
        panels[column] = Panel(
            title, "CoKL minus replay, points", "Setting: predicted", y_names=names, y_limits=(ends[0], ends[1])
        )
        parts.append(marks(column, "line", style="zero", x=[0.0, 0.0], y=ends))
        if column in LEADS:
            parts.append(marks(column, "area", style=_EQUAL, x=[-EQUIVALENT, EQUIVALENT], low=ends[0], high=ends[1]))
            for edge in (-EQUIVALENT, EQUIVALENT):
                parts.append(marks(column, "line", style=_EQUAL, run=int(edge), x=[edge, edge], y=ends))
        for number, (run, summary) in enumerate(runs.items()):
            for row in summary.dropna(subset=[column]).to_dict("records"):
                fate = _fate(row) if column == "kept" else _UNPREDICTED
                parts.append(
                    marks(
                        column, "point", style=f"{fate}{_ANEW * number}", run=number, x=row[column],
                        y=heights[str(row["cell"])] + (len(runs) - 1) * (0.15 - 0.3 * number),
                        text=", ".join(filter(None, (str(row["cell"]), run))),
                        **interval(pd.DataFrame([row]), column, prefix="x_"),
                    )
                )  # fmt: skip
    drawn = join(parts)
    legend = {name: name for name in (*_POINTS, _EQUAL) if name in set(drawn["style"])}
    if len(runs) > 1:
        legend["open: the second run"] = f"{_UNPREDICTED}{_ANEW}"
    measured = "; ".join(
        f"{name}: " * bool(name) + ", ".join(map(_written, summary.dropna(subset=["kept"]).to_dict("records")))
        for name, summary in runs.items()
    )
    caption = (
        "CoKL's retention and adaptation minus replay's, at coefficient 1 and where both adapt alike, with 95% "
        f"t-intervals over seeds. Retention is equal {_EQUAL}; beside a setting stands what was predicted of it at 1. "
        f"Retention at 1, {measured}."
    )
    return Drawing(
        drawn, panels, 3, 1.3 + 0.28 * len(settings), caption, _STYLES, legend, legend_columns=3,
        shared={"sharey": True},
    )  # fmt: skip


def _fate(row: Mapping[Hashable, object]) -> str:
    if row["outcome"] == "undecided":
        return "undecided"
    return "prediction came out" if row["outcome"] == row["prediction"] else "prediction refuted"


def _written(row: Mapping[Hashable, float]) -> str:
    return f"{row['cell']} {with_spread(row['kept'], row['kept_half_width'], 1)} ({row['outcome']})"


if __name__ == "__main__":
    rendered = Path(__file__).parents[2] / "figures" / "rendered"
    rows = pd.read_csv(RESULTS)
    for name in MAPS:
        save_all({f"structure_{name}": render(of_both_runs(rows, StructureConfig(map=name)))}, rendered)
        (rendered / f"structure_{name}.csv").unlink()
