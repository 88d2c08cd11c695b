"""What the task shift's tables and notes say beside its claims."""

from __future__ import annotations

import pandas as pd

from bandit.engine.two_tasks.summary import final_rows
from bandit.shift.analysis import denominators, readable
from bandit.shift.scores import score
from tests.bandit.shift.tables import BASE, NONE, POINTS, shift_table


def test_a_denominator_that_is_not_told_from_zero_is_warned_of_and_gives_no_score():
    """GRPO keeps the prior task and learns the new one."""
    points = {**POINTS, "none": {0.0: (BASE[0], NONE[1], 0.5, 1.5)}}
    table = shift_table(points, jitter=0.05)
    assert "WARNING: not told from zero" in denominators(table)
    ends = final_rows(score(table)).query("role == 'report' and method == 'cokl'")
    assert ends[["retention", "overall"]].isna().to_numpy().all()
    assert ends["adaptation"].notna().all()
    assert "WARNING" not in denominators(shift_table())


def test_scores_are_read_to_a_tenth_and_others_to_a_thousandth_and_an_edge_is_a_note():
    table = {
        "method": ["base", "cokl"],
        "beta": [0.0, 0.1],
        "overall": [50.0, 71.26],
        "overall_half_width": [0.0, 1.04],
        "drift": [0.0, 0.12345],
        "drift_half_width": [0.0, 0.01],
        "edge": [False, True],
    }
    assert readable(pd.DataFrame(table)).to_dict("list") == {
        "method": ["Base", "CoKL"],
        "beta": ["0", "0.1"],
        "overall": ["50.0 ± 0.0", "71.3 ± 1.0"],
        "drift": ["0.000 ± 0.000", "0.123 ± 0.010"],
        "note": ["", "edge"],
    }


def test_a_denominator_that_one_mode_lacks_leaves_the_other_modes_scores():
    """GRPO keeps the prior task in sampled mode alone."""
    points = {**POINTS, "none": {0.0: (BASE[0], NONE[1], 0.5, 1.5)}}
    table = pd.concat([shift_table(), shift_table(points, jitter=0.05).assign(mode="sampled")], ignore_index=True)
    ends = final_rows(score(table)).query("role == 'report' and method == 'cokl'").set_index("mode")
    assert ends.loc["sampled", ["retention", "overall"]].isna().to_numpy().all()
    assert ends.loc["exact", ["retention", "overall"]].notna().to_numpy().all()
