"""What FINDINGS and RESULTS.md say of the maps' cells, recomputed from the seeds' rows in RESULTS.csv."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.oracles import scores
from tests.oracles.scores import half_width, mean, select, written

LAB = Path("bandit/phase")
RUNS = pd.read_csv(LAB / "RESULTS.csv")
PAGE = (LAB / "RESULTS.md").read_text(encoding="utf-8")
FINDINGS = Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("\n## Where CoKL helps")[1].split("\n## ")[0]
REFERENCE, OVERLAP = "reference_correctness-correct_modes", "cluster_overlap-group_size"
Cell = tuple[str, float, float]
CELLS: list[Cell] = [
    (str(name), float(x), float(y))
    for name, x, y in RUNS.loc[RUNS["method"] == "cokl", ["map", "x", "y"]].drop_duplicates().to_numpy().tolist()
]


def leads(cell: Cell) -> dict[str, list[float]]:
    """CoKL's minus its rival's, a number per seed: Overall in points, and pass@8."""
    kept = RUNS[(RUNS["map"] == cell[0]) & (RUNS["x"] == cell[1]) & (RUNS["y"] == cell[2])].sort_values("seed")
    (rival,) = set(kept["method"]) - {"base", "none", "cokl"}
    same = {"mode": "", "kl_prompts": 0, "step": 0, "role": "report"}
    rows = scores.scored(kept.assign(**same).to_dict("records"))  # type: ignore[arg-type]
    ours, theirs = (select(rows, method=method) for method in ("cokl", rival))
    assert len(ours) == len(theirs) == 5
    return {
        column: [one[column] - other[column] for one, other in zip(ours, theirs, strict=True)]
        for column in ("overall", "prior_pass_at_k")
    }


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_cells_leads_on_the_page_are_of_the_committed_seeds(cell):
    name, x, y = cell
    number = 0 if name == REFERENCE else 1
    page = re.split(r"^# ", PAGE, flags=re.MULTILINE)[1 + number]
    row = next(line for line in page.splitlines() if re.match(rf"\| {x:g} +\| {y:g} +\| \d", line))
    cells = [text.strip() for text in row.strip("|").split("|")]
    found = leads(cell)
    assert cells[5] == written(found["overall"], 1)
    assert cells[7] == written(found["prior_pass_at_k"], 3)


def test_the_sentences_of_the_findings_are_of_the_committed_seeds():
    section = " ".join(FINDINGS.split())
    lead = {cell: written(leads(cell)["overall"], 1) for cell in CELLS}
    passes = {cell: leads(cell)["prior_pass_at_k"] for cell in CELLS}
    best = {
        name: max((cell for cell in CELLS if cell[0] == name), key=lambda one: mean(passes[one]))
        for name in (REFERENCE, OVERLAP)
    }
    lower = [cell for cell in CELLS if cell[0] == OVERLAP and mean(passes[cell]) + half_width(passes[cell]) < 0]
    assert len([cell for cell in CELLS if cell[0] == REFERENCE]) == 12
    for sentence in (
        f"by {lead[REFERENCE, 200, 16].removeprefix('-')} (200 RL steps on the prior task, 16 correct actions) to "
        f"{lead[REFERENCE, 40, 16].removeprefix('-')} points of Overall (40 steps, 16 actions)",
        f"does not reverse it: {written(passes[best[REFERENCE]], 3)} at best",
        f"from {lead[OVERLAP, 0.9, 2]} (overlap 0.9, G = 2) to {lead[OVERLAP, 0.6, 16]} points",
        f"in one cell, {written(passes[best[OVERLAP]], 3)} (overlap 0.9, G = 4), and lower in "
        f"{ {8: 'eight', 9: 'nine', 10: 'ten'}[len(lower)] }",
    ):
        assert sentence in section
    means = [mean(leads(cell)["overall"]) for cell in CELLS]
    assert max(means) < 0
    assert best[OVERLAP] == (OVERLAP, 0.9, 4)
