"""The table of what the paper leaves open is complete and well-formed."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType

import pytest

from cokl.groups import SurrogateConfig
from cokl.grpo import GRPOConfig
from cokl.regularizers.correct_reverse_kl import CorrectReverseKL
from cokl.support.assumptions import assumption, assumptions_of, render

CONFIGS = [CorrectReverseKL, SurrogateConfig, GRPOConfig]


def table_rows(text: str) -> list[list[str]]:
    """Cells of each body row of the Markdown table, split as Markdown splits them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_assumption_is_one_row_of_four_cells(config: type):
    names = [field.name for field in assumptions_of(config)]
    assert names == [field.name for field in fields(config)]
    rows = table_rows(render(CONFIGS))
    assert all(len(row) == 4 and all(row) for row in rows)
    for field in assumptions_of(config):
        (row,) = [row for row in rows if row[0] == f"`{config.__name__}.{field.name}`"]
        assert row[1] == f"`{field.default}`"
        assert row[3].replace("\\|", "|") == field.metadata["effect"]


def test_fields_that_are_no_assumptions_are_left_out():
    @dataclass
    class Config:
        """One ordinary field, one assumption."""

        ordinary: int = 1
        open_question: float = assumption(0.5, "an effect of |x|")
        """A choice."""

    assert Config().open_question == 0.5
    assert table_rows(render([Config])) == [["`Config.open_question`", "`0.5`", "A choice.", r"an effect of \|x\|"]]


def test_the_page_is_up_to_date():
    made = subprocess.run([sys.executable, "-m", "cokl_cli.assumptions"], capture_output=True, text=True, check=True)
    assert Path("ASSUMPTIONS.md").read_text() == made.stdout


def test_what_modules_state_is_listed_below():
    module = ModuleType(
        "some.module", "A summary: of it.\n\nAssumption beyond the paper: a choice: this\none.\n\nMore: text."
    )
    text = render([CorrectReverseKL], [module, ModuleType("silent")])
    assert text.endswith("\n\nFixed in the code, not configurable:\n\n- `some.module`: a choice: this one.\n")
    assert "not configurable" not in render([CorrectReverseKL], [ModuleType("silent")])
