"""Every value that the trainers add to VeRL's log, or correct in it, on rows so few that each is computed by hand."""

import pytest
import torch

pytest.importorskip("verl")

from cokl.groups import RegularizationRows, RowIndex
from llm_bridge.trainer.metrics import row_metrics, without_added
from llm_bridge.trainer.rows import StepRows

FRESH = (1, 0, 0, 0, 1, 1)
"""Verdicts on the fresh responses to three prompts, two to each."""


def regularization_rows() -> RegularizationRows:
    """Rows 0 to 5 are cached, 6 to 11 fresh, and row 12 is the RL batch's alone."""
    index = RowIndex(reference=torch.arange(6).view(3, 2), rollout=torch.arange(6, 12).view(3, 2))
    rewards = torch.tensor([1, 0, 1, 1, 0, 1, *FRESH, 1]).double()
    return RegularizationRows(index, -torch.ones(13).double(), rewards)


def test_what_is_logged_of_fresh_responses():
    """Half of six are correct; one prompt of three has none, where 1 less the mean would be a half."""
    assert row_metrics(StepRows(), regularization_rows()) == pytest.approx(
        {"cokl/kl_rows": 12, "cokl/reward_mean": 3 / 6, "cokl/zero_correct": 1 / 3}
    )


def test_what_is_logged_of_training_prompts():
    """Two of three have nothing in the buffer."""
    logged = row_metrics(StepRows(training={"a": True, "b": False, "c": False}), regularization_rows())
    assert logged["cokl/not_regularized"] == pytest.approx(2 / 3)


def test_a_method_of_cached_responses_logs_nothing_of_fresh_ones():
    rows = regularization_rows()
    cached = RegularizationRows(RowIndex(rows.index.reference, torch.zeros(3, 0).long()), rows.log_probs, rows.rewards)
    assert row_metrics(StepRows(), cached) == {"cokl/kl_rows": 6}


def test_verls_averages_are_scaled_to_the_tokens_of_the_rl_rows():
    """Of 10 tokens 4 are the RL rows'; the regularizer counted 0.3 in VeRL's loss, where its own loss is 0.7."""
    metrics = {
        "actor/pg_loss": 1.0,
        "actor/loss": 1.5,
        "actor/pg_clipfrac": 0.2,
        "actor/pg_clipfrac_lower": 0.1,
        "actor/ppo_kl": 0.04,
        "actor/kl_loss": 0.06,
        "actor/entropy_loss": 3.0,
        "actor/entropy": 2.0,
        "actor/grad_norm": 5.0,
    }
    tokens, added = torch.tensor([3.0, 1.0, 2.0, 4.0]), torch.tensor([False, False, True, True])
    without_added(metrics, counted=0.3, loss=0.7, tokens=tokens, added=added, rl_factor=1.5)
    assert metrics == pytest.approx(
        {
            "actor/pg_loss": 1.0 - 0.3,
            "actor/loss": 1.5 - 0.3 + 0.7,
            "actor/pg_clipfrac": 0.2 * 10 / 4,
            "actor/pg_clipfrac_lower": 0.1 * 10 / 4,
            "actor/ppo_kl": 0.04 * 10 / 4,
            "actor/kl_loss": 0.06 * 1.5,
            "actor/entropy": 2.0,
            "actor/grad_norm": 5.0,
        }
    )


def test_what_verl_did_not_log_is_not_made_up():
    metrics = {"actor/pg_loss": 1.0}
    without_added(metrics, 0.25, 0.5, torch.ones(2), torch.tensor([False, True]), rl_factor=2.0)
    assert metrics == {"actor/pg_loss": 0.75}
