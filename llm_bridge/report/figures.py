"""The LLM experiment: validation during the chat stage, and what the coefficient and the KL batch's size change."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from figures.style import RC, TEXT_WIDTH, Picture, method_style, new_figure, panel_letters
from llm_bridge.experiment.config import BASE
from llm_bridge.report.normalize import with_averages
from llm_bridge.report.result_tables import main_scores, sweep
from llm_bridge.report.results import GRPO, Results
from llm_bridge.report.tables import method_label

MODELS = {"tiny": "tiny, a Qwen3-architecture model: arithmetic, then chat"}
"""What a model is, where its name does not say so."""
_PANEL_HEIGHT = 2.1
_LEGEND_HEIGHT = 0.6
_ANCHOR_DASHES = {BASE: (1, 2), GRPO: (6, 2)}


def draw(results: Results) -> dict[str, Picture]:
    """Every figure that the results have rows for, by name."""
    figures = {}
    if len(main_dynamics(results)):
        figures["llm_training_dynamics"] = draw_dynamics(results)
    for parameter, name in (("beta", "llm_beta"), ("kl_prompts", "llm_kl_batch")):
        if len(sweep(results, parameter)):
            figures[name] = draw_sweep(results, parameter)
    return figures


def main_dynamics(results: Results) -> pd.DataFrame:
    """The rows of `dynamics` of main settings."""
    main = results.scores.loc[results.scores["main"] == 1, ["model", "method", "beta", "kl_prompts"]]
    return results.dynamics.merge(main, on=list(main.columns))


def draw_dynamics(results: Results) -> Picture:
    """A row per model: math accuracy, chat reward and their mean over the steps of the chat stage (E.6)."""
    rows = main_dynamics(results)
    rows = rows.assign(mean=(rows["math_val"] + rows["chat_val"]) / 2)
    labels = {"math_val": "MATH-Val accuracy [%]", "chat_val": "Chat-Val reward", "mean": "Mean of both"}
    with mpl.rc_context(RC):
        figure, panels = _grid(rows, len(labels))
        for axes_row, (_, part) in zip(panels, rows.groupby("model", sort=False), strict=True):
            for axes, (column, label) in zip(axes_row, labels.items(), strict=True):
                _curves(axes, part, "step", column)
                axes.set_ylabel(label)
                axes.set_xlabel("Chat-stage step")
                axes.set_xlim(left=0)
        _legend(figure)
        last = rows[rows["step"] == rows.groupby(["model", "method"])["step"].transform("max")]
        figure.caption = (
            f"Validation during the chat stage ({', '.join(map(str, rows['model'].unique()))}). MATH-Val at the end: "
            f"{_listed(last, 'math_val')}. Chat-Val: {_listed(last, 'chat_val')}."
        )
    return figure


def draw_sweep(results: Results, parameter: str) -> Picture:
    """A row per model: raw Math Avg., Chat-Val and Overall against "beta" or "kl_prompts", a line per method.

    Horizontal lines at the anchors give the scale: what there is to retain and to learn.
    """
    rows = sweep(results, parameter)
    main = with_averages(main_scores(results), results.math_columns)
    labels = {"math_avg": "Math Avg. [%]", "chat_val": "Chat-Val reward", "overall": "Overall"}
    with mpl.rc_context(RC):
        figure, panels = _grid(rows, len(labels))
        for axes_row, (model, part) in zip(panels, rows.groupby("model", sort=False), strict=True):
            anchors = main[(main["model"] == model) & main["method"].isin(_ANCHOR_DASHES)]
            for axes, (column, label) in zip(axes_row, labels.items(), strict=True):
                for method, score in zip(anchors["method"], anchors[column], strict=True):
                    axes.axhline(
                        score, label=method_label(method), color="black", linewidth=0.8, dashes=_ANCHOR_DASHES[method]
                    )
                axes.set_xscale("log", base=10 if parameter == "beta" else 2)
                _curves(axes, part, parameter, column)
                axes.set_ylabel(label)
                axes.set_xticks(ticks := sorted(part[parameter].unique()), [f"{tick:g}" for tick in ticks])
                axes.minorticks_off()
                axes.set_xlabel(r"Coefficient $\beta$" if parameter == "beta" else "Prompts in the KL batch")
        _legend(figure)
        best = rows.loc[rows.groupby(["model", "method"], sort=False)["overall"].idxmax()]
        said = ", ".join(
            f"{method_label(str(method))} at {value:g}"
            for method, value in zip(best["method"], best[parameter], strict=True)
        )
        over = "the coefficient" if parameter == "beta" else "the prompts in the KL batch"
        figure.caption = f"Scores against {over}; lines without markers are the anchors. Best Overall: {said}."
    return figure


def _listed(rows: pd.DataFrame, column: str) -> str:
    """ "CoKL 64.2, Reverse KL 70.4", the best first."""
    ordered = rows.sort_values(column, ascending=False)
    return ", ".join(f"{method_label(str(m))} {v:.1f}" for m, v in zip(ordered["method"], ordered[column], strict=True))


def _grid(rows: pd.DataFrame, columns: int) -> tuple[Picture, list[list[Axes]]]:
    """A row of axes for each model, named in the middle where there are several."""
    models = list(rows["model"].unique())
    figure, flat = new_figure(
        TEXT_WIDTH, _PANEL_HEIGHT * len(models) + _LEGEND_HEIGHT, nrows=len(models), ncols=columns
    )
    panels = [flat[start : start + columns] for start in range(0, len(flat), columns)]
    panel_letters(*flat)
    for model, axes_row in zip(models, panels, strict=True):
        axes_row[columns // 2].set_title(MODELS.get(str(model), str(model)))
    return figure, panels


def _curves(axes: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    for method, curve in rows.groupby("method", sort=False):
        ordered = curve.sort_values(x)
        every = max(1, len(ordered) // 8)
        label = method_label(str(method))
        axes.plot(ordered[x], ordered[y], label=label, markevery=every, **method_style(str(method)).line())


def _legend(figure: Picture) -> None:
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=4)
