"""Every value that the trainers add to VeRL's log, or correct in it, on rows so few that each is computed by hand."""

import math

import pytest
import torch

pytest.importorskip("verl")

from cokl.groups import RegularizationRows, RowIndex
from llm_bridge.trainer.advantages import Aggregation
from llm_bridge.trainer.metrics import gradient_share, row_metrics, without_added
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


PROMPTS, CACHED, TOKENS = 2, 8, 15
BETA = 0.01
RL_ROWS, RL_TOKENS = 32, 20


@pytest.mark.parametrize("right", [8, 4, 2, 1, 0])
def test_where_a_prompt_has_one_right_form_its_rows_cancel_in_the_share_as_in_the_gradient(right):
    """CoKL's weights of a prompt are -1 over the cached rows and 1 over the right fresh ones, and all are one sequence.

    By hand: RL rows with advantages 1 and -1 have 32 * 20 / (32 * 20)^2 = 1 / 640. Without a right fresh row, two
    prompts weigh -0.005 on each of 15 tokens, which is 0.00075. Row by row the share would be 0.11, 0.15, 0.23, 0.35
    and 0.06.
    """
    weights, sequences = [0.0] * RL_ROWS, [f"rl {row}" for row in range(RL_ROWS)]
    for prompt in range(PROMPTS):
        weights += [-BETA / PROMPTS / CACHED] * CACHED + [BETA / PROMPTS / max(right, 1)] * right
        sequences += [f"prompt {prompt}"] * (CACHED + right)
    added = torch.arange(len(weights)) >= RL_ROWS
    masks = [torch.ones(RL_TOKENS)] * RL_ROWS + [torch.ones(TOKENS)] * int(added.sum())
    own = [(-1) ** row * torch.ones(RL_TOKENS) for row in range(RL_ROWS)] + [torch.zeros(TOKENS)] * int(added.sum())
    aggregation = Aggregation("seq-mean-token-mean", rows=len(weights), rl_rows=RL_ROWS)
    share = gradient_share(own, masks, torch.tensor(weights, dtype=torch.float64), added, sequences, aggregation)
    assert share == pytest.approx(0 if right else 0.00075 / (0.00075 + 1 / 640), abs=1e-12)


def test_equal_rl_rows_add_up_and_tokens_that_the_policy_did_not_write_count_nothing():
    """Two equal rows of advantage 1, of whose two tokens the policy wrote one, in a token mean over two tokens: (1/2 +
    1/2)^2. A cached row of weight -3 on its one token: 9.
    """
    one = torch.tensor([1.0, 0.0])
    added = torch.tensor([False, False, True])
    masks, own = [one, one, torch.ones(1)], [torch.ones(2), torch.ones(2), torch.zeros(1)]
    aggregation = Aggregation("token-mean", rows=3, rl_rows=2)
    share = gradient_share(own, masks, torch.tensor([0.0, 0.0, -3.0]), added, ["a", "a", "b"], aggregation)
    assert share == pytest.approx(9 / (9 + 1))


def test_without_any_gradient_there_is_no_share():
    nothing = [torch.zeros(1)]
    aggregation = Aggregation("token-mean", rows=1, rl_rows=1)
    share = gradient_share(nothing, [torch.ones(1)], torch.zeros(1), torch.tensor([False]), ["a"], aggregation)
    assert math.isnan(share)


def test_verls_averages_are_scaled_to_the_tokens_of_the_rl_rows():
    """Of 10 tokens 4 are the RL rows'; the regularizer counted 0.3 in VeRL's loss, where its own loss is 0.7."""
    metrics = {
        "actor/pg_loss": 1.0,
        "actor/loss": 1.5,
        "actor/pg_clipfrac": 0.2,
        "actor/pg_clipfrac_lower": 0.1,
        "actor/ppo_kl": 0.04,
        "actor/kl_loss": 0.06,
        "actor/entropy": 2.0,
        "actor/grad_norm": 5.0,
    }
    tokens, added = torch.tensor([3.0, 1.0, 2.0, 4.0]), torch.tensor([False, False, True, True])
    without_added(metrics, counted=0.3, loss=0.7, tokens=tokens, added=added)
    assert metrics == pytest.approx(
        {
            "actor/pg_loss": 1.0 - 0.3,
            "actor/loss": 1.5 - 0.3 + 0.7,
            "actor/pg_clipfrac": 0.2 * 10 / 4,
            "actor/pg_clipfrac_lower": 0.1 * 10 / 4,
            "actor/ppo_kl": 0.04 * 10 / 4,
            "actor/kl_loss": 0.06,
            "actor/entropy": 2.0,
            "actor/grad_norm": 5.0,
        }
    )


def test_what_verl_did_not_log_is_not_made_up():
    metrics = {"actor/pg_loss": 1.0}
    without_added(metrics, 0.25, 0.5, torch.ones(2), torch.tensor([False, True]))
    assert metrics == {"actor/pg_loss": 0.75}
