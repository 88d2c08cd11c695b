"""What the page's trade-off is drawn from: each number from its own column; and how many runs it says there are."""

import math

import pandas as pd
import pytest
from bandit.sweep.section import _setting, section

from tests.bandit.sweep.test_claims import GOOD, sweep_table


def test_each_curve_is_of_its_own_column():
    columns = {"p_correct": 0.9, "coverage_at_4": 0.3, "coverage_at_4_correct": 0.6, "conditional_kl": 1.5}
    rows = pd.DataFrame([{"seed": seed, "method": "cokl", "beta": 0.1, "step": 5,
                          **{name: value + 0.01 * seed for name, value in columns.items()}}
                         for seed in (-1, 1)])  # fmt: skip
    found = _setting("cokl", 0.1, rows, "coverage_at_4", False)
    means = [found[name] for name in ("correctness", "coverage", "covered", "kl")]
    assert means == [[pytest.approx(value)] for value in columns.values()]


def test_runs_are_counted_without_the_reference_and_without_a_diverged_coefficient(tmp_path):
    """Seven coefficients of three seeds, of which one seed of one coefficient diverged after 100 steps."""
    table = sweep_table(GOOD, seeds=3)
    lost = (table["method"] == "entropy") & (table["beta"] == 0.1) & (table["seed"] == 2)
    table.loc[lost & (table["step"] == 100), ["p_correct", "conditional_kl"]] = math.nan
    reference = table.query("method == 'none' and step == 0").assign(method="reference")
    pd.concat([reference, table[~lost | (table["step"] < 200)]]).to_parquet(tmp_path / "sweep.parquet")
    made = section(tmp_path)
    assert "<p>18 runs, 3 seeds. " in made.body
    assert "1 of 21 runs diverged (entropy at beta 0.1, seed 2, at step 100)" in made.body
    data = made.data["sweeps"][tmp_path.name]
    assert (data["seeds"], data["steps"], data["order"]) == (3, [0, 100, 200], list(GOOD))
    assert all("each" in one for one in data["settings"])
    assert [(one["method"], one["beta"]) for one in data["settings"]] == [
        ("reference", 0.0), *((method, beta) for method in GOOD for beta in GOOD[method]
                              if (method, beta) != ("entropy", 0.1))
    ]  # fmt: skip


def test_from_four_seeds_on_no_seed_is_drawn_by_itself(tmp_path):
    sweep_table(GOOD, seeds=4).to_parquet(tmp_path / "sweep.parquet")
    settings = section(tmp_path).data["sweeps"][tmp_path.name]["settings"]
    assert len(settings) == 7
    assert not any("each" in one for one in settings)
