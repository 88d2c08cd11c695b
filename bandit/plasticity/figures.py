"""The plasticity lab's pictures: correctness against plasticity, learning curves at the match, and a schematic."""

from __future__ import annotations

import math
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bandit.engine.tables import method_label as label
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.score import at_match, diverged_note, match, runs, without_diverged_runs
from cokl.support.statistics import summarize
from figures.style import RC, SEED_LINES, TEXT_WIDTH, Picture, method_style, new_figure, note_diverged, panel_letters

_COLUMNS = 4


def draw_all(table: pd.DataFrame, config: PlasticityConfig) -> dict[str, Picture]:
    """Every picture by its file's name."""
    return {
        "plasticity_tradeoff": draw_tradeoff(table, config),
        "plasticity_curves": draw_curves(table, config),
        "plasticity_schematic": draw_schematic(config.group_size),
    }


def draw_tradeoff(table: pd.DataFrame, config: PlasticityConfig) -> Picture:
    """A point per coefficient of the exact phase 1, for phase 2 in groups and in expectation; and by cache at the match
    of the sampled one.
    """
    scored, primary = runs(table), config.changes[0]
    rows = scored[(scored["role"] == "report") & (scored["change"] == primary)]
    cached = at_match(scored, match(table, config), ["plasticity"])
    cached = cached[cached["phase"] == "sampled"]
    with mpl.rc_context(RC):
        figure, panels = new_figure(TEXT_WIDTH, 2.9, ncols=3 if len(cached) else 2, sharey=True)
        for axes, mode in zip(panels, ("sampled", "exact"), strict=False):
            _against_correctness(axes, rows[(rows["mode"] == mode) & (rows["phase"] != "sampled")])
            axes.set_title(f"phase 2 {mode}")
            axes.axvline(config.matched_correctness, color="#999999", linewidth=0.7, dashes=(2, 2), zorder=1)
        panels[0].set_ylabel(f"Plasticity after {primary}")
        if len(cached):
            _against_cache(panels[2], cached)
        panel_letters(*panels)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
        note_diverged(figure, diverged_note(table))
        figure.caption = (
            f"Correctness after phase 1 against plasticity, the mean new reward over {config.new_steps} steps after "
            f"{primary}: a point per coefficient, {_intervals('bars', rows['seed'].nunique())}; "
            "dashed, the matched correctness."
            + (
                f" (c) by cached responses after the sampled phase 1, at {config.sampled_matched_correctness:g}."
                if len(cached)
                else ""
            )
        )
    return figure


def _against_correctness(axes: Axes, rows: pd.DataFrame) -> None:
    for method, points in rows.groupby("method", sort=False):
        means = summarize(points, ["beta"], ["p_correct", "plasticity"]).sort_values("beta")
        _line(axes, str(method), means, "p_correct", rows["seed"].nunique())
    axes.set_xscale("function", functions=(_stretch, _unstretch))
    low, high = rows["p_correct"].min(), rows["p_correct"].max()
    axes.set_xticks([tick for tick in (0.1, 0.5, 0.8, 0.9, 0.96, 0.98, 0.99) if low - 0.01 <= tick <= high + 0.01])
    axes.minorticks_off()
    axes.set_xlabel("Correctness after phase 1")


def _stretch(correctness: np.ndarray) -> np.ndarray:
    return -np.log(np.clip(1 - correctness, 1e-6, None))


def _unstretch(position: np.ndarray) -> np.ndarray:
    return 1 - np.exp(-position)


def _against_cache(axes: Axes, rows: pd.DataFrame) -> None:
    means = summarize(rows, ["method", "cached"], ["plasticity"])
    for method, points in means.groupby("method", sort=False):
        if (points["cached"] == 0).all():
            style = method_style(str(method))
            dashes = style.dashes or (None, None)
            axes.axhline(points["plasticity"].iloc[0], color=style.color, linewidth=0.9, dashes=dashes)
        else:
            _line(axes, str(method), points, "cached", rows["seed"].nunique())
    sizes = sorted(set(means["cached"]) - {0})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_title("phase 1 sampled")
    axes.set_xlabel(r"Cached responses $G_{\mathrm{ref}}$")


