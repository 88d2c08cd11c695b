"""The three phases of the sequence lab: pretraining on both tasks, RL on the prior one, RL on the new one.

The loss of the last phase is Eq. 18, as in `bandit.shift.train`, with every step on-policy. In exact mode both terms
are their expectations over all responses; what a method adds is there the population regularizer.

Axes: R runs of one seed, mode and method, B prompts, S contexts, V symbols. Nothing couples the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from bandit.engine.divergence import cut_off, spare_samplers
from bandit.engine.networks import StackedMLP, Trainer, initial_parameters
from bandit.engine.reference import cross_entropy_gradient
from bandit.sequences import exact, sampled
from bandit.sequences.config import SequenceConfig
from bandit.sequences.recursions import SequencePolicy, contexts
from bandit.sequences.tasks import (
    Cache,
    Prompts,
    SequenceTask,
    families,
    layer_sizes,
    network_inputs,
    rows,
)
from bandit.shift.tasks import ShiftStream, random_generator
from bandit.two_tasks.plan import ShiftRun
from cokl.grpo import GRPOConfig
from cokl.methods import Method
from cokl.metrics import pass_at_k
from cokl.regularizers import get

_GRPO = GRPOConfig()
_TEST_PROMPTS_PER_BLOCK = 32


class Exact:
    """Expectations over all responses."""

    def __init__(self, config: SequenceConfig) -> None:
        self.group_size = config.group_size

    def rl(self, policy: SequencePolicy, uniforms: Tensor) -> Tensor:
        """(S, V, R, B): gradient of each prompt's expected -J_GRPO; of the uniform numbers it takes none."""
        return exact.grpo_gradient(policy, self.group_size, _GRPO)

    def regularization(
        self, method: Method, policy: SequencePolicy, buffer: Cache, uniforms: Tensor, betas: Tensor
    ) -> Tensor:
        """(S, V, R, B): gradient of what the method adds on each prompt of the buffer."""
        return exact.method_gradient(method, policy, buffer.reference(), betas)


class Sampled:
    """Groups of G fresh rollouts, and G_ref cached responses of the base model."""

    def rl(self, policy: SequencePolicy, uniforms: Tensor) -> Tensor:
        """(S, V, R, B): gradient of each prompt's -J_GRPO on rollouts drawn with uniform numbers (B, G, T)."""
        return sampled.grpo_gradient(policy, sampled.draw(policy, policy, uniforms), _GRPO)

    def regularization(
        self, method: Method, policy: SequencePolicy, buffer: Cache, uniforms: Tensor, betas: Tensor
    ) -> Tensor:
        """(S, V, R, B): gradient of what the method adds on each prompt of the buffer."""
        rollout = sampled.draw(policy, buffer.reference(), uniforms)
        return sampled.method_gradient(method, policy, buffer.responses, rollout, betas)


class JointLoss:
    """Eq. 18 on one minibatch of either task: the mean over the new-task prompts plus the mean over the buffer's.

    Each minibatch comes with its uniform numbers (B, G, T). kl: None for unregularized RL.
    """

    def __init__(
        self,
        config: SequenceConfig,
        objective: Exact | Sampled,
        method: Method | None,
        betas: Tensor,
        new: tuple[Prompts, Tensor],
        kl: tuple[Cache, Tensor] | None,
    ) -> None:
        self.config, self.objective, self.method = config, objective, method
        self.betas = betas / config.length if config.token_reduction == "mean" else betas
        self.new, self.kl = new, kl

    def inputs(self) -> Tensor:
        """(1, B * S, input width): the prompts of both minibatches in all contexts."""
        inputs = [self.new[0].inputs, *([] if self.kl is None else [self.kl[0].prompts.inputs])]
        return network_inputs(self.config, torch.cat(inputs))

    def logit_gradient(self, logits: Tensor) -> Tensor:
        """(R, B * S, V): gradients whose mean over all B * S contexts is the loss's, as `Trainer.step` takes them."""
        size = contexts(self.config.length, self.config.symbols)
        tables = logits.view(len(logits), -1, size, self.config.symbols)
        prompts, uniforms = self.new
        count = len(prompts.inputs)
        policy = SequencePolicy(tables[:, :count], prompts.automata)
        gradients = [self.objective.rl(policy, uniforms) / count]
        if self.kl is not None:
            buffer, uniforms = self.kl
            assert self.method is not None
            policy = SequencePolicy(tables[:, count:], buffer.prompts.automata)
            added = self.objective.regularization(self.method, policy, buffer, uniforms, self.betas)
            gradients.append(added / len(buffer.prompts.inputs))
        summed = torch.cat(gradients, dim=-1).permute(2, 3, 0, 1) * logits.shape[1]
        return summed.to(logits.dtype, memory_format=torch.contiguous_format).view_as(logits)


