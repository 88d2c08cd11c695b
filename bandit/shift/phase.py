"""Phase diagrams: over two knobs of the task-shift lab, which method wins Overall, by how much, and why.

Every cell is a task-shift experiment of its own, with each method's coefficient chosen on the cell's selection seeds.
So are the winner, the runner-up, and CoKL's rival, the best method that is no variant of CoKL; leads are those of the
reported seeds, so that picking a maximum biases none of them. Which cells CoKL leads or trails in is decided with
Holm's correction over the cells of a map. A cell where GRPO forgets or learns next to nothing has no Overall.

Assumption beyond the paper: the knob of reference correctness is the number of RL steps on the prior task, since it
leaves the tasks as they are; each cell reports the base model's measured correctness. The knob of G is the size of
every group: GRPO's, the regularizer's rollouts and its cached responses.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from scipy import stats

from bandit.claims import markdown_table, mean_and_half_width
from bandit.shift.claims import VARIANTS
from bandit.shift.config import Mode, ShiftConfig
from bandit.shift.results import DRIFTS, csv_text, number, require_scores
from bandit.shift.runner import planned_runs, regularizer_code, train_plans
from bandit.shift.scores import at, best_coefficients, final, forgotten_and_learned, label, score
from bandit.store import open_folder
from cokl.errors import InputError
from cokl.files import write_parquet, write_text
from cokl.significance import ALPHA, MINIMUM_SEEDS, holm, no_verdict, p_value

Preset = Literal["paper", "quick"]


@dataclass(frozen=True)
class Knob:
    """A setting of the lab: how figures call it, how it enters a configuration, and its values in each preset."""

    label: str
    apply: Callable[[ShiftConfig, Any], ShiftConfig]
    paper: tuple[float, ...]
    quick: tuple[float, ...]


def _fields(*names: str) -> Callable[[ShiftConfig, Any], ShiftConfig]:
    """Sets fields of the experiment."""
    return lambda config, value: dataclasses.replace(config, **dict.fromkeys(names, value))


def _environment(name: str) -> Callable[[ShiftConfig, Any], ShiftConfig]:
    """Sets a field of both tasks."""

    def apply(config: ShiftConfig, value: Any) -> ShiftConfig:
        return dataclasses.replace(config, environment=dataclasses.replace(config.environment, **{name: value}))

    return apply


KNOBS: dict[str, Knob] = {
    "reference_correctness": Knob("RL steps on the prior task", _fields("prior_steps"), (0, 40, 80, 200), (40, 200)),
    "correct_modes": Knob("correct actions per cluster", _environment("correct_actions"), (2, 4, 8, 16), (2, 8)),
    "cluster_overlap": Knob("overlap of the clusters", _fields("cluster_overlap"), (0.0, 0.3, 0.6, 0.9), (0.3, 0.9)),
    "correct_overlap": Knob(
        "overlap of the correct sets", _fields("correct_overlap"), (0.0, 0.25, 0.5, 0.75), (0.0, 0.5)
    ),
    "group_size": Knob("G, responses per group", _fields("group_size", "reference_group_size"), (2, 4, 8, 16), (2, 8)),
    "width": Knob(
        "width of the network",
        lambda config, value: dataclasses.replace(config, hidden=(value,) * len(config.hidden)),
        (16, 32, 64, 128),
        (32, 128),
    ),
    "buffer_size": Knob("prompts in the buffer", _fields("buffer_size"), (8, 32, 128, 512), (16, 512)),
    "correct_mass": Knob(
        "correctness of the oracles", _environment("correct_mass"), (0.03, 0.1, 0.2, 0.4), (0.05, 0.2)
    ),
}
"""What a diagram can be drawn over."""


def _plain(value: float) -> float:
    """A whole number as int, so that it can count something. Raises InputError for inf and nan."""
    if not math.isfinite(value):
        raise InputError(f"values of a knob: expected finite numbers, got {value}")
    return int(value) if value == int(value) else value


@dataclass(frozen=True)
class Diagram:
    """A map over two knobs: their values, and the experiment in which they are set."""

    x: str
    y: str
    x_values: tuple[float, ...]
    y_values: tuple[float, ...]
    experiment: ShiftConfig

    @property
    def name(self) -> str:
        """How its files are called."""
        return f"{self.x}-{self.y}"

    def cells(self) -> list[tuple[float, float, ShiftConfig]]:
        """Every pair of values and its experiment. Raises InputError for a value that the lab does not take."""
        return [
            (x, y, KNOBS[self.y].apply(KNOBS[self.x].apply(self.experiment, x), y))
            for x in map(_plain, self.x_values)
            for y in map(_plain, self.y_values)
        ]


def diagram(
    x: str,
    y: str,
    mode: Mode,
    experiment: ShiftConfig,
    preset: Preset,
    x_values: tuple[float, ...] = (),
    y_values: tuple[float, ...] = (),
) -> Diagram:
    """The map over two knobs of an experiment, at the preset's values where none are given. Raises InputError for an
    unknown knob, and for an experiment without "none" or without selection seeds, which the scores need.
    """
    for name in (x, y):
        if name not in KNOBS:
            raise InputError(f"knobs: {name!r} is not in the list; known: {', '.join(KNOBS)}")
    if x == y:
        raise InputError(f"knobs: expected two different ones, got {x} twice")
    experiment = dataclasses.replace(experiment, mode=mode)
    require_scores(experiment)
    return Diagram(x, y, x_values or getattr(KNOBS[x], preset), y_values or getattr(KNOBS[y], preset), experiment)


METHODS = (
    "none",
    "reverse_kl",
    "forward_kl",
    "correct_reverse_kl",
    "correct_forward_kl",
    "jensen_shannon",
    "cokl",
    "cokl_floor",
)
"""What competes for a cell: CoKL w/o term 2 is correct-only forward KL, and w/o term 1 no regularizer at all."""

EXPERIMENTS: dict[Preset, ShiftConfig] = {
    "paper": ShiftConfig(
        methods=METHODS,
        betas=(0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        seeds=5,
        selection_seeds=2,
        steps=300,
        eval_interval=300,
    ),
    "quick": ShiftConfig(
        methods=METHODS, betas=(0.1, 0.3, 1.0), seeds=3, selection_seeds=1, steps=150, eval_interval=150
    ),
}
EXPERIMENTS = {name: dataclasses.replace(config, kl_sweep_methods=()) for name, config in EXPERIMENTS.items()}
"""What every cell trains: the lab with fewer steps, coefficients and seeds, and no KL-batch sweep."""


def default_diagrams(experiment: ShiftConfig, preset: Preset) -> list[Diagram]:
    """Reference correctness against correct modes in expectations, and overlap of the tasks against G in samples."""
    return [
        diagram("reference_correctness", "correct_modes", "exact", experiment, preset),
        diagram("cluster_overlap", "group_size", "sampled", experiment, preset),
    ]


def run(
    diagrams: list[Diagram], folder: Path, jobs: int | None = None, progress: bool = True
) -> dict[str, pd.DataFrame]:
    """Train what is missing of every diagram and return a row per cell of each; see `summarize_cell`.

    Writes FOLDER/NAME/phase.parquet, the last rows of all runs, FOLDER/NAME.csv, a row per cell, and FOLDER/NAME.md.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    found = {}
    for diagram in diagrams:
        plans = {f"{x:g}-{y:g}": (config, planned_runs(config)) for x, y, config in diagram.cells()}
        home, (_, some_runs) = folder / diagram.name, next(iter(plans.values()))
        code = {"device": "cpu", "regularizer_code": regularizer_code(some_runs)}
        open_folder(home, {**dataclasses.asdict(diagram), **code})
        tables = train_plans(plans, home, jobs, progress=progress)
        places = {f"{x:g}-{y:g}": (x, y) for x, y, _ in diagram.cells()}
        rows = pd.concat(
            [final(table).assign(x=places[name][0], y=places[name][1]) for name, table in tables.items()],
            ignore_index=True,
        )
        write_parquet(rows, home / "phase.parquet")
        cells = summarize(rows)
        write_text(csv_text(cells), folder / f"{diagram.name}.csv")
        write_text(render(diagram, cells), folder / f"{diagram.name}.md")
        found[diagram.name] = cells
    return found