def curves(table: pd.DataFrame, config: PlasticityConfig) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Change, mode, and the mean new reward by method and step at the match of the exact phase 1."""
    matched = at_match(without_diverged_runs(table), match(table, config), ["reward"])
    matched = matched[matched["phase"] != "sampled"]
    for (change, mode), rows in matched.groupby(["change", "mode"], sort=False):
        yield str(change), str(mode), summarize(rows, ["method", "step"], ["reward"])


def draw_curves(table: pd.DataFrame, config: PlasticityConfig) -> Picture:
    """A panel per change in sampled groups, and one of the first change in expectation."""
    shown = [panel for panel in curves(table, config) if panel[1] == "sampled" or panel[0] == config.changes[0]]
    shown.sort(key=lambda panel: panel[1] == "exact")
    lines, seeds = math.ceil(len(shown) / _COLUMNS), table.loc[table["role"] == "report", "seed"].nunique()
    with mpl.rc_context(RC):
        columns = min(_COLUMNS, len(shown))
        figure, panels = new_figure(TEXT_WIDTH, 0.8 + 1.6 * lines, nrows=lines, ncols=columns, sharey=True)
        for unused in panels[len(shown) :]:
            unused.set_visible(False)
        for place, (axes, (change, mode, means)) in enumerate(zip(panels, shown, strict=False)):
            for method, points in means.groupby("method", sort=False):
                look = method_style(str(method)).line() | {"marker": ""}
                if method == "reference":
                    look["dashes"] = (1, 1)
                axes.plot(points["step"], points["reward"], label=label(str(method)), **look)
                half_width = _shown(points["reward_half_width"], seeds)
                low, high = points["reward"] - half_width, points["reward"] + half_width
                axes.fill_between(points["step"], low, high, color=look["color"], alpha=0.15, linewidth=0)
            axes.set_title(change if mode == "sampled" else f"{change}, exact", fontsize=7)
            axes.set_ylim(0, 1)
            axes.margins(x=0)
            if place % columns == 0:
                axes.set_ylabel("New reward")
            if place + columns >= len(shown):
                axes.set_xlabel("Step of phase 2")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
        note_diverged(figure, diverged_note(table))
        figure.caption = (
            f"Learning a changed reward in groups of {config.group_size}, the first change also in expectation, "
            f"from policies of a correctness of {config.matched_correctness:g}, from unregularized RL and from the "
            f"reference: {_intervals('bands', seeds)}."
        )
    return figure


def draw_schematic(group_size: int) -> Picture:
    """What a narrowed reward starts from: the same example under the reference, RL alone and CoKL."""
    q, conditional = 0.2, np.array([0.46, 0.27, 0.17, 0.10])
    policies = {
        "Reference": np.concatenate([q * conditional, np.full(5, (1 - q) / 5)]),
        "RL alone: correct, and collapsed": np.concatenate([[0.97, 0.02, 0.005, 0.003], np.full(5, 0.0004)]),
        r"CoKL: correct, $\pi^{+}$ kept": np.concatenate([0.98 * conditional, np.full(5, 0.004)]),
    }
    with mpl.rc_context({**RC, "axes.grid": False}):
        figure, panels = new_figure(TEXT_WIDTH, 2.3, ncols=3, sharey=True)
        positions = np.concatenate([np.arange(4), 4.8 + np.arange(5)])
        chances = []
        for axes, (title, probs) in zip(panels, policies.items(), strict=True):
            bars = axes.bar(positions, probs, 0.8, color=["#bdbdbd"] * 2 + ["black"] * 2 + ["#e6e6e6"] * 5)
            for bar in bars[:2]:
                bar.set_hatch("////")
                bar.set_edgecolor("white")
            kept = probs[2:4].sum()
            chances.append(1 - (1 - kept) ** group_size)
            axes.set_title(title)
            axes.text(
                9.2,
                0.8,
                f"still correct: mass {kept:.3f}\na group of {group_size} meets it\nwith probability {chances[-1]:.2f}",
                ha="right",
                va="center",
                fontsize=7,
            )
            axes.set_xticks([0.5, 2.5, 6.8], ["no\nlonger", "still\ncorrect", "never\ncorrect"])
            axes.tick_params(axis="x", length=0)
        panels[0].set_ylabel("Probability")
        panels[0].set_ylim(0, 1)
        figure.caption = (
            "What is left to learn from when the verifier becomes stricter, on an example with four correct actions of "
            f"which two stay correct: the chance that a group of {group_size} meets one is {chances[0]:.2f} from the "
            f"reference, {chances[1]:.2f} after RL alone and {chances[2]:.2f} after CoKL."
        )
    return figure


def _line(axes: Axes, method: str, means: pd.DataFrame, x: str, seeds: int) -> None:
    """Mean plasticity with its intervals; a single point without a line."""
    look = method_style(method).line() | ({"linestyle": "none"} if len(means) == 1 else {})
    half_width = _shown(means["plasticity_half_width"], seeds)
    axes.plot(means[x], means["plasticity"], label=label(method), **look)
    axes.errorbar(means[x], means["plasticity"], half_width, fmt="none", ecolor=look["color"], elinewidth=0.6)


def _intervals(drawn: str, seeds: int) -> str:
    return f"means over {seeds} seeds" + (f", {drawn} 95% t-intervals" if seeds >= SEED_LINES else "")


def _shown(half_widths: pd.Series, seeds: int) -> pd.Series:
    """Zero for so few seeds that an interval says next to nothing."""
    return half_widths if seeds >= SEED_LINES else pd.Series(0.0, half_widths.index)
