"""A phase diagram as Markdown."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from bandit.phase.config import KNOBS, Diagram
from bandit.phase.score import UNDECIDED, explain
from bandit.shift.score import label
from cokl.support.statistics import markdown_table, with_spread


def render(diagram: Diagram, cells: pd.DataFrame) -> str:
    """A diagram as Markdown: who wins, CoKL's lead in every cell, and what it goes with."""
    decided = cells[cells["winner"] != ""]
    wins = decided.assign(clear=decided["lead"] > decided["lead_half_width"]).groupby("winner")["clear"]
    counts = wins.agg(["size", "sum"]).sort_values("size", ascending=False)
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
        f"Won, of {len(cells)} cells: {', '.join(won) or 'none'}. Leads are in points of Overall, paired by seed, with "
        "95% t-intervals over the reported seeds.\n\n"
        f"{markdown_table(shown)}\nOver the cells, CoKL's lead goes with (Spearman; drifts are GRPO's without KL):\n\n"
        f"{markdown_table(reasons) if len(reasons) else 'Too few cells.'}"
    )


def _winner(cell: dict[Hashable, Any]) -> str:
    """The winner's label, with a note where a better coefficient may lie outside its grid."""
    if not cell["winner"]:
        return UNDECIDED
    return label(cell["winner"]) + (" (edge)" if cell["winner"] in cell["edges"].split(",") else "")


def _intervals(cells: pd.DataFrame, column: str) -> list[str]:
    pairs = zip(cells[column], cells[f"{column}_half_width"], strict=True)
    return ["" if pd.isna(value) else with_spread(value, half_width, 1) for value, half_width in pairs]
