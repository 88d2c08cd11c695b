"""Both phases equal a naive loop over listed responses; what a change accepts; how distinct answers are counted."""

import pandas as pd
import pytest
import torch

from bandit.plasticity.plan import planned, stacked
from bandit.plasticity.score import START
from bandit.plasticity.sequences.train import Sequences, base_model, distinct_correct
from bandit.plasticity.train import train
from bandit.sequences.automata import Automata
from bandit.sequences.recursions import SequencePolicy
from tests.bandit.plasticity.sequences.conftest import TINY
from tests.oracles import sequence_plasticity as oracle

SEED = 3


@pytest.fixture(scope="module")
def trained() -> pd.DataFrame:
    """Every stack of a seed, all of whose policies meet every change."""
    with torch.no_grad():
        space = Sequences(TINY, SEED, base_model(TINY, SEED, "cpu"))
        return pd.concat([train(space, stack, [True] * len(stack)) for stack in stacked(planned(TINY, SEED))])


@pytest.fixture(scope="module")
def naive() -> oracle.Seed:
    return oracle.Seed(TINY, SEED)


@pytest.mark.parametrize("start", [start.identity for start in planned(TINY, SEED)])
def test_both_phases_equal_the_naive_loop(start, trained, naive):
    _, method, size, beta = start
    ours = trained[(trained[START] == list(start)).all(axis=1)]
    network = naive.phase_1(method, beta, size)
    for name, value in naive.reached(network).items():
        assert ours[name].unique() == pytest.approx([value], rel=1e-8, abs=1e-12), name
    assert set(ours["mode"]) == {"sampled"}
    for change in TINY.changes:
        rows = ours[ours["change"] == change]
        steps, reward, below_half = zip(*naive.phase_2(network, change), strict=True)
        assert tuple(rows["step"]) == steps
        assert rows["reward"].to_numpy() == pytest.approx(reward, rel=1e-8, abs=1e-12)
        assert rows["below_half"].to_numpy() == pytest.approx(below_half)


def test_what_the_methods_reach_differs(trained):
    """The comparison with the naive loop could not fail where nothing depends on method, cache or coefficient."""
    ends = trained[(trained["change"] == "narrowed-1") & (trained["step"] == TINY.new_steps)]
    assert ends["reward"].nunique() == ends["p_correct"].nunique() == len(ends)


def test_a_change_accepts_what_its_name_says():
    space = Sequences(TINY, SEED, base_model(TINY, SEED, "cpu"))
    answers = torch.cartesian_prod(*[torch.arange(TINY.symbols)] * TINY.length)
    old, narrowed, moved = (
        task.train.automata.accept(answers.expand(TINY.train_inputs, -1, -1))
        for task in (
            space.task,
            *(space.changed(change, space.stack(space.parameters[None])) for change in TINY.changes),
        )
    )
    assert old.any(-1).all()
    assert bool((narrowed <= old).all())
    assert narrowed.sum() < old.sum()
    assert not bool((moved & old).any())
    assert moved.any(-1).all()


def test_distinct_correct_answers_are_counted_once():
    """Two tokens of two symbols, of which the second answer symbol 1 is wrong: the answers 00 and 10 are correct."""
    automaton = Automata(torch.tensor([[[1, 1], [2, 3], [2, 2], [3, 3]]]), torch.tensor([[False, False, True, False]]))
    policy = SequencePolicy(torch.zeros(1, 1, 3, 2), automaton)
    low, high = 0.1, 0.9
    uniforms = torch.tensor([[[low, low], [high, low], [low, low], [low, high], [high, low]]], dtype=torch.float64)
    assert distinct_correct(policy, uniforms).tolist() == [[2]]
    assert distinct_correct(policy, uniforms[:, 3:4]).tolist() == [[0]]
    assert distinct_correct(policy, uniforms[:, :3:2]).tolist() == [[1]]
