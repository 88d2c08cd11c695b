"""The baseline: the loop that a researcher would write for one run, with autograd and boolean masks.

One `nn.Module`, `torch.optim.Adam`, `clip_grad_norm_`, the loss written from the definition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from bandit.engine.environment import Environment, RandomStream
from bandit.engine.reference import layer_sizes, minibatches
from bandit.sweep.config import SweepConfig


def _conditional(log_probs: Tensor, mask: Tensor) -> Tensor:
    masked = log_probs.masked_fill(~mask, -torch.inf)
    return masked - masked.logsumexp(-1, keepdim=True)


def _cokl(log_probs: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    target, ours = _conditional(reference, mask), _conditional(log_probs, mask)
    return (target.exp() * (target - ours).masked_fill(~mask, 0)).sum(-1)


PENALTIES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor] | None] = {
    "none": None,
    "forward_kl": lambda log_probs, reference, mask: (reference.exp() * (reference - log_probs)).sum(-1),
    "reverse_kl": lambda log_probs, reference, mask: (log_probs.exp() * (log_probs - reference)).sum(-1),
    "cokl": _cokl,
}


def training(config: SweepConfig, environment: Environment, method: str, beta: float) -> Iterator[None]:
    """Train one run, a step each time it is asked for the next; evaluations are left out."""
    sizes = list(itertools.pairwise(layer_sizes(config)))
    layers = [layer for fan_in, fan_out in sizes for layer in (nn.Linear(fan_in, fan_out), nn.Tanh())]
    policy = nn.Sequential(*layers[:-1])
    penalty = PENALTIES[method]
    inputs = environment.train_inputs.float()
    mask = environment.correct.mask[environment.train_clusters]
    with torch.no_grad():
        reference = policy(inputs).log_softmax(-1)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate)
    for batch in minibatches(config, 0, RandomStream.RL_BATCHES):
        log_probs = policy(inputs[batch]).log_softmax(-1)
        loss = -(log_probs.exp() * mask[batch]).sum(-1).mean()
        if penalty is not None:
            loss = loss + beta * penalty(log_probs, reference[batch], mask[batch]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), config.max_gradient_norm)
        optimizer.step()
        yield
