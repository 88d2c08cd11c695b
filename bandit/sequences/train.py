"""The policy space of the sequence lab: responses of many tokens, whose expectations recursions give.

Every step is on-policy. In exact mode both terms of the loss are their expectations over all responses; what a method
adds is there the population regularizer.

Axes: R runs of one seed, mode and method, B prompts, S contexts, V symbols, T tokens. Nothing couples the runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bandit.engine.networks import StackedMLP
from bandit.engine.sampled import Responses
from bandit.engine.two_tasks.config import Mode
from bandit.engine.two_tasks.tasks import Minibatch, TwoTasks
from bandit.engine.two_tasks.train import Objective, TwoTaskTrainer
from bandit.sequences import exact, sampled
from bandit.sequences.config import SequenceWorld
from bandit.sequences.recursions import SequencePolicy
from bandit.sequences.tasks import Family, Prompts, families, layer_sizes, network_inputs, rows, sequence_task
from cokl.methods import Method
from cokl.metrics import pass_at_k
from cokl.regularizers import get

_TEST_PROMPTS_PER_BLOCK = 32


class Exact(Objective):
    """Expectations over all responses; a rollout is the policy itself."""

    def roll_out(self, policy: SequencePolicy, minibatch: Minibatch) -> SequencePolicy:
        """The policy, for every step is on-policy."""
        return policy

    def rl(self, policy: SequencePolicy, rollout: SequencePolicy) -> Tensor:
        """(S, V, R, B): gradient of each prompt's expected -J_GRPO."""
        return exact.grpo_gradient(policy, self.config.group_size)

    def regularization(self, policy: SequencePolicy, rollout: SequencePolicy, minibatch: Minibatch) -> Tensor:
        """(S, V, R, B): gradient of what the method adds on each prompt of the buffer."""
        return exact.method_gradient(self.method, policy, minibatch.prompts.reference(), self.betas)


class Sampled(Objective):
    """Groups of G fresh rollouts, and G_ref cached responses of the base model."""

    def roll_out(self, policy: SequencePolicy, minibatch: Minibatch) -> Responses:
        """G responses to each prompt, (R, B, G, T); only those to prompts of the buffer know the base model."""
        reference = policy if minibatch.cached is None else minibatch.prompts.reference()
        return sampled.draw(policy, reference, minibatch.uniforms)

    def rl(self, policy: SequencePolicy, rollout: Responses) -> Tensor:
        """(S, V, R, B): gradient of each prompt's -J_GRPO."""
        return sampled.grpo_gradient(policy, rollout)

    def regularization(self, policy: SequencePolicy, rollout: Responses, minibatch: Minibatch) -> Tensor:
        """(S, V, R, B): gradient of what the method adds on each prompt of the buffer."""
        assert minibatch.cached is not None
        return sampled.method_gradient(self.method, policy, minibatch.cached, rollout, self.betas)


class SequenceTrainer(TwoTaskTrainer):
    """Trains networks whose logits (R, B * S, V) are policies over sequences: a row for every prompt and context."""

    layer_sizes = staticmethod(layer_sizes)
    families = staticmethod(families)
    task = staticmethod(sequence_task)

    def __init__(self, config: SequenceWorld) -> None:
        super().__init__(config)
        self.response_shape = (config.length,)

    def labelled(self, family: Family) -> tuple[Tensor, Tensor]:
        """Training prompts and next-token probabilities (N, S, V)."""
        return family.train.inputs, family.labels

    def rl_prompts_of(self, family: Family, parameters: Tensor) -> Prompts:
        """The training prompts; RL alone needs no reference."""
        return family.train

    def network_inputs(self, inputs: Tensor) -> Tensor:
        """Each prompt in every context."""
        return network_inputs(self.config, inputs)

    def objective(self, mode: Mode, method: Method, betas: Tensor) -> Objective:
        """Either mode's; token means divide every coefficient by the length."""
        kind = Exact if mode == "exact" else Sampled
        return kind(self.config, method, betas / self.config.length if self.config.token_reduction == "mean" else betas)

    def policies(self, logits: Tensor, minibatches: list[Minibatch]) -> list[SequencePolicy]:
        """One for each minibatch, of logits (R, B, S, V)."""
        sizes = [len(minibatch.prompts.inputs) for minibatch in minibatches]
        parts = logits.view(len(logits), sum(sizes), -1, self.config.symbols).split(sizes, dim=1)
        return [
            SequencePolicy(part, minibatch.prompts.automata) for part, minibatch in zip(parts, minibatches, strict=True)
        ]

    def joined(self, gradients: list[Tensor], logits: Tensor) -> Tensor:
        """(R, B * S, V) from gradients (S, V, R, B) of each minibatch's prompts."""
        together = torch.cat([gradient / gradient.shape[-1] for gradient in gradients], dim=-1)
        summed = together.permute(2, 3, 0, 1) * logits.shape[1]
        return summed.to(logits.dtype).contiguous().view_as(logits)

    def averages(
        self, mlp: StackedMLP, task: TwoTasks, prompts: Prompts, metrics: Callable[..., Any]
    ) -> dict[str, Any]:
        """Means over the prompts, in blocks."""
        base = StackedMLP(layer_sizes(self.config), task.parameters[None])
        totals: dict[str, Tensor] = {}
        for start in range(0, len(prompts.inputs), _TEST_PROMPTS_PER_BLOCK):
            block = prompts[start : start + _TEST_PROMPTS_PER_BLOCK]
            policy, reference = (
                SequencePolicy(rows(self.config, model, block.inputs), block.automata) for model in (mlp, base)
            )
            for name, values in metrics(policy, reference).items():
                totals[name] = totals.get(name, 0) + values.sum(-1)
        return {name: (total / len(prompts.inputs)).tolist() for name, total in totals.items()}

    def prior_metrics(self, policy: SequencePolicy, reference: SequencePolicy) -> dict[str, Tensor]:
        """Correctness, pass@k, drifts and entropies."""
        drift = exact.drifts(reference, policy)
        return {
            "prior_correct": policy.mass,
            "prior_pass_at_k": pass_at_k(policy, self.config.pass_draws),
            "conditional_kl": exact.regularizer_value(get("cokl"), policy, reference),
            "conditional_entropy": policy.conditional_entropy(),
            "entropy": policy.entropy(),
            "mass_drift": drift.mass,
            "correct_drift": drift.correct,
            "incorrect_drift": drift.incorrect,
        }

    def new_metrics(self, policy: SequencePolicy, reference: SequencePolicy) -> dict[str, Tensor]:
        """Correctness, pass@k, and new_kl, D_KL(base || policy)."""
        return {
            "new_correct": policy.mass,
            "new_pass_at_k": pass_at_k(policy, self.config.pass_draws),
            "new_kl": exact.regularizer_value(get("forward_kl"), policy, reference),
        }

    def buffer_metrics(self, policy: SequencePolicy, reference: SequencePolicy) -> dict[str, Tensor]:
        """The chance of a group without a correct response."""
        return {"zero_correct_rate": 1 - pass_at_k(policy, self.config.group_size)}
