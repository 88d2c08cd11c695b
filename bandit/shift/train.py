"""The three phases of the task-shift lab: pretraining on both tasks, RL on the prior one, RL on the new one.

The loss of the last phase is Eq. 18: GRPO on new-task prompts, plus what the method adds on prompts of the buffer. In
sampled mode both terms are `bandit.engine.sampled`'s; in exact mode they are GRPO's expectation over its groups and the
exact regularizer. On-policy, the sampled update's expectation is thus the exact one plus what finite groups add to the
regularizer: for CoKL the recovery term of Appendix B.

Axes: R runs of one seed, mode and method, B inputs, A actions. Nothing couples the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bandit.engine.divergence import cut_off, spare_samplers
from bandit.engine.exact import averages
from bandit.engine.networks import StackedMLP, Trainer, initial_parameters
from bandit.engine.reference import Split, cross_entropy_gradient
from bandit.engine.sampled import (
    Responses,
    draw,
    expected_grpo_logit_gradient,
    grpo_logit_gradient,
    method_logit_gradient,
)
from bandit.shift.config import ShiftConfig
from bandit.shift.tasks import (
    Cache,
    FrozenPolicy,
    ShiftStream,
    ShiftTask,
    families,
    layer_sizes,
    random_generator,
)
from bandit.two_tasks.config import Mode
from bandit.two_tasks.plan import ShiftRun
from cokl import methods
from cokl.decomposition import decompose_kl
from cokl.groups import SurrogateConfig
from cokl.grpo import GRPOConfig
from cokl.methods import Method
from cokl.metrics import conditional_kl, correctness, expected_zero_correct_rate, pass_at_k
from cokl.policy import Policy

_GRPO = GRPOConfig()


@dataclass(frozen=True)
class Prompts:
    """A minibatch of one task: inputs (B, D), the base model on them (1, B, A), uniform numbers (B, G) for rollouts.

    cached: the base model's responses, (1, B, G_ref), to prompts of the buffer.
    """

    inputs: Tensor
    reference: Policy
    uniforms: Tensor
    cached: Responses | None = None


class Exact:
    """Expectations over the action space; a rollout is the policy that would be sampled."""

    def __init__(self, config: ShiftConfig, method: Method, betas: Tensor) -> None:
        self.group_size = config.group_size
        self.method = method
        self.betas = betas[:, None, None]

    def roll_out(self, policy: Policy, prompts: Prompts) -> Policy:
        """The policy as it is now."""
        return Policy.from_log_probs(policy.log_probs, policy.correct)

    def rl(self, policy: Policy, rollout: Policy) -> Tensor:
        """(R, B, A): gradient of each new-task prompt's expected -J_GRPO."""
        return expected_grpo_logit_gradient(policy, rollout, self.group_size, _GRPO)

    def regularization(self, policy: Policy, rollout: Policy, prompts: Prompts) -> Tensor:
        """(R, B, A): gradient of what the method adds on each prompt of the buffer, coefficients included."""
        return self.method.logit_gradient(policy, prompts.reference, self.betas)


class Sampled:
    """Groups of G fresh rollouts, and G_ref cached responses of the base model."""

    def __init__(self, config: ShiftConfig, method: Method, betas: Tensor) -> None:
        self.surrogate = SurrogateConfig(config.epsilon_is)
        self.method = method
        self.betas = betas

    def roll_out(self, policy: Policy, prompts: Prompts) -> Responses:
        """G responses to each prompt, (R, B, G)."""
        return draw(policy, prompts.reference, prompts.uniforms)

    def rl(self, policy: Policy, rollout: Responses) -> Tensor:
        """(R, B, A): gradient of each new-task prompt's -J_GRPO."""
        return grpo_logit_gradient(policy, rollout, _GRPO)

    def regularization(self, policy: Policy, rollout: Responses, prompts: Prompts) -> Tensor:
        """(R, B, A): gradient of what the method adds on each prompt of the buffer, coefficients included."""
        assert prompts.cached is not None
        return method_logit_gradient(self.method, policy, prompts.cached, rollout, self.betas, self.surrogate)


OBJECTIVES: dict[Mode, type[Exact] | type[Sampled]] = {"exact": Exact, "sampled": Sampled}


