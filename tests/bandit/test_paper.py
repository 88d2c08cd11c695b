"""What the paper states of its experiments, written out: no default may drift from it unseen."""

from __future__ import annotations

import pytest

from bandit.engine.two_tasks.plan import kl_prompts
from bandit.finite_group.config import FiniteGroupConfig
from bandit.plasticity.config import PlasticityConfig
from bandit.sequences.config import PRESETS as SEQUENCES
from bandit.shift import claims, scores
from bandit.shift.config import PAPER_BETA
from bandit.shift.config import PRESETS as SHIFT
from bandit.sweep.config import PRESETS as SWEEP
from cokl import methods


def test_the_controlled_experiment_is_that_of_e1():
    paper = SWEEP["paper"]
    assert paper.betas == (0.0005, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3)
    assert (paper.pretrain_steps, paper.steps, paper.eval_interval, paper.seeds) == (1000, 1000, 100, 5)
    assert (paper.batch_size, paper.learning_rate, paper.max_gradient_norm) == (512, 1.2e-3, 1.0)
    assert (paper.hidden, paper.coverage_draws) == ((128, 128), 64)
    world = paper.environment
    assert (world.clusters, world.actions, world.correct_actions, world.input_dim) == (48, 200, 12, 64)
    assert (world.noise, world.correct_mass, world.concentration) == (1.4, 0.10, 50)
    assert world.zipf_exponents == (1.0, 2.4)
    assert (world.train_inputs, world.test_inputs) == (8000, 4000)


@pytest.mark.parametrize("config", [FiniteGroupConfig(), PlasticityConfig()])
def test_the_labs_on_the_single_task_keep_its_world_and_its_optimizer(config):
    paper = SWEEP["paper"]
    for name in ("environment", "hidden", "batch_size", "learning_rate", "max_gradient_norm", "pretrain_steps"):
        assert getattr(config, name) == getattr(paper, name)


@pytest.mark.parametrize("lab", [SHIFT["paper"], SEQUENCES["paper"]])
def test_the_task_shift_has_e3s_groups_and_buffer(lab):
    assert (lab.group_size, lab.reference_group_size) == (8, 8)
    assert lab.buffer_size == 512
    assert lab.adam_betas == (0.9, 0.95)
    prompts = {name: kl_prompts(16, methods.get(name)) for name in ("cokl", "correct_forward_kl", "reverse_kl")}
    assert prompts == {"cokl": 8, "correct_forward_kl": 16, "reverse_kl": 16}
    assert lab.kl_groups == 16


def test_with_the_floor_a_method_of_one_stream_has_two():
    """Its gate compares cached and fresh responses, so that half as many prompts make as many groups."""
    names = ("cokl_floor", "correct_forward_kl_floor", "entropy_floor")
    assert {name: kl_prompts(16, methods.get(name)) for name in names} == dict.fromkeys(names, 8)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_a_method_has_a_prompt_however_few_groups_there_are(groups):
    """Without one it would be plain RL under its name."""
    assert kl_prompts(groups, methods.get("cokl")) == 1
    assert kl_prompts(groups, methods.get("reverse_kl")) == groups
    assert kl_prompts(groups, methods.get("none")) == 0


def test_the_new_tasks_batch_and_the_coefficients_are_e3s():
    assert (SHIFT["paper"].batch_size, SHIFT["paper"].steps) == (64, 600)
    assert PAPER_BETA == 1
    assert scores.REVERSE_BETA == 1e-3
    assert {method: set(betas) for method, betas in claims.SEARCHED.items()} == {
        "forward_kl": {0.1, 1, 10},
        "correct_forward_kl": {0.1, 1, 10},
        "reverse_kl": {1e-3, 1e-2, 1},
        "correct_reverse_kl": {1e-3, 1e-2, 1},
    }
    assert {method: betas[0] for method, betas in claims.SEARCHED.items()} == {
        "forward_kl": 1,
        "correct_forward_kl": 1,
        "reverse_kl": 1e-3,
        "correct_reverse_kl": 1e-3,
    }
    assert [*claims.KL_BATCHES] == [8, 16, 32]
    assert [*claims.BETAS] == [0.1, 10]
    searched = {beta for betas in claims.SEARCHED.values() for beta in betas}
    assert searched <= {*SHIFT["paper"].betas}
    assert {8, 16, 32} <= {*SHIFT["paper"].kl_sweep}


def test_what_counts_as_none_and_as_equal_is_declared():
    """Points of Overall and of a score; ours, since the paper names neither."""
    assert (claims.NEGLIGIBLE, claims.EQUIVALENT) == (1.0, 5.0)