MEANINGFUL = 0.05
"""Correctness that GRPO without KL has to forget and to learn, interval and all: scores are divided by it."""


def summarize_cell(table: pd.DataFrame) -> dict[str, Any]:
    """One cell's winner on the selection seeds, CoKL's lead, and what GRPO's drift on the prior task is made of.

    table: a shift table of one mode. lead: the winner's Overall less the runner-up's on the reported seeds, paired by
    seed, with the half-width of its 95% interval; it may be negative. edges: methods whose best coefficient is the
    grid's smallest or largest. Names are "" and scores NaN where GRPO may forget or learn less than `MEANINGFUL`, or
    CoKL is absent.
    """
    ends = final(table[table["role"] == "report"]).set_index("seed")
    base, grpo = ends[ends["method"] == "base"], ends[ends["method"] == "none"]
    forgotten, learned = forgotten_and_learned(table)
    cell: dict[str, Any] = {
        "seeds": len(base),
        "base_correct": base["prior_correct"].mean(),
        "forgotten": forgotten[0],
        "forgotten_half_width": forgotten[1],
        "learned": learned[0],
        "learned_half_width": learned[1],
        **{name: grpo[name].mean() for name in DRIFTS},
        "correct_share": (grpo["correct_drift"] / (grpo["correct_drift"] + grpo["mass_drift"])).mean(),
        **dict.fromkeys(("winner", "runner_up", "rival", "edges"), ""),
        **dict.fromkeys(("winner_overall", "lead", "lead_half_width"), math.nan),
        **dict.fromkeys(("cokl_overall", "cokl_lead", "cokl_lead_half_width"), math.nan),
    }
    if not min(forgotten[0] - forgotten[1], learned[0] - learned[1]) > MEANINGFUL and len(base) > 1:
        return cell
    scored = score(table)
    best = best_coefficients(scored[scored["method"] != "base"])
    chosen = final(best.merge(scored[scored["role"] == "selection"])).groupby("method")["overall"].mean()
    overall = final(at(scored, best)).pivot(index="seed", columns="method", values="overall")
    winner, runner_up = chosen.nlargest(2).index
    cell |= {"winner": winner, "winner_overall": overall[winner].mean(), "runner_up": runner_up}
    cell["edges"] = ",".join(best[best["edge"]]["method"])
    cell["lead"], cell["lead_half_width"] = mean_and_half_width(overall[winner] - overall[runner_up])
    rivals = chosen[~chosen.index.isin(VARIANTS)]
    if "cokl" in overall and len(rivals):
        rival = rivals.idxmax()
        cell["rival"], cell["cokl_overall"] = rival, overall["cokl"].mean()
        cell["cokl_lead"], cell["cokl_lead_half_width"] = mean_and_half_width(overall["cokl"] - overall[rival])
    return cell


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per cell of a diagram's rows, which are shift tables with columns x and y."""
    return pd.DataFrame([{"x": x, "y": y, **summarize_cell(cell)} for (x, y), cell in rows.groupby(["x", "y"])])


