"""The three phases of a two-task lab: pretraining on both tasks, RL on the prior one, RL on the new one.

The loss of the last phase is Eq. 18: GRPO on new-task prompts, plus what the method adds on prompts of the buffer. In
sampled mode both terms are surrogates on drawn groups; in exact mode they are GRPO's expectation over its groups and
the exact regularizer.

Axes: R runs of one seed, mode and method, B prompts, P parameters. Nothing couples the runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bandit.engine.divergence import cut_off, spare_samplers
from bandit.engine.environment import random_generator
from bandit.engine.networks import StackedMLP, Trainer, initial_parameters
from bandit.engine.reference import cross_entropy_gradient
from bandit.engine.two_tasks.config import Mode
from bandit.engine.two_tasks.plan import ShiftRun
from bandit.engine.two_tasks.tasks import Cache, Minibatch, ShiftStream, TwoTasks
from cokl import methods
from cokl.methods import Method


class TwoTaskObjective(ABC):
    """Both terms of the loss in one mode, as gradients with respect to the logits of each prompt. betas: (R,)."""

    def __init__(self, config: Any, method: Method, betas: Tensor) -> None:
        self.config, self.method, self.betas = config, method, betas

    @abstractmethod
    def roll_out(self, policy: Any, minibatch: Minibatch) -> Any:
        """What the policy answers now, in the form that the gradients take."""

    @abstractmethod
    def rl(self, policy: Any, rollout: Any) -> Tensor:
        """Gradient of each new-task prompt's -J_GRPO, shaped as the policy's logits: (R, B, ...)."""

    @abstractmethod
    def regularization(self, policy: Any, rollout: Any, minibatch: Minibatch) -> Tensor:
        """Gradient of what the method adds on each prompt of the buffer, coefficients included; shaped as in `rl`."""


class TwoTaskTrainer(ABC):
    """Trains a lab's policies on one task, then on the other. A lab says what its tasks and its policy space are.

    response_shape: of the uniform numbers that one response is drawn with. layer_sizes, families, task: of a
    configuration the network's widths; of a seed the prior and the new task; and all that its runs share, rebuilt from
    the base model's parameters (P,).
    """

    response_shape: tuple[int, ...] = ()
    layer_sizes: Callable[[Any], tuple[int, ...]]
    families: Callable[[Any, int], tuple[Any, Any]]
    task: Callable[[Any, int, Tensor], TwoTasks]

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def labelled(self, family: Any) -> tuple[Tensor, Tensor]:
        """Inputs (N, D) of a task to pretrain on, and their labels, probabilities along the last axis."""

    @abstractmethod
    def rl_prompts_of(self, family: Any, parameters: Tensor) -> Any:
        """The training prompts of a task, for RL that starts from `parameters` (P,)."""

    @abstractmethod
    def network_inputs(self, inputs: Tensor) -> Tensor:
        """(1, rows, input width): what the network reads for prompts (B, D)."""

    @abstractmethod
    def objective(self, mode: Mode, method: Method, betas: Tensor) -> TwoTaskObjective:
        """The loss of runs with coefficients (R,) float64."""

    @abstractmethod
    def policies(self, logits: Tensor, minibatches: list[Minibatch]) -> list[Any]:
        """The policies that the logits of all minibatches' prompts, one after the other, stand for."""

    @abstractmethod
    def joined(self, gradients: list[Tensor], logits: Tensor) -> Tensor:
        """Each minibatch's mean gradient, summed: shaped as the logits, as `Trainer.step` takes it."""

    @abstractmethod
    def averages(self, mlp: StackedMLP, task: TwoTasks, prompts: Any, metrics: Callable[..., Any]) -> dict[str, Any]:
        """Each run's mean over the prompts of `metrics`, (R, B) each, of policy and base model."""

    @abstractmethod
    def prior_metrics(self, policy: Any, reference: Any) -> dict[str, Tensor]:
        """(R, B) each: what is measured on the prior task.

        prior_correct, in [0, 1], is among it; drifts are the summands of Eq. 7, in nats.
        """

    @abstractmethod
    def new_metrics(self, policy: Any, reference: Any) -> dict[str, Tensor]:
        """(R, B) each: what is measured on the new task; new_correct, in [0, 1], is among it."""

    def base_parameters(self, seed: int) -> Tensor:
        """(P,): the base model, pretrained on both tasks and then trained by RL on the prior one."""
        config = self.config
        families, sizes = self.families(config, seed), self.layer_sizes(config)
        start = initial_parameters(sizes, config.init_scale, random_generator(seed, ShiftStream.INITIALISATION))
        mlp = StackedMLP(sizes, start.to(getattr(torch, config.dtype))[None])
        inputs, labels = (torch.cat(both).to(mlp.flat) for both in zip(*map(self.labelled, families), strict=True))
        trainer = Trainer(mlp, config, config.learning_rate)
        rng = random_generator(seed, ShiftStream.PRETRAINING_BATCHES)
        for _ in range(config.pretrain_steps):
            batch = torch.from_numpy(rng.integers(len(inputs), size=config.pretrain_batch_size))
            gradient = partial(cross_entropy_gradient, labels=labels[batch].flatten(0, -2))
            trainer.step(self.network_inputs(inputs[batch]), gradient)

        prompts = self.rl_prompts_of(families[0], mlp.parameters()[0])
        trainer = Trainer(mlp, config, config.learning_rate)
        exact = self.objective("exact", methods.get("none"), torch.zeros(1, dtype=torch.float64))
        batches = self.rl_prompts(prompts, seed, ShiftStream.PRIOR_BATCHES)
        for _ in range(config.prior_steps):
            loss = JointLoss(self, exact, next(batches), None)
            trainer.step(loss.inputs(), loss.logit_gradient)
        return mlp.parameters()[0]

    def rl_prompts(self, prompts: Any, seed: int, batches: ShiftStream) -> Iterator[Minibatch]:
        """Endless minibatches of `batch_size` prompts of the task that RL is on; the same for all runs of a seed."""
        return self._minibatches(prompts, None, self.config.batch_size, seed, batches, ShiftStream.NEW_ROLLOUTS)

    def buffer_prompts(self, buffer: Cache, seed: int, size: int) -> Iterator[Minibatch]:
        """Endless minibatches of B = `size` prompts of the buffer; the same for all coefficients."""
        streams = ShiftStream.KL_BATCHES, ShiftStream.KL_ROLLOUTS
        return self._minibatches(buffer.prompts, buffer.responses, size, seed, *streams)

    def _minibatches(
        self, prompts: Any, cached: Any, size: int, seed: int, batches: ShiftStream, rollouts: ShiftStream
    ) -> Iterator[Minibatch]:
        """Prompts drawn with replacement, and their rollouts' uniform numbers, float64 in [0, 1)."""
        rng, uniforms = random_generator(seed, batches), random_generator(seed, rollouts)
        while True:
            chosen = torch.from_numpy(rng.integers(len(prompts.inputs), size=size))
            numbers = torch.from_numpy(uniforms.random((size, self.config.group_size, *self.response_shape)))
            yield Minibatch(prompts[chosen], numbers, None if cached is None else cached[chosen])

    def train(self, task: TwoTasks, runs: list[ShiftRun]) -> pd.DataFrame:
        """Train `runs`, which differ in beta only, on the new task; a row per run and evaluated step, up to where it
        diverges.
        """
        config, first = self.config, runs[0]
        betas, buffer = [run.beta for run in runs], task.buffer.used_by(first.method)
        identity = {
            "seed": task.seed,
            "mode": first.mode,
            "method": first.method.name,
            "beta": betas,
            "kl_prompts": first.kl_prompts,
        }
        frames = []
        for done, mlp, trainer in self.steps(task, first.mode, first.method, betas, first.kl_prompts):
            if done % config.eval_interval == 0 or done == config.steps:
                frames.append(pd.DataFrame({**identity, "step": done, **self.evaluate(task, buffer, mlp)}))
                failed_at = trainer.failed_at
        return cut_off(frames, failed_at.tolist(), (*identity, "step"))

    def steps(
        self, task: TwoTasks, mode: Mode, method: Method, betas: list[float], kl_prompts: int
    ) -> Iterator[tuple[int, StackedMLP, Trainer]]:
        """Train a run for each of `betas` on the new task: the steps done, from 0 on, and the networks after them.

        kl_prompts: of the buffer per step; 0 for unregularized RL.
        """
        config = self.config
        mlp = StackedMLP(self.layer_sizes(config), task.parameters.expand(len(betas), -1))
        trainer = Trainer(mlp, config, config.new_learning_rate or config.learning_rate)
        objective = self.objective(mode, method, torch.tensor(betas, dtype=torch.float64))
        new = self.rl_prompts(task.new_train, task.seed, ShiftStream.NEW_BATCHES)
        kl = self.buffer_prompts(task.buffer.used_by(method), task.seed, kl_prompts) if kl_prompts else None
        for done in range(config.steps + 1):
            yield done, mlp, trainer
            if done < config.steps:
                loss = JointLoss(self, objective, next(new), None if kl is None else next(kl))
                trainer.step(loss.inputs(), partial(spare_samplers, loss.logit_gradient))

    def evaluate(self, task: TwoTasks, buffer: Cache, mlp: StackedMLP) -> dict[str, list[float]]:
        """Each run's metrics on the prior task's test prompts and on the new one's; a lab may add the buffer's."""
        prior = self.averages(mlp, task, task.prior_test, self.prior_metrics)
        new = self.averages(mlp, task, task.new_test, self.new_metrics)
        return {"prior_correct": prior.pop("prior_correct"), **new, **prior}

    def base_rows(self, task: TwoTasks) -> pd.DataFrame:
        """The base model's metrics, a row per mode; its buffer is the whole one."""
        mlp = StackedMLP(self.layer_sizes(self.config), task.parameters[None])
        metrics = {name: values[0] for name, values in self.evaluate(task, task.buffer, mlp).items()}
        base = {"seed": task.seed, "method": "base", "beta": 0.0, "kl_prompts": 0, "step": 0}
        return pd.DataFrame([{**base, "mode": mode, **metrics} for mode in self.config.modes])


