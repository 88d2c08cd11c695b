"""The numbers of the paper's LLM tables, as printed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from llm_bridge.report.normalize import normalize
from llm_bridge.report.tables import Table

PAPER = Path(__file__).parent
MATH = ("math_val", "math500", "olympiad")
"""The columns of mathematics as printed, whatever else the toolkit comes to evaluate on."""


def read_paper(name: str) -> pd.DataFrame:
    """A table as printed, a row per (model, method): raw, normalized, ablation, floor, zero_correct or cost."""
    return pd.read_csv(PAPER / f"{name}.csv")


def paper_tables() -> list[Table]:
    """The paper's tables through the code that renders ours; the normalized one is computed from the raw one."""
    others = [Table(name, read_paper(name)) for name in ("ablation", "floor", "zero_correct", "cost")]
    return [Table("raw", read_paper("raw")), Table("normalized", normalize(read_paper("raw"), MATH)), *others]
