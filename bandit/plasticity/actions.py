"""Answers that are single actions: the controlled experiment's task, in expectation and in samples.

Axes: R runs, N training inputs, B inputs, C clusters, A actions, G responses. Nothing couples the runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bandit.engine.environment import Environment, RandomStream, random_generator, some_of
from bandit.engine.exact import evaluate
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import layer_sizes, seed_task
from bandit.engine.sampled import (
    Responses,
    draw,
    draw_actions,
    gather_actions,
    grpo_logit_gradient,
    method_logit_gradient,
)
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.plan import Start
from bandit.plasticity.train import AnswerSpace, PlasticityStream, Step
from bandit.sweep.train import steps
from cokl.groups import SurrogateConfig
from cokl.policy import CorrectSet, Policy

LESS = 0.2
"""The reward of the correct actions that are not preferred."""


class Actions(AnswerSpace):
    """A reward is a table, (R or 1, C, A)."""

    exact_modes = ("exact",)
    layer_sizes = staticmethod(layer_sizes)

    def __init__(self, config: PlasticityConfig, seed: int, parameters: Tensor) -> None:
        super().__init__(config, seed, parameters)
        self.task, self.environment = seed_task(config, seed, parameters), Environment(config.environment, seed)
        self.clusters = self.environment.train_clusters.to(parameters.device)

    def exact_phase_1(self, starts: list[Start]) -> StackedMLP:
        """A run of the controlled experiment."""
        *_, (_, mlp, _) = steps(self.config, self.task, list(starts))
        return mlp

    def sampled_step(self, starts: list[Start]) -> Callable[[Tensor, Tensor], Step]:
        """GRPO and the regularizer on the same prompts and rollouts; a filtered method skips prompts whose cached group
        holds no correct response.
        """
        task, method, size, device = self.task, starts[0].method, starts[0].cached, self.parameters.device
        betas = torch.tensor([start.beta for start in starts]).to(self.parameters)
        base = task.train.reference(slice(None))
        rng = random_generator(task.seed, PlasticityStream.CACHE)
        numbers = rng.random((len(task.train.inputs), max(self.config.cached)))
        cache = draw(base, base, torch.from_numpy(numbers[:, : max(size, 1)]).to(device))

        def gradient(logits: Tensor, reference: Policy, cached: Responses, uniforms: Tensor) -> Tensor:
            policy = Policy(logits, reference.correct)
            rollout = draw(policy, reference, uniforms)
            loss = grpo_logit_gradient(policy, rollout)
            if method.regularizer is None:
                return loss
            added = method_logit_gradient(method, policy, cached, rollout, betas, SurrogateConfig())
            if method.filtered and size:
                added *= cached.rewards.any(-1)[..., None]
            return loss + added

        def step(batch: Tensor, uniforms: Tensor) -> Step:
            reference = task.train.reference(batch)
            return task.train.inputs[batch][None], partial(
                gradient, reference=reference, cached=cache[batch], uniforms=uniforms
            )

        return step

    def reached(self, mlp: StackedMLP) -> dict[str, list[float]]:
        """The controlled experiment's metrics."""
        return evaluate(self.config, self.task, mlp)

    def changed(self, stage: str, final: StackedMLP) -> Tensor:
        """(R or 1, C, A): the reward of each action."""
        own = self._cluster_means(final.forward(self.task.train.inputs[None]))
        return reward_table(
            self.environment, self.seed, stage, own, self._cluster_means(self.task.train.reference_log_probs[None])
        )

    def _cluster_means(self, logits: Tensor) -> Tensor:
        """(R, C, A): mean probabilities on each cluster's training inputs; zero for a cluster without any."""
        count = self.config.environment.clusters
        sizes = torch.bincount(self.clusters, minlength=count).clamp_min(1)[:, None]
        sums = logits.new_zeros(len(logits), count, logits.shape[-1])
        return sums.index_add_(1, self.clusters, logits.softmax(-1)) / sizes

    def new_step(self, reward: Tensor, mode: str, batch: Tensor, uniforms: Tensor) -> Step:
        """GRPO in groups, or minus the expected reward."""
        shown, correct = reward[:, self.clusters[batch]], self.task.train.correct[batch][None]
        sampled = partial(_grpo_gradient, rewards=shown, correct=correct, uniforms=uniforms)
        gradient = sampled if mode == "sampled" else partial(_expected_gradient, rewards=shown)
        return self.task.train.inputs[batch][None], gradient

    def expected(self, mlp: StackedMLP, reward: Tensor) -> Tensor:
        """(R, inputs): on the first `evaluated_inputs` test inputs."""
        inputs = self.task.test.inputs[: self.config.evaluated_inputs]
        clusters = self.environment.test_clusters[: len(inputs)].to(inputs.device)
        return (mlp.forward(inputs[None]).softmax(-1) * reward[:, clusters]).sum(-1).double()


def _grpo_gradient(logits: Tensor, rewards: Tensor, correct: CorrectSet, uniforms: Tensor) -> Tensor:
    """(R, B, A): gradient of -J_GRPO on groups that the policy draws with `uniforms` (B, G), rewards (R or 1, B, A).

    correct: of phase 1, which phase 2 does not look at.
    """
    policy = Policy(logits, correct)
    actions = draw_actions(policy.probs, uniforms)
    log_probs = gather_actions(policy.log_probs, actions)
    drawn = Responses(actions, gather_actions(rewards.expand_as(logits), actions), log_probs, log_probs)
    return grpo_logit_gradient(policy, drawn)


def _expected_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """(R, B, A): gradient of minus the expected reward."""
    probs = logits.softmax(-1)
    return probs * ((probs * rewards).sum(-1, keepdim=True) - rewards)


def reward_table(environment: Environment, seed: int, stage: str, own: Tensor, reference: Tensor) -> Tensor:
    """(R or 1, C, A): the reward of each action in each cluster, in the arithmetic of `own`.

    own, reference: (R, C, A) and (1, C, A), mean probabilities on a cluster's training inputs after phase 1.
    """
    correct = environment.correct.mask.to(own.device)
    kind, *sizes = stage.split("-")
    if kind in ("narrowed", "chain", "moved"):
        eligible = ~correct if kind == "moved" else correct
        stream = PlasticityStream.MOVED if kind == "moved" else RandomStream.NARROWED
        chosen = some_of(eligible, int(sizes[0]), seed, stream)
        return torch.zeros_like(reference).scatter_(-1, chosen[None], 1)
    if kind == "repaired":
        among = (reference if sizes else own).masked_fill(~correct, -1)
        return correct.to(own).expand_as(among).clone().scatter_(-1, among.argmax(-1, keepdim=True), 0)
    least = reference.masked_fill(~correct, torch.inf).argsort(-1)[..., : environment.config.correct_actions // 2]
    return (LESS * correct.to(own))[None].scatter(-1, least, 1)