class JointLoss:
    """Eq. 18 on one minibatch of either task, whose rollouts are made by the policy that it is asked for.

    kl: None for unregularized RL. The loss is the mean over the new-task prompts plus the mean over the buffer's.
    """

    def __init__(
        self, experiment: TwoTaskTrainer, objective: TwoTaskObjective, new: Minibatch, kl: Minibatch | None
    ) -> None:
        self.experiment = experiment
        self.objective = objective
        self.minibatches = [new] if kl is None else [new, kl]

    def inputs(self) -> Tensor:
        """(1, rows, input width): what the network reads for the prompts of both minibatches."""
        return self.experiment.network_inputs(torch.cat([minibatch.prompts.inputs for minibatch in self.minibatches]))

    def logit_gradient(self, logits: Tensor) -> Tensor:
        """(R, rows, A): gradients whose mean over the rows is the loss's, as `Trainer.step` takes them."""
        policies = self.experiment.policies(logits, self.minibatches)
        rollouts = [self.objective.roll_out(*pair) for pair in zip(policies, self.minibatches, strict=True)]
        gradients = [self.objective.rl(policies[0], rollouts[0])]
        for arguments in zip(policies[1:], rollouts[1:], self.minibatches[1:], strict=True):
            gradients.append(self.objective.regularization(*arguments))
        return self.experiment.joined(gradients, logits)
