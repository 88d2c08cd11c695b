"""Many Tanh MLPs of one shape, trained side by side: stacked weights, closed-form backward pass, one Adam.

Assumption beyond the paper: gradients are clipped before Adam sees them, by min(1, max_norm / (norm + 1e-6)) as
PyTorch's `clip_grad_norm_` does.

Axes: R runs, B inputs in a batch, P parameters of one run. Nothing couples the runs: losses are summed over runs,
gradient norms are taken per run, and Adam is elementwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam


class AdamConfig(Protocol):
    """The fields of a configuration that `Trainer` reads."""

    @property
    def max_gradient_norm(self) -> float:
        """Each run's gradient is clipped to this norm."""

    @property
    def adam_betas(self) -> tuple[float, float]:
        """Decay rates of Adam's moments."""

    @property
    def adam_epsilon(self) -> float:
        """The constant in Adam's denominator."""


def initial_parameters(sizes: Sequence[int], scale: float, rng: np.random.Generator) -> Tensor:
    """(P,) float64: weights and biases of one run, uniform in ±scale / sqrt(fan_in)."""
    blocks = [
        rng.uniform(-scale, scale, size=(fan_in + 1) * fan_out) / np.sqrt(fan_in)
        for fan_in, fan_out in itertools.pairwise(sizes)
    ]
    return torch.from_numpy(np.concatenate(blocks))


