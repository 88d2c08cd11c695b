"""Both phases for a stack of policies of one seed.

Phase 1 is exact, a run of the controlled experiment, or sampled as a trainer does it. Phase 2 starts from its final
policies on another reward, in sampled GRPO groups or in expectation, without a regularizer.

Axes: R runs, N training inputs, B inputs, C clusters, A actions, G responses. Nothing couples the runs.
"""

from __future__ import annotations

from functools import partial

import pandas as pd
import torch
from torch import Tensor

from bandit.engine.divergence import spare_samplers
from bandit.engine.environment import Environment, RandomStream, random_generator
from bandit.engine.exact import averages, loss_gradient, objectives, policy_metrics
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, layer_sizes, minibatches, seed_task
from bandit.engine.sampled import Responses, at, draw, draw_actions, grpo_logit_gradient, method_logit_gradient
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.plan import Start
from bandit.plasticity.rewards import PlasticityStream, reward_table, stages
from cokl.groups import SurrogateConfig
from cokl.grpo import GRPOConfig
from cokl.policy import CorrectSet, Policy

_GRPO = GRPOConfig()


def train(config: PlasticityConfig, starts: list[Start], parameters: Tensor, everything: list[bool]) -> pd.DataFrame:
    """Both phases of a stack, all of one seed, phase, method and cache: a row per run, change, mode and evaluated step.

    parameters: (P,), the reference's. everything: for each run, whether it meets all changes or the first one alone.
    After an exact phase 1 phase 2 is sampled and exact, after a sampled one sampled.
    """
    seed, phase = starts[0].seed, starts[0].phase
    task, environment = seed_task(config, seed, parameters), Environment(config.environment, seed)
    mlp = StackedMLP(layer_sizes(config), parameters.expand(len(starts), -1))
    if phase == "exact":
        _exact_phase_1(config, task, mlp, starts)
    elif phase == "sampled":
        _sampled_phase_1(config, task, mlp, starts)
    reached = averages(mlp, task.test, partial(policy_metrics, config))
    facts = pd.DataFrame([start.identity for start in starts], columns=["phase", "method", "cached", "beta"])
    facts = pd.concat([facts, pd.DataFrame(reached)], axis=1).assign(seed=seed)
    final, frames = mlp.parameters(), []
    for change in config.changes:
        rows = [row for row, all_changes in enumerate(everything) if all_changes or change == config.changes[0]]
        if not rows:
            continue
        second = _Phase2(config, task, environment, final[rows])
        for mode in ("sampled",) if phase == "sampled" else ("sampled", "exact"):
            for measured in second.learn(change, mode):
                frames.append(pd.concat([facts.iloc[rows].reset_index(drop=True), measured], axis=1))
    return pd.concat(frames, ignore_index=True)


def _exact_phase_1(config: PlasticityConfig, task: SeedTask, mlp: StackedMLP, starts: list[Start]) -> None:
    trainer = Trainer(mlp, config, config.learning_rate)
    groups = objectives(list(starts), task.train)
    batches = minibatches(config, task.seed, RandomStream.RL_BATCHES)
    for _ in range(config.steps):
        batch = next(batches).to(task.parameters.device)
        trainer.step(task.train.inputs[batch][None], partial(loss_gradient, groups=groups, batch=batch))


def _sampled_phase_1(config: PlasticityConfig, task: SeedTask, mlp: StackedMLP, starts: list[Start]) -> None:
    """GRPO and the regularizer on the same prompts and rollouts; a filtered method skips prompts whose cached group
    holds no correct response.
    """
    method, size, device = starts[0].method, starts[0].cached, task.parameters.device
    betas = torch.tensor([start.beta for start in starts]).to(task.parameters)
    trainer = Trainer(mlp, config, config.learning_rate)
    base = task.train.reference(slice(None))
    numbers = random_generator(task.seed, PlasticityStream.CACHE).random((len(task.train.inputs), max(config.cached)))
    cache = draw(base, base, torch.from_numpy(numbers[:, : max(size, 1)]).to(device))
    batches = random_generator(task.seed, PlasticityStream.SAMPLED_BATCHES)
    rollouts = random_generator(task.seed, PlasticityStream.SAMPLED_ROLLOUTS)

    def gradient(logits: Tensor, reference: Policy, cached: Responses, uniforms: Tensor) -> Tensor:
        policy = Policy(logits, reference.correct)
        rollout = draw(policy, reference, uniforms)
        loss = grpo_logit_gradient(policy, rollout, _GRPO)
        if method.regularizer is None:
            return loss
        added = method_logit_gradient(method, policy, cached, rollout, betas, SurrogateConfig())
        if method.filtered and size:
            added *= cached.rewards.any(-1)[..., None]
        return loss + added

    for _ in range(config.steps):
        batch = torch.from_numpy(batches.integers(len(task.train.inputs), size=config.prompts)).to(device)
        uniforms = torch.from_numpy(rollouts.random((config.prompts, config.group_size))).to(device)
        step = partial(gradient, reference=task.train.reference(batch), cached=cache[batch], uniforms=uniforms)
        trainer.step(task.train.inputs[batch][None], partial(spare_samplers, step))


