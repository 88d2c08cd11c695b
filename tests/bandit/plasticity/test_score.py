"""The match, the measures and the verdicts on tables whose answers are known."""

import numpy as np
import pandas as pd
import pytest

from bandit.plasticity import analysis
from bandit.plasticity.analysis import Scored, best_rival, runs
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.train import match
from cokl.support.errors import InputError
from cokl.support.verdicts import Claim

CONFIG = PlasticityConfig()
LEVELS = {"reverse_kl": 0.5, "entropy": 0.4, "cokl": 0.8, "correct_forward_kl": 0.8, "none": 0.2}


def made(levels=LEVELS, change="narrowed-2", selection=LEVELS) -> pd.DataFrame:
    """A table of two coefficients, 0.98 and 0.94 correct: plasticity is the level at the match, give or take 0.1."""
    lines = []
    noise = np.random.default_rng(1)
    for seed in (*range(5), 1000, 1001):
        of = levels if seed < 1000 else selection
        for method, level in of.items():
            for beta, correctness, off in (
                ((0.1, 0.98, -0.1), (0.2, 0.94, 0.1)) if method != "none" else ((0, 0.99, 0),)
            ):
                jitter = noise.normal(scale=1e-3)
                for step in (0, 100, 400):
                    facts = {"p_correct": correctness, "coverage_at_64": level, "coverage_at_64_correct": level}
                    lines.append(
                        {"seed": seed, "role": "report" if seed < 1000 else "selection",
                         "method": method, "beta": float(beta), "change": change, "mode": "sampled", "step": step,
                         "reward": level + off + jitter, "below_half": 0.25, **facts,
                         "conditional_kl": -level}
                    )  # fmt: skip
    return pd.DataFrame(lines)


def judge(table: pd.DataFrame, config: PlasticityConfig) -> list[Claim]:
    """The claims of a table."""
    return analysis.judge(Scored.of(table, config))


@pytest.mark.parametrize(
    ("correctness", "expected"),
    [
        ((0.98, 0.94, 0.99, 0.95), {0.1: 0.5, 0.2: 0.5}),
        ((0.94, 0.95, 0.99, 0.92), {0.2: 0.75, 0.3: 0.25}),
        ((0.97, 0.96, 0.98, 0.90), {0.1: 0.0, 0.2: 1.0}),
    ],
)
def test_of_several_crossings_the_smallest_coefficients_is_taken(correctness, expected):
    """Weights by hand: how far the other of the two neighbours is from 0.96, over how far they are apart."""
    table = pd.concat(
        [
            made({"cokl": 0.5}, selection={"cokl": 0.5}).query("beta == 0.1").assign(beta=beta, p_correct=value)
            for beta, value in zip((0.1, 0.2, 0.3, 0.4), correctness, strict=True)
        ]
    )
    chosen = match(table, CONFIG)
    assert dict(zip(chosen["beta"], chosen["weight"], strict=True)) == pytest.approx(expected)
    assert chosen["reached"].to_list() == pytest.approx([0.96, 0.96])


def test_the_rival_is_chosen_on_the_selection_seeds():
    table = made(selection={**LEVELS, "entropy": 0.6})
    chosen = match(table, CONFIG)
    assert best_rival(runs(table), chosen, "narrowed-2") == "entropy"
    assert "CoKL minus Entropy: 0.4" in judge(table, CONFIG)[0].primary.text


def test_verdicts_follow_the_differences():
    first, second, third, *_ = judge(made(), CONFIG)
    assert (first.verdict, second.verdict, third.verdict) == ("held", "undecided", "held")
    assert "CoKL minus Reverse KL: 0.30" in first.primary.text
    behind = judge(made({**LEVELS, "cokl": 0.3}), CONFIG)
    assert [claim.verdict for claim in behind[:2]] == ["not held", "not held"]


def test_a_change_that_is_decided_the_other_way_makes_the_verdict_depend():
    table = pd.concat([made(), made({**LEVELS, "cokl": 0.3}, "preferred")])
    assert judge(table, CONFIG)[0].verdict == "depends"
    both = judge(pd.concat([made(), made({**LEVELS, "cokl": 0.3}, "moved-2")]), CONFIG)
    verdicts = {claim.name: claim.verdict for claim in both}
    assert (verdicts["others"], verdicts["moved"]) == ("held", "not held")


def test_a_method_of_which_a_coefficient_did_not_meet_a_change_is_left_out_of_it():
    repaired = made(change="repaired").query("method != 'entropy' or beta != 0.2")
    scored = Scored.of(pd.concat([made(), repaired]), CONFIG)
    means = scored.matched.groupby(["change", "method"])["plasticity"].mean()
    assert means["narrowed-2", "entropy"] == pytest.approx(LEVELS["entropy"], abs=0.01)
    assert means["repaired", "reverse_kl"] == pytest.approx(LEVELS["reverse_kl"], abs=0.01)
    assert ("repaired", "entropy") not in means.index


def test_where_wrong_actions_become_correct_the_rival_is_the_best_other_regularizer():
    (claim,) = judge(pd.concat([made(), made(change="moved-2")]), CONFIG)[-1:]
    assert "CoKL minus Reverse KL" in claim.primary.text
    assert claim.name == "moved"
    assert not claim.secondary


def test_nothing_is_judged_without_its_primary_measurement():
    assert judge(made(change="narrowed-1"), CONFIG) == []
    without = {name: level for name, level in LEVELS.items() if name not in ("reverse_kl", "entropy")}
    assert [claim.name for claim in judge(made(without, selection=without), CONFIG)] == ["replay"]
    exact = made().assign(mode="exact")
    assert judge(exact, CONFIG) == []


RIGHT = CONFIG.environment.correct_actions
WRONG = CONFIG.environment.actions - RIGHT


@pytest.mark.parametrize(
    "change",
    ["narrowed-0", f"narrowed-{RIGHT + 1}", f"moved-{WRONG + 1}", "narrowed", "moved-x", "repaired-1", "other"],
)
def test_a_change_that_is_none_or_takes_more_actions_than_there_are_is_refused(change):
    with pytest.raises(InputError, match="changes: expected narrowed-M"):
        PlasticityConfig(changes=(change,))


def test_a_change_may_take_all_actions_that_there_are():
    PlasticityConfig(changes=(f"narrowed-{RIGHT}", f"moved-{WRONG}"))
