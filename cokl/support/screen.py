"""What an experiment says on a terminal: its answer first, one table, where the figure and the rest are, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cokl.support.verdicts import Claim, no_verdict

WIDTH = 100


def screen(
    answer: Claim, seeds: int, notes: Sequence[str], table: pd.DataFrame, figure: Path | None, rest: Path, then: str
) -> str:
    """The answer in a line, notes of at most 100 columns, the table, and paths, which may be longer.

    answer: the experiment's question as a short statement, and what was measured; its verdict is left out below four
    seeds. notes: paragraphs; empty ones are left out. figure: the picture to look at, if there is one. rest: everything
    that is not here. then: the command to go on with.
    """
    refused = no_verdict(seeds)
    verdict = "No verdict" if refused or answer.verdict is None else answer.verdict.capitalize()
    paragraphs = [f"{verdict}: {answer.statement}: {answer.measured}.", refused, *notes]
    lines = [textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs if paragraph]
    lines += ["", table.to_string(index=False)] if len(table) else []
    return "\n".join([*lines, "", *([f"Figure: {figure}"] if figure else []), f"Everything: {rest}", f"Next: {then}"])
