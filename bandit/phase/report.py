"""A phase diagram as Markdown."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bandit.phase.config import KNOBS, Diagram, MapsConfig
from bandit.phase.score import UNDECIDED, explain
from bandit.shift.score import label
from cokl.support.statistics import markdown_table, spread_column
from cokl.support.verdicts import ALPHA, MINIMUM_SEEDS, SPREAD, Claim, Verdict, answered, holm, no_verdict, p_value


def leads(cells: pd.DataFrame) -> tuple[int, int, int]:
    """Cells with a lead, those in which CoKL is ahead of its rival, and those in which it is behind, by Holm's over the
    cells."""
    known = cells.dropna(subset=["cokl_lead"])
    intervals = zip(known["cokl_lead"], known["cokl_lead_half_width"], known["seeds"], strict=True)
    sure = pd.Series(holm([p_value(*interval) for interval in intervals]), index=known.index, dtype=bool)
    ahead, behind = (int((sure & side).sum()) for side in (known["cokl_lead"] > 0, known["cokl_lead"] < 0))
    return len(known), ahead, behind


def verdict(cells: pd.DataFrame) -> Verdict | None:
    """Whether CoKL is ahead of its rival over the map; None below four seeds or without a lead."""
    number, ahead, behind = leads(cells)
    if not number or no_verdict(int(cells.loc[cells["cokl_lead"].notna(), "seeds"].min())):
        return None
    return "depends" if ahead and behind else "held" if ahead else "not held" if behind else "undecided"


def tally(cells: pd.DataFrame) -> str:
    """In how many cells CoKL leads or trails its rival beyond doubt, Holm-corrected over the cells; or why not said."""
    number, ahead, behind = leads(cells)
    if not number:
        return "No cell has a lead."
    if refused := no_verdict(int(cells.loc[cells["cokl_lead"].notna(), "seeds"].min())):
        return refused
    return (
        f"Of {number} cells where GRPO forgets CoKL is ahead of its best rival in {ahead}, behind in {behind}, "
        f"undecided in {number - ahead - behind} (5% over the map, Holm)."
    )


def write(cells: Mapping[str, pd.DataFrame], config: MapsConfig, folder: Path) -> str:
    """For a terminal, where CoKL leads over all maps, and a row per cell. Each map's page is there already."""
    together = pd.concat(cells.values(), ignore_index=True)
    number, ahead, behind = leads(together)
    shown = pd.concat(
        [
            pd.DataFrame(
                {
                    "cell": [f"{x}={cell['x']:g}, {y}={cell['y']:g}" for cell in one.to_dict("records")],
                    "GRPO forgets": spread_column(one, "forgotten", 2),
                    "CoKL's lead": spread_column(one, "cokl_lead"),
                    "over": [label(name) if name else "no scores" for name in one["rival"]],
                }
            )
            for diagram, one in zip(config.diagrams(), cells.values(), strict=True)
            for x, y in [(diagram.x, diagram.y)]
        ]
    )
    known = together.dropna(subset=["cokl_lead"]).sort_values("cokl_lead")
    ends = spread_column(known.iloc[[0, -1]], "cokl_lead") if len(known) else []
    answer = Claim(
        "CoKL leads its rival",
        "",
        f"ahead in {ahead} of {number} cells, behind in {behind}" + (f", by {' to '.join(ends)}" if ends else ""),
        verdict(together),
    )
    name = next(iter(cells))
    return answered(
        answer,
        int(together["seeds"].min()),
        [
            "Leads are in points of Overall on the reported seeds, over the best method that is no variant of CoKL, "
            "each method at its best coefficient by selection. Cells are decided at 5% over all of them (Holm). "
            + SPREAD
        ],
        shown,
        folder / "figures" / f"phase_{name}.png",
        folder / f"{name}.md",
    )


def page(diagram: Diagram, cells: pd.DataFrame, note: str = "") -> str:
    """A diagram as Markdown: who wins, CoKL's lead in every cell, and what it goes with.

    note: what is to be said of diverged runs.
    """
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
            "lead": spread_column(cells, "lead"),
            "CoKL's lead": spread_column(cells, "cokl_lead"),
            "over": [label(name) if name else "" for name in cells["rival"]],
            "in pass@k": spread_column(cells, "prior_pass_at_k_lead", 3),
            "in conditional KL": spread_column(cells, "conditional_kl_lead", 3),
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
        "Overall on the reported seeds, paired by seed, with 95% t-intervals, each uncorrected; beside CoKL's, its "
        "pass@k on the prior task, a probability, and conditional KL there, in nats, minus its rival's."
        + (f" {note}." if note else "")
        + "\n\n"
        f"{markdown_table(shown)}\nOver the cells, CoKL's lead goes with (Spearman; drifts are GRPO's without KL):\n\n"
        f"{markdown_table(reasons) if len(reasons) else 'Too few cells.'}"
    )


def _winner(cell: dict[Hashable, Any]) -> str:
    """The winner's label, with a note where a better coefficient may lie outside its grid."""
    if not cell["winner"]:
        return UNDECIDED
    return label(cell["winner"]) + (" (edge)" if cell["winner"] in cell["edges"].split(",") else "")
