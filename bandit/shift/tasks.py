"""The two task families of a seed, the base model, and the buffer of prior-task prompts.

Assumption beyond the paper: the new family's cluster i is paired with the prior family's cluster i, and both overlaps
are between partners. Its centre is rho times its partner's plus sqrt(1 - rho^2) times an independent one, so that
centres are equally far apart at every overlap.

Assumption beyond the paper: exact mode leaves the same prompts out of the buffer as sampled mode does, those whose
G_ref sampled reference responses are all incorrect, although it then takes the reference's exact probabilities.

Assumption beyond the paper: the base model is trained in expectations in both modes, so that they start from one model.

Axes: N inputs, A actions, D input dimensions, P parameters.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bandit.engine.environment import Environment, random_generator
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import Split, layer_sizes
from bandit.engine.sampled import draw
from bandit.engine.two_tasks.tasks import Cache, ShiftStream, TwoTasks
from bandit.shift.config import ShiftConfig
from bandit.shift.verifier import Verifier
from cokl.policy import CorrectSet

_ADVICE = "--prior-steps or --correct-mass, or enlarge --buffer-size or --reference-group-size"


def families(config: ShiftConfig, seed: int) -> tuple[Environment, Environment]:
    """The prior and the new task of a seed, with the configured overlaps."""
    prior, new = (Environment(config.environment, 2 * seed + task) for task in (0, 1))
    rho = config.cluster_overlap
    moved = rho * prior.centers + (1 - rho**2) ** 0.5 * new.centers
    new.train_inputs += (moved - new.centers)[new.train_clusters]
    new.test_inputs += (moved - new.centers)[new.test_clusters]
    new.centers = moved

    rng = random_generator(seed, ShiftStream.OVERLAP)
    shared, actions = config.shared_correct_actions, np.arange(config.environment.actions)
    mask = torch.zeros_like(new.oracle, dtype=torch.bool)
    oracle = torch.empty_like(new.oracle)
    for cluster, (partners, own) in enumerate(zip(prior.correct.actions, new.correct.actions, strict=True)):
        kept = rng.choice(partners.numpy(), shared, replace=False)
        others = rng.choice(np.setdiff1d(actions, partners.numpy()), len(own) - shared, replace=False)
        chosen = torch.from_numpy(rng.permutation(np.concatenate([kept, others])))
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
    drawn = draw(reference, reference, torch.from_numpy(rng.random(size)))
    verdicts = torch.from_numpy(random_generator(seed, ShiftStream.REFERENCE_VERDICTS).random(size))
    verifier = Verifier(config.success_of_wrong, config.success_of_right)
    return TwoTasks(
        seed,
        parameters,
        splits.on(new.train_inputs, new.correct[new.train_clusters]),
        splits.on(prior.test_inputs, prior.correct[prior.test_clusters]),
        splits.on(new.test_inputs, new.correct[new.test_clusters]),
        Cache(prompts, verifier.judge(drawn, verdicts), _ADVICE),
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
