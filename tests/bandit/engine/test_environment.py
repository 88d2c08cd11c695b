"""The environment is the one of Appendix E.1."""

import numpy as np
import pytest
import torch

from bandit import Environment, EnvironmentConfig


@pytest.fixture(scope="module")
def paper_environment() -> Environment:
    """The environment of seed 0 at the paper's size."""
    return Environment(EnvironmentConfig(), 0)


def test_oracle_puts_a_tenth_on_the_correct_actions_and_the_rest_evenly(paper_environment):
    env = paper_environment
    torch.testing.assert_close(env.oracle.sum(-1), torch.ones(48, dtype=torch.float64))
    on_correct = env.oracle.gather(-1, env.correct.actions).sum(-1)
    torch.testing.assert_close(on_correct, torch.full((48,), 0.10, dtype=torch.float64))
    incorrect = env.oracle[~env.correct.mask]
    torch.testing.assert_close(incorrect, torch.full_like(incorrect, 0.9 / 188))


def test_conditionals_concentrate_on_zipf_priors_with_the_papers_exponents():
    """As the Dirichlet's concentration grows, its draws become the prior: ranks^-s with s from 1.0 to 2.4."""
    env = Environment(EnvironmentConfig(concentration=1e10), 3)
    ranked = env.oracle.gather(-1, env.correct.actions).sort(-1, descending=True).values / 0.10
    ranks = np.arange(1, 13)
    for cluster, exponent in enumerate(np.linspace(1.0, 2.4, 48)):
        expected = ranks**-exponent / (ranks**-exponent).sum()
        np.testing.assert_allclose(ranked[cluster], expected, atol=1e-4)


def test_dirichlet_has_concentration_fifty():
    """Var[p_i] = m_i (1 - m_i) / 51 for a Dirichlet of concentration 50, pooled over seeds and clusters."""
    config = EnvironmentConfig(zipf_exponents=(1.0, 1.0), train_inputs=1, test_inputs=1)
    ranks = np.arange(1, 13)
    prior = ranks**-1.0 / (ranks**-1.0).sum()
    draws = [Environment(config, seed) for seed in range(20)]
    conditionals = np.concatenate([(e.oracle.gather(-1, e.correct.actions) / 0.10).numpy() for e in draws])
    # Ranks are assigned at random, so only the pooled second moment is comparable: E[sum p^2].
    expected = (prior**2 + prior * (1 - prior) / 51).sum()
    observed = (conditionals**2).sum(-1)
    standard_error = observed.std() / np.sqrt(len(observed))
    assert abs(observed.mean() - expected) < 5 * standard_error
    assert standard_error < 0.02 * expected