def base_parameters(config: SequenceConfig, seed: int) -> Tensor:
    """(P,): the base model, pretrained on both tasks and then trained by RL on the prior one."""
    prior, new = families(config, seed)
    rng = random_generator(seed, ShiftStream.INITIALISATION)
    start = initial_parameters(layer_sizes(config), config.init_scale, rng)
    mlp = StackedMLP(layer_sizes(config), start.float()[None])
    inputs = torch.cat([prior.train.inputs, new.train.inputs])
    labels = torch.cat([prior.labels, new.labels])
    trainer = Trainer(mlp, config, config.learning_rate)
    rng = random_generator(seed, ShiftStream.PRETRAINING_BATCHES)
    for _ in range(config.pretrain_steps):
        batch = torch.from_numpy(rng.integers(len(inputs), size=config.pretrain_batch_size))
        gradient = partial(cross_entropy_gradient, labels=labels[batch].flatten(0, 1))
        trainer.step(network_inputs(config, inputs[batch]), gradient)

    trainer = Trainer(mlp, config, config.learning_rate)
    batches = rl_prompts(config, prior.train, seed, ShiftStream.PRIOR_BATCHES)
    for _ in range(config.prior_steps):
        loss = JointLoss(config, Exact(config), None, torch.zeros(1), next(batches), None)
        trainer.step(loss.inputs(), loss.logit_gradient)
    return mlp.parameters()[0]


def rl_prompts(
    config: SequenceConfig, prompts: Prompts, seed: int, batches: ShiftStream
) -> Iterator[tuple[Prompts, Tensor]]:
    """Endless minibatches of B = `batch_size` prompts of the task that RL is on; the same for all runs of a seed.

    Each with its rollouts' uniform numbers, (B, G, T) float64 in [0, 1).
    """
    rng, uniforms = random_generator(seed, batches), random_generator(seed, ShiftStream.NEW_ROLLOUTS)
    while True:
        chosen = torch.from_numpy(rng.integers(len(prompts.inputs), size=config.batch_size))
        numbers = uniforms.random((config.batch_size, config.group_size, config.length))
        yield prompts[chosen], torch.from_numpy(numbers)


def buffer_prompts(config: SequenceConfig, buffer: Cache, seed: int, size: int) -> Iterator[tuple[Cache, Tensor]]:
    """Endless minibatches of B = `size` prompts of the buffer, drawn with replacement; the same for all coefficients.

    Each with its rollouts' uniform numbers, (B, G, T) float64 in [0, 1).
    """
    rng, uniforms = (random_generator(seed, stream) for stream in (ShiftStream.KL_BATCHES, ShiftStream.KL_ROLLOUTS))
    while True:
        chosen = torch.from_numpy(rng.integers(len(buffer.prompts.inputs), size=size))
        yield buffer[chosen], torch.from_numpy(uniforms.random((size, config.group_size, config.length)))


