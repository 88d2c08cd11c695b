"""p-values against SciPy's tests on raw values, Holm's procedure worked by hand, and the seeds that a verdict takes."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cokl.support.statistics import mean_and_half_width
from cokl.support.verdicts import Evidence, Measurement, claim_from, holm, no_verdict, of_each, p_value, verdict_on
from tests.oracles import verdicts as oracle


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8, unique=True), st.floats(-3, 3))
def test_the_p_value_is_that_of_the_t_test(values, against):
    values = np.array(values) + 1e-3 * np.arange(len(values))
    mean, half_width = mean_and_half_width(pd.Series(values))
    expected = stats.ttest_1samp(values, against).pvalue
    assert p_value(mean, half_width, len(values), against) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_the_ends_of_the_p_value():
    assert p_value(3.0, float("inf"), 1) == 1
    assert p_value(3.0, 0.0, 5) == 0
    assert p_value(0.0, 0.0, 5) == 1
    assert p_value(1.0, 1.0, 5) == pytest.approx(0.05)


def test_holm_steps_down():
    # Holm (1979) by hand: 0.005 <= 0.05/4, 0.01 <= 0.05/3, 0.03 > 0.05/2 stops it, although 0.04 <= 0.05.
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.04]) == [True]
    assert holm([0.04, 0.04]) == [False, False]
    assert holm([]) == []


def test_holm_keeps_the_family_wise_error():
    """Eight true hypotheses, 2000 times: some is rejected in about 5%, where uncorrected it would be in a third."""
    p_values = np.random.default_rng(0).random((2000, 8))
    wrong = np.mean([any(holm(list(row))) for row in p_values])
    assert 0.03 < wrong < 0.07
    assert np.mean((p_values <= 0.05).any(axis=1)) > 0.3


def test_few_seeds_are_said():
    assert no_verdict(4) == ""
    assert no_verdict(3).startswith("No verdicts: 3 reported seeds")


@pytest.mark.parametrize(
    ("mean", "half_width", "seeds", "verdict"),
    [
        (1.0, 0.9, 4, "held"),
        (-1.0, 0.9, 4, "not held"),
        (1.0, 1.1, 4, "undecided"),
        (-1.0, 1.1, 10, "undecided"),
        (0.0, 0.0, 5, "undecided"),
        (1e-9, 0.0, 5, "held"),
        (1.0, 0.01, 3, None),
        (1.0, float("inf"), 4, "undecided"),
    ],
)
def test_a_verdict_takes_four_seeds_and_an_interval_on_one_side_of_zero(mean, half_width, seeds, verdict):
    assert verdict_on(mean, half_width, seeds) == verdict


def test_holm_takes_its_error_and_rejects_at_the_bound():
    assert holm([0.05]) == [True]
    assert holm([0.025, 0.05]) == [True, True]
    assert holm([0.02, 0.5], alpha=0.01) == [False, False]


@pytest.mark.parametrize(("half_width", "seeds"), [(0.1, 1), (float("inf"), 5), (float("nan"), 5)])
def test_an_unknown_interval_shows_nothing(half_width, seeds):
    assert p_value(3.0, half_width, seeds) == 1.0


def measured(mean: float, half_width: float, seeds: int = 5, margin: float = 0.0, equal: bool = False) -> Measurement:
    return Measurement("sampled", "x", mean, half_width, seeds, "points", margin, equal)


def verdict_of(*parts: Measurement, elsewhere=()) -> str | None:
    return claim_from("n", "s", "paper", "", parts, elsewhere).verdict


@pytest.mark.parametrize(
    ("mean", "half_width", "seeds", "said"),
    [
        (7.94, 3.3, 4, "CoKL is 7.9 ± 3.3 points ahead of Replay in Overall"),
        (-7.94, 3.3, 4, "CoKL is 7.9 ± 3.3 points behind Replay in Overall"),
        (-3.0, 3.3, 4, "CoKL and Replay are not told apart in Overall: the difference is -3.0 ± 3.3 points"),
        (7.94, 3.3, 3, "CoKL and Replay are not told apart in Overall: the difference is 7.9 ± 3.3 points"),
    ],
)
def test_a_difference_is_a_sentence_with_its_side(mean, half_width, seeds, said):
    assert measured(mean, half_width, seeds).told("Replay", "Overall") == said


YES, NO, OPEN = measured(5, 1), measured(-5, 1), measured(5, 6)


def test_a_measurement_is_written_in_its_unit():
    assert measured(-0.04, 1.26).value == "x: 0.0 ± 1.3 points"
    assert measured(1, 2, margin=5, equal=True).value == "x: 1.0 ± 2.0 points (equal means within 5)"
    nats = Measurement("exact, best", "minus drift", 0.12345, 0.01, 5, "nats")
    assert nats.value == "minus drift: 0.123 ± 0.010 nats"


@pytest.mark.parametrize(
    ("primary", "elsewhere", "expected"),
    [
        (YES, (), "held"),
        (YES, (OPEN, YES), "held"),
        (NO, (OPEN,), "not held"),
        (OPEN, (YES, YES), "undecided"),
        (OPEN, (NO, NO), "undecided"),
        (OPEN, (YES, NO), "depends"),
        (YES, (OPEN, NO), "depends"),
        (NO, (YES,), "depends"),
    ],
)
def test_the_primary_one_decides_unless_what_is_decided_contradicts_itself(primary, elsewhere, expected):
    assert verdict_of(primary, elsewhere=[[other] for other in elsewhere]) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((YES, YES), "held"),
        ((YES, NO), "not held"),
        ((YES, OPEN), "undecided"),
        ((OPEN, NO), "not held"),
        ((YES, measured(-1.05, 1)), "not held"),  # Holm's second step
        ((OPEN, measured(-1.05, 1)), "undecided"),  # his first, which doubles it
        ((NO, measured(-5, 60)), "not held"),
        ((measured(1.05, 1), measured(1.05, 1)), "held"),  # all have to be rejected, which needs no correction
    ],
)
def test_a_conjunction_takes_all_of_its_parts(parts, expected):
    assert verdict_of(*parts) == expected


def test_a_conjunction_elsewhere_counts_as_one():
    """Exact mode adapts more and retains less: the conjunction is not held there, which contradicts nothing."""
    assert verdict_of(NO, OPEN, elsewhere=[[NO, YES]]) == "not held"
    assert verdict_of(YES, YES, elsewhere=[[NO, YES]]) == "depends"


def test_secondary_measurements_are_corrected_for_their_number():
    """An interval that just excludes zero decides alone, and no longer among others that do not decide."""
    just = measured(-1.05, 1)
    assert verdict_of(YES, elsewhere=[[just]]) == "depends"
    assert verdict_of(YES, elsewhere=[[just], [measured(0.1, 1)]]) == "held"
    assert verdict_of(just) == "not held"


def test_a_loss_within_the_margin_does_not_speak_against_a_claim():
    assert verdict_of(measured(-0.5, 0.2, margin=1)) == "held"
    assert verdict_of(measured(-0.5, 0.7, margin=1)) == "undecided"
    assert verdict_of(measured(-0.98, 0.01, margin=1)) == "held"
    assert verdict_of(measured(-1.02, 0.01, margin=1)) == "not held"


@pytest.mark.parametrize("sign", [1, -1])
def test_equal_is_decided_by_two_one_sided_tests(sign):
    """Against SciPy's one-sided tests of raw values, on both sides of the margin."""
    values = sign * np.array([2.0, 3.5, 4.0, 2.5, 3.0])
    for margin in (3.5, 3.6, 3.7, 4.0, 6.0):
        above = stats.ttest_1samp(values, -margin, alternative="greater").pvalue
        below = stats.ttest_1samp(values, margin, alternative="less").pvalue
        one = Measurement.of("", "", pd.Series(values), margin=margin, equal=True)
        assert one.p_value == pytest.approx(max(above, below))
        assert (verdict_of(one) == "held") == (max(above, below) <= 0.05)
    assert verdict_of(Measurement.of("", "", pd.Series(values), margin=1, equal=True)) == "not held"
    assert verdict_of(Measurement.of("", "", pd.Series(values), margin=2.9, equal=True)) == "undecided"


