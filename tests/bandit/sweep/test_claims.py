"""Verdicts are computed from the table: they turn with the data."""

import pandas as pd
import pytest

from bandit.sweep import analysis
from bandit.sweep.config import SweepConfig
from bandit.sweep.figures import draw
from cokl.support.verdicts import Claim, Measurement, of_each
from tests.bandit.same import page_and_screen
from tests.bandit.sweep.tables import GOOD, sweep_table


def shown(table: pd.DataFrame) -> tuple[str, str]:
    """The lab's page and screen."""
    return page_and_screen(analysis.analyse({"sweep": table}, SweepConfig()))


def named(table: pd.DataFrame, name: str) -> Claim:
    """The claim of this name, of which there is one."""
    (claim,) = [claim for claim in analysis.judge(analysis.Scored.of(table)) if claim.name == name]
    return claim


def changed(method: str, beta: float, point: tuple[float, float, float]) -> dict:
    """GOOD with one point moved."""
    return {**GOOD, method: {**GOOD[method], beta: point}}


def test_all_claims_hold_on_data_that_supports_them():
    verdicts = analysis.judge(analysis.Scored.of(sweep_table(GOOD)))
    assert len({claim.name for claim in verdicts}) == len(verdicts) == 8
    assert all((claim.origin == "beyond") == ("beyond" in claim.place) for claim in verdicts)
    assert all(claim.verdict == "held" for claim in verdicts)


@pytest.mark.parametrize(
    ("points", "name"),
    [
        (changed("none", 0.0, (0.90, 0.09, 6.0)), "collapse"),
        (changed("none", 0.0, (0.98, 0.30, 6.0)), "collapse"),
        (changed("forward_kl", 0.001, (0.965, 0.70, 3.0)), "match, coverage_at_64"),
        (changed("forward_kl", 0.001, (0.965, 0.10, 0.2)), "match, conditional_kl"),
        (changed("forward_kl", 0.001, (0.965, 0.70, 3.0)), "training, coverage_at_64"),
        (changed("forward_kl", 0.1, (0.979, 0.30, 1.0)), "frontier, conditional_kl"),
        (changed("forward_kl", 0.1, (0.956, 0.61, 1.0)), "frontier, coverage_at_64"),
    ],
)
def test_a_claim_fails_on_data_against_it(points, name):
    assert named(sweep_table(points), name).verdict == "not held"
    assert ": not held\n" in shown(sweep_table(points))[0]


def test_a_crossed_frontier_is_named_with_the_best_there():
    """From the correctness of CoKL's lowest beaten point on, that point included."""
    points = changed("cokl", 0.001, (0.975, 0.05, 2.0))
    points |= {"forward_kl": {0.1: (0.975, 0.10, 3.0)}, "entropy": {0.1: (0.980, 0.04, 2.5)}}
    measured = named(sweep_table(points), "frontier, coverage_at_64").primary.text
    assert (
        "1 of CoKL's 2 coefficients are not dominated (all but 0.001: at a correctness of 0.9752 or more, where no "
        in measured
    )
    assert "coverage@64 is higher than 0.100)" in measured


def test_a_frontier_crossed_in_kl_is_named_with_the_lowest_there():
    points = changed("forward_kl", 0.1, (0.979, 0.30, 1.0))
    measured = named(sweep_table(points), "frontier, conditional_kl").primary.text
    assert "1 of CoKL's 2 coefficients are not dominated (all but 0.001: at a correctness of 0.9752 or more" in measured
    assert "conditional KL is lower than 1.000)" in measured


def test_a_sweep_without_cokl_is_judged_as_far_as_it_goes():
    table = sweep_table({"none": GOOD["none"], "forward_kl": GOOD["forward_kl"]})
    (claim,) = analysis.judge(analysis.Scored.of(table))
    assert claim.name == "collapse"
    assert "sweep CoKL and another regularizer" in " ".join(shown(table)[1].split())


def test_throughout_training_is_judged_at_each_step():
    """A single seed's close call at step 100 leaves its interval open; an early lead of another's decides against."""
    table = sweep_table(GOOD)
    at_start = (table["method"] == "entropy") & (table["beta"] == 0.001) & (table["step"] == 100)
    close = table.copy()
    close.loc[at_start & (table["seed"] == 0), "conditional_kl"] = 0.16
    close.loc[at_start & (table["seed"] == 1), "conditional_kl"] = 5.0

    def claim(judged: pd.DataFrame) -> Claim:
        return named(judged, "training, conditional_kl")

    assert claim(table).verdict == "held"
    assert "at 2 of 2 evaluated steps" in claim(table).primary.text
    assert claim(close).verdict == "undecided"
    assert claim(close).primary.text.endswith("at 1 of 2 evaluated steps; undecided at step 100")
    far = table.copy()
    far.loc[at_start & (table["seed"] == 1), "conditional_kl"] = 50.0  # ahead in every seed, by too differing amounts
    assert claim(far).verdict == "undecided"
    ahead = table.copy()
    ahead.loc[at_start, "conditional_kl"] = 0.1 + 0.001 * ahead.loc[at_start, "seed"]
    assert claim(ahead).verdict == "not held"
    assert claim(ahead).primary.text.endswith("behind at step 100")


def test_one_of_many_intervals_below_zero_decides_nothing():
    """Found among forty by looking, an interval that just excludes zero is what chance makes."""
    noise = pd.Series([1.0, -1.0, 0.5, -0.5, 0.0])
    half_width = analysis.mean_and_half_width(noise)[1]
    differences = [noise - 1.1 * half_width, *[noise + 1e-3] * 39]
    assert analysis._verdict_on_all(differences) == "undecided"
    assert set(of_each([Measurement.of("", "", values) for values in differences])) == {"undecided"}
    assert analysis._verdict_on_all([noise - 1.1 * half_width]) == "not held"
    assert analysis._verdict_on_all([noise + 1.1 * half_width] * 40) == "held"


def test_the_closest_competitor_is_reported_and_every_one_counts():
    """Entropy, the closer of two competitors, beats CoKL's coverage: forward KL does not, and cannot save the claim."""
    table = sweep_table(changed("entropy", 0.001, (0.964, 0.65, 2.9)))
    claim = named(table, "match, coverage_at_64")
    assert claim.verdict == "not held"
    assert "next Entropy 0.650" in claim.primary.text
    assert "in 0 of 5 seeds" in claim.primary.text


def test_the_coefficients_of_a_table_are_chosen_once_for_claims_table_and_pictures(monkeypatch):
    chosen, choose = [], analysis.matched_coefficients

    def counted(table: pd.DataFrame) -> dict[str, float]:
        chosen.append(table)
        return choose(table)

    monkeypatch.setattr(analysis, "matched_coefficients", counted)
    assert draw(analysis.analyse({"sweep": sweep_table(GOOD)}, SweepConfig()))
    assert len(chosen) == 1
