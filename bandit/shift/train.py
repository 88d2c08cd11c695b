"""The task shift's runs: two task families of a seed, and the policy space of one action a response.

In sampled mode the gradients are `bandit.engine.sampled`'s; in exact mode they are GRPO's expectation over its groups
and the exact regularizer. On-policy, the sampled update's expectation is thus the exact one plus what finite groups add
to the regularizer: for CoKL the recovery term of Appendix B.

Assumption beyond the paper: the two tasks' clusters are unrelated, but for one thing: the new family's cluster i has no
correct action in common with the prior family's cluster i.

Assumption beyond the paper: exact mode leaves the same prompts out of the buffer as sampled mode does, those whose
G_ref sampled reference responses are all incorrect, although it then takes the reference's exact probabilities.

Assumption beyond the paper: the base model is trained in expectations in both modes, so that they start from one model.
It learns the prior task from verdicts without errors; the new task's verifier never errs.

Axes: R runs of one seed, mode and method, B inputs, A actions, G responses, N inputs, D input dimensions, P parameters.
Nothing couples the runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandit.engine.environment import Environment, random_generator
from bandit.engine.exact import averages
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import Split, layer_sizes
from bandit.engine.sampled import (
    Responses,
    draw_responses,
    expected_grpo_logit_gradient,
    grpo_logit_gradient,
    method_logit_gradient,
)
from bandit.engine.two_tasks.config import Mode
from bandit.engine.two_tasks.plan import ShiftRun, kl_prompts
from bandit.engine.two_tasks.run import train_two_tasks
from bandit.engine.two_tasks.tasks import Cache, Minibatch, ShiftStream, TwoTasks
from bandit.engine.two_tasks.train import TwoTaskObjective, TwoTaskTrainer
from bandit.shift.config import PAPER_BETA, ShiftConfig
from cokl import methods
from cokl.decomposition import decompose_kl
from cokl.groups import SurrogateConfig
from cokl.methods import Method
from cokl.metrics import correctness, expected_zero_correct_rate, pass_at_k
from cokl.policy import CorrectSet, Policy
from cokl.regularizers.cokl import CoKL
from cokl.support.errors import InputError
from cokl.support.options import require
from cokl.support.results import HERE, Execution

COLUMNS = (
    "seed",
    "mode",
    "method",
    "beta",
    "step",
    "prior_correct",
    "new_correct",
    "prior_pass_at_k",
    "conditional_kl",
    "mass_drift",
    "correct_drift",
    "incorrect_drift",
    "zero_correct_rate",
    "role",
    "kl_prompts",
)


def train(config: ShiftConfig, execution: Execution = HERE) -> dict[str, pd.DataFrame]:
    """Train everything that `config` asks for; the table "shift" has a row per evaluated step, with COLUMNS.

    Rows of method "base" hold the base model, at step 0. role: "report", or "selection" for the seeds on which
    coefficients are chosen. Rows of the KL-batch sweep differ from the others in kl_prompts, the prompts of the buffer
    per update. A run that diverges ends in a row without metrics, at the step where it happened; see
    `bandit.engine.divergence`. Raises InputError for unknown methods, for an experiment whose results could not be
    scored, and for a folder that cannot be used.
    """
    names = ",".join(config.methods)
    require("none" in config.methods, "methods", "none among them, GRPO w/o KL, which scores relate to", names)
    require(len(config.methods) > 1, "methods", "at least one regularizer besides none", names)
    require(config.selection_seeds > 0, "selection_seeds", "at least 1, to choose coefficients on", 0)
    return {"shift": train_two_tasks(ShiftTrainer(config), planned_runs(config), "shift", COLUMNS, execution)}


def planned_runs(config: ShiftConfig) -> list[ShiftRun]:
    """All runs of the lab, by seed, mode, method and coefficient. Raises InputError.

    The KL-batch sweep concerns those of `config.kl_sweep_methods` that are trained at all, on the reported seeds.
    """
    chosen = [methods.get(name) for name in config.methods]
    for name in config.kl_sweep_methods:
        if methods.get(name).regularizer is None:
            raise InputError(f"kl_sweep_methods: expected methods with a regularizer, got {name}")
    runs = []
    for (seed, role), mode, method in itertools.product(config.roles.items(), config.modes, chosen):
        if mode == "sampled":
            method.streams()  # raises for a regularizer that cannot be sampled, before anything is trained
        if method.regularizer is None:
            settings = [(0.0, 0)]
        else:
            settings = [(beta, kl_prompts(config.kl_groups, method)) for beta in sorted(config.betas)]
            if role == "report" and method.name in config.kl_sweep_methods:
                settings += [(PAPER_BETA, size) for size in config.kl_sweep]
        runs += [ShiftRun(seed, mode, method, *setting) for setting in dict.fromkeys(settings)]
    return runs


_ADVICE = "--prior-steps or --correct-mass, or enlarge --buffer-size or --reference-group-size"


def families(config: ShiftConfig, seed: int) -> tuple[Environment, Environment]:
    """The prior and the new task of a seed; partners have no correct action in common."""
    prior, new = (Environment(config.environment, 2 * seed + task) for task in (0, 1))
    rng = random_generator(seed, ShiftStream.OVERLAP)
    actions = np.arange(config.environment.actions)
    mask = torch.zeros_like(new.oracle, dtype=torch.bool)
    oracle = torch.empty_like(new.oracle)
    for cluster, (partners, own) in enumerate(zip(prior.correct.actions, new.correct.actions, strict=True)):
        others = rng.choice(np.setdiff1d(actions, partners.numpy()), len(own), replace=False)
        chosen = torch.from_numpy(rng.permutation(others))
        mask[cluster, chosen] = True
        oracle[cluster] = (1 - config.environment.correct_mass) / (len(actions) - len(own))
        oracle[cluster, chosen] = new.oracle[cluster, own]
    new.correct, new.oracle = CorrectSet.from_mask(mask), oracle
    return prior, new


def shift_task(config: ShiftConfig, seed: int, parameters: Tensor) -> TwoTasks:
    """Rebuild a seed's task from the base model's parameters (P,)."""
    prior, new = families(config, seed)
    splits = FrozenPolicy(config, parameters)
    rng = random_generator(seed, ShiftStream.BUFFER)
    chosen = torch.from_numpy(rng.choice(config.environment.train_inputs, config.buffer_size, replace=False))
    prompts = splits.on(prior.train_inputs[chosen], prior.correct[prior.train_clusters[chosen]])
    rng = random_generator(seed, ShiftStream.REFERENCE_RESPONSES)
    reference = prompts.reference(slice(None))
    size = config.buffer_size, config.reference_group_size
    drawn = draw_responses(reference, reference, torch.from_numpy(rng.random(size)))
    verdicts = torch.from_numpy(random_generator(seed, ShiftStream.REFERENCE_VERDICTS).random(size))
    return TwoTasks(
        seed,
        parameters,
        splits.on(new.train_inputs, new.correct[new.train_clusters]),
        splits.on(prior.test_inputs, prior.correct[prior.test_clusters]),
        splits.on(new.test_inputs, new.correct[new.test_clusters]),
        Cache(prompts, LenientVerifier(config.success_of_wrong).judge(drawn, verdicts), _ADVICE),
    )


class FrozenPolicy:
    """The network with parameters (P,), asked for its log-probabilities."""

    def __init__(self, config: ShiftConfig, parameters: Tensor) -> None:
        self.mlp = StackedMLP(layer_sizes(config), parameters[None])
        self.dtype = parameters.dtype

    def on(self, inputs: Tensor, correct: CorrectSet) -> Split:
        """Inputs (N, D) with this policy as their reference, and their correct sets."""
        inputs = inputs.to(self.dtype)
        return Split(inputs, self.mlp.forward(inputs[None])[0].log_softmax(-1), correct)


@dataclass(frozen=True)
class LenientVerifier:
    """A right response counts as correct, and a wrong one with the chance `of_wrong`, in [0, 1).

    What is judged is a pair of a response and a verdict, whose probability is pi(y) times the chance of the verdict.
    Correctness mass, pi+ and the drifts are those of the pairs: Z is the expected success, and pi+ is proportional to
    pi times the chance of success. The pairs are a softmax with a constant added to each logit, so that every closed
    form holds.
    """

    of_wrong: float

    def judge(self, responses: Responses, numbers: Tensor) -> Responses:
        """The responses with drawn verdicts. numbers: (B, G), uniform in [0, 1), shared by all runs."""
        verdicts = (responses.rewards > 0) | (numbers < self.of_wrong)
        return replace(responses, rewards=verdicts.to(responses.rewards.dtype))

    def outcomes(self, policy: Policy) -> Policy:
        """The policy (..., A) over pairs (..., 2 A), the A with a positive verdict first; itself if nothing errs."""
        if self.of_wrong == 0:
            return policy
        log_probs = policy.log_probs
        success = torch.full_like(log_probs, self.of_wrong).masked_fill(policy.correct.mask, 1.0)
        pairs = torch.cat([log_probs + success.log(), log_probs + (1 - success).log()], -1)
        positive = torch.arange(pairs.shape[-1], device=pairs.device) < log_probs.shape[-1]
        return Policy.from_log_probs(pairs, CorrectSet.from_mask(positive))


class Exact(TwoTaskObjective):
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
        outcomes = LenientVerifier(self.config.success_of_wrong).outcomes
        pairs = self.method.logit_gradient(outcomes(policy), outcomes(reference), betas)
        return pairs.unflatten(-1, (-1, policy.logits.shape[-1])).sum(-2)


class SampledActions(TwoTaskObjective):
    """Groups of G fresh rollouts, and G_ref cached responses of the base model."""

    def roll_out(self, policy: Policy, minibatch: Minibatch) -> Responses:
        """G responses to each prompt, (R, B, G)."""
        drawn = draw_responses(policy, minibatch.prompts.reference(slice(None)), minibatch.uniforms)
        if minibatch.verdicts is None:
            return drawn
        return LenientVerifier(self.config.success_of_wrong).judge(drawn, minibatch.verdicts)

    def rl(self, policy: Policy, rollout: Responses) -> Tensor:
        """(R, B, A): gradient of each new-task prompt's -J_GRPO."""
        return grpo_logit_gradient(policy, rollout)

    def regularization(self, policy: Policy, rollout: Responses, minibatch: Minibatch) -> Tensor:
        """(R, B, A): gradient of what the method adds on each prompt of the buffer, coefficients included."""
        assert minibatch.cached is not None
        return method_logit_gradient(self.method, policy, minibatch.cached, rollout, self.betas, SurrogateConfig())


