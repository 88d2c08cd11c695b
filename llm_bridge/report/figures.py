"""The LLM experiment: validation during the chat stage, and what the coefficient and the KL batch's size change."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture, Style
from llm_bridge.experiment.config import BASE
from llm_bridge.report.normalize import with_averages
from llm_bridge.report.result_tables import main_scores, sweep
from llm_bridge.report.results import GRPO, Results
from llm_bridge.report.tables import method_label

MODELS = {"tiny": "tiny: arithmetic, chat"}
"""A model's title where its name does not say what it learns: short, since it stands between two panels' letters."""
_ANCHORS = {BASE: Style("black", dashes=(1, 2), width=0.8), GRPO: Style("black", dashes=(6, 2), width=0.8)}


def draw(results: Results) -> dict[str, Picture]:
    """Every figure that the results have rows for, by name."""
    return {name: render(drawing) for name, drawing in drawings(results).items()}


def drawings(results: Results) -> dict[str, Drawing]:
    """`dynamics`, and the `scores` against "beta" and "kl_prompts", where the results have rows for them."""
    there = {"llm_training_dynamics": dynamics(results)} if len(main_dynamics(results)) else {}
    swept = {"llm_beta": "beta", "llm_kl_batch": "kl_prompts"}
    return there | {name: scores(results, of) for name, of in swept.items() if len(sweep(results, of))}


def main_dynamics(results: Results) -> pd.DataFrame:
    """The rows of `dynamics` of main settings."""
    main = results.scores.loc[results.scores["main"] == 1, ["model", "method", "beta", "kl_prompts"]]
    return results.dynamics.merge(main, on=list(main.columns))


def dynamics(results: Results) -> Drawing:
    """A row per model: math accuracy, chat reward and their mean over the steps of the chat stage (E.6)."""
    rows = main_dynamics(results)
    rows = rows.assign(mean=(rows["math_val"] + rows["chat_val"]) / 2)
    labels = {"math_val": "MATH-Val accuracy [%]", "chat_val": "Chat-Val reward", "mean": "Mean of both"}
    last = rows[rows["step"] == rows.groupby(["model", "method"])["step"].transform("max")]
    math, chat = (_listed(last.sort_values(name, ascending=False), name) for name in ("math_val", "chat_val"))
    models = ", ".join(map(str, rows["model"].unique()))
    caption = f"Validation during the chat stage ({models}). MATH-Val at the end: {math}. Chat-Val: {chat}."
    return _drawing(rows, "step", labels, Panel(x="Chat-stage step", x_limits=(0, None)), [], caption)


def scores(results: Results, parameter: str) -> Drawing:
    """A row per model: raw Math Avg., Chat-Val and Overall against "beta" or "kl_prompts", a line per method.

    Horizontal lines at the anchors give the scale: what there is to retain and to learn.
    """
    rows = sweep(results, parameter)
    main = with_averages(main_scores(results), results.math_columns)
    labels = {"math_avg": "Math Avg. [%]", "chat_val": "Chat-Val reward", "overall": "Overall"}
    ends = {"x_low": rows[parameter].min(), "x_high": rows[parameter].max()}
    anchors = [
        marks(f"{model} {column}", "hline", label=method_label(method), method=method, y=[score], **ends)
        for model in rows["model"].unique()
        for column in labels
        for method, score in main.loc[
            (main["model"] == model) & main["method"].isin(_ANCHORS), ["method", column]
        ].itertuples(index=False)
    ]
    best = rows.loc[rows.groupby(["model", "method"], sort=False)["overall"].idxmax()]
    over, axes = {
        "beta": ("the coefficient", Panel(x=r"Coefficient $\beta$", scale="log10")),
        "kl_prompts": ("the prompts in the KL batch", Panel(x="Prompts in the KL batch", scale="log2")),
    }[parameter]
    listed = _listed(best, parameter, "{} at {:g}")
    caption = f"Scores against {over}; lines without markers are the anchors. Best Overall: {listed}."
    return _drawing(rows, parameter, labels, axes, anchors, caption)


def _listed(rows: pd.DataFrame, column: str, form: str = "{} {:.1f}") -> str:
    """ "CoKL 64.2, Reverse KL 70.4": each row's method and number, in their order."""
    return ", ".join(map(form.format, rows["method"].map(method_label), rows[column]))


def _drawing(
    rows: pd.DataFrame, x: str, columns: dict[str, str], axes: Panel, parts: list[pd.DataFrame], caption: str
) -> Drawing:
    """A row of panels for each model, named in the middle, with a line per method; after the given parts."""
    panels = {}
    for model, of_model in rows.groupby("model", sort=False):
        ticks = sorted(of_model[x].unique()) if x != "step" else ()
        for column_number, (column, y) in enumerate(columns.items()):
            title = MODELS.get(str(model), str(model)) if column_number == len(columns) // 2 else ""
            panels[f"{model} {column}"] = replace(axes, title=title, y=y, x_ticks=ticks)
            for method, curve in of_model.groupby("method", sort=False):
                ordered, look = curve.sort_values(x), {"label": method_label(str(method)), "method": method}
                kind = "band" if x == "step" else "line"
                parts.append(marks(f"{model} {column}", kind, x=ordered[x], y=ordered[column], **look))
    height = 2.1 * len(panels) / len(columns) + 0.6
    styles = _ANCHORS if x != "step" else {}
    return Drawing(join(parts), panels, len(columns), height, caption, styles, letters=True)