EXPLANATIONS = ("correct_share", "correct_drift", "mass_drift", "incorrect_drift", "base_correct", "forgotten")


def explain(cells: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rank correlation, over cells, of CoKL's lead with what the decomposition says of GRPO without KL.

    Columns: quantity, spearman, cells; without a row for quantities that are constant over the cells. There are no
    p-values, since cells share seeds and are not independent.
    """
    known = cells.dropna(subset=["cokl_lead"])
    lines = []
    for quantity in EXPLANATIONS:
        if len(known) > 2 and known[quantity].nunique() > 1 and known["cokl_lead"].nunique() > 1:
            spearman = stats.spearmanr(known[quantity], known["cokl_lead"]).statistic
            lines.append({"quantity": quantity, "spearman": spearman, "cells": len(known)})
    return pd.DataFrame(lines, columns=["quantity", "spearman", "cells"])


def tally(cells: pd.DataFrame) -> str:
    """In how many cells CoKL leads or trails its rival beyond doubt, Holm-corrected over the cells; or why not said."""
    known = cells.dropna(subset=["cokl_lead"])
    if known.empty:
        return "No cell has a lead."
    if refused := no_verdict(int(known["seeds"].min())):
        return refused
    intervals = zip(known["cokl_lead"], known["cokl_lead_half_width"], known["seeds"], strict=True)
    sure = pd.Series(holm([p_value(*interval) for interval in intervals]), index=known.index)
    ahead, behind = (int((sure & side).sum()) for side in (known["cokl_lead"] > 0, known["cokl_lead"] < 0))
    return (
        f"Of {len(known)} cells with a lead CoKL is ahead of its rival in {ahead}, behind in {behind}, undecided in "
        f"{len(known) - ahead - behind} (5% over the map, Holm)."
    )


def render(diagram: Diagram, cells: pd.DataFrame) -> str:
    """A diagram as Markdown: who wins, CoKL's lead in every cell, and what it goes with."""
    decided = cells[cells["winner"] != ""]
    clear = [
        seeds >= MINIMUM_SEEDS and lead > 0 and p_value(lead, half_width, seeds) <= ALPHA
        for lead, half_width, seeds in zip(decided["lead"], decided["lead_half_width"], decided["seeds"], strict=True)
    ]
    counts = decided.assign(clear=clear).groupby("winner")["clear"].agg(["size", "sum"])
    counts = counts.sort_values("size", ascending=False)
    won = [f"{label(str(m))} {row['size']} ({row['sum']} beyond its interval)" for m, row in counts.iterrows()]
    shown = pd.DataFrame(
        {
            diagram.x: cells["x"].map("{:g}".format),
            diagram.y: cells["y"].map("{:g}".format),
            "base correctness": cells["base_correct"].map("{:.3f}".format),
            "winner": [_winner(cell) for cell in cells.to_dict("records")],
            "lead": _intervals(cells, "lead"),
            "CoKL's lead": _intervals(cells, "cokl_lead"),
            "over": [label(name) if name else "" for name in cells["rival"]],
            "correct share of GRPO's drift": cells["correct_share"].map("{:.3f}".format),
        }
    )
    reasons = explain(cells)
    reasons = reasons.assign(spearman=reasons["spearman"].map("{:z.2f}".format))
    mode = diagram.experiment.mode
    return (
        f"# {KNOBS[diagram.x].label} against {KNOBS[diagram.y].label} ({mode})\n\n"
        f"{tally(cells)}\n\n"
        f"Best on the selection seeds, of {len(cells)} cells: {', '.join(won) or 'none'}. Leads are in points of "
        "Overall on the reported seeds, paired by seed, with 95% t-intervals, each uncorrected.\n\n"
        f"{markdown_table(shown)}\nOver the cells, CoKL's lead goes with (Spearman; drifts are GRPO's without KL):\n\n"
        f"{markdown_table(reasons) if len(reasons) else 'Too few cells.'}"
    )


UNDECIDED = "too little forgotten or learned"
"""What a cell without a winner says."""


def _winner(cell: dict[Hashable, Any]) -> str:
    """The winner's label, with a note where a better coefficient may lie outside its grid."""
    if not cell["winner"]:
        return UNDECIDED
    return label(cell["winner"]) + (" (edge)" if cell["winner"] in cell["edges"].split(",") else "")


def _intervals(cells: pd.DataFrame, column: str) -> list[str]:
    pairs = zip(cells[column], cells[f"{column}_half_width"], strict=True)
    return ["" if pd.isna(value) else number(value, half_width, 1) for value, half_width in pairs]