class _Phase2:
    """Learning changed rewards from policies (R, P), each change anew from there."""

    def __init__(self, config: PlasticityConfig, task: SeedTask, environment: Environment, start: Tensor) -> None:
        self.config, self.task, self.environment, self.start = config, task, environment, start
        self.clusters = environment.train_clusters.to(start.device)
        self.own = self._cluster_means(StackedMLP(layer_sizes(config), start).forward(task.train.inputs[None]))
        self.reference = self._cluster_means(task.train.reference_log_probs[None])

    def _cluster_means(self, logits: Tensor) -> Tensor:
        """(R, C, A): mean probabilities on each cluster's training inputs; zero for a cluster without any."""
        count = self.config.environment.clusters
        sizes = torch.bincount(self.clusters, minlength=count).clamp_min(1)[:, None]
        sums = logits.new_zeros(len(logits), count, logits.shape[-1])
        return sums.index_add_(1, self.clusters, logits.softmax(-1)) / sizes

    def learn(self, change: str, mode: str) -> list[pd.DataFrame]:
        """A row per run in each frame: change, mode, step, the mean reward, and the share of inputs below one half."""
        config, task = self.config, self.task
        mlp = StackedMLP(layer_sizes(config), self.start)
        batches = random_generator(task.seed, PlasticityStream.NEW_BATCHES)
        rollouts = random_generator(task.seed, PlasticityStream.NEW_ROLLOUTS)
        frames = []
        for stage in stages(change):
            rewards = reward_table(self.environment, task.seed, stage, self.own, self.reference)
            trainer = Trainer(mlp, config, config.learning_rate)
            for done in range(config.new_steps + 1):
                if done in config.evaluated_steps:
                    frames.append(self._evaluated(mlp, rewards).assign(change=stage, mode=mode, step=done))
                if done == config.new_steps:
                    break
                batch = torch.from_numpy(batches.integers(len(task.train.inputs), size=config.prompts))
                uniforms = torch.from_numpy(rollouts.random((config.prompts, config.group_size)))
                batch = batch.to(self.clusters.device)
                shown = rewards[:, self.clusters[batch]]
                correct = task.train.correct[batch][None]
                sampled = partial(_grpo_gradient, rewards=shown, correct=correct, uniforms=uniforms.to(batch.device))
                gradient = sampled if mode == "sampled" else partial(_expected_gradient, rewards=shown)
                trainer.step(task.train.inputs[batch][None], partial(spare_samplers, gradient))
        return frames

    def _evaluated(self, mlp: StackedMLP, rewards: Tensor) -> pd.DataFrame:
        inputs = self.task.test.inputs[: self.config.evaluated_inputs]
        clusters = self.environment.test_clusters[: len(inputs)].to(inputs.device)
        expected = (mlp.forward(inputs[None]).softmax(-1) * rewards[:, clusters]).sum(-1).double()
        return pd.DataFrame(
            {"reward": expected.mean(-1).tolist(), "below_half": (expected < 0.5).double().mean(-1).tolist()}
        )


def _grpo_gradient(logits: Tensor, rewards: Tensor, correct: CorrectSet, uniforms: Tensor) -> Tensor:
    """(R, B, A): gradient of -J_GRPO on groups that the policy draws with `uniforms` (B, G), rewards (R or 1, B, A).

    correct: of phase 1, which phase 2 does not look at.
    """
    policy = Policy(logits, correct)
    actions = draw_actions(policy.probs, uniforms)
    log_probs = at(policy.log_probs, actions)
    drawn = Responses(actions, at(rewards.expand_as(logits), actions), log_probs, log_probs)
    return grpo_logit_gradient(policy, drawn, _GRPO)


def _expected_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """(R, B, A): gradient of minus the expected reward."""
    probs = logits.softmax(-1)
    return probs * ((probs * rewards).sum(-1, keepdim=True) - rewards)
