"""Both phases for a stack of policies of one seed, whatever an answer is.

Phase 1 is exact, a run of the controlled experiment, or sampled as a trainer does it: GRPO's rollouts are the
regularizer's fresh responses, too. Phase 2 starts from its final policies on another reward, in sampled GRPO groups or
in expectation, without a regularizer.

Axes: R runs, N training inputs, B inputs, P parameters, G responses. Nothing couples the runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor

from bandit.engine.divergence import spare_samplers
from bandit.engine.environment import random_generator
from bandit.engine.networks import StackedMLP, Trainer
from bandit.plasticity.plan import Start

Step = tuple[Tensor, Callable[[Tensor], Tensor]]
"""What the network reads in a step, (1, rows, D), and the loss's gradient by its logits (R, rows, A)."""


class PlasticityStream(IntEnum):
    """Independent random streams of a seed, `np.random.default_rng([seed, stream])`, apart from the engine's.

    The environment, the reference, and the minibatches of the exact phase 1 have the engine's own streams, so that an
    exact phase 1 is a run of the controlled experiment. Every policy, mode and change of a seed reads each stream here
    from its beginning, so that all share their draws; only a chain's later changes resume where the last one ended.

    MOVED: uniform numbers (C, A), for `some_of`, as the engine's NARROWED. CACHE: uniform numbers (N, largest G_ref),
    one a cached response of a training input; a smaller cache is the first columns. SAMPLED_BATCHES, NEW_BATCHES: for
    each step `prompts` integers below N. SAMPLED_ROLLOUTS, NEW_ROLLOUTS: for each step uniform numbers (prompts, G),
    one a response, by inversion of
    the cumulated probabilities, or (prompts, G, T) for sequences; CACHE then has T numbers a response, too. COUNTED:
    uniform numbers (B, 64, T) for the responses to the test prompts among which distinct correct ones are counted.
    """

    MOVED = 201
    CACHE = 202
    SAMPLED_BATCHES = 203
    SAMPLED_ROLLOUTS = 204
    NEW_BATCHES = 205
    NEW_ROLLOUTS = 206
    COUNTED = 207


def stages(change: str) -> list[str]:
    """The rewards that are learned one after the other: several for a chain, one for any other change."""
    kind, *sizes = change.split("-")
    return [f"chain-{size}" for size in sizes] if kind == "chain" else [change]


