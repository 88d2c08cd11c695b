"""Appendix B, off-policy part: identities of importance weighting, and how biased the practical surrogate is."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from cokl.groups import ResponseGroups, SurrogateConfig
from theory import formulas
from theory.claim import BEYOND, Effort, Evidence, claim, largest, worst_of_each, worst_over
from theory.claims.finite_group import ENUMERATED, bandits, distance
from theory.finite_group import Bandit, all_groups, expected_rollout_weights, expected_surrogate_gradient, random_bandit

CURRENT = np.array([0.16, 0.08, 0.04, 0.02])
"""Probabilities (4,) of the correct actions under the current policy of the claims on the bias; Z = 0.3."""


def behavior_policy(current: np.ndarray, mismatch: float, mass: float, seed: int) -> np.ndarray:
    """(K,): a behaviour policy of correctness `mass` whose pi+ is tilted from `current` by `mismatch` Gaussian nats."""
    tilt = np.random.default_rng(seed).normal(size=len(current))
    weights = current * np.exp(mismatch * (tilt - tilt.mean()))
    return mass * weights / weights.sum()


def bias(current: np.ndarray, behavior: np.ndarray, size: int, epsilon_is: float | None) -> float:
    """Total variation, in [0, 1], between pi+ and E[gamma | a correct response in the group of `size`].

    current, behavior: (K,), probabilities of the correct actions. epsilon_is: clipping range; None for none.
    """
    reached = 1 - (1 - behavior.sum()) ** size
    expected = expected_rollout_weights(current, behavior, size, epsilon_is)
    return float(np.abs(expected / reached - current / current.sum()).sum() / 2)


def clipped_limit(current: np.ndarray, behavior: np.ndarray, epsilon_is: float) -> float:
    """Total variation, in [0, 1], between pi+ and the limit of clipped weights as G -> inf: behavior * clipped ratio.

    current, behavior: (K,), probabilities of the correct actions.
    """
    limit = behavior * (current / behavior).clip(1 - epsilon_is, 1 + epsilon_is)
    return float(np.abs(limit / limit.sum() - current / current.sum()).sum() / 2)


@claim("importance-identities", "Eqs. appb-is-z, appb-is-logz-gradient", place="Appendix B")
def identities(effort: Effort) -> list[Evidence]:
    """Z = E_old[rho r], and grad log Z = E_old[rho r s] / E_old[rho r], where the behaviour policy covers the correct
    responses"""

    def error(seed: int) -> float:
        bandit = random_bandit(seed, 6, 3, on_policy=False)
        current, old = bandit.policy(bandit.current), bandit.policy(bandit.behavior)
        moment = old.probs * (current.log_probs - old.log_probs).exp() * bandit.correct
        scores = torch.eye(6, dtype=torch.float64) - current.probs
        slope = formulas.regularizers["cokl_without_term1"].logit_gradient(current, old)
        return largest(abs(float(moment.sum() - current.mass)), distance(moment @ scores / moment.sum(), slope))

    worst = worst_over(range(effort.samples // 4), error)
    return [Evidence("enumeration", f"{effort.samples // 4} random pairs of policies", worst, 1e-12)]


@claim("clipped-ratio", "Eqs. 14-16 (appb-clipped-ratio, appb-gamma)", place="Eqs. 14-16")
def clipped_ratio(effort: Effort) -> list[Evidence]:
    """rho~ = exp(clip(Delta, log(1 - eps), log(1 + eps))) = clip(rho, 1 - eps, 1 + eps), and > 0: gamma vanishes
    exactly in groups without a correct response"""
    generator = torch.Generator().manual_seed(61)
    count = effort.samples
    log_probs, old = -(3 * torch.randn(2, count, 6, generator=generator, dtype=torch.float64)).abs()
    rewards = (torch.rand(count, 6, generator=generator) < 0.3).double()
    groups = ResponseGroups(log_probs, rewards, behavior_log_probs=old)

    def errors(epsilon: float) -> tuple[float, float]:
        clipped = (log_probs - old).exp().clamp(1 - epsilon, 1 + epsilon)
        gamma = formulas.rollout_weights(groups, epsilon)
        by_hand = clipped * rewards / (clipped * rewards).sum(-1, keepdim=True).clamp_min(1e-300)
        wrongly = ((gamma.sum(-1) == 0) != (rewards.sum(-1) == 0)).sum() + ((gamma > 0) != (rewards > 0)).sum()
        ratios = formulas.importance_ratios(groups, epsilon) / clipped
        return largest(distance(ratios, torch.ones_like(ratios)), distance(gamma, by_hand)), float(wrongly)

    worst, wrong = worst_of_each((0.05, 0.2, 0.9), errors)
    return [
        Evidence("float64", f"{count} groups of 6, three clipping ranges", worst, 1e-12),
        Evidence("float64", "groups where gamma vanishes wrongly", wrong, 0),
    ]


@claim("on-policy-point", "Appendix B, clipped off-policy surrogate")
def on_policy_point(effort: Effort) -> list[Evidence]:
    """at theta = theta_old every rho~ is 1 and the clipped surrogate's gradient is the on-policy surrogate's"""
    cokl = formulas.regularizers["cokl"]

    def error(case: tuple[Bandit, int]) -> float:
        bandit, size = case
        off = bandit.responses(all_groups(bandit.current, size)[0])
        on = ResponseGroups(off.log_probs, off.rewards)
        weights = [cokl.surrogate_weights(on, rollout, SurrogateConfig()).rollout for rollout in (on, off)]
        delta = off.rewards / off.rewards.sum(-1, keepdim=True).clamp_min(1)
        gradients = [
            expected_surrogate_gradient(cokl, bandit, size, config=SurrogateConfig(epsilon)) for epsilon in (0.01, 0.99)
        ]
        return largest(*(distance(weight, delta) for weight in weights), distance(*gradients))

    domain = "all groups of five bandits, two clipping ranges"
    return [Evidence("enumeration", domain, worst_over(bandits(), error), 1e-14)]


@claim("off-policy-gate", BEYOND, "beyond")
def gate(effort: Effort) -> list[Evidence]:
    """off-policy, E[sum gamma] = 1 - (1 - Z_old)^G: the recovery gate follows the behaviour policy's correctness, and
    for K = 1 the ratio cancels, so such groups carry no importance correction

    gamma sums to 1 whenever the group holds a correct response and to 0 otherwise. With one correct response gamma
    is rho~ / rho~ = 1 whatever rho~ is; for G = 1, E[gamma] = Z_old pi_old+, with no trace of theta."""

    def error(case: tuple[float, int, float | None]) -> float:
        mass, size, epsilon = case
        old = behavior_policy(CURRENT, 1.0, mass, 62)
        weights = expected_rollout_weights(CURRENT, old, size, epsilon)
        open_gate = abs(weights.sum() - float(1 - formulas.zero_correct_probability(mass, size)))
        return largest(open_gate, float(np.abs(weights - old).max()) if size == 1 else 0.0)

    worst = worst_over(product((0.05, 0.3, 0.8), (1, 2, 4, 8), (None, 0.2)), error)
    bandit = random_bandit(62, 4, 2, on_policy=False)
    groups, probs = all_groups(bandit.behavior, 3)
    responses = bandit.responses(groups)
    gamma = formulas.regularizers["cokl"].surrogate_weights(responses, responses, SurrogateConfig()).rollout
    single = responses.rewards.sum(-1) == 1
    by_sequences = torch.zeros(4, dtype=torch.float64).index_add_(0, groups.ravel(), (probs[:, None] * gamma).ravel())
    current, old = (logits.softmax(-1)[bandit.correct].numpy() for logits in (bandit.current, bandit.behavior))
    by_counts = torch.from_numpy(expected_rollout_weights(current, old, 3, SurrogateConfig().epsilon_is))
    cancelled = distance(gamma[single], responses.rewards[single])
    agreement = distance(by_sequences[bandit.correct], by_counts)
    return [
        Evidence("enumeration", "Z_old from 0.05 to 0.8, G from 1 to 8", worst, ENUMERATED),
        Evidence("enumeration", "groups with one correct response: gamma = r", cancelled, 0),
        Evidence("enumeration", "by counts against by sequences", agreement, ENUMERATED),
    ]


def _disagreement(behavior: np.ndarray, epsilon_is: float, counted: float | None) -> Evidence:
    """The toolkit's own weights for CURRENT over every sequence of 1 to 4 draws from `behavior`, against the
    enumeration of counts at clipping range `counted`, from which the biases are computed."""
    current, old = (torch.from_numpy(np.append(probs, 1 - probs.sum()).copy()).log() for probs in (CURRENT, behavior))
    bandit = Bandit(current, current, old, torch.arange(len(current)) < len(CURRENT))

    def error(size: int) -> float:
        groups, probs = all_groups(old, size)
        weights = probs[:, None] * formulas.rollout_weights(bandit.responses(groups), epsilon_is)
        expected = torch.zeros(len(current), dtype=torch.float64).index_add_(0, groups.ravel(), weights.ravel())
        by_counts = expected_rollout_weights(CURRENT, behavior, size, counted)
        return distance(expected, torch.from_numpy(np.append(by_counts, 0)))

    return Evidence("enumeration", "the toolkit's weights, sequences of 1 to 4", worst_over(range(1, 5), error), 1e-14)


@claim(
    "off-policy-bias-of-self-normalization",
    "Appendix B: 'affected by finite-sample self-normalization'; the rates are beyond the paper",
    "beyond",
    place="Appendix B",
)
def self_normalization(effort: Effort) -> list[Evidence]:
    """without clipping the estimator is consistent: its bias vanishes like 1 / G; at G = 1 it is the full distance
    between pi+ and pi_old+

    A ratio of means: E[sum gamma f] - E_pi+[f] = O(1 / (G Z_old)) by the delta method. The bias is exact
    (enumeration of counts), so the ratio of two biases at G and 2 G is too; it must approach 1 / 2. The ratios' own
    distance from 1 / 2 halves with each doubling of G, so twice the last minus the one before has none of it."""
    old = behavior_policy(CURRENT, 0.7, 0.6, 63)
    sizes = (8, 16, 32)
    values = {size: bias(CURRENT, old, size, None) for size in (1, *sizes)}
    last = values[32] / values[16]
    extrapolated = 2 * bias(CURRENT, old, 64, None) / values[32] - last
    plus, old_plus = CURRENT / CURRENT.sum(), old / old.sum()
    at_one = abs(values[1] - np.abs(plus - old_plus).sum() / 2)
    on_policy = worst_over(product((1, 4, 8), (None, 0.2)), lambda case: bias(CURRENT, CURRENT, *case))
    mild = behavior_policy(CURRENT, 0.45, 0.6, 63)
    assert (np.abs(CURRENT / mild - 1) < 0.99).all()  # so that a clipping range of 0.99 clips nothing
    listed = ", ".join(f"G = {size}: {value:.4f}" for size, value in values.items())
    return [
        Evidence("enumeration", "bias(2 G) / bias(G) over 1 / 2, G from 8", abs(last - 0.5), 0.1, listed),
        Evidence("enumeration", "the same ratio extrapolated from G to 64", abs(extrapolated - 0.5), 0.01),
        Evidence("enumeration", "G = 1: bias against TV(pi+, pi_old+)", float(at_one), ENUMERATED),
        Evidence("enumeration", "no mismatch, no bias", on_policy, ENUMERATED),
        _disagreement(mild, 0.99, None),
    ]


@claim(
    "off-policy-bias-of-clipping",
    "Appendix B: 'importance-ratio clipping'; the limit is beyond the paper",
    "beyond",
    place="Appendix B",
)
def clipping(effort: Effort) -> list[Evidence]:
    """with clipping the bias does not vanish with G: it tends to the distance between pi+ and the normalised pi_old
    clip(rho); ratios that all hit the same bound cancel in gamma"""
    old = behavior_policy(CURRENT, 0.7, 0.6, 63)
    limit = clipped_limit(CURRENT, old, 0.2)
    to_the_limit = [abs(bias(CURRENT, old, size, 0.2) - limit) for size in (16, 32)]
    from_half = abs(to_the_limit[1] / to_the_limit[0] - 0.5)
    scaled = 0.5 * CURRENT  # every ratio is below 1 - eps, so all weights are clipped to the same value
    uncorrected = bias(scaled, 2 * scaled, 8, 0.2)
    return [
        Evidence("enumeration", "distance to the limit halves with G", from_half, 0.15, f"limit {limit:.4f}"),
        Evidence("enumeration", "a common factor of 1/2 in rho: bias", uncorrected, ENUMERATED, "cancels in gamma"),
        Evidence("enumeration", "the limit is not 0", float(not limit >= 1e-3), 0),
        _disagreement(old, 0.2, 0.2),
    ]
