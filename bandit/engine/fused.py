"""The exact objective's logit gradient in one pass over each row of logits, for float32 on a CPU.

It computes what `exact.Objective` computes from `Policy` and the regularizers' `logit_gradient`, which stay its
tested oracle and serve every regularizer without a fused form, float64 and GPUs. A row of logits stays in the
first-level cache from its softmax to its gradient, where the plain path writes it to memory a dozen times.

Axes: R runs, B inputs in a batch, N inputs in the split, A actions, K correct actions of each input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from bandit.engine.reference import Split
from cokl.methods import Method
from cokl.regularizers.cokl import CoKL
from cokl.regularizers.cokl_without_term1 import CoKLWithoutTerm1
from cokl.regularizers.correct_forward_kl import CorrectForwardKL
from cokl.regularizers.correct_reverse_kl import CorrectReverseKL
from cokl.regularizers.entropy import Entropy
from cokl.regularizers.forward_kl import ForwardKL
from cokl.regularizers.jensen_shannon import JensenShannon
from cokl.regularizers.reverse_kl import ReverseKL

_NONE, _ENTROPY, _FORWARD_KL, _REVERSE_KL, _JENSEN_SHANNON, _COKL, _REPLAY, _LOG_MASS, _CORRECT_REVERSE_KL = range(9)
_KINDS: dict[type, int] = {
    type(None): _NONE,
    Entropy: _ENTROPY,
    ForwardKL: _FORWARD_KL,
    ReverseKL: _REVERSE_KL,
    JensenShannon: _JENSEN_SHANNON,
    CoKL: _COKL,
    CorrectForwardKL: _REPLAY,
    CoKLWithoutTerm1: _LOG_MASS,
    CorrectReverseKL: _CORRECT_REVERSE_KL,
}


class FusedObjective:
    """Logit gradients of -Z + beta * D, as `exact.Objective` gives them, written over the logits."""

    def __init__(self, method: Method, betas: Tensor, split: Split) -> None:
        self.kind = _KINDS[type(method.regularizer)]
        self.betas = betas.numpy()
        reference = split.reference(slice(None))
        dense = reference.log_probs if self.kind == _REVERSE_KL else reference.probs
        columns = reference.correct_log_probs if self.kind == _CORRECT_REVERSE_KL else reference.conditional_probs
        self.reference = dense[0].numpy()
        self.correct_reference = columns[0].contiguous().numpy()
        self.actions = split.correct.actions.numpy().astype(np.int32)

    @staticmethod
    def applies(method: Method, split: Split) -> bool:
        """Whether the method has a fused form and the split is float32 on a CPU with correct sets of one size."""
        on_cpu = split.inputs.device.type == "cpu" and split.inputs.dtype == torch.float32
        return FusedObjective.knows(method) and not method.floor and on_cpu and split.correct.valid is None

    @staticmethod
    def knows(method: Method) -> bool:
        """Whether the method's regularizer is one of those whose gradient is written here."""
        return type(method.regularizer) in _KINDS

    def gradient(self, logits: Tensor, batch: Tensor) -> Tensor:
        """Turn logits (R, B, A) into each input's loss gradient; batch (B,) are the inputs' positions in the split."""
        arrays = (self.betas, self.reference, self.correct_reference, self.actions)
        _replace_by_gradient(logits.numpy(), batch.numpy(), self.kind, *arrays)
        return logits


_LOG2_E = np.float32(math.log2(math.e))
_LN_2 = np.float32(math.log(2))
_SQRT_HALF_BITS = np.int32(0x3F3504F3)
# Taylor coefficients of 2^f on |f| <= 1/2, degree 7: relative error below 2e-9, under float32's 6e-8.
_EXP2 = tuple(np.float32(math.log(2) ** n / math.factorial(n)) for n in range(8))
# log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + ...) for |s| <= 0.172, to s^9: absolute error below 4e-10.
_ATANH = tuple(np.float32(2 / n) for n in (1, 3, 5, 7, 9))


def _compiled(function: Callable[..., None]) -> Any:
    """Compiled by Numba, whose code is kept for the next process where there is a folder to keep it in."""
    options: Any = {"fastmath": True, "error_model": "numpy", "nogil": True}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that Numba may write to
        return njit(**options)(function)