class AnswerSpace(ABC):
    """What an answer is, for one seed: how phase 1 trains on it, what its reward can become, and how it is learned.

    config: a `TwoPhases` with the fields of its environment. parameters: (P,), the reference's, which `reference` makes
    of a configuration, a seed and a device, as `bandit.engine.runs.opened` takes it. layer_sizes: of a configuration
    the network's widths. exact_modes: of phase 2, beside "sampled", after an exact phase 1. task: what phase 1 learns,
    with the N training inputs as `task.train.inputs`. response_shape: of the uniform numbers that draw a response.
    """

    exact_modes: ClassVar[tuple[str, ...]] = ()
    layer_sizes: Callable[[Any], tuple[int, ...]]
    reference: Callable[[Any, int, str], Tensor] | None = None
    response_shape: tuple[int, ...] = ()
    task: Any

    def __init__(self, config: Any, seed: int, parameters: Tensor) -> None:
        self.config, self.seed, self.parameters = config, seed, parameters

    def stack(self, parameters: Tensor) -> StackedMLP:
        """Networks with parameters (R, P)."""
        return StackedMLP(self.layer_sizes(self.config), parameters)

    @abstractmethod
    def sampled_step(self, starts: list[Start]) -> Callable[[Tensor, Tensor], Step]:
        """Of a sampled phase 1, the step on a batch of inputs (B,) with uniform numbers (B, G, ...) for rollouts."""

    @abstractmethod
    def reached(self, mlp: StackedMLP) -> dict[str, list[float]]:
        """What each run of phase 1 reached, means over the test inputs."""

    @abstractmethod
    def changed(self, stage: str, final: StackedMLP) -> Any:
        """The reward that a stage of a change makes, after phase 1 has ended at `final`."""

    @abstractmethod
    def new_step(self, reward: Any, mode: str, batch: Tensor, uniforms: Tensor) -> Step:
        """A step of phase 2, as `sampled_step`'s."""

    @abstractmethod
    def expected(self, mlp: StackedMLP, reward: Any) -> Tensor:
        """(R, inputs) float64: the expected reward on each test input."""

    def exact_phase_1(self, starts: list[Start]) -> StackedMLP:
        """The networks after an exact phase 1."""
        raise NotImplementedError

    def draws(self, batches: PlasticityStream, rollouts: PlasticityStream) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless batches of `prompts` inputs (B,), and uniform numbers (B, G, ...) float64 in [0, 1) for rollouts."""
        rng, uniforms = random_generator(self.seed, batches), random_generator(self.seed, rollouts)
        shape = (self.config.prompts, self.config.group_size, *self.response_shape)
        while True:
            batch = torch.from_numpy(rng.integers(len(self.task.train.inputs), size=self.config.prompts))
            yield batch.to(self.parameters.device), torch.from_numpy(uniforms.random(shape)).to(self.parameters.device)

    def learn(self, start: Tensor, change: str, mode: str) -> list[pd.DataFrame]:
        """From policies (R, P) a row per run in each frame: change, mode, step, the mean reward, and the share of
        inputs below one half.
        """
        config, mlp = self.config, self.stack(start)
        draws = self.draws(PlasticityStream.NEW_BATCHES, PlasticityStream.NEW_ROLLOUTS)
        frames = []
        for stage in stages(change):
            reward = self.changed(stage, self.stack(start))
            trainer = Trainer(mlp, config, config.learning_rate)
            for done in range(config.new_steps + 1):
                if done in config.evaluated_steps:
                    expected = self.expected(mlp, reward)
                    metrics = {"reward": expected.mean(-1), "below_half": (expected < 0.5).double().mean(-1)}
                    frame = pd.DataFrame({name: values.tolist() for name, values in metrics.items()})
                    frames.append(frame.assign(change=stage, mode=mode, step=done))
                if done < config.new_steps:
                    inputs, gradient = self.new_step(reward, mode, *next(draws))
                    trainer.step(inputs, partial(spare_samplers, gradient))
        return frames


def train(space: AnswerSpace, starts: list[Start], everything: list[bool]) -> pd.DataFrame:
    """Both phases of a stack, all of one phase, method and cache: a row per run, change, mode and evaluated step.

    everything: for each run, whether it meets all changes or the first one alone.
    """
    config, phase = space.config, starts[0].phase
    mlp = space.stack(space.parameters.expand(len(starts), -1))
    if phase == "exact":
        mlp = space.exact_phase_1(starts)
    elif phase == "sampled":
        trainer, step = Trainer(mlp, config, config.learning_rate), space.sampled_step(starts)
        draws = space.draws(PlasticityStream.SAMPLED_BATCHES, PlasticityStream.SAMPLED_ROLLOUTS)
        for _ in range(config.steps):
            inputs, gradient = step(*next(draws))
            trainer.step(inputs, partial(spare_samplers, gradient))
    facts = pd.DataFrame([start.identity for start in starts], columns=["phase", "method", "cached", "beta"])
    facts = pd.concat([facts, pd.DataFrame(space.reached(mlp))], axis=1).assign(seed=space.seed)
    final, frames = mlp.parameters(), []
    for change in config.changes:
        rows = [row for row, all_changes in enumerate(everything) if all_changes or change == config.changes[0]]
        if not rows:
            continue
        for mode in ("sampled",) if phase == "sampled" else ("sampled", *space.exact_modes):
            for measured in space.learn(final[rows], change, mode):
                frames.append(pd.concat([facts.iloc[rows].reset_index(drop=True), measured], axis=1))
    return pd.concat(frames, ignore_index=True)
