"""A verifier of prior prompts that errs: a wrong chain that ends in the right answer, a right one that is not accepted.

What is judged is then a pair of a response and a verdict, whose probability is pi(y) times the chance of the verdict.
Correctness mass, pi+ and the drifts are those of the pairs: Z is the expected success, and pi+ is proportional to pi
times the chance of success. The pairs are a softmax with a constant added to each logit, so every closed form holds.

Assumption beyond the paper: the base model learns the prior task from verdicts without errors, so that it is the same
at every rate of errors; the new task's verifier never errs.

Axes: R runs, B inputs, A actions, G responses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bandit.engine.sampled import Responses
from cokl.policy import CorrectSet, Policy


@dataclass(frozen=True)
class Verifier:
    """Chances that a wrong and that a right response count as correct, in [0, 1]."""

    of_wrong: float
    of_right: float

    def judge(self, responses: Responses, numbers: Tensor) -> Responses:
        """The responses with drawn verdicts. numbers: (B, G), uniform in [0, 1), shared by all runs."""
        right = responses.rewards > 0
        verdicts = torch.where(right, numbers < self.of_right, numbers < self.of_wrong)
        return replace(responses, rewards=verdicts.to(responses.rewards.dtype))

    def outcomes(self, policy: Policy) -> Policy:
        """The policy (..., A) over pairs (..., 2 A), the A with a positive verdict first; itself if nothing errs."""
        if (self.of_wrong, self.of_right) == (0, 1):
            return policy
        log_probs = policy.log_probs
        success = torch.full_like(log_probs, self.of_wrong).masked_fill(policy.correct.mask, self.of_right)
        pairs = torch.cat([log_probs + success.log(), log_probs + (1 - success).log()], -1)
        positive = torch.arange(pairs.shape[-1], device=pairs.device) < log_probs.shape[-1]
        return Policy.from_log_probs(pairs, CorrectSet.from_mask(positive))
