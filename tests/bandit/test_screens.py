"""What each lab says on a terminal: at most 25 lines of 100 columns, the answer first and the next command last."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from bandit.robustness import report as robustness
from bandit.robustness.run import BASE
from cokl_cli.experiments import experiments

from bandit.finite_group import analysis as finite_group
from bandit.plasticity import analysis as plasticity
from bandit.sequences import analysis as sequences
from bandit.sequences.config import PRESETS as SEQUENCES
from bandit.shift import analysis as shift
from bandit.shift.config import PRESETS as SHIFT
from bandit.sweep import report as sweep
from tests.bandit.finite_group.test_report import made_metrics, made_recovery
from tests.bandit.plasticity import test_score as plastic
from tests.bandit.robustness.test_robustness import table as robust_table
from tests.bandit.sequences.test_report import table as sequence_table
from tests.bandit.shift.tables import POINTS, shift_table
from tests.bandit.sweep.test_claims import GOOD, sweep_table

WIDE = {"jensen_shannon": "forward_kl", "correct_reverse_kl": "forward_kl", "reverse_kl": "entropy"}


def of_sweep(folder, seeds):
    """Every method of the paper, and one with the longest of labels."""
    points = GOOD | {new: GOOD[old] for new, old in WIDE.items()}
    return sweep.at_the_match(sweep_table(points, seeds=seeds), folder)


def of_shift(folder, seeds):
    """All methods in both modes; in expectations, which are not shown, CoKL and replay have changed places."""
    swapped = {**POINTS, "cokl": POINTS["correct_forward_kl"], "correct_forward_kl": POINTS["cokl"]}
    modes = shift_table(swapped, jitter=0), shift_table(jitter=0).assign(mode="sampled")
    return shift.write(_first(pd.concat(modes, ignore_index=True), seeds), SHIFT["paper"], folder)


def of_sequences(folder, seeds):
    """The methods of a table made by hand."""
    return sequences.write(sequence_table(seeds), SEQUENCES["quick"], folder)


def of_finite_group(folder, seeds):
    """Two methods with every kind of group."""
    return finite_group.on_screen(made_metrics(seeds), made_recovery(seeds), folder)


def of_plasticity(folder, seeds):
    """Two coefficients of each method; in expectation everything is half as plastic."""
    table = pd.concat([(sampled := plastic.made()), sampled.assign(mode="exact", reward=sampled["reward"] / 2)])
    return plasticity.write(table[(table["seed"] < seeds) | (table["seed"] >= 1000)], plastic.CONFIG, folder)


def of_robustness(folder, seeds):
    """Fourteen alternatives, three of which break verdicts."""
    tables = {BASE: robust_table(0.6, seeds=seeds)}
    tables |= {f"init_scale-{n}": robust_table(0.6 if n > 3 else 0.3, seeds=seeds) for n in range(1, 15)}
    compared = robustness.compare(tables)
    return robustness.on_screen(compared, robustness.smallest_leads(tables), seeds, folder)


SCREENS = {name.removeprefix("of_"): made for name, made in globals().items() if name.startswith("of_")}
# By hand from what each table is made of: CoKL's number less its rival's, in the unit that the sentence names.
ANSWERS = {
    "sweep": "coverage@64 by 0.450 ± 0.000.",  # 0.60 - 0.15
    "shift": "Overall: 5.6 ± 0.0 points against Correct-only forward KL.",  # (80 + 97.14) / 2 - (76 + 90) / 2
    "sequences": "adapting alike: by 2.0 ± 0.0 points.",  # 0.52 - 0.50 of correctness
    "finite_group": "Appendix B: 1.0",
    "plasticity": "plasticity by 0.300 ± 0.00",  # 0.8 - 0.5
    "robustness": "100 of 112 do; CoKL covers -0.100 ± 0.000 to 0.200 ± 0.000 more.",
}
TABLES = {
    "sweep": (
        "Seeds: 4; steps: 200.",
        "method beta correctness coverage@64 conditional KL",
        "CoKL 0.1 0.955 ± 0.000 0.600 ± 0.000 0.300 ± 0.000",
    ),
    "shift": (
        "(sampled) forgets 0.500 ± 0.000 of correctness and learns 0.700 ± 0.000.",
        "method beta retention adaptation overall note",
        "CoKL 1 80.0 ± 0.0 97.1 ± 0.0 88.6 ± 0.0",
    ),
    "sequences": (
        "(sampled) forgets 0.400 ± 0.000 of correctness and learns 0.700 ± 0.000.",
        "method beta retention adaptation overall note",
        "CoKL 0.3 100.0 ± 0.0 57.1 ± 0.0 78.6 ± 0.0 edge",
    ),
    "finite_group": (
        "At step 50, mu = 1. Seeds: 4; steps: 50.",
        "method beta groups G p_correct coverage_at_8 conditional_kl",
        "CoKL 0.3 fresh 8 ",
    ),
    "plasticity": (
        "Seeds: 4 and 3 for selection. After ± is half the width of a 95% t-interval. The match is at a correctness of "
        "0.96, after the sampled phase 1 0.94; steps to one half are 400",
        "method phase-1 correctness plasticity steps to one half",
        "Reverse KL 0.960 ± 0.000 0.500 ± 0.001 200 ± 0",  # never and at once, in equal parts
    ),
    "robustness": (
        "Seeds: 4. Each alternative changes one assumption",
        "claim base stands not with",
        "At matched correctness, CoKL's coverage@64 is ... held 11 of 14 init_scale-1 and 2 more",
    ),
}
"""Of what is said above the table, the heads of its columns, and the start of a row whose numbers are made so."""
ANSWER = re.compile(r"(Held|Not held|Undecided|Depends): .*-?\d+\.\d+ ± \d+\.\d+.*\.")


def _first(table: pd.DataFrame, seeds: int) -> pd.DataFrame:
    return table[(table["seed"] < seeds) | (table["role"] == "selection")]


def test_every_lab_is_looked_at():
    labs = {name for name, experiment in experiments().items() if experiment.summary and experiment.presets}
    assert labs == set(SCREENS)


@pytest.mark.parametrize("lab", SCREENS)
def test_a_screen_is_an_answer_a_table_and_the_next_command(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("runs")
    lines = SCREENS[lab](folder, 4).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert ANSWER.fullmatch(lines[0])
    assert ANSWERS[lab] in lines[0]
    said, head, row = TABLES[lab]
    assert said in " ".join(lines)
    told = [" ".join(line.split()) for line in lines]
    assert head in told
    assert any(line.startswith(row) for line in told[told.index(head) :])
    assert lines[-1].startswith("Next: cokl ")
    assert any(line.startswith("Everything: runs/") for line in lines)


@pytest.mark.parametrize("lab", SCREENS)
def test_below_four_seeds_the_first_line_gives_no_verdict(lab, tmp_path):
    lines = SCREENS[lab](tmp_path, 3).splitlines()
    assert lines[0].startswith("No verdict: ")
    assert "3 reported seeds are too few" in " ".join(lines[:4])


def test_scores_that_seeds_do_not_tell_from_a_division_by_zero_are_nowhere(tmp_path):
    """GRPO forgets 0.001 give or take 0.02: neither the screen, nor a table, nor the page has a retention."""
    nothing = POINTS | {"none": {0.0: (0.799, 0.9, 0.5, 1.5)}}
    said = shift.write(shift_table(nothing, jitter=0.02), SHIFT["paper"], tmp_path)
    page = (tmp_path / "results.md").read_text()
    assert said.startswith("No verdict: CoKL has the best Overall: there are no scores to compare.")
    for name in ("table1_normalized", "beta_search", "equal_adaptation", "kl_batch"):
        made = pd.read_csv(tmp_path / f"{name}.csv")
        assert made.get("retention", pd.Series(dtype=float)).isna().all()
        assert made.get("overall", pd.Series(dtype=float)).isna().all()
    assert pd.read_csv(tmp_path / "table1_normalized.csv")["adaptation"].notna().all()
    assert "nan" not in page + said
    assert "points" not in "".join(line for line in page.splitlines() if "retention of" in line)
