"""Reference groups as the buffer's filter leaves them: given that they hold a correct response (Appendix B).

Axes: R runs, B inputs, A actions, M groups per input, G responses.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bandit.engine.sampled import Responses, draw_actions, responses_to
from cokl.policy import Policy


def draw_filtered(policy: Policy, uniforms: Tensor) -> Responses:
    """M groups of G independent responses of `policy` (R, B, A) to each input, given a correct response in each group.

    The groups of an input lie one after the other, (R, B, M * G). uniforms: (B, M, G + 1) or (R, B, M, G + 1) float64
    in [0, 1); the first of a group places its first correct response.
    Exact, without rejections: the place J of the first correct response has P(J = j) proportional to (1 - Z)^j Z for
    j < G; responses before it come from pi-, the one there from pi+, those after it from pi. Every Z is in (0, 1).
    """
    place, uniforms = uniforms[..., :1], uniforms[..., 1:]
    size = uniforms.shape[-1]
    log_miss = policy.log_incorrect_mass.double()[..., None, None]
    first = (torch.log1p(place * torch.expm1(size * log_miss)) / log_miss).long().clamp(0, size - 1)
    position = torch.arange(size, device=uniforms.device)
    column = draw_actions(policy.conditional_probs, uniforms.expand(*first.shape[:-1], -1).gather(-1, first)[..., 0])
    right = policy.correct.actions.expand(*column.shape[:-1], -1).gather(-1, column)[..., None]
    incorrect, either = (
        draw_actions(probs, uniforms.flatten(-2)).unflatten(-1, (-1, size))
        for probs in (policy.probs.masked_fill(policy.correct.mask, 0), policy.probs)
    )
    actions = torch.where(position < first, incorrect, torch.where(position == first, right, either))
    return responses_to(policy, policy, actions.flatten(-2))
