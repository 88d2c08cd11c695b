"""Logit gradients of the sampled surrogates (Eqs. 1-4 and 11-17) for stacked runs whose responses are single actions.

The losses come from `cokl`: `grpo_loss`, and `row_surrogate_loss` with the weights of `Method.weights`, the functions
that an LLM trainer minimises. A response is one token, so a weighted log-likelihood has the logit gradient
sum_j w_j (onehot(y_j) - pi).

Assumption beyond the paper: GRPO's counterpart in expectations keeps its group size. Each action is weighted by its
probability and by the mean advantage that it has in a group of G whose other responses are drawn at random.

Axes: R runs, B inputs, A actions, G responses. Losses are means over B; a gradient is one input's, before the mean.
Nothing couples the runs: random numbers come from outside, shared by all runs, and turn into each run's own actions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, row_surrogate_loss
from cokl.grpo import group_advantages, grpo_loss
from cokl.methods import Method
from cokl.policy import Policy


@dataclass(frozen=True, eq=False)
class Responses:
    """G responses to each of B inputs, drawn by each of R runs; R is 1 where all runs share them.

    actions: (R, B, G) int64. rewards: (R, B, G), 0 or 1. behavior_log_probs: (R, B, G), under the policy that drew
    them. reference_log_probs: (R, B, G), under the reference.
    """

    actions: Tensor
    rewards: Tensor
    behavior_log_probs: Tensor
    reference_log_probs: Tensor

    def __getitem__(self, inputs: slice | Tensor) -> Responses:
        """The responses to some of the inputs."""
        tensors = (self.actions, self.rewards, self.behavior_log_probs, self.reference_log_probs)
        return Responses(*(tensor[:, inputs] for tensor in tensors))


def draw_responses(policy: Policy, reference: Policy, uniforms: Tensor) -> Responses:
    """G independent responses of each run of `policy` (R, B, A) to each input, by inversion of the cumulated pi.

    reference: (1, B, A) or (R, B, A). uniforms: (B, G) or (R, B, G) float64 in [0, 1). Runs that share them draw the
    same actions where their policies agree. An action of probability zero is never drawn.
    """
    return responses_to(policy, reference, draw_actions(policy.probs, uniforms))


def draw_actions(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Columns (R, B, G) drawn with probabilities proportional to `probs` (R, B, A or K), as `draw_responses` does."""
    cumulated = probs.double().cumsum(-1)
    thresholds = (uniforms * cumulated[..., -1:]).contiguous()
    return torch.searchsorted(cumulated, thresholds, right=True)


def responses_to(policy: Policy, reference: Policy, actions: Tensor) -> Responses:
    """`actions` (R, B, G), drawn by `policy`, with their rewards and log-probabilities."""
    correct = policy.correct.mask.to(policy.logits.dtype)
    return Responses(
        actions,
        gather_actions(correct, actions),
        gather_actions(policy.log_probs, actions),
        gather_actions(reference.log_probs, actions),
    )


def grpo_logit_gradient(policy: Policy, rollout: Responses) -> Tensor:
    """(R, B, A): logit gradient of -J_GRPO (Eqs. 1-4) on `rollout`, drawn by the current policy or by an older one."""
    advantages = group_advantages(rollout.rewards.flatten(0, 1))
    log_probs = gather_actions(policy.log_probs, rollout.actions)
    weights = _grpo_weights(log_probs, rollout.behavior_log_probs, advantages)
    return likelihood_gradient(policy.probs, rollout.actions, weights)


def expected_grpo_logit_gradient(policy: Policy, behavior: Policy, group_size: int) -> Tensor:
    """(R, B, A): expectation of `grpo_logit_gradient` over all groups of `group_size` that `behavior` can draw."""
    correct, incorrect = expected_advantages(behavior.log_mass, behavior.log_incorrect_mass, group_size)
    advantages = torch.where(behavior.correct.mask, correct[..., None], incorrect[..., None]) * behavior.probs
    count = advantages.shape[-1]  # the surrogate's mean over responses is a sum over actions
    weights = _grpo_weights(policy.log_probs, behavior.log_probs, (count * advantages).flatten(0, 1))
    return weights - weights.sum(-1, keepdim=True) * policy.probs


