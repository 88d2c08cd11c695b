"""The paper's tables from an experiment's results; what is missing is said in a note, and the rest is shown.

Assumption beyond the paper: ranks are those of the numbers as printed, so that equal printed numbers share a mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from cokl import methods
from cokl.support.errors import InputError
from cokl.support.files import write_text
from cokl.support.statistics import plain_markdown_table
from llm_bridge.experiment.config import BASE
from llm_bridge.experiment.workloads import CHAT, DISTINCT, PAPER, SHARE, WORKLOADS
from llm_bridge.report.normalize import normalize, reversed_anchors, with_averages
from llm_bridge.report.results import GRPO, Results, write_csv

HEADERS = {
    "model": "Model",
    "method": "Method",
    "beta": "beta",
    "math_avg": "Math Avg.",
    CHAT: "Chat-Val",
    DISTINCT: "Different right answers",
    SHARE: "Gradient share (%)",
    "overall": "Overall",
    "groups": "Groups",
    "zero_correct": "Zero-correct (%)",
    "at_least_one": "At least one correct (%)",
    "first_step_seconds": "First step (s)",
    "mean_length": "Mean length (tokens)",
    **{name: header for workload in (PAPER, *WORKLOADS.values()) for name, header in workload.prompts.sets.items()},
}
_FORMATS = {"beta": "g", "groups": ",.0f", "first_step_seconds": ".1f", "mean_length": ",.0f"}
_ANCHORS = {"raw": (BASE, GRPO), "normalized": (BASE,)}
"""What is not marked: the paper's captions exclude all but the regularized, and all but the post-training methods."""
TITLES = {
    "raw": "Original evaluation results",
    "normalized": "Dual-anchor normalized results",
    "ablation": "Ablation of CoKL's terms, normalized",
    "floor": "Batch-level correctness floor, normalized",
    "zero_correct": "Current-policy rollout groups without a correct response",
    "cost": "Wall-clock time of the first training step",
    "beta_search": "Search over beta, original scores",
}


method_label = partial(methods.label, own={BASE: "Base"})
"""How a method is called in tables and figures."""


@dataclass(frozen=True)
class Table:
    """Rows with text columns `model` and `method`, and numbers. name: one of `TITLES`.

    Where there is an average, the best and second-best numbers of a column, the higher the better, are marked among
    a model's rows. notes: what a reader must know, such as what is missing.
    """

    name: str
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()

    def cells(self) -> pd.DataFrame:
        """Every cell as text, without marks."""
        text = self.frame.copy()
        for name in text:
            if name == "method":
                text[name] = text[name].map(method_label)
            elif name != "model":
                text[name] = [f"{value:{_FORMATS.get(str(name), 'z.2f')}}" for value in text[name]]
        return text.astype(object)

    def marks(self) -> pd.DataFrame:
        """ "best", "second" or "" for every cell; in a search, a method's coefficients compete with each other."""
        marks = pd.DataFrame("", index=self.frame.index, columns=self.frame.columns)
        competing = self.cells()[~self.frame["method"].isin(_ANCHORS.get(self.name, ()))]
        searched = "beta" in self.frame
        within = ["model", "method"] if searched else ["model"]
        for name in self.frame.columns[3 if searched else 2 :] if "overall" in self.frame else ():
            printed = competing[name].astype(float).groupby([competing[key] for key in within])
            ranks = printed.rank(method="min", ascending=False)
            for mark, rank in (("best", 1), ("second", 2)):
                marks.loc[ranks.index[ranks == rank], name] = mark
        return marks


def result_tables(results: Results) -> list[Table]:
    """All tables of the paper's LLM experiment, empty ones included: their notes say what is missing."""
    math, order = results.math_columns, {BASE: 0, GRPO: 1}
    main = results.scores[results.scores["main"] == 1]
    main = main.sort_values("method", key=lambda names: names.map(order).fillna(2), kind="stable", ignore_index=True)
    apart = DISTINCT in main  # where right answers are counted, the sets differ in kind, and have no average
    shown = [name for name in ("model", "method", *math, CHAT, DISTINCT) if name in main]
    raw = main[shown] if apart else with_averages(main, math)
    normalized, notes = raw.iloc[:0], [f"{' and '.join(math)} prompts have no average"]
    try:
        if not apart:
            normalized, notes = normalize(main, math), reversed_anchors(main, math)
    except InputError as error:
        notes = [str(error)]
    groups = results.zero_correct.get("groups", pd.Series(dtype=float))
    counted = results.zero_correct[groups > 0]
    if len(counted):
        share = 100 * counted["zero_correct_groups"] / counted["groups"]
        counted = counted[["model", "method", "groups"]].assign(zero_correct=share, at_least_one=100 - share)
    searched = results.scores[results.scores.groupby("method")["beta"].transform("nunique") > 1]
    searched = searched.sort_values(["method", "beta"], ignore_index=True)
    beta = searched[shown] if apart else with_averages(searched, math)
    beta.insert(2, "beta", searched["beta"])
    return [
        Table("raw", raw, () if len(raw) else ("no scores of a main setting",)),
        Table("normalized", normalized, tuple(notes)),
        Table("zero_correct", counted, () if len(counted) else ("no groups were counted",)),
        Table("beta_search", beta, () if len(beta) else ("no method has scores for two values of beta",)),
    ]


def to_markdown(table: Table) -> str:
    """A section with the table; best bold, second-best underlined."""
    shown = []
    if len(table.frame):
        forms = {"": "{}", "best": "**{}**", "second": "<u>{}</u>"}
        rows = [
            [forms[mark].format(text) for text, mark in zip(texts, marks, strict=True)]
            for texts, marks in zip(table.cells().to_numpy(), table.marks().to_numpy(), strict=True)
        ]
        shown = [plain_markdown_table([HEADERS.get(str(name), str(name)) for name in table.frame], rows), ""]
    return "\n".join([f"## {TITLES[table.name]}", "", *shown, *(f"Note: {note}\n" for note in table.notes)])


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """tables.md with all tables, and NAME.csv with every digit of each that has rows."""
    write_text("\n".join(map(to_markdown, tables)), folder / "tables.md")
    for table in tables:
        write_csv(table.frame, folder / f"{table.name}.csv")