def test_below_four_seeds_a_claim_has_no_verdict():
    claim = claim_from("n", "s", "paper", "", [measured(5, 1, seeds=3)], [[measured(5, 1, seeds=3)]])
    assert claim.verdict is None
    assert claim.primary == Evidence("primary", "sampled: x: 5.0 ± 1.0 points")
    assert claim.secondary == (Evidence("secondary", "sampled: x: 5.0 ± 1.0 points"),)
    assert claim.lines == ["primary: sampled: x: 5.0 ± 1.0 points", "secondary: sampled: x: 5.0 ± 1.0 points"]


def test_one_part_with_too_few_seeds_leaves_no_verdict():
    assert verdict_of(measured(3, 1, seeds=3), measured(3, 1, seeds=5)) is None


def drawn_parts(rng: np.random.Generator) -> list[oracle.Part]:
    """One to three measurements of one kind each, whose means are a few standard errors from where a rule turns."""
    parts = []
    for _ in range(rng.integers(1, 4)):
        seeds, margin, equal = rng.choice([3, 4, 5, 8], p=[0.1, 0.3, 0.3, 0.3]), rng.uniform(0.5, 3), rng.random() < 0.4
        margin = margin if equal or rng.random() < 0.5 else 0.0
        turn = rng.choice([-1, 1]) * margin if equal else -margin
        noise = rng.normal(size=seeds)
        values = turn + noise - noise.mean() + rng.uniform(-6, 6) * noise.std(ddof=1) / np.sqrt(seeds)
        parts.append(oracle.Part(tuple(values), margin, bool(equal)))
    return parts