@_compiled
def _replace_by_gradient(logits, batch, kind, betas, reference, correct_reference, actions):  # noqa: PLR0912, PLR0915
    runs, inputs, width = logits.shape
    correct = actions.shape[1]
    logit_bits = logits.view(np.int32)
    probs = np.empty(width, np.float32)
    costs = np.empty(width, np.float32)
    bits = np.empty(width, np.int32)
    as_float = bits.view(np.float32)
    conditional = np.empty(correct, np.float32)
    lifted = np.empty(correct, np.float32)
    zero, one, half = np.float32(0), np.float32(1), np.float32(0.5)
    for run in range(runs):
        beta = betas[run]
        for index in range(inputs):
            row, row_bits, position = logits[run, index], logit_bits[run, index], batch[index]
            dense, columns, chosen = reference[position], correct_reference[position], actions[position]

            # The row's maximum, on integers that sort as the floats do, since only an integer maximum is vectorised.
            highest = np.int32(-(2**31))
            for a in range(width):
                highest = max(highest, np.int32(row_bits[a] ^ ((row_bits[a] >> 31) & np.int32(2**31 - 1))))
            bits[0] = highest ^ ((highest >> 31) & np.int32(2**31 - 1))
            largest = as_float[0]

            # Softmax. exp(x) = 2^n 2^f; below 2^-126 it is zero to float32.
            for a in range(width):
                power = max((row[a] - largest) * _LOG2_E, np.float32(-126))
                whole = np.int32(power - half)
                f = power - np.float32(whole)
                bits[a] = (whole + np.int32(127)) << np.int32(23)
                probs[a] = _EXP2[0] + f * (
                    _EXP2[1]
                    + f * (_EXP2[2] + f * (_EXP2[3] + f * (_EXP2[4] + f * (_EXP2[5] + f * (_EXP2[6] + f * _EXP2[7])))))
                )
            total = zero
            for a in range(width):
                probs[a] *= as_float[a]
                total += probs[a]
            scale = one / total
            mass = zero
            for k in range(correct):
                mass += probs[chosen[k]] * scale

            # pi+, from its own softmax where Z is so small that its probabilities have underflowed.
            if kind >= _COKL:
                if mass > np.float32(1e-30):
                    for k in range(correct):
                        conditional[k] = probs[chosen[k]] * scale / mass
                else:
                    best = row[chosen[0]]
                    for k in range(correct):
                        best = max(best, row[chosen[k]])
                    correct_total = zero
                    for k in range(correct):
                        conditional[k] = math.exp(row[chosen[k]] - best)
                        correct_total += conditional[k]
                    for k in range(correct):
                        conditional[k] /= correct_total
            if kind == _CORRECT_REVERSE_KL:
                expected = zero
                # Less the largest logit first, which loses no digits far from zero; in a loop of its own, since fast
                # arithmetic may regroup sums within one.
                for k in range(correct):
                    lifted[k] = row[chosen[k]] - largest
                for k in range(correct):
                    expected += conditional[k] * (lifted[k] - columns[k])
                for k in range(correct):
                    conditional[k] *= lifted[k] - columns[k] - expected

            # Dense part: pi * (Z + beta * (cost - E[cost])) for the entropy-like kinds, whose costs need no constants.
            if kind in (_ENTROPY, _REVERSE_KL, _JENSEN_SHANNON):
                if kind == _ENTROPY:
                    for a in range(width):
                        costs[a] = row[a] - largest
                elif kind == _REVERSE_KL:
                    for a in range(width):
                        costs[a] = row[a] - largest - dense[a]
                else:
                    for a in range(width):
                        as_float[a] = probs[a] * scale + dense[a]
                    for a in range(width):
                        exponent = (bits[a] - _SQRT_HALF_BITS) >> np.int32(23)
                        costs[a] = np.float32(exponent)
                        bits[a] -= exponent << np.int32(23)
                    for a in range(width):
                        s = (as_float[a] - one) / (as_float[a] + one)
                        t = s * s
                        log_sum = costs[a] * _LN_2 + s * (
                            _ATANH[0] + t * (_ATANH[1] + t * (_ATANH[2] + t * (_ATANH[3] + t * _ATANH[4])))
                        )
                        costs[a] = half * (row[a] - largest - log_sum)
                expected = zero
                for a in range(width):
                    expected += probs[a] * costs[a]
                offset = mass - beta * expected * scale
                for a in range(width):
                    row[a] = probs[a] * scale * (offset + beta * costs[a])
            elif kind == _FORWARD_KL:
                factor = (mass + beta) * scale
                for a in range(width):
                    row[a] = probs[a] * factor - beta * dense[a]
            else:
                factor = mass * scale
                if kind == _REPLAY:
                    factor = (mass + beta) * scale
                elif kind == _LOG_MASS:
                    factor = (mass - beta) * scale
                for a in range(width):
                    row[a] = probs[a] * factor

            # Correct columns: -pi from the reward, and the regularizer's own.
            for k in range(correct):
                value = -probs[chosen[k]] * scale
                if kind == _COKL:
                    value += beta * (conditional[k] - columns[k])
                elif kind == _REPLAY:
                    value -= beta * columns[k]
                elif kind in (_LOG_MASS, _CORRECT_REVERSE_KL):
                    value += beta * conditional[k]
                row[chosen[k]] += value
