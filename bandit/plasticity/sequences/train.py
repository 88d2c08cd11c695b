"""Answers that are sequences of tokens: the prior task of the sequence lab, in samples.

What is measured is exact, by recursion, but for the distinct correct answers, which are counted in drawn ones.

Axes: R runs, B prompts, S contexts, V symbols, T tokens, G responses, P parameters. Nothing couples the runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bandit.engine.environment import random_generator
from bandit.engine.networks import StackedMLP
from bandit.engine.two_tasks.tasks import Minibatch
from bandit.engine.two_tasks.train import JointLoss
from bandit.plasticity.plan import Start
from bandit.plasticity.sequences.config import SequencePlasticityConfig
from bandit.plasticity.train import AnswerSpace, PlasticityStream, Step
from bandit.sequences import exact
from bandit.sequences.recursions import SequencePolicy
from bandit.sequences.sampled import draw
from bandit.sequences.tasks import Family, Prompts, family, layer_sizes, rows
from bandit.sequences.train import SequenceTrainer
from cokl import methods
from cokl.regularizers import get

DRAWN = 64
"""Answers among which the distinct correct ones are counted."""


def base_model(config: SequencePlasticityConfig, seed: int, device: str) -> Tensor:
    """(P,): the parameters of the sequence lab's base model."""
    return SequenceTrainer(config).base_parameters(seed)


class Sequences(AnswerSpace):
    """A reward is a task whose automata accept other answers to the same prompts."""

    layer_sizes = staticmethod(layer_sizes)
    reference = staticmethod(base_model)

    def __init__(self, config: SequencePlasticityConfig, seed: int, parameters: Tensor) -> None:
        super().__init__(config, seed, parameters)
        self.trainer = SequenceTrainer(config)
        self.response_shape = self.trainer.response_shape
        self.task = self._family()

    def _family(self, more: int = 0, moved: int = 0) -> Family:
        return family(self.config, 2 * self.seed, self.config.forbidden + more, moved)

    def sampled_step(self, starts: list[Start]) -> Callable[[Tensor, Tensor], Step]:
        """GRPO and the regularizer on the same prompts and rollouts; a filtered method skips prompts whose cached group
        holds no correct response.
        """
        method, size, trainer, train = starts[0].method, starts[0].cached, self.trainer, self.task.train
        betas = torch.tensor([start.beta for start in starts], dtype=torch.float64)
        objective = trainer.objective("sampled", method, betas)
        known = rows(self.config, self.stack(self.parameters[None]), train.inputs)[0].clone()
        prompts = Prompts(train.inputs, train.automata, known)
        shape = (len(train.inputs), max(self.config.cached), self.config.length)
        numbers = torch.from_numpy(random_generator(self.seed, PlasticityStream.CACHE).random(shape))
        cache = draw(prompts.reference(), prompts.reference(), numbers[:, : max(size, 1)])

        def gradient(logits: Tensor, minibatch: Minibatch, solved: Tensor) -> Tensor:
            [policy] = trainer.policies(logits, [minibatch])
            rollout = objective.roll_out(policy, minibatch)
            loss = objective.rl(policy, rollout)
            if method.regularizer is not None:
                added = objective.regularization(policy, rollout, minibatch)
                if method.filtered and size:
                    added *= solved
                loss = loss + added
            return trainer.joined([loss], logits)

        def step(batch: Tensor, uniforms: Tensor) -> Step:
            cached = cache[batch]
            known = partial(
                gradient, minibatch=Minibatch(prompts[batch], uniforms, cached), solved=cached.rewards.any(-1)
            )
            return trainer.network_inputs(train.inputs[batch]), known

        return step

    def reached(self, mlp: StackedMLP) -> dict[str, list[float]]:
        """Correctness, distinct correct answers of 64, entropy of the correct answers, and the conditional KL."""
        test = self.task.test
        policy, base = (
            SequencePolicy(rows(self.config, networks, test.inputs), test.automata)
            for networks in (mlp, self.stack(self.parameters[None]))
        )
        shape = (len(test.inputs), DRAWN, self.config.length)
        uniforms = random_generator(self.seed, PlasticityStream.COUNTED).random(shape)
        metrics = {
            "p_correct": policy.mass,
            "distinct_at_64": distinct_correct(policy, torch.from_numpy(uniforms)),
            "conditional_entropy": policy.conditional_entropy(),
            "conditional_kl": exact.regularizer_value(get("cokl"), policy, base),
        }
        return {name: values.double().mean(-1).tolist() for name, values in metrics.items()}

    def changed(self, stage: str, final: StackedMLP) -> Family:
        """The same prompts, with other answers correct."""
        kind, size = stage.split("-")
        return self._family(more=int(size)) if kind == "narrowed" else self._family(moved=int(size))

    def new_step(self, reward: Family, mode: str, batch: Tensor, uniforms: Tensor) -> Step:
        """GRPO in groups."""
        objective = self.trainer.objective("sampled", methods.get("none"), torch.zeros(1, dtype=torch.float64))
        loss = JointLoss(self.trainer, objective, Minibatch(reward.train[batch], uniforms), None)
        return loss.inputs(), loss.logit_gradient

    def expected(self, mlp: StackedMLP, reward: Family) -> Tensor:
        """(R, test prompts): the probability of a correct answer."""
        return SequencePolicy(rows(self.config, mlp, reward.test.inputs), reward.test.automata).mass


def distinct_correct(policy: SequencePolicy, uniforms: Tensor) -> Tensor:
    """(R, B): how many different correct answers are among those drawn with uniforms (B, G, T)."""
    drawn = draw(policy, policy, uniforms)
    places = policy.probs.shape[1] ** torch.arange(uniforms.shape[-1])
    numbers = (drawn.actions * places).sum(-1).masked_fill(drawn.rewards == 0, -1).sort(-1).values
    new = torch.cat([torch.ones_like(numbers[..., :1], dtype=torch.bool), numbers.diff(dim=-1) > 0], dim=-1)
    return (new & (numbers >= 0)).sum(-1)
