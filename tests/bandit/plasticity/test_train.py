"""The lab's training equals a naive loop's, and its exact phase 1 is the controlled experiment."""

import dataclasses

import pandas as pd
import pytest
import torch

from bandit.engine.environment import Environment
from bandit.engine.reference import pretrain
from bandit.plasticity.actions import Actions
from bandit.plasticity.plan import planned, stacked
from bandit.plasticity.rewards import reward_table, stages
from bandit.plasticity.score import START
from bandit.plasticity.train import train
from bandit.sweep.config import SweepConfig
from bandit.sweep.run import run_sweep
from cokl.support.experiment import Execution
from tests.bandit.plasticity.conftest import TINY
from tests.bandit.plasticity.naive import Naive

SEED = 1


@pytest.fixture(scope="module")
def trained() -> pd.DataFrame:
    """Every stack of a seed, all of whose policies meet every change."""
    parameters = pretrain(TINY, SEED, "cpu", torch.float64)
    with torch.no_grad():
        return pd.concat(
            [
                train(Actions(TINY, SEED, parameters), stack, [True] * len(stack))
                for stack in stacked(planned(TINY, SEED))
            ]
        )


@pytest.fixture(scope="module")
def naive() -> Naive:
    return Naive(TINY, SEED)


@pytest.mark.parametrize(
    "start",
    [
        ("reference", "reference", 0, 0.0),
        ("exact", "none", 0, 0.0),
        ("exact", "reverse_kl", 0, 0.3),
        ("exact", "cokl", 0, 0.3),
        ("exact", "correct_forward_kl", 0, 0.03),
        ("sampled", "none", 0, 0.0),
        ("sampled", "reverse_kl", 0, 0.3),
        ("sampled", "cokl", 2, 0.3),
        ("sampled", "cokl", 4, 0.3),
        ("sampled", "correct_forward_kl", 2, 0.3),
    ],
)
def test_both_phases_equal_the_naive_loop(start, trained, naive):
    phase, method, cached, beta = start
    ours = trained[(trained[START] == list(start)).all(axis=1)]
    net = naive.phase_1(phase, method, beta, cached)
    assert ours["p_correct"].unique() == pytest.approx([naive.correctness(net)], rel=1e-9)
    final = {name: value.clone() for name, value in net.state_dict().items()}
    modes = ("sampled",) if phase == "sampled" else ("sampled", "exact")
    assert set(ours["mode"]) == set(modes)
    for change in TINY.changes:
        for mode in modes:
            net.load_state_dict(final)
            expected = pd.DataFrame(
                naive.phase_2(net, change, mode), columns=["change", "step", "reward", "below_half"]
            )
            rows = ours[(ours["mode"] == mode) & ours["change"].isin(stages(change))].reset_index(drop=True)
            assert rows[["change", "step"]].equals(expected[["change", "step"]])
            for column in ("reward", "below_half"):
                assert rows[column].to_numpy() == pytest.approx(expected[column].to_numpy(), rel=1e-8, abs=1e-12)


def test_the_exact_phase_1_is_the_controlled_experiment(trained):
    shared = {field.name: getattr(TINY, field.name) for field in dataclasses.fields(SweepConfig)}
    sweep = run_sweep(SweepConfig(**shared), Execution(jobs=1), progress=False)
    final = sweep[(sweep["step"] == TINY.steps) & (sweep["seed"] == SEED)].set_index(["method", "beta"])
    ours = trained[trained["phase"] == "exact"].drop_duplicates(START).set_index(["method", "beta"])
    for metric in ("p_correct", "conditional_kl", "coverage_at_64"):
        pd.testing.assert_series_equal(ours[metric].sort_index(), final[metric].sort_index(), rtol=1e-9)


def test_rewards_are_what_their_names_say():
    environment = Environment(TINY.environment, 0)
    correct = environment.correct.mask
    own, reference = (torch.rand(runs, *correct.shape, dtype=torch.float64) for runs in (2, 1))

    def table(stage):
        return reward_table(environment, 0, stage, own, reference)

    one, two = table("narrowed-1"), table("narrowed-2")
    assert two.sum(-1).unique().tolist() == [2]
    assert bool((two <= correct).all())
    assert bool((one <= two).all())
    assert bool((table("chain-2") == two).all())
    moved = table("moved-2")
    assert moved.sum(-1).unique().tolist() == [2]
    assert not bool((moved.bool() & correct).any())
    for stage, probs in (("repaired", own), ("repaired-reference", reference)):
        repaired = table(stage)
        wrong = correct & ~repaired.bool()
        assert wrong.sum(-1).unique().tolist() == [1]
        assert torch.equal(probs[wrong], (probs * correct).amax(-1).flatten())
    preferred = table("preferred")
    liked = reference.where(preferred == 1, 0).amax(-1)
    others = reference.where((preferred > 0) & (preferred < 1), 1).amin(-1)
    assert bool((liked < others).all())
    assert preferred[0][correct].view(len(correct), -1).sum(-1).tolist() == pytest.approx([1.4] * len(correct))