class StackedMLP:
    """R multilayer perceptrons with Tanh between layers, starting from `parameters` (R, P).

    sizes: input, hidden and output widths. One run's parameters are, layer by layer, the weights (fan_in, fan_out)
    and then the biases. All runs' parameters lie in one flat buffer, block by block, which is what Adam sees.
    Raises ValueError if P is not what these layers take.
    """

    def __init__(self, sizes: Sequence[int], parameters: Tensor) -> None:
        runs = parameters.shape[0]
        shapes = [shape for fan_in, fan_out in itertools.pairwise(sizes) for shape in ((fan_in, fan_out), (1, fan_out))]
        lengths = [rows * columns for rows, columns in shapes]
        if parameters.shape[1] != sum(lengths):
            raise ValueError(
                f"parameters: expected (R, {sum(lengths)}) for layers {list(sizes)}, got {parameters.shape}"
            )
        self.flat = torch.cat([block.reshape(-1) for block in parameters.split(lengths, dim=1)])
        self.flat_gradient = torch.empty_like(self.flat)

        def views(flat: Tensor) -> list[Tensor]:
            blocks = flat.split([runs * length for length in lengths])
            return [block.view(runs, *shape) for block, shape in zip(blocks, shapes, strict=True)]

        self.blocks, self.gradients = views(self.flat), views(self.flat_gradient)
        self.activations: list[Tensor] = []
        self._outputs: dict[int, list[Tensor]] = {}
        self._hidden_gradients: list[Tensor] = []

    def parameters(self) -> Tensor:
        """(R, P): each run's parameters, as the constructor takes them."""
        return torch.cat([block.flatten(1) for block in self.blocks], dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (R, B, A) for inputs (R, B, D), or (1, B, D) when all runs share them; keeps what `backward` needs.

        The result lives in a buffer that the next call with as many inputs overwrites.
        """
        runs, batch = self.blocks[0].shape[0], inputs.shape[1]
        if batch not in self._outputs:
            self._outputs[batch] = [self.flat.new_empty(runs, batch, bias.shape[2]) for bias in self.blocks[1::2]]
        self.activations = [inputs.expand(runs, -1, -1), *self._outputs[batch]]
        for layer, (below, above) in enumerate(itertools.pairwise(self.activations)):
            torch.baddbmm(self.blocks[2 * layer + 1], below, self.blocks[2 * layer], out=above)
            if above is not self.activations[-1]:
                above.tanh_()
        return self.activations[-1]

    def backward(self, gradient: Tensor) -> None:
        """Fill `flat_gradient` from the loss's gradient with respect to the logits (R, B, A), summed over the batch."""
        hidden = self.activations[1:-1]
        if [buffer.shape for buffer in self._hidden_gradients] != [activation.shape for activation in hidden]:
            self._hidden_gradients = [torch.empty_like(activation) for activation in hidden]
        for layer in reversed(range(len(self.activations) - 1)):
            below = self.activations[layer]
            torch.bmm(below.transpose(1, 2), gradient, out=self.gradients[2 * layer])
            torch.sum(gradient, dim=1, keepdim=True, out=self.gradients[2 * layer + 1])
            if layer:
                propagated = self._hidden_gradients[layer - 1]
                torch.bmm(gradient, self.blocks[2 * layer].transpose(1, 2), out=propagated)
                gradient = torch.ops.aten.tanh_backward.grad_input(propagated, below, grad_input=propagated)

    def scale_gradients(self, factors: Tensor) -> None:
        """Multiply each run's gradient by its factor (R,)."""
        for gradient in self.gradients:
            gradient.mul_(factors[:, None, None])

    def gradient_norms(self) -> Tensor:
        """(R,): the Euclidean norm of each run's whole gradient."""
        squares = [torch.linalg.vector_norm(gradient, dim=(1, 2)).square() for gradient in self.gradients]
        return torch.stack(squares).sum(0).sqrt()


class Trainer:
    """Adam on a stack of MLPs, each run's mean gradient clipped to its own norm.

    failed_at: (R,) int64, each run's first update whose gradient had no finite norm, counted from 1; 0 for none.
    clip: (R,), what the last update's gradient was multiplied by.
    """

    def __init__(self, mlp: StackedMLP, config: AdamConfig, learning_rate: float) -> None:
        self.mlp = mlp
        self.max_norm = config.max_gradient_norm
        runs = mlp.blocks[0].shape[0]
        self.updates = torch.zeros((), dtype=torch.int64, device=mlp.flat.device)
        self.failed_at = torch.zeros(runs, dtype=torch.int64, device=mlp.flat.device)
        self.clip = torch.ones(runs, device=mlp.flat.device)
        self.moments = torch.zeros_like(mlp.flat), torch.zeros_like(mlp.flat)
        self.adam_steps = torch.zeros((), dtype=torch.float32, device=mlp.flat.device)
        # The function, since torch.optim.Adam loads torch's compiler, which takes a process longer than a small sweep.
        self.update = partial(
            adam,
            [mlp.flat],
            [mlp.flat_gradient],
            [self.moments[0]],
            [self.moments[1]],
            [],
            [self.adam_steps],
            fused=True,
            capturable=mlp.flat.is_cuda,
            amsgrad=False,
            beta1=config.adam_betas[0],
            beta2=config.adam_betas[1],
            lr=learning_rate,
            weight_decay=0.0,
            eps=config.adam_epsilon,
            maximize=False,
        )

    def state(self) -> list[Tensor]:
        """All that an update changes beside the parameters; zero in a fresh trainer.

        Adam's two moments, shaped as the flat parameters; its steps and the updates, scalars; failed_at, (R,).
        """
        return [*self.moments, self.adam_steps, self.updates, self.failed_at]

    def step(self, inputs: Tensor, logit_gradient: Callable[[Tensor], Tensor]) -> None:
        """One update on `inputs`, (R or 1, B, D).

        logit_gradient: maps the logits (R, B, A) to each input's gradient of the loss with respect to them; the loss
        is their mean over the batch.
        """
        self.mlp.backward(logit_gradient(self.mlp.forward(inputs)))
        mean_norms = self.mlp.gradient_norms() / inputs.shape[1]
        self.updates += 1
        self.failed_at += self.updates * ((self.failed_at == 0) & ~mean_norms.isfinite())
        # As torch.nn.utils.clip_grad_norm_ does, with the division by the batch size folded in.
        self.clip = (self.max_norm / (mean_norms + 1e-6)).clamp_max(1)
        self.mlp.scale_gradients(self.clip / inputs.shape[1])
        self.update()