class JointLoss:
    """Eq. 18 on one minibatch of either task, whose rollouts are made by the first policy that it sees.

    kl: None for unregularized RL. The loss is the mean over the new-task prompts plus the mean over the buffer's.
    """

    def __init__(self, objective: Exact | Sampled, new: Prompts, kl: Prompts | None) -> None:
        self.objective: Any = objective  # whose rollouts are its own affair
        self.minibatches = [new] if kl is None else [new, kl]
        self.rollouts: list[Any] = []

    def inputs(self) -> Tensor:
        """(1, B, D): the prompts of both minibatches."""
        return torch.cat([prompts.inputs for prompts in self.minibatches])[None]

    def logit_gradient(self, logits: Tensor) -> Tensor:
        """(R, B, A): gradients whose mean over all B prompts is the loss's, as `Trainer.step` takes them."""
        sizes = [len(prompts.inputs) for prompts in self.minibatches]
        policies = [
            Policy(part, prompts.reference.correct)
            for part, prompts in zip(logits.split(sizes, dim=1), self.minibatches, strict=True)
        ]
        if not self.rollouts:
            self.rollouts = [self.objective.roll_out(*pair) for pair in zip(policies, self.minibatches, strict=True)]
        gradients = [self.objective.rl(policies[0], self.rollouts[0])]
        for policy, rollout, prompts in zip(policies[1:], self.rollouts[1:], self.minibatches[1:], strict=True):
            gradients.append(self.objective.regularization(policy, rollout, prompts))
        weighted = [gradient * (sum(sizes) / size) for gradient, size in zip(gradients, sizes, strict=True)]
        return torch.cat(weighted, dim=1)


def base_parameters(config: ShiftConfig, seed: int) -> Tensor:
    """(P,): the base model, pretrained on both tasks and then trained by RL on the prior one."""
    prior, new = families(config, seed)
    rng = random_generator(seed, ShiftStream.INITIALISATION)
    start = initial_parameters(layer_sizes(config), config.init_scale, rng)
    mlp = StackedMLP(layer_sizes(config), start.to(getattr(torch, config.dtype))[None])
    inputs = torch.cat([prior.train_inputs, new.train_inputs]).to(mlp.flat)
    labels = torch.cat([task.oracle[task.train_clusters] for task in (prior, new)]).to(mlp.flat)
    trainer = Trainer(mlp, config, config.learning_rate)
    rng = random_generator(seed, ShiftStream.PRETRAINING_BATCHES)
    for _ in range(config.pretrain_steps):
        batch = torch.from_numpy(rng.integers(len(inputs), size=config.pretrain_batch_size))
        trainer.step(inputs[batch][None], partial(cross_entropy_gradient, labels=labels[batch]))

    split = FrozenPolicy(config, mlp.parameters()[0]).on(prior.train_inputs, prior.correct[prior.train_clusters])
    trainer = Trainer(mlp, config, config.learning_rate)
    exact = Exact(config, methods.get("none"), torch.zeros(1).to(mlp.flat))
    batches = rl_prompts(config, split, seed, ShiftStream.PRIOR_BATCHES)
    for step in range(config.prior_steps):
        if step % config.optimizer_steps == 0:
            loss = JointLoss(exact, next(batches), None)
        trainer.step(loss.inputs(), loss.logit_gradient)
    return mlp.parameters()[0]


def rl_prompts(config: ShiftConfig, split: Split, seed: int, batches: ShiftStream) -> Iterator[Prompts]:
    """Endless minibatches of B = `batch_size` prompts of the task that RL is on; the same for all runs of a seed.

    Each with its rollouts' uniform numbers, (B, G) float64 in [0, 1).
    """
    rng, uniforms = random_generator(seed, batches), random_generator(seed, ShiftStream.NEW_ROLLOUTS)
    while True:
        chosen = torch.from_numpy(rng.integers(len(split.inputs), size=config.batch_size))
        numbers = torch.from_numpy(uniforms.random((config.batch_size, config.group_size)))
        yield Prompts(split.inputs[chosen], split.reference(chosen), numbers)


def buffer_prompts(config: ShiftConfig, buffer: Cache, seed: int, size: int) -> Iterator[Prompts]:
    """Endless minibatches of B = `size` prompts of the buffer, drawn with replacement; the same for all coefficients.

    Each with its cached responses (1, B, G_ref) and its rollouts' uniform numbers, (B, G) float64 in [0, 1).
    """
    rng, uniforms = (random_generator(seed, stream) for stream in (ShiftStream.KL_BATCHES, ShiftStream.KL_ROLLOUTS))
    while True:
        chosen = torch.from_numpy(rng.integers(len(buffer.prompts.inputs), size=size))
        numbers = torch.from_numpy(uniforms.random((size, config.group_size)))
        prompts = buffer.prompts
        yield Prompts(prompts.inputs[chosen], prompts.reference(chosen), numbers, buffer.responses[chosen])


