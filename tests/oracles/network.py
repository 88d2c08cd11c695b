"""Tanh networks with Adam, one at a time, differentiated by autograd in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def initial(widths: Sequence[int], scale: float, rng: np.random.Generator) -> list[Tensor]:
    """Weights and biases of one layer after the other, uniform in ±scale / sqrt(fan in)."""
    parameters = []
    for fan_in, fan_out in itertools.pairwise(widths):
        numbers = rng.uniform(-scale, scale, size=(fan_in + 1, fan_out)) / fan_in**0.5
        parameters += [torch.tensor(numbers[:-1]), torch.tensor(numbers[-1])]
    return parameters


class Perceptron:
    """A network that starts from these weights and biases, and an Adam that starts afresh.

    config: of the fields max_gradient_norm, adam_betas and adam_epsilon.
    """

    def __init__(self, config: Any, parameters: Sequence[Tensor]) -> None:
        self.config = config
        self.parameters = [parameter.detach().clone().requires_grad_() for parameter in parameters]
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]
        self.updates = 0

    def log_probs(self, values: Tensor) -> Tensor:
        """The log-softmax of the logits, over the last axis."""
        for weights, biases in zip(self.parameters[::2], self.parameters[1::2], strict=True):
            values = values @ weights + biases
            if biases is not self.parameters[-1]:
                values = values.tanh()
        return values.log_softmax(-1)

    def descend(self, loss: Tensor, learning_rate: float) -> None:
        """One step of Adam on the gradient, clipped to its norm."""
        gradients = torch.autograd.grad(loss, self.parameters)
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
        clip = min(1.0, self.config.max_gradient_norm / (norm + 1e-6))
        first, second = self.config.adam_betas
        self.updates += 1
        with torch.no_grad():
            for parameter, gradient, (mean, square) in zip(self.parameters, gradients, self.moments, strict=True):
                mean.mul_(first).add_((1 - first) * clip * gradient)
                square.mul_(second).add_((1 - second) * (clip * gradient) ** 2)
                scale = (square / (1 - second**self.updates)).sqrt() + self.config.adam_epsilon
                parameter.sub_(learning_rate * mean / (1 - first**self.updates) / scale)
