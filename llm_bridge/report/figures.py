"""The LLM experiment's figure: validation during the chat stage."""

from __future__ import annotations

from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture
from llm_bridge.report.results import Results
from llm_bridge.report.tables import HEADERS, method_label

MODELS = {"smollm2": "SmolLM2-135M: sums, chat"}
"""A model's title where its name does not say what it learns: short, since it stands between two panels' letters."""


def draw(results: Results) -> dict[str, Picture]:
    """The figure by its name, if the results have rows for it."""
    return {"llm_training_dynamics": render(dynamics(results))} if len(results.dynamics) else {}


def dynamics(results: Results) -> Drawing:
    """Math accuracy, chat reward and their mean over the steps of the chat stage, a line per method (E.6)."""
    rows = results.dynamics.assign(mean=(results.dynamics["math_val"] + results.dynamics["chat_val"]) / 2)
    first = HEADERS.get(results.math_columns[0], results.math_columns[0])
    labels = {"math_val": f"{first} accuracy [%]", "chat_val": "Chat-Val reward", "mean": "Mean of both"}
    model = str(rows["model"].iloc[0])
    titles = {"chat_val": MODELS.get(model, model)}
    panels = {
        name: Panel(x="Chat-stage step", y=label, x_limits=(0, None), title=titles.get(name, ""))
        for name, label in labels.items()
    }
    parts = [
        marks(name, "band", x=curve["step"], y=curve[name], label=method_label(str(method)), method=method)
        for name in labels
        for method, curve in rows.sort_values("step").groupby("method", sort=False)
    ]
    last = rows[rows["step"] == rows.groupby("method")["step"].transform("max")]
    math, chat = (
        ", ".join(f"{method_label(row['method'])} {row[name]:.1f}" for _, row in ranked.iterrows())
        for name in ("math_val", "chat_val")
        for ranked in [last.sort_values(name, ascending=False)]
    )
    caption = f"Validation during the chat stage ({model}). {first} at the end: {math}. Chat-Val: {chat}."
    return Drawing(join(parts), panels, len(panels), 2.7, caption, letters=True)