def train(config: ShiftConfig, task: ShiftTask, runs: list[ShiftRun]) -> pd.DataFrame:
    """Train `runs`, which differ in beta only, on the new task; a row per run and evaluated step, up to where it
    diverges.
    """
    first = runs[0]
    mlp = StackedMLP(layer_sizes(config), task.parameters.expand(len(runs), -1))
    trainer = Trainer(mlp, config, config.new_learning_rate or config.learning_rate)
    betas = torch.tensor([run.beta for run in runs], dtype=task.parameters.dtype)
    objective = OBJECTIVES[first.mode](config, first.method, betas)
    buffer = task.buffer.used_by(first.method)
    new = rl_prompts(config, task.new_train, task.seed, ShiftStream.NEW_BATCHES)
    kl = buffer_prompts(config, buffer, task.seed, first.kl_prompts) if first.kl_prompts else None
    frames = []
    for done in range(config.steps + 1):
        if done % config.eval_interval == 0 or done == config.steps:
            metrics = evaluate(config, task, buffer, mlp)
            frames.append(pd.DataFrame({**_identity(runs), "step": done, **metrics}))
        if done % config.optimizer_steps == 0:
            loss = JointLoss(objective, next(new), None if kl is None else next(kl))
        if done < config.steps:
            trainer.step(loss.inputs(), partial(spare_samplers, loss.logit_gradient))
    return cut_off(frames, trainer.failed_at.tolist(), (*_identity(runs), "step"))


def _identity(runs: list[ShiftRun]) -> dict[str, object]:
    return {
        "seed": runs[0].seed,
        "mode": runs[0].mode,
        "method": runs[0].method.name,
        "beta": [run.beta for run in runs],
        "kl_prompts": runs[0].kl_prompts,
    }


def evaluate(config: ShiftConfig, task: ShiftTask, buffer: Cache, mlp: StackedMLP) -> dict[str, list[float]]:
    """Each run's metrics: on the prior task's test inputs, the new one's, and the prompts of the buffer.

    The correctness of either task and pass@k of the prior one are those of responses at the evaluation's temperature.
    The drifts are the summands of D_KL(base || policy), Eq. 7, on the prior task. zero_correct_rate is the probability
    that G rollouts to a prompt of the buffer hold no correct response.
    """
    temperature = config.evaluation_temperature
    prior = averages(mlp, task.prior_test, partial(_prior_metrics, temperature=temperature, draws=config.pass_draws))
    new = averages(mlp, task.new_test, lambda policy, _: {"new_correct": correctness(_at(policy, temperature))})
    group_size = config.group_size
    zero = averages(
        mlp, buffer.prompts, lambda policy, _: {"zero_correct_rate": expected_zero_correct_rate(policy, group_size)}
    )
    return {"prior_correct": prior.pop("prior_correct"), **new, **prior, **zero}


def _at(policy: Policy, temperature: float) -> Policy:
    """What responses are drawn from at a temperature."""
    return Policy(policy.logits / temperature, policy.correct)


def _prior_metrics(policy: Policy, reference: Policy, temperature: float, draws: int) -> dict[str, Tensor]:
    drift, scored = decompose_kl(reference, policy), _at(policy, temperature)
    return {
        "prior_correct": correctness(scored),
        "prior_pass_at_k": pass_at_k(scored, draws),
        "conditional_kl": conditional_kl(policy, reference),
        "mass_drift": drift.mass,
        "correct_drift": drift.correct,
        "incorrect_drift": drift.incorrect,
    }


def base_rows(config: ShiftConfig, task: ShiftTask) -> pd.DataFrame:
    """The base model's metrics, a row per mode; its buffer is the whole one."""
    mlp = StackedMLP(layer_sizes(config), task.parameters[None])
    metrics = evaluate(config, task, task.buffer, mlp)
    rows = [{"seed": task.seed, "mode": mode, "method": "base", "beta": 0.0, "kl_prompts": 0} for mode in config.modes]
    return pd.DataFrame(rows).assign(step=0, **{name: values[0] for name, values in metrics.items()})
