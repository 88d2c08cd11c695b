"""Sampled groups of sequences: how they are drawn, and their gradients against one prompt's loss written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bandit.engine.sequences import sampled
from cokl import methods
from tests.bandit.sequences.cases import Case, case
from tests.oracles import sampled as definitions
from tests.oracles import sequences as oracle

STEPS, GROUP = 3, 4
BETAS = [0.7, 2.0]


def uniforms(prompts: int, group: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((prompts, group, STEPS)))


def groups(example: Case):
    """Policy, reference, the reference's cached responses (one run) and the policy's rollouts."""
    policy, reference = example.policies()
    cached, fresh = (
        sampled.draw_sequences(by, reference, uniforms(len(example.machines), GROUP, number))
        for number, by in ((1, reference), (2, policy))
    )
    return policy, reference, cached, fresh


def test_tokens_are_drawn_from_the_next_token_probabilities_one_after_the_other():
    example = case(STEPS)
    _, _, _, rollout = groups(example)
    numbers = uniforms(len(example.machines), GROUP, 2)
    for run, prompt, response in np.ndindex(2, len(example.machines), GROUP):
        table, last = example.table(example.rows[run, prompt]), 0
        for step in range(STEPS):
            chances = table[step, last].softmax(-1).cumsum(-1)
            expected = int((chances < numbers[prompt, response, step]).sum())
            assert int(rollout.actions[run, prompt, response, step]) == expected
            last = expected


def test_rewards_and_log_probabilities_are_those_of_the_drawn_responses():
    example = case(STEPS)
    for drawn, rows in zip(groups(example)[2:], (example.reference_rows, example.rows), strict=True):
        for run, prompt, response in np.ndindex(len(rows), len(example.machines), GROUP):
            tokens = drawn.actions[run, prompt, response].tolist()
            assert bool(drawn.rewards[run, prompt, response]) == oracle.accepts(example.machines[prompt], tokens)
            for found, logits in (
                (drawn.behavior_log_probs, rows[run, prompt]),
                (drawn.reference_log_probs, example.reference_rows[0, prompt]),
            ):
                expected = oracle.log_prob(example.table(logits), tokens, torch)
                torch.testing.assert_close(found[run, prompt, response], expected)


def log_likelihoods(logits: Tensor, responses: Tensor) -> list[Tensor]:
    return [oracle.log_prob(logits, tokens, torch) for tokens in responses.tolist()]


def weighted(weights, terms) -> Tensor:
    return sum((w * term for w, term in zip(weights, terms, strict=True)), start=torch.zeros((), dtype=torch.float64))


def surrogate(name: str, logits: Tensor, reference: Tensor, cached, rollout) -> Tensor:
    """One prompt's surrogate at the policy that drew the rollouts. cached, rollout: tokens (G, T) and rewards."""
    old, fresh = log_likelihoods(logits, cached[0]), log_likelihoods(logits, rollout[0])
    alpha = definitions.self_normalised(cached[1])
    if name == "correct_forward_kl":
        return -weighted(alpha, old)
    if name == "cokl":
        return weighted(definitions.self_normalised(rollout[1]), fresh) - weighted(alpha, old)
    costs = [float(a.detach() - b) for a, b in zip(fresh, log_likelihoods(reference, rollout[0]), strict=True)]
    return weighted(definitions.score_function(costs, [1.0] * GROUP), fresh)


@pytest.mark.parametrize("name", ["cokl", "correct_forward_kl", "reverse_kl"])
def test_a_methods_gradient_is_that_of_its_surrogate_on_the_same_responses(name):
    example = case(STEPS)
    policy, _, cached, rollout = groups(example)
    betas = torch.tensor(BETAS, dtype=torch.float64)
    found = sampled.method_gradient(methods.get(name), policy, cached, rollout, betas)
    seen = 0
    for run, prompt in np.ndindex(2, len(example.machines)):
        tables = example.table(example.rows[run, prompt]), example.table(example.reference_rows[0, prompt])
        streams = [
            (drawn.actions[place, prompt], drawn.rewards[place, prompt].tolist())
            for drawn, place in ((cached, 0), (rollout, run))
        ]

        def loss(logits, reference=tables[1], streams=streams):
            return surrogate(name, logits, reference, *streams)

        expected = BETAS[run] * oracle.autograd(loss, tables[0])
        seen += bool(expected.any())
        torch.testing.assert_close(example.table(found[:, :, run, prompt]), expected)
    assert seen > 1


def test_grpos_gradient_is_that_of_its_token_mean():
    example = case(STEPS)
    policy, _, _, rollout = groups(example)
    found = sampled.grpo_gradient(policy, rollout)
    for run, prompt in np.ndindex(2, len(example.machines)):
        responses = rollout.actions[run, prompt].tolist()
        rewards = rollout.rewards[run, prompt].tolist()

        def loss(logits, responses=responses, rewards=rewards):
            tokens = [oracle.token_log_probs(logits, response) for response in responses]
            behavior = [[float(token.detach()) for token in one] for one in tokens]
            advantages = definitions.advantages(rewards, 1e-6, True)
            ratios = [
                sum((now - before).exp() for now, before in zip(*pair, strict=True)) / STEPS
                for pair in zip(tokens, behavior, strict=True)
            ]
            return -weighted(advantages, ratios) / GROUP

        expected = oracle.autograd(loss, example.table(example.rows[run, prompt]))
        torch.testing.assert_close(example.table(found[:, :, run, prompt]), expected)
