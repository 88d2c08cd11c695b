"""The policy space of the task-shift lab: one action a response.

In sampled mode the gradients are `bandit.engine.sampled`'s; in exact mode they are GRPO's expectation over its groups
and the exact regularizer. On-policy, the sampled update's expectation is thus the exact one plus what finite groups add
to the regularizer: for CoKL the recovery term of Appendix B.

Axes: R runs of one seed, mode and method, B inputs, A actions. Nothing couples the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bandit.engine.environment import Environment, random_generator
from bandit.engine.exact import averages
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import Split, layer_sizes
from bandit.engine.sampled import (
    Responses,
    draw,
    expected_grpo_logit_gradient,
    grpo_logit_gradient,
    method_logit_gradient,
)
from bandit.engine.two_tasks.config import Mode
from bandit.engine.two_tasks.tasks import Cache, Minibatch, ShiftStream, TwoTasks
from bandit.engine.two_tasks.train import Objective, TwoTaskTrainer
from bandit.shift.config import ShiftConfig
from bandit.shift.tasks import FrozenPolicy, families, shift_task
from bandit.shift.verifier import Verifier
from cokl.decomposition import decompose_kl
from cokl.groups import SurrogateConfig
from cokl.methods import Method
from cokl.metrics import correctness, expected_zero_correct_rate, pass_at_k
from cokl.policy import Policy
from cokl.regularizers.cokl import CoKL


class Exact(Objective):
    """Expectations over the action space; a rollout is the policy that would be sampled."""

    def roll_out(self, policy: Policy, minibatch: Minibatch) -> Policy:
        """The policy as it is now."""
        return Policy.from_log_probs(policy.log_probs, policy.correct)

    def rl(self, policy: Policy, rollout: Policy) -> Tensor:
        """(R, B, A): gradient of each new-task prompt's expected -J_GRPO."""
        return expected_grpo_logit_gradient(policy, rollout, self.config.group_size)

    def regularization(self, policy: Policy, rollout: Policy, minibatch: Minibatch) -> Tensor:
        """(R, B, A): gradient of what the method adds on each prompt of the buffer, coefficients included."""
        reference, betas = minibatch.prompts.reference(slice(None)), self.betas[:, None, None]
        if not self.method.filtered:  # it never looks at a verdict
            return self.method.logit_gradient(policy, reference, betas)
        outcomes = Verifier(self.config.success_of_wrong, self.config.success_of_right).outcomes
        pairs = self.method.logit_gradient(outcomes(policy), outcomes(reference), betas)
        return pairs.unflatten(-1, (-1, policy.logits.shape[-1])).sum(-2)


class Sampled(Objective):
    """Groups of G fresh rollouts, and G_ref cached responses of the base model."""

    def roll_out(self, policy: Policy, minibatch: Minibatch) -> Responses:
        """G responses to each prompt, (R, B, G)."""
        drawn = draw(policy, minibatch.prompts.reference(slice(None)), minibatch.uniforms)
        if minibatch.verdicts is None:
            return drawn
        return Verifier(self.config.success_of_wrong, self.config.success_of_right).judge(drawn, minibatch.verdicts)

    def rl(self, policy: Policy, rollout: Responses) -> Tensor:
        """(R, B, A): gradient of each new-task prompt's -J_GRPO."""
        return grpo_logit_gradient(policy, rollout)

    def regularization(self, policy: Policy, rollout: Responses, minibatch: Minibatch) -> Tensor:
        """(R, B, A): gradient of what the method adds on each prompt of the buffer, coefficients included."""
        assert minibatch.cached is not None
        surrogate = SurrogateConfig(self.config.epsilon_is)
        return method_logit_gradient(self.method, policy, minibatch.cached, rollout, self.betas, surrogate)