def train(config: SequenceConfig, task: SequenceTask, runs: list[ShiftRun]) -> pd.DataFrame:
    """Train `runs`, which differ in beta only, on the new task; a row per run and evaluated step, up to where it
    diverges.
    """
    first = runs[0]
    mlp = StackedMLP(layer_sizes(config), task.parameters.expand(len(runs), -1))
    trainer = Trainer(mlp, config, config.new_learning_rate or config.learning_rate)
    betas = torch.tensor([run.beta for run in runs], dtype=torch.float64)
    objective = Exact(config) if first.mode == "exact" else Sampled()
    buffer = task.buffer.used_by(first.method)
    new = rl_prompts(config, task.new_train, task.seed, ShiftStream.NEW_BATCHES)
    kl = buffer_prompts(config, buffer, task.seed, first.kl_prompts) if first.kl_prompts else None
    identity = {
        "seed": task.seed,
        "mode": first.mode,
        "method": first.method.name,
        "beta": [run.beta for run in runs],
        "kl_prompts": first.kl_prompts,
    }
    frames = []
    for done in range(config.steps + 1):
        if done % config.eval_interval == 0 or done == config.steps:
            metrics = evaluate(config, task, buffer, mlp)
            frames.append(pd.DataFrame({**identity, "step": done, **metrics}))
        if done < config.steps:
            loss = JointLoss(config, objective, first.method, betas, next(new), None if kl is None else next(kl))
            trainer.step(loss.inputs(), partial(spare_samplers, loss.logit_gradient))
    return cut_off(frames, trainer.failed_at.tolist(), (*identity, "step"))


def evaluate(config: SequenceConfig, task: SequenceTask, buffer: Cache, mlp: StackedMLP) -> dict[str, list[float]]:
    """Each run's metrics: on the prior task's test prompts, the new one's, and the prompts of the buffer.

    The drifts are the summands of D_KL(base || policy), Eq. 7, on the prior task; new_kl is that divergence on the new
    one. zero_correct_rate is the probability that G rollouts to a prompt of the buffer hold no correct response.
    """
    base = StackedMLP(layer_sizes(config), task.parameters[None])
    means = partial(_averages, config, mlp, base)
    prior = means(task.prior_test, partial(_prior_metrics, config.pass_draws))
    new = means(task.new_test, partial(_new_metrics, config.pass_draws))
    zero = means(buffer.prompts, lambda policy, _: {"zero_correct_rate": 1 - pass_at_k(policy, config.group_size)})
    return {"prior_correct": prior.pop("prior_correct"), **new, **prior, **zero}


def _prior_metrics(draws: int, policy: SequencePolicy, reference: SequencePolicy) -> dict[str, Tensor]:
    drift = exact.drifts(reference, policy)
    return {
        "prior_correct": policy.mass,
        "prior_pass_at_k": pass_at_k(policy, draws),
        "conditional_kl": exact.regularizer_value(get("cokl"), policy, reference),
        "conditional_entropy": policy.conditional_entropy(),
        "entropy": policy.entropy(),
        "mass_drift": drift.mass,
        "correct_drift": drift.correct,
        "incorrect_drift": drift.incorrect,
    }


def _new_metrics(draws: int, policy: SequencePolicy, reference: SequencePolicy) -> dict[str, Tensor]:
    new_kl = exact.regularizer_value(get("forward_kl"), policy, reference)
    return {"new_correct": policy.mass, "new_pass_at_k": pass_at_k(policy, draws), "new_kl": new_kl}


def _averages(
    config: SequenceConfig,
    mlp: StackedMLP,
    base: StackedMLP,
    prompts: Prompts,
    metrics: Callable[[SequencePolicy, SequencePolicy], dict[str, Tensor]],
) -> dict[str, list[float]]:
    """Each run's mean over the prompts of `metrics`, (R, B) each, of policy and base model."""
    totals: dict[str, Tensor] = {}
    for start in range(0, len(prompts.inputs), _TEST_PROMPTS_PER_BLOCK):
        block = prompts[start : start + _TEST_PROMPTS_PER_BLOCK]
        policy, reference = (SequencePolicy(rows(config, m, block.inputs), block.automata) for m in (mlp, base))
        for name, values in metrics(policy, reference).items():
            totals[name] = totals.get(name, 0) + values.sum(-1)
    return {name: (total / len(prompts.inputs)).tolist() for name, total in totals.items()}


def base_rows(config: SequenceConfig, task: SequenceTask) -> pd.DataFrame:
    """The base model's metrics, a row per mode; its buffer is the whole one."""
    metrics = evaluate(config, task, task.buffer, StackedMLP(layer_sizes(config), task.parameters[None]))
    identity = [
        {"seed": task.seed, "mode": mode, "method": "base", "beta": 0.0, "kl_prompts": 0} for mode in config.modes
    ]
    return pd.DataFrame(identity).assign(step=0, **{name: values[0] for name, values in metrics.items()})
