"""The collapse, watched: what one context's policy does with its correct actions during training, method by method."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bandit.engine.tables import method_label
from figures.page import color

_PHASES = {1: "training, step {}", 2: "then two answers stay correct, step {} of plain RL"}
_WRONG, _SHAPE = "#9a9a9a", "#666666"


def draw(policies: pd.DataFrame, context: int = 0, columns: int = 3) -> go.Figure:
    """A panel per method with a bar per correct action and one for all wrong ones, animated, with play and a slider.

    policies: as `bandit.sweep.collapse.policies` makes them. The line is the reference's policy given that it is
    correct: where a method goes if it keeps all ways of being right. A star marks what pays in the second phase.
    """
    shown = policies[policies["context"] == context]
    names = [str(method) for method in shown["method"].unique()]
    rows = -(-len(names) // columns)
    figure = make_subplots(
        rows, columns, shared_yaxes=True, vertical_spacing=0.16 / rows + 0.04, horizontal_spacing=0.03,
        subplot_titles=[_title(name, shown) for name in names],
    )  # fmt: skip
    start = shown[(shown["phase"] == 1) & (shown["step"] == 0) & (shown["method"] == names[0]) & (shown["action"] > 0)]
    shape = [float(f"{share:.3g}") for share in start["probability"] / start["probability"].sum()]
    frames = {
        (phase, step): {name: of_method[of_method["step"] == step] for name, of_method in of_phase.groupby("method")}
        for phase, of_phase in ((number, shown[shown["phase"] == number]) for number in _PHASES)
        for step in of_phase["step"].unique().tolist()
    }
    first = next(iter(frames.values()))
    for place, name in enumerate(names):
        where = {"row": place // columns + 1, "col": place % columns + 1}
        x, y, text = _bars(first[name], 1)
        colors = [color(name)] * (len(x) - 1) + [_WRONG]
        figure.add_trace(
            go.Bar(
                x=x, y=y, text=text, textposition="outside", cliponaxis=False, meta={"method": name},
                marker={"color": colors}, hovertemplate="%{x}: %{y:.3f}<extra></extra>",
            ),
            **where,
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(x=x[:-1], y=shape, mode="lines", line={"color": _SHAPE, "dash": "dot", "shape": "hvh"},
                       hovertemplate="reference given correct: %{y:.3f}<extra></extra>"),
            **where,
        )  # fmt: skip
    figure.frames = [
        go.Frame(
            name=_PHASES[phase].format(step),
            data=[
                trace
                for name in names
                for x, y, text in [_bars(of[name], phase)]
                for trace in (go.Bar(y=y, text=text), go.Scatter(x=x[:-1], y=shape))
            ],
        )
        for (phase, step), of in frames.items()
    ]
    figure.update_yaxes(range=[0, 1.08], tickvals=[0, 0.5, 1])
    figure.update_xaxes(tickangle=0, tickfont={"size": 10}, type="category")
    steps = [{"label": frame.name, "method": "animate", "args": [[frame.name], _at_once(0)]} for frame in figure.frames]
    play = {"label": "Play", "method": "animate", "args": [None, _at_once(250) | {"fromcurrent": True}]}
    return figure.update_layout(
        showlegend=False, bargap=0.1, sliders=[{"steps": steps}], updatemenus=[{"type": "buttons", "buttons": [play]}]
    )


def _title(name: str, shown: pd.DataFrame) -> str:
    beta = shown.loc[shown["method"] == name, "beta"].iloc[0]
    return method_label(name) + (f", β = {beta:g}" if beta else "")


def _bars(rows: pd.DataFrame, phase: int) -> tuple[list[str], list[float], list[str]]:
    """Names, heights and words above of the bars; the wrong answers last."""
    ordered = pd.concat([rows[rows["action"] > 0], rows[rows["action"] == 0]])
    names = [str(action) if action else "wrong" for action in ordered["action"]]
    stars = ["★" if pays and phase == 2 else "" for pays in ordered["pays"]]
    return names, [float(f"{value:.3g}") for value in ordered["probability"]], stars


def _at_once(duration: int) -> dict:
    return {"mode": "immediate", "frame": {"duration": duration, "redraw": True}, "transition": {"duration": 0}}
