"""Logit gradients of the sampled surrogates (Eqs. 1-4 and 11-17) for stacked runs whose responses are sequences.

The weights are those of `bandit.engine.sampled` and of an LLM trainer; they lie on the log-likelihoods of whole
responses, which are sums over tokens. Updates are on-policy (E.3): the current policy has drawn the rollouts.

Axes: R runs, B prompts, G responses, T tokens, S contexts, V symbols.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bandit.engine.sampled import Responses, draw_actions, grpo_token_slopes, surrogate_slopes
from bandit.engine.sequences.recursions import SequencePolicy, positions, token_places
from cokl.groups import SurrogateConfig
from cokl.grpo import group_advantages
from cokl.methods import Method


def draw_sequences(policy: SequencePolicy, reference: SequencePolicy, uniforms: Tensor) -> Responses:
    """G independent responses of each run to each prompt, (R, B, G, T), token by token from the cumulated pi.

    uniforms: (B, G, T) float64 in [0, 1). Runs that share them draw the same tokens where their policies agree.
    """
    last = None
    tokens = []
    for current, numbers in zip(positions(policy.probs), uniforms.flatten(0, 1).unbind(-1), strict=True):
        probs = current.permute(2, 3, 0, 1)  # (R, B, M, V)
        if last is None:
            last = torch.zeros(*probs.shape[:2], uniforms.shape[1], dtype=torch.int64)
        chosen = probs.gather(2, last[..., None].expand(-1, -1, -1, probs.shape[-1]))
        last = draw_actions(chosen.flatten(1, 2), numbers[:, None]).view_as(last)
        tokens.append(last)
    drawn = torch.stack(tokens, dim=-1)
    rewards = policy.automata.accept(drawn).to(torch.float64)
    log_probs, reference_log_probs = (token_log_probs(model, drawn).sum(-1) for model in (policy, reference))
    return Responses(drawn, rewards, log_probs, reference_log_probs)


def token_log_probs(policy: SequencePolicy, tokens: Tensor) -> Tensor:
    """(R, B, G, T): log pi of every token of responses (R or 1, B, G, T)."""
    table = policy.log_probs.flatten(0, 1).permute(1, 2, 0)
    runs = max(len(table), len(tokens))
    positions = token_places(tokens, policy.probs.shape[1]).flatten(2)
    gathered = table.expand(runs, -1, -1).gather(-1, positions.expand(runs, -1, -1))
    return gathered.view(runs, *tokens.shape[1:])


def grpo_gradient(policy: SequencePolicy, rollout: Responses) -> Tensor:
    """(S, V, R, B): logit gradient of each prompt's -J_GRPO (Eqs. 1-4), whose tokens count 1 / T each."""
    log_probs = token_log_probs(policy, rollout.actions)
    advantages = group_advantages(rollout.rewards.flatten(0, 1))
    return likelihood_gradient(policy, rollout.actions, grpo_token_slopes(log_probs, log_probs, advantages))


def method_gradient(
    method: Method, policy: SequencePolicy, cached: Responses, rollout: Responses, betas: Tensor
) -> Tensor:
    """(S, V, R, B): logit gradient of the sampled surrogate of what `method` adds, coefficients (R,) included.

    cached: the reference's responses; rollout: the policy's. Raises InputError for a regularizer without a surrogate.
    """
    streams = cached, rollout
    log_probs = [token_log_probs(policy, responses.actions).sum(-1) for responses in streams]
    slopes_by_stream = surrogate_slopes(method, log_probs, streams, betas, SurrogateConfig())
    total = torch.zeros_like(policy.probs)
    for slopes, responses in zip(slopes_by_stream, streams, strict=True):
        if slopes is not None:
            tokens = responses.actions
            total += likelihood_gradient(policy, tokens, slopes[..., None].expand(-1, -1, -1, tokens.shape[-1]))
    return total


def likelihood_gradient(policy: SequencePolicy, tokens: Tensor, weights: Tensor) -> Tensor:
    """(S, V, R, B): logit gradient of the sum of `weights` (R, B, G, T) times log pi of `tokens` (R or 1, B, G, T)."""
    positions = token_places(tokens, policy.probs.shape[1]).flatten(2).expand(len(weights), -1, -1)
    counted = torch.zeros_like(policy.probs).flatten(0, 1)
    counted.scatter_add_(0, positions.permute(2, 0, 1), weights.flatten(2).permute(2, 0, 1))
    return policy.through_softmax(counted.view_as(policy.probs))