def expected_advantages(log_mass: Tensor, log_incorrect_mass: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Mean advantage of a correct and of an incorrect response in a group of `group_size`, both shaped as the masses.

    log_mass, log_incorrect_mass: log Z and log(1 - Z) of the policy that draws the group. Among the G - 1 others the
    number of correct ones is binomial with probability Z; sums are exact.
    """
    given_correct, given_incorrect = (table.to(log_mass) for table in _advantage_table(group_size))
    others = torch.arange(group_size, device=log_mass.device).to(log_mass)  # 0 to G - 1
    total = torch.tensor(float(group_size)).to(log_mass)
    log_choose = torch.lgamma(total) - torch.lgamma(others + 1) - torch.lgamma(total - others)
    # A mass of exactly zero has log -inf, whose product with no such response is to be zero.
    lowest = torch.finfo(log_mass.dtype).min
    log_mass, log_incorrect = log_mass.clamp_min(lowest), log_incorrect_mass.clamp_min(lowest)
    log_binomial = log_choose + others * log_mass[..., None] + (total - 1 - others) * log_incorrect[..., None]
    probabilities = log_binomial.exp()
    return probabilities @ given_correct, probabilities @ given_incorrect


@functools.cache
def _advantage_table(group_size: int) -> tuple[Tensor, Tensor]:
    """(G,) each: the advantage of a correct and of an incorrect response by how many of the others are correct."""
    patterns = (torch.arange(group_size) < torch.arange(group_size + 1)[:, None]).double()  # row K: K correct ones
    advantages = group_advantages(patterns)
    return advantages[1:, 0], advantages[:-1, -1]


def method_logit_gradient(
    method: Method, policy: Policy, cached: Responses, rollout: Responses, betas: Tensor, config: SurrogateConfig
) -> Tensor:
    """(R, B, A): logit gradient of the sampled surrogate of all that `method` adds to the loss, coefficients included.

    cached: the reference's responses; rollout: the policy's, current or older; their G may differ. betas: (R,).
    Raises InputError for a regularizer without a sampled surrogate.
    """
    streams = cached, rollout
    actions = [responses.actions.expand(len(policy.logits), -1, -1) for responses in streams]
    log_probs = [gather_actions(policy.log_probs, drawn) for drawn in actions]
    gradient = torch.zeros_like(policy.logits)
    for slopes, drawn in zip(surrogate_slopes(method, log_probs, streams, betas, config), actions, strict=True):
        if slopes is not None:
            gradient += likelihood_gradient(policy.probs, drawn, slopes)
    return gradient


def surrogate_slopes(
    method: Method, log_probs: Sequence[Tensor], streams: Sequence[Responses], betas: Tensor, config: SurrogateConfig
) -> SurrogateWeights:
    """Derivative of the surrogate of all that `method` adds, coefficients (R,) included: (R, B, G) for either stream.

    It is with respect to the log-likelihoods; None for a stream that the method does not weight.
    log_probs: (R, B, G) each, of the cached and the rollout responses under the current policy.
    Raises InputError for a regularizer without a sampled surrogate.
    """
    runs, batch = log_probs[0].shape[:2]
    # The floor's gate averages over a batch of groups, so each run gets a call of its own.
    stacks = [slice(run, run + 1) for run in range(runs)] if method.floor else [slice(0, runs)]
    weights_by_stack = []
    for stack in stacks:
        groups = [_groups(*pair, stack) for pair in zip(log_probs, streams, strict=True)]
        coefficients = betas[stack].repeat_interleave(batch)[:, None]
        weights_by_stack.append(method.weights(groups[0], groups[1], coefficients, config))
    slopes = []
    for weights, current in zip(zip(*weights_by_stack, strict=True), log_probs, strict=True):
        present = [weight for weight in weights if weight is not None]
        loss = partial(row_surrogate_loss, torch.cat(present).view_as(current)) if present else None
        slopes.append(None if loss is None else _derivative(loss, current))
    return SurrogateWeights(*slopes)


def likelihood_gradient(probs: Tensor, actions: Tensor, weights: Tensor) -> Tensor:
    """(R, B, A): logit gradient of the sum over j of `weights` (R, B, G) times log pi of `actions` (R, B, G).

    probs: (R, B, A), pi. The weights carry no gradient.
    """
    return (-weights.sum(-1, keepdim=True) * probs).scatter_add_(-1, actions, weights)


def _grpo_weights(log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """(R, B, G): derivative of each group's -J_GRPO with respect to its responses' log-likelihoods (R, B, G)."""
    return grpo_token_slopes(log_probs[..., None], behavior_log_probs[..., None], advantages)[..., 0]


def grpo_token_slopes(log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """(R, B, G, T): derivative of each group's -J_GRPO with respect to its tokens' log-probabilities (R, B, G, T).

    advantages: (R * B, G). All responses have T tokens.
    """
    behavior = behavior_log_probs.expand_as(log_probs).flatten(0, 1)

    def summed(current: Tensor) -> Tensor:
        every_token = torch.ones_like(current, dtype=torch.bool)
        return grpo_loss(current, behavior, advantages, every_token) * current.shape[0]

    return _derivative(summed, log_probs.flatten(0, 1)).view_as(log_probs)


def _derivative(loss: Callable[[Tensor], Tensor], log_probs: Tensor) -> Tensor:
    """The derivative of a scalar loss with respect to each log-likelihood, in their shape."""
    with torch.enable_grad():
        current = log_probs.detach().requires_grad_()
        return torch.autograd.grad(loss(current), current)[0]


def _groups(log_probs: Tensor, responses: Responses, stack: slice) -> ResponseGroups:
    """The responses of some of the runs, log-probabilities (R, B, G), as groups of their own."""
    known = (responses.rewards, responses.behavior_log_probs, responses.reference_log_probs)
    tensors = (log_probs, *(tensor.expand_as(log_probs) for tensor in known))
    return ResponseGroups(*(tensor[stack].flatten(0, 1) for tensor in tensors))


def gather_actions(dense: Tensor, actions: Tensor) -> Tensor:
    """(R, B, G): entries of `dense` (R or 1, B, A) at the actions."""
    return dense.expand(*actions.shape[:-1], -1).gather(-1, actions)
