"""Beyond the paper: how soon plain RL finds a reward again that was narrowed to some of the correct actions.

Assumptions beyond the paper: a tabular softmax policy, one input, and a new reward of 1 on a subset S' of the correct
actions and 0 elsewhere. A network shares its parameters between inputs, so that what it learns on one moves others.
"""

from __future__ import annotations

from itertools import product

import mpmath
import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from cokl.grpo import group_advantages
from cokl.policy import CorrectSet, Policy
from theory.claim import BEYOND, Effort, Evidence, claim, largest, worst_over
from theory.finite_group import all_groups, random_bandit
from theory.formulas import Formulas
from theory.provers.convex import Reference, maximise, random_references

SOLVED = 1e-4
"""Of a maximizer's probabilities: the solver's objective is certified to 1e-8 and is quadratic around its maximum."""
INTEGRATED = 1e-6
"""Of a crossing time, relative; the integrator is asked for 1e-10."""


@claim("narrowed-start", BEYOND)
def narrowed_start(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """a reward narrowed to a set S' of correct actions starts at ref(S') / q from CoKL's optimum, 1 / q times the
    reference's, and at Z* ref(S') / q from a full KL's; a group of G holds an action of S' with probability 1 - (1 -
    p)^G, p being that start

    All these optima have pi+ = ref+ (Theorem 1), so pi(S') = Z pi+(S') = Z ref(S') / q, with Z = 1 for CoKL."""

    def of_program(case: tuple[tuple[Reference, float], str]) -> float:
        (reference, beta), name = case
        narrowed = slice(0, (reference.correct + 1) // 2)
        share = float(reference.probs[narrowed].sum())
        solution = maximise(name, reference, beta).solution
        if name == "cokl":  # over (Z, pi+)
            mass, start = 1.0, float(solution[0] * solution[1:][narrowed].sum())
        else:
            mass, start = float(solution[: reference.correct].sum()), float(solution[narrowed].sum())
        return abs(start - formulas.narrowed_start(mass, share, reference.q))

    def of_groups(case: tuple[int, int]) -> float:
        bandit, size = random_bandit(case[0], 5, 3), case[1]
        groups, probs = all_groups(bandit.current, size)
        inside = float(bandit.current.softmax(-1)[:2].sum())
        held = float(probs[(groups < 2).any(-1)].sum())
        return abs(held - formulas.positive_count_probability(mpmath, inside, size))

    methods = ("cokl", "forward_kl", "reverse_kl")
    worst = worst_over(product(random_references(41, effort.programs), methods), of_program)
    met = worst_over(product(range(3), (1, 2, 4)), of_groups)
    return [
        Evidence("convex program", f"{effort.programs} references, CoKL, forward and reverse KL", worst, SOLVED),
        Evidence("enumeration", "3 policies over five actions, G in 1, 2, 4", met, 1e-12),
    ]


@claim("narrowed-half-time", BEYOND)
def half_time(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """exact policy gradient on the logits takes F(p) / s of time from probability p < 1/2 of S' to one half, F(p) = 1/p
    - 1/(1 - p) + 2 log((1 - p) / p), where s is between s+ + 1/n and 1 + s-, with s+ and s- the sums of squares of the
    starting conditionals within S' and outside, and n the actions outside

    With conditionals c inside S' and outside, d logit J / dt = J (1 - J) s(t), s = sum c^2 inside + sum c^2 outside.
    Inside, dc_a / dt = J (1 - J) c_a (c_a - sum c^2), so the inner sum grows: sum c^3 >= (sum c^2)^2. Outside the signs
    are reversed and the sum falls. They stay below 1 and above 1 / n. The integral of 1 / (J^2 (1 - J)^2) from p to 1/2
    is F(p). Measured on the toolkit's own gradient of Z with S' as the correct set."""
    uniform, outside, ratios = 0.0, 0.0, []
    for seed in range(max(effort.samples // 20, 6)):
        generator = torch.Generator().manual_seed(700 + seed)
        actions, inside = 4 + seed % 5, 1 + seed % 3
        correct = CorrectSet.from_mask(torch.arange(actions) < inside)
        level = torch.zeros(actions, dtype=torch.float64)
        level[:inside] -= 1.5 + 3 * float(torch.rand((), generator=generator))
        for spread in (0.0, 0.5):
            logits = level + spread * torch.randn(actions, generator=generator, dtype=torch.float64)
            policy = Policy(logits, correct)
            start, probs = float(policy.mass), policy.probs
            inner = float((probs[:inside] / start).square().sum())
            outer = float((probs[inside:] / (1 - start)).square().sum())
            unit = float(formulas.half_time(mpmath, start))
            taken = _time_to_half(logits, correct)
            if spread:
                fastest, slowest = unit / (1 + outer), unit / (inner + 1 / (actions - inside))
                outside = largest(outside, max(fastest - taken, taken - slowest) / taken)
                ratios.append(taken * (inner + outer) / unit)
            else:
                uniform = largest(uniform, abs(taken * (inner + outer) / unit - 1))
    detail = f"time over F(p) / (s+ + s-): {min(ratios):.3f} to {max(ratios):.3f}"
    domain = f"{len(ratios)} policies over 4 to 8 actions"
    return [
        Evidence(
            "integration", f"{domain}, uniform inside S' and outside, where both bounds agree", uniform, INTEGRATED
        ),
        Evidence("integration", f"{domain}, random: between the bounds", outside, INTEGRATED, detail),
    ]


def _time_to_half(logits: Tensor, correct: CorrectSet) -> float:
    """When gradient flow on logits (A,) first gives the correct set probability one half."""

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        return Policy(torch.from_numpy(state), correct).mass_logit_gradient().numpy()

    def beyond_half(_: float, state: np.ndarray) -> float:
        return float(Policy(torch.from_numpy(state), correct).mass) - 0.5

    beyond_half.terminal = True  # type: ignore[attr-defined]  # as solve_ivp documents
    path = solve_ivp(velocity, (0, 1e9), logits.numpy(), events=beyond_half, rtol=1e-10, atol=1e-12, method="DOP853")
    assert path.t_events is not None
    return float(path.t_events[0][0])


@claim("narrowed-waiting-time", BEYOND)
def waiting_time(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """GRPO learns nothing from a group until it holds an action of S' and another one, for which it waits 1 / (1 - (1 -
    p)^G - p^G) groups on average

    Equal rewards have zero advantages, so the policy stays where it is and groups are independent until the first
    that is mixed: a geometric waiting time."""
    worst = 0.0
    for seed, size in product(range(3), (2, 3, 5)):
        bandit = random_bandit(seed, 4, 2)
        groups, probs = all_groups(bandit.current, size)
        rewards = bandit.correct[groups].double()
        informative = group_advantages(rewards).abs().amax(-1) > 0
        start = float(bandit.current.softmax(-1)[bandit.correct].sum())
        expected = formulas.waiting_groups(start, size)
        worst = largest(worst, abs(float(probs[informative].sum()) * expected - 1))
    rng = np.random.default_rng(17)
    runs, scores = max(effort.draws // 100, 400), []
    for start, size in ((0.01, 8), (0.05, 8), (0.01, 2)):
        waits = np.zeros(runs)
        waiting = np.ones(runs, dtype=bool)
        while waiting.any():
            waits[waiting] += 1
            rewards = torch.from_numpy((rng.random((int(waiting.sum()), size)) < start).astype(float))
            waiting[waiting] = ~(group_advantages(rewards).abs().amax(-1) > 0).numpy()
        scores.append((waits.mean() - formulas.waiting_groups(start, size)) / (waits.std(ddof=1) / np.sqrt(runs)))
    detail = f"standard errors from the mean: {', '.join(f'{score:.2f}' for score in scores)}"
    return [
        Evidence("enumeration", "3 policies over four actions, G in 2, 3, 5: chance times wait is 1", worst, 1e-12),
        Evidence("simulation", f"{runs} runs, p in 0.01, 0.05, G in 2, 8", max(map(abs, scores)), 4, detail, False),
    ]