@pytest.fixture(scope="module")
def claims() -> list[tuple[list[oracle.Part], list[list[oracle.Part]]]]:
    """Primary and secondary measurements of 300 claims."""
    rng = np.random.default_rng(3)
    return [(drawn_parts(rng), [drawn_parts(rng) for _ in range(rng.integers(0, 4))]) for _ in range(300)]


def as_measured(parts: list[oracle.Part]) -> list[Measurement]:
    return [Measurement.of("", "", pd.Series(one.values), margin=one.margin, equal=one.equal) for one in parts]


def test_verdicts_are_those_of_the_tests_that_the_rules_name(claims):
    for parts, elsewhere in claims:
        expected = oracle.verdict(parts, elsewhere)
        assert claim_from("n", "s", "paper", "", as_measured(parts), map(as_measured, elsewhere)).verdict == expected, (
            parts,
            elsewhere,
        )


def test_each_part_is_held_by_itself_and_refused_after_a_correction(claims):
    for parts, _ in claims:
        leanings, p_values = zip(*map(oracle.leaning_and_p, parts), strict=True)
        sure = oracle.rejected(p_values, 0.05)
        expected = [
            leaning if (p <= 0.05 if leaning == "held" else refused) else "undecided"
            for leaning, p, refused in zip(leanings, p_values, sure, strict=True)
        ]
        assert of_each(as_measured(parts)) == expected, parts


@pytest.mark.parametrize("wrong", oracle.WRONG)
def test_the_drawn_claims_tell_every_rule_from_a_wrong_one(wrong, claims):
    """Else a fault in that rule would pass the tests above."""
    changed = [
        oracle.verdict(*claim)
        for claim in claims
        if oracle.verdict(claim[0], claim[1], wrong) != oracle.verdict(*claim)
    ]
    assert len(changed) >= 2
