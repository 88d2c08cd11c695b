"""Training a stack of runs of one seed whose regularizer is sampled in groups of G, or exact.

Axes: R runs, B inputs, N training inputs, A actions, G responses. The runs of a stack differ in their coefficient only.
"""

from __future__ import annotations

import math
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from bandit.config import TrainingConfig
from bandit.engine.divergence import cut_off, spare_samplers
from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.exact import Objective, averages, policy_metrics
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, Split, layer_sizes, minibatches
from bandit.engine.sampled import Responses, draw, method_logit_gradient
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.groups import draw_filtered
from bandit.finite_group.plan import EXACT, GroupRun
from bandit.finite_group.recovery import measure
from cokl.groups import SurrogateConfig
from cokl.metrics import expected_zero_correct_rate
from cokl.policy import Policy

IDENTITY = ("seed", "method", "beta", "groups", "group_size", "optimizer_steps", "step")
"""The columns that say which run and step a row belongs to."""


def train(config: FiniteGroupConfig, task: SeedTask, test_clusters: Tensor, runs: list[GroupRun]) -> pd.DataFrame:
    """Train `runs`, all of `task`'s seed and alike but for beta.

    A row per run and evaluated step; and, where `cluster` is not missing, one per run, recovery step and cluster. Both
    hold the policy before that step's update. A run that diverges ends there; see `bandit.engine.divergence`.
    test_clusters: the cluster of each test input, (N,) int64.
    """
    shared = runs[0]
    mlp = StackedMLP(layer_sizes(config), task.parameters.expand(len(runs), -1))
    trainer = Trainer(mlp, config, config.learning_rate)
    betas = torch.tensor([run.beta for run in runs]).to(task.parameters)
    exact = shared.groups == EXACT
    objective = (
        Objective(shared.method, betas, task.train) if exact else SampledObjective(config, shared, betas, task.train)
    )
    # A cached group belongs to a training input, so the test inputs have none to measure with.
    measured = set() if exact or shared.groups == "cached" else set(config.recovery_steps)
    metrics = partial(_metrics, config, group_size=shared.group_size)
    noise = random_generator(task.seed, RandomStream.RECOVERY_GROUPS)
    batches = minibatches(config, task.seed, RandomStream.RL_BATCHES)
    inputs = task.train.inputs[:0]
    behavior: Tensor | None = None
    frames: list[pd.DataFrame] = []

    def keep(rows: pd.DataFrame, step: int) -> None:
        """Rows of all runs, those of each one beside each other, with the columns that say whose they are."""
        run_of_row = [run for run in range(len(runs)) for _ in range(len(rows) // len(runs))]
        rows = rows.set_axis(run_of_row)
        beta = [runs[run].beta for run in run_of_row]
        values = (shared.seed, shared.method.name, beta, shared.groups, shared.group_size, shared.optimizer_steps, step)
        identity = dict(zip(IDENTITY, values, strict=True))
        frames.append(pd.DataFrame({**identity, **{str(name): rows[name] for name in rows}}, index=rows.index))

    for done in range(config.steps):
        if done % config.eval_interval == 0:
            keep(pd.DataFrame(averages(mlp, task.test, metrics)), done)
        if done % shared.optimizer_steps == 0:
            batch = next(batches).to(betas.device)
            inputs = task.train.inputs[batch][None]
            if isinstance(objective, SampledObjective):
                objective.take(batch)
            behavior = mlp.parameters() if done in measured else None
        if behavior is not None and (done + 1) % shared.optimizer_steps == 0:
            keep(measure(config, shared, task.test, test_clusters, mlp, behavior, noise), done)
        trainer.step(inputs, partial(spare_samplers, partial(objective.gradient, batch=batch)))
    keep(pd.DataFrame(averages(mlp, task.test, metrics)), config.steps)
    table = cut_off(frames, trainer.failed_at.tolist(), IDENTITY)
    return table.sort_values(["beta", "step"], kind="stable", ignore_index=True)


class SampledObjective(Objective):
    """The same with the sampled surrogate of what `run`'s method adds; its groups serve until the next `take`."""

    def __init__(self, config: FiniteGroupConfig, run: GroupRun, betas: Tensor, split: Split) -> None:
        super().__init__(run.method, betas, split)
        self.size = int(run.group_size)
        self.filtered = run.method.filtered and run.groups != "unfiltered"
        self.surrogate = SurrogateConfig(config.epsilon_is)
        self.rollout_noise = random_generator(run.seed, RandomStream.ROLLOUT_GROUPS)
        self.reference_noise = random_generator(run.seed, RandomStream.REFERENCE_GROUPS)
        self.cache: Responses | None = None
        self.rollout: Responses | None = None
        if run.groups == "cached":
            self.cache = self.reference_groups(split.reference(slice(None)))

    def reference_groups(self, reference: Policy) -> Responses:
        """Fresh groups (1, B, G) of `reference` (1, B, A)."""
        batch = reference.logits.shape[1]
        if self.filtered:
            return draw_filtered(reference, self._uniforms(self.reference_noise, batch, 1, self.size + 1))
        return draw(reference, reference, self._uniforms(self.reference_noise, batch, self.size))

    def take(self, batch: Tensor) -> None:
        """Continue with another minibatch: (B,) int64, positions in the split."""
        self.references = (
            self.reference_groups(self.split.reference(batch)) if self.cache is None else self.cache[batch]
        )
        self.rollout = None

    def added_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        """(R, B, A): the sampled surrogate's gradient; `policy` draws the rollouts at the first call after `take`."""
        if self.rollout is None:
            uniforms = self._uniforms(self.rollout_noise, policy.logits.shape[1], self.size)
            self.rollout = draw(policy, reference, uniforms)
        return method_logit_gradient(self.method, policy, self.references, self.rollout, self.betas, self.surrogate)

    def _uniforms(self, noise, *shape: int) -> Tensor:
        return torch.from_numpy(noise.random(shape)).to(self.betas.device)


def _metrics(config: TrainingConfig, policy: Policy, reference: Policy, group_size: float) -> dict[str, Tensor]:
    """The sweep's metrics and, of finite groups, the expected share that hold no correct response, (R, B) each."""
    metrics = policy_metrics(config, policy, reference)
    if math.isfinite(group_size):
        metrics["zero_correct_rate"] = expected_zero_correct_rate(policy, int(group_size))
    return metrics