class ShiftTrainer(TwoTaskTrainer):
    """Trains networks whose logits (R, B, A) are policies over actions."""

    layer_sizes = staticmethod(layer_sizes)
    families = staticmethod(families)
    task = staticmethod(shift_task)

    def __init__(self, config: ShiftConfig) -> None:
        super().__init__(config)
        self.outcomes = Verifier(config.success_of_wrong, config.success_of_right).outcomes

    def buffer_prompts(self, buffer: Cache, seed: int, size: int) -> Iterator[Minibatch]:
        """With uniform numbers for the verdicts on their rollouts, (B, G)."""
        rng = random_generator(seed, ShiftStream.KL_VERDICTS)
        for minibatch in super().buffer_prompts(buffer, seed, size):
            yield replace(minibatch, verdicts=torch.from_numpy(rng.random((size, self.config.group_size))))

    def labelled(self, family: Environment) -> tuple[Tensor, Tensor]:
        """Training inputs and the oracle's probabilities."""
        return family.train_inputs, family.oracle[family.train_clusters]

    def rl_prompts_of(self, family: Environment, parameters: Tensor) -> Split:
        """The training inputs, with the policy of `parameters` as their reference."""
        correct = family.correct[family.train_clusters]
        return FrozenPolicy(self.config, parameters).on(family.train_inputs, correct)

    def network_inputs(self, inputs: Tensor) -> Tensor:
        """The inputs themselves."""
        return inputs[None]

    def objective(self, mode: Mode, method: Method, betas: Tensor) -> Objective:
        """Either mode's, in the arithmetic of training."""
        kind = Exact if mode == "exact" else Sampled
        return kind(self.config, method, betas.to(getattr(torch, self.config.dtype)))

    def policies(self, logits: Tensor, minibatches: list[Minibatch]) -> list[Policy]:
        """One (R, B, A) for each minibatch."""
        parts = logits.split([len(minibatch.prompts.inputs) for minibatch in minibatches], dim=1)
        return [
            Policy(part, minibatch.prompts.correct[None]) for part, minibatch in zip(parts, minibatches, strict=True)
        ]

    def joined(self, gradients: list[Tensor], logits: Tensor) -> Tensor:
        """(R, B, A) from gradients (R, B, A) of each minibatch's inputs."""
        return torch.cat([gradient * (logits.shape[1] / gradient.shape[1]) for gradient in gradients], dim=1)

    def averages(self, mlp: StackedMLP, task: TwoTasks, prompts: Split, metrics: Callable[..., Any]) -> dict[str, Any]:
        """Means over the split, whose reference is the base model."""
        return averages(mlp, prompts, metrics)

    def prior_metrics(self, policy: Policy, reference: Policy) -> dict[str, Tensor]:
        """Correctness and pass@k at the evaluation's temperature, and drifts of the policy itself.

        Where the verifier errs, of responses with their verdicts: prior_correct is the expected success.
        """
        scored = self.outcomes(self._scored(policy))
        policy, reference = self.outcomes(policy), self.outcomes(reference)
        drift = decompose_kl(reference, policy)
        return {
            "prior_correct": correctness(scored),
            "prior_pass_at_k": pass_at_k(scored, self.config.pass_draws),
            "conditional_kl": CoKL().value(policy, reference),
            "mass_drift": drift.mass,
            "correct_drift": drift.correct,
            "incorrect_drift": drift.incorrect,
        }

    def new_metrics(self, policy: Policy, reference: Policy) -> dict[str, Tensor]:
        """Correctness at the evaluation's temperature."""
        return {"new_correct": correctness(self._scored(policy))}

    def buffer_metrics(self, policy: Policy, reference: Policy) -> dict[str, Tensor]:
        """The chance of a group without a correct response."""
        return {"zero_correct_rate": expected_zero_correct_rate(self.outcomes(policy), self.config.group_size)}

    def _scored(self, policy: Policy) -> Policy:
        """What responses are drawn from at the evaluation's temperature."""
        return Policy(policy.logits / self.config.evaluation_temperature, policy.correct)
