"""How far CoKL outweighs GRPO in one step of the paper: the ratio of the two gradients' norms, at coefficient 1.

The step is E.3's: 64 chat prompts and 8 of mathematics, G = 8. Lengths are the first step's: a chat response has GRPO's
929 tokens (F.1), a mathematics response some 7,100 (cached) or 5,300 (fresh), which follow from F.1's means.

Assumption: the scores of single tokens, grad log pi(token), are uncorrelated and equally large in both tasks. The
squared norm of a gradient is then the sum of the squared weights of its tokens.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from cokl import methods
from cokl.groups import RegularizationRows, RowIndex, SurrogateConfig
from cokl.grpo import group_advantages, grpo_loss

GROUP, CORRECT = 8, 4
CHAT_PROMPTS, CHAT_TOKENS = 64, 929
MATH_PROMPTS, CACHED_TOKENS, FRESH_TOKENS = 8, 7100, 5300
PAGE = Path("docs/questions.md").read_text(encoding="utf-8")


def verdicts(prompts: int) -> torch.Tensor:
    """(prompts, GROUP): half of each group is correct."""
    return (torch.arange(GROUP) < CORRECT).double().expand(prompts, GROUP)


def cokl_norm(length: str) -> float:
    rows = MATH_PROMPTS * GROUP
    tokens = torch.tensor([CACHED_TOKENS] * rows + [FRESH_TOKENS] * rows).double()
    regularization = RegularizationRows(
        RowIndex(*torch.arange(2 * rows).view(2, MATH_PROMPTS, GROUP)),
        -tokens,
        verdicts(2 * MATH_PROMPTS).flatten(),
        tokens=tokens if length == "token-mean" else None,
    )
    weights = methods.get("cokl").row_weights(regularization, 1.0, SurrogateConfig())
    return math.sqrt(float((weights.square() * tokens).sum()))


def grpo_norm() -> float:
    log_probs = torch.zeros(CHAT_PROMPTS, GROUP, CHAT_TOKENS, dtype=torch.float64, requires_grad=True)
    over_g = math.sqrt(GROUP / (GROUP - 1))  # of deviations that divide by G
    advantages = over_g * group_advantages(verdicts(CHAT_PROMPTS))
    grpo_loss(log_probs, log_probs.detach(), advantages, torch.ones_like(log_probs, dtype=torch.bool)).backward()
    assert log_probs.grad is not None
    return float(log_probs.grad.norm())


def ratio_by_hand(per_token: bool) -> float:
    """With nothing of the toolkit: every advantage is 1 or -1, every correct response weighs 1 / 4 of its prompt."""
    grpo_squared = 512 * 929 * (1 / (512 * 929)) ** 2
    cokl_squared = 0.0
    for tokens in (7100, 5300):
        weight = 1 / 8 / 4 / (tokens if per_token else 1)
        cokl_squared += 8 * 4 * tokens * weight**2
    return math.sqrt(cokl_squared / grpo_squared)


@pytest.mark.parametrize(("length", "stated"), [("token-sum", 13_600), ("token-mean", 2.2)])
def test_the_two_parts_gradient_norms_at_the_papers_lengths(length, stated):
    ratio = cokl_norm(length) / grpo_norm()
    assert ratio == pytest.approx(ratio_by_hand(length == "token-mean"), rel=1e-5)  # the advantages' epsilon is 1e-6
    assert ratio == pytest.approx(stated, rel=0.01)
    assert f"{stated:,} : 1" in PAGE


def test_a_division_by_all_rows_of_the_step_makes_it_64_times_smaller():
    rows = (CHAT_PROMPTS + 2 * MATH_PROMPTS) * GROUP
    grpo_share, cokl_share = CHAT_PROMPTS * GROUP / rows, MATH_PROMPTS / rows
    ratio = ratio_by_hand(per_token=False) * cokl_share / grpo_share
    assert ratio == pytest.approx(ratio_by_hand(per_token=False) / 64)
    assert f"{ratio:.0f} : 1" in PAGE
    assert f"{ratio_by_hand(per_token=True) / 64:.3f} : 1" in PAGE
