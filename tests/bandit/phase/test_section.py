"""A map's row on the page: each lead under its own head."""

import math

import pandas as pd
import pytest

from bandit.phase.section import _cells, _lead


def test_each_lead_is_under_its_head():
    cells = pd.DataFrame(
        {
            "x": [0.5, 1.0], "y": [8.0, 9.0], "base_correct": [0.75, 0.5], "winner": ["reverse_kl", ""],
            "rival": ["forward_kl", ""], "lead": [3.0, math.nan], "lead_half_width": [1.0, math.nan],
            "cokl_lead": [-2.0, math.nan], "cokl_lead_half_width": [2.5, math.nan],
        }
    )  # fmt: skip
    decided, undecided = _cells(cells, "overlap", "G").to_dict("records")
    assert decided == {
        "overlap": "0.5", "G": "8", "base correctness": "0.750", "winner": "Reverse KL", "its lead": "3.0 ± 1.0",
        "CoKL's lead": "-2.0 ± 2.5 ?", "over": "Forward KL",
    }  # fmt: skip
    assert [undecided[name] for name in ("its lead", "CoKL's lead", "over")] == ["", "", ""]


@pytest.mark.parametrize(
    ("lead", "written"),
    [(3.0, "3.0 ± 1.0"), (-3.0, "-3.0 ± 1.0"), (1.0, "1.0 ± 1.0 ?"), (-1.0, "-1.0 ± 1.0 ?"), (0.5, "0.5 ± 1.0 ?")],
)
def test_a_lead_on_either_side_is_in_doubt_where_its_interval_reaches_zero(lead, written):
    assert _lead({"lead": lead, "lead_half_width": 1.0}, "lead") == written
