"""Pictures of the open questions: the answers by name, and Figure 2 with a language model."""

from __future__ import annotations

import json

import pandas as pd

from cokl import methods
from figures.marks import Drawing, Panel, join, marks
from figures.style import TEXT_WIDTH, Picture, method_style, new_figure, settings
from llm_bridge.open_questions.analysis import ranked

LABELS = {"base": "Before", "none": "Plain RL"}
"""Of runs; a method's own label otherwise."""
AFTER = {**LABELS, "none": "After plain RL"}
"""Of the conditions in a picture of answers; after a method's label otherwise."""
SHOWN = 9
"""Bars with a name of their own."""


def label(method: str) -> str:
    """What a condition is called."""
    return AFTER.get(method) or f"After {methods.label(method)}"


def run_label(method: str) -> str:
    """What a run is called, from its start on."""
    return methods.label(method, LABELS)


def answers(rows: pd.DataFrame, question: str) -> Picture:
    """64 answers to one question, by name, a panel for each method: `rows` are of the last step, and the base's."""
    asked = rows[rows["question"] == question]
    with settings({"axes.axisbelow": True}):
        figure, panels = new_figure(TEXT_WIDTH, 2.4, ncols=len(asked), sharex=True)
        for panel, (_, row) in zip(panels, asked.iterrows(), strict=True):
            counts = json.loads(row["answers"])
            named, others, times, wrong = ranked(counts, SHOWN)
            bars = [*named, *([(f"{others} others", times)] if others else []), ("no right answer", wrong)]
            colors = [method_style(row["method"]).color] * len(named) + ["#bbbbbb"] * (len(bars) - len(named))
            panel.barh(range(len(bars)), [count for _, count in bars], color=colors)
            panel.set_yticks(range(len(bars)), [name for name, _ in bars], fontsize=6)
            panel.set_ylim(SHOWN + 1.6, -0.6)
            panel.set_title(f"{label(row['method'])}\n{row['different']:.0f} different, {row['right']:.0%} right")
            panel.set_xlabel("of 64 replies")
        figure.suptitle(f"“{question}”")
    told = "; ".join(f"{label(row['method']).lower()}: {row['different']:.0f}" for _, row in asked.iterrows())
    figure.caption = f"64 replies to “{question}”. Different right answers {told}."
    return figure


def tradeoff(paths: pd.DataFrame) -> Drawing:
    """Correctness against different right answers, and against the KL among cached right ones.

    A point is where the runs of a coefficient end, as a mean over seeds; a thin line is the path of one run from the
    base, and the start is the mean base.
    """
    panels = {
        "different": Panel(
            title="Different right answers: more is better",
            x="Correctness, training questions",
            y="Different right answers of 64",
            x_limits=(None, 1),
        ),
        "cached_kl": Panel(
            title="Drift from the reference: less is better",
            x="Correctness, training questions",
            y="KL among cached right answers [nats]",
            x_limits=(None, 1),
        ),
    }
    parts = []
    for method, of_method in paths.groupby("method", sort=False):
        ends = of_method.groupby(["seed", "beta"]).tail(1).groupby("beta")[["right", *panels]].mean()
        for panel in panels:
            name = methods.label(str(method), {"none": "No regularizer"})
            parts += [
                marks(panel, "seed", x=path["right"], y=path[panel], method=method, label="", run=number)
                for number, (_, path) in enumerate(of_method.groupby(["seed", "beta"]))
            ]
            parts.append(marks(panel, "point", x=ends["right"], y=ends[panel], method=method, label=name))
    start = paths[paths["step"] == 0].drop_duplicates("seed")[["right", *panels]].mean()
    parts += [
        marks(panel, "point", x=[start["right"]], y=[start[panel]], method="base", label="Before training")
        for panel in panels
    ]
    seeds = paths["seed"].nunique()
    caption = (
        "The paper's Figure 2 with open questions: a point is where training ends, one for each coefficient of a "
        "method, and a thin line the path of a run from the model before training. "
        + ("One seed." if seeds == 1 else f"Points are means over {seeds} seeds.")
    )
    return Drawing(join(parts), panels, 2, 3.0, caption, letters=True)


def while_training(paths: pd.DataFrame) -> Drawing:
    """Correctness over the steps of training, and different right answers over correctness, a line a method."""
    different = "Different right answers of 64"
    panels = {
        "right": Panel(title="How often right", x="Step", y="Correctness", y_limits=(0, 1)),
        "different": Panel(
            title="In how many ways", x="Correctness", y=different, x_limits=(None, 1), y_limits=(0, None)
        ),
    }
    parts = [
        marks(
            panel,
            "line",
            x=path["step" if panel == "right" else "right"],
            y=path[panel],
            method=method,
            label=run_label(str(method)),
        )
        for panel in panels
        for method, path in paths.groupby("method", sort=False)
    ]
    caption = (
        "Means over the questions that are trained on. A line on the right goes through the measurements on the left."
    )
    return Drawing(join(parts), panels, 2, 2.6, caption, letters=True)


def screen(rows: pd.DataFrame, paths: pd.DataFrame, question: str, width: int = 78) -> str:
    """The answers to one question as bars of text, and a table of correctness and different answers by step."""
    asked = rows[rows["question"] == question]
    lines = [f"64 replies to “{question}”", "It had the most different right answers before training.", ""]
    for _, row in asked.iterrows():
        named, others, times, wrong = ranked(json.loads(row["answers"]), SHOWN)
        lines.append(
            f"{label(row['method'])}: {row['different']:.0f} different right answers, {row['right']:.0%} right"
        )
        bars = [*named, *([(f"{others} other right ones", times)] if others else []), ("no right answer", wrong)]
        lines += [
            f"  {name[:22]:22} {count:3} {'█' * round(count * (width - 30) / 64) or '▏'}"
            for name, count in bars
            if count
        ]
        lines.append("")
    steps = sorted(paths["step"].unique())
    lines += ["Means over the questions that are trained on, in one run, which decides nothing", ""]
    lines.append(f"  {'':22}{'before':>9}" + "".join(f"{f'step {step}':>9}" for step in steps[1:]))
    for method in [name for name in asked["method"] if name != "base"]:
        path = paths[paths["method"] == method]
        lines.append(f"  {f'{run_label(method)}: right':22}" + "".join(f"{right:>9.0%}" for right in path["right"]))
        lines.append(f"  {'  different, of 64':22}" + "".join(f"{different:>9.1f}" for different in path["different"]))
    return "\n".join(lines)
