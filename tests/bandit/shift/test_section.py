"""The sections of both labs on two tasks: each mode's plots are of that mode."""

import pandas as pd
import pytest

from bandit.sequences import section as sequences
from bandit.sequences.train import METRICS
from bandit.shift import section as shift
from tests.bandit.shift.tables import POINTS, shift_table


@pytest.mark.parametrize(("lab", "file"), [(shift, "shift"), (sequences, "sequences")])
def test_each_modes_plots_are_of_its_own_rows(lab, file, tmp_path):
    """In samples CoKL and replay have changed places: retention is 80 and 76 in one mode, 76 and 80 in the other."""
    swapped = {**POINTS, "cokl": POINTS["correct_forward_kl"], "correct_forward_kl": POINTS["cokl"]}
    modes = shift_table(jitter=0, batches=(16,)), shift_table(swapped, jitter=0, batches=(16,)).assign(mode="sampled")
    table = pd.concat(modes, ignore_index=True)
    table.assign(**dict.fromkeys(set(METRICS) - set(table), 0.5)).to_parquet(tmp_path / f"{file}.parquet")
    made = lab.section(tmp_path)
    for mode, retention in (("exact", 80), ("sampled", 76)):
        (cokl,) = (one for one in made.plots[f"{tmp_path.name}-{mode}-frontier"].data if one.name == "CoKL")
        assert cokl.y[1] == pytest.approx(retention)
        assert f"Retention against adaptation ({mode}): " in made.body
        if file == "shift":
            lines = [one for one in made.plots[f"{tmp_path.name}-{mode}-dynamics"].data if one.name == "CoKL"]
            assert lines[0].y[-1] - 0.02 == pytest.approx(0.3 + 0.5 * retention / 100)  # 0.02, the mean of the seeds


@pytest.mark.parametrize(("lab", "file"), [(shift, "shift"), (sequences, "sequences")])
@pytest.mark.parametrize(("seeds", "bars"), [(3, False), (4, True)])
def test_bars_are_drawn_from_four_seeds_on(lab, file, seeds, bars, tmp_path):
    table = shift_table(batches=(16,))
    table = table[(table["role"] == "selection") | (table["seed"] < seeds)]
    table.assign(**dict.fromkeys(set(METRICS) - set(table), 0.5)).to_parquet(tmp_path / f"{file}.parquet")
    (cokl,) = (one for one in lab.section(tmp_path).plots[f"{tmp_path.name}-exact-frontier"].data if one.name == "CoKL")
    assert [cokl.error_x.array is not None, cokl.error_y.array is not None] == [bars, bars]
