"""The LLM experiment's figure: validation during the chat stage."""

from __future__ import annotations

from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture
from llm_bridge.report.results import Results
from llm_bridge.report.tables import HEADERS, method_label


def draw(results: Results) -> dict[str, Picture]:
    """The figure by its name, if the results have rows for it."""
    return {"llm_training_dynamics": render(dynamics(results))} if len(results.dynamics) else {}


def dynamics(results: Results) -> Drawing:
    """Math accuracy, chat reward and their mean over the steps of the chat stage, a line per method (E.6).

    Where different right answers are counted, accuracy over their number stands in the mean's place.
    """
    rows = results.dynamics.assign(mean=(results.dynamics["math_val"] + results.dynamics["chat_val"]) / 2)
    first, model = HEADERS.get(results.math_columns[0], results.math_columns[0]), str(rows["model"].iloc[0])
    last = ("distinct", "math_val") if "distinct" in rows else ("step", "mean")
    drawn = {"math": ("step", "math_val"), "chat": ("step", "chat_val"), "last": last}
    labels = {"step": "Chat-stage step", "distinct": "Different right answers", "mean": "Mean of both"}
    labels |= {"math_val": f"{first} accuracy [%]", "chat_val": "Chat-Val reward"}
    title = "SmolLM2-135M" if model == "smollm2" else model
    panels = {
        panel: Panel(x=labels[x], y=labels[y], x_limits=(0, None), title=title if panel == "chat" else "")
        for panel, (x, y) in drawn.items()
    }
    parts = [
        marks(panel, "band", x=curve[x], y=curve[y], label=method_label(str(method)), method=method)
        for panel, (x, y) in drawn.items()
        for method, curve in rows.sort_values("step").groupby("method", sort=False)
    ]
    ends = rows[rows["step"] == rows.groupby("method")["step"].transform("max")]
    math, chat = (
        ", ".join(f"{method_label(row['method'])} {row[name]:.1f}" for _, row in ranked.iterrows())
        for name in ("math_val", "chat_val")
        for ranked in [ends.sort_values(name, ascending=False)]
    )
    caption = f"Validation during the chat stage ({model}). {first} at the end: {math}. Chat-Val: {chat}."
    return Drawing(join(parts), panels, len(panels), 2.7, caption, letters=True)