class ShiftTrainer(TwoTaskTrainer):
    """Trains networks whose logits (R, B, A) are policies over actions."""

    layer_sizes = staticmethod(layer_sizes)
    families = staticmethod(families)
    task = staticmethod(shift_task)

    def __init__(self, config: ShiftConfig) -> None:
        super().__init__(config)
        self.outcomes = LenientVerifier(config.success_of_wrong).outcomes

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

    def objective(self, mode: Mode, method: Method, betas: Tensor) -> TwoTaskObjective:
        """Either mode's, in the arithmetic of training."""
        kind = Exact if mode == "exact" else SampledActions
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
        """Correctness, pass@k and drifts.

        Where the verifier errs, of responses with their verdicts: prior_correct is the expected success.
        """
        policy, reference = self.outcomes(policy), self.outcomes(reference)
        correct = correctness(policy)  # before log-probabilities exist, as on the new task: a softmax, not their exp
        drift = decompose_kl(reference, policy)
        return {
            "prior_correct": correct,
            "prior_pass_at_k": pass_at_k(policy, self.config.pass_draws),
            "conditional_kl": CoKL().value(policy, reference),
            "mass_drift": drift.mass,
            "correct_drift": drift.correct,
            "incorrect_drift": drift.incorrect,
        }

    def new_metrics(self, policy: Policy, reference: Policy) -> dict[str, Tensor]:
        """Correctness."""
        return {"new_correct": correctness(policy)}

    def evaluate(self, task: TwoTasks, buffer: Cache, mlp: StackedMLP) -> dict[str, list[float]]:
        """With zero_correct_rate, the probability that G rollouts to a prompt of the buffer all fail."""

        def zero_correct(policy: Policy, reference: Policy) -> dict[str, Tensor]:
            return {"zero_correct_rate": expected_zero_correct_rate(self.outcomes(policy), self.config.group_size)}

        return super().evaluate(task, buffer, mlp) | self.averages(mlp, task, buffer.prompts, zero_correct)
