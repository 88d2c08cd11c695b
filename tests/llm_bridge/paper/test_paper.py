"""The paper's printed tables through the code that makes ours: same averages, same normalization, same marks."""

from pathlib import Path

import pandas as pd
import pytest

from llm_bridge.paper.numbers import MATH, paper_tables, read_paper
from llm_bridge.report.normalize import with_averages
from llm_bridge.report.tables import Table, to_markdown

SCORES = [*MATH, "math_avg", "chat_val", "overall"]
MARKS = pd.read_csv(Path(__file__).with_name("marks.csv"))
"""The bold ("best") and underlined ("second") cells of the paper's tables."""


def tables() -> dict[str, Table]:
    return {table.name: table for table in paper_tables()}


def test_the_printed_normalized_scores_follow_from_the_printed_raw_ones():
    """All 126 cells, to the digit."""
    printed, ours = read_paper("normalized"), tables()["normalized"].frame
    assert ours[["model", "method"]].equals(printed[["model", "method"]])
    assert ours[SCORES].round(2).to_numpy().tolist() == printed[SCORES].to_numpy().tolist()
    assert printed[SCORES].size == 126


def test_the_printed_averages_are_ours_within_their_rounding():
    """The paper averages scores with more digits than it prints."""
    raw = read_paper("raw")
    ours = with_averages(raw, MATH)[SCORES]
    assert (ours - raw[SCORES]).abs().max().max() < 0.01 + 1e-9


@pytest.mark.parametrize(("name", "cells"), [("raw", 36), ("normalized", 36), ("ablation", 6), ("floor", 9)])
def test_the_papers_best_and_second_best_cells_are_marked(name, cells):
    table = tables()[name]
    ours = table.marks().assign(model=table.frame["model"], method=table.frame["method"])
    printed = MARKS[MARKS["table"] == name].drop(columns="table")
    long = ours.melt(["model", "method"], var_name="column", value_name="mark")
    long = long[long["mark"].isin(printed["mark"])]  # of two methods the paper marks the better one alone
    assert len(printed) == cells
    assert set(long.itertuples(index=False, name=None)) == set(printed.itertuples(index=False, name=None))


def test_they_are_printed_as_ours_are():
    printed = "\n".join(map(to_markdown, paper_tables()))
    for said in ("Batch-level correctness floor", "**55.43**", "**86.47**", "16.08", "2,155", "-684.64"):
        assert said in printed
