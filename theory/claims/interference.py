"""Beyond the paper: what CoKL does while another task pushes the correctness mass down, and the noise of its term 2.

Assumption beyond the paper: the other task lowers logit Z at a constant rate and leaves both conditional policies
alone, which a language model that shares its parameters between tasks does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor

from cokl.groups import SurrogateConfig, surrogate_loss
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from theory.claim import BEYOND, Effort, Evidence, claim, largest, worst_of_each, worst_over
from theory.claims.finite_group import ENUMERATED, SHAPES, bandits, distance
from theory.finite_group import Bandit, all_groups, expected_surrogate_gradient, random_bandit
from theory.formulas import Formulas

DIFFERENCE = 1e-7
"""Of central differences in float64, relative to the slope's scale."""
SIMULATED = 0.02
"""Of a simulated equilibrium's 1 - Z, relative."""


def _at_mass(bandit: Bandit, mass: float) -> Bandit:
    """The same problem with pi+ = ref+, the reference's pi- and the correctness mass `mass`; on-policy."""
    log_shares = bandit.reference.log_softmax(-1)
    inside = log_shares.where(bandit.correct, -math.inf).logsumexp(-1)
    outside = log_shares.where(~bandit.correct, -math.inf).logsumexp(-1)
    current = torch.where(
        bandit.correct, log_shares - inside + math.log(mass), log_shares - outside + math.log1p(-mass)
    )
    return Bandit(bandit.reference, current, current, bandit.correct)


def _push(bandit: Bandit, gradient: Tensor) -> float:
    """How fast descent along `gradient` (A,) moves logit Z, over the square S of logit Z's own gradient.

    That is pi+ on the correct and -pi- on the incorrect actions.
    """
    probs = bandit.current.softmax(-1)
    mass = probs[bandit.correct].sum()
    direction = torch.where(bandit.correct, probs / mass, -probs / (1 - mass))
    return float(-gradient @ direction / (direction @ direction))


@claim("interference-equilibria", BEYOND)
def equilibria(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """while another task lowers logit Z at a constant rate c and pi+ = ref+ and pi- are held, with S = sum pi+^2 + sum
    pi-^2 and u = c / (beta S) < 1: replay comes to rest at Z = 1 - u, CoKL from groups of G at Z = 1 - u^(1 / (G + 1)),
    and exact CoKL nowhere

    At pi+ = ref+ replay's descent direction is grad log Z and finite-group CoKL's (1 - Z)^G grad log Z. The logits
    move logit Z by the inner product with its gradient, and grad log Z = (1 - Z) grad logit Z, whose square is S. So
    d logit Z / dt = beta S (1 - Z)^(G + 1) - c, with G = 0 for replay: it falls in Z from beta S - c to -c, hence one
    point of rest, which attracts. Exact CoKL has gradient zero at pi+ = ref+, so that logit Z falls for ever."""

    def errors(case: tuple[tuple[Bandit, int], float, str]) -> tuple[float, float]:
        (base, size), pull, name = case
        rest = formulas.cokl_rest(pull, size) if name == "cokl" else formulas.replay_rest(pull)
        bandit = _at_mass(base, float(rest))
        push = _push(bandit, expected_surrogate_gradient(formulas.regularizers[name], bandit, size))
        policy, reference = bandit.policy(bandit.current), bandit.policy(bandit.reference)
        exact = formulas.regularizers["cokl"].logit_gradient(policy, reference)
        return abs(push - pull) / pull, float(exact.abs().max())

    balance, silent = worst_of_each(product(bandits(), (0.05, 0.5, 0.9), ("cokl_without_term2", "cokl")), errors)
    simulated = _simulated(formulas, effort)
    return [
        Evidence("enumeration", f"{len(SHAPES)} bandits, u in 0.05, 0.5, 0.9: the pushes balance", balance, ENUMERATED),
        Evidence("float64", "exact CoKL at pi+ = ref+: no push", silent, 1e-14),
        simulated,
    ]


def _simulated(formulas: Formulas, effort: Effort) -> Evidence:
    """Descent on the toolkit's sampled surrogates, from below and from above; 1 - Z averaged over the second half.

    One step of length h adds h (push / S - u) to logit Z, so that beta S is the unit of time.
    """
    generator = torch.Generator().manual_seed(3)
    groups, size, steps, step, pull = max(effort.draws // 100, 100), 4, 800, 0.1, 0.2
    base = random_bandit(2, 6, 2)
    rests = {"cokl_without_term2": formulas.replay_rest(pull), "cokl": formulas.cokl_rest(pull, size)}
    reached = []

    def error(case: tuple[str, float]) -> float:
        name, mass = case
        incorrect = []
        for _ in range(steps):
            bandit = _at_mass(base, mass)
            gradient = _sampled_gradient(formulas.regularizers[name], bandit, groups, size, generator)
            odds = math.log(mass / (1 - mass)) + step * (_push(bandit, gradient) - pull)
            mass = 1 / (1 + math.exp(-odds))
            incorrect.append(1 - mass)
        reached.append(float(np.mean(incorrect[steps // 2 :])))
        return abs(reached[-1] / (1 - float(rests[name])) - 1)

    worst = worst_over(product(rests, (0.05, 0.98)), error)
    detail = f"1 - Z of replay and CoKL, each from Z = 0.05 and 0.98: {', '.join(f'{x:.3f}' for x in reached)}"
    return Evidence("simulation", f"u = {pull}, G = {size}, {groups} groups a step", worst, SIMULATED, detail, False)


def _sampled_gradient(
    regularizer: Regularizer, bandit: Bandit, count: int, size: int, generator: torch.Generator
) -> Tensor:
    """(A,): the logit gradient of the surrogate over `count` reference groups that hold a correct action, on-policy."""
    logits = bandit.current.clone().requires_grad_()
    held = bandit.reference.softmax(-1).where(bandit.correct, 0).sum()
    reference, rollout = (
        torch.multinomial(source.softmax(-1), int(wanted) * size, replacement=True, generator=generator).view(-1, size)
        for source, wanted in ((bandit.reference, 2 * count / (1 - (1 - held) ** size)), (bandit.current, count))
    )
    reference = reference[bandit.correct[reference].any(-1)][:count]
    log_probs = logits.log_softmax(-1)
    streams = bandit.responses(reference, log_probs), bandit.responses(rollout[: len(reference)], log_probs)
    weights = regularizer.surrogate_weights(*streams, SurrogateConfig())
    return torch.autograd.grad(surrogate_loss(weights, *streams), logits)[0]


@claim("replay-adds-mass", BEYOND)
def replay_adds_mass(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """for any parameters, replay's descent direction is CoKL's plus grad log Z: to first order a step of it adds beta
    |grad log Z|^2 to log Z and beta <grad log Z, grad J> to any other objective J, beyond what CoKL's step does

    -E_{ref+}[log pi] = KL(ref+ || pi+) - log Z + H(ref+), and the entropy is constant. Measured on a network whose
    parameters a prior and a new context share, by central differences of log Z and J along both directions."""
    generator = torch.Generator().manual_seed(5)
    correct = CorrectSet.from_mask(torch.arange(6) < 2)
    shapes = (2, 3), (6,), (6,), (5, 3), (6, 5)
    signs = set()

    def error(_: int) -> float:
        inputs, base, rewards, *layers = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes)

        def policy(weights: list[Tensor], context: int) -> Policy:
            return Policy(weights[1] @ torch.tanh(weights[0] @ inputs[context]), correct)

        def penalty(name: str, weights: list[Tensor]) -> Tensor:
            return formulas.regularizers[name].value(policy(weights, 0), Policy(base, correct))

        replay, cokl = (_slopes(partial(penalty, name), layers) for name in ("cokl_without_term2", "cokl"))
        extra = [b - a for a, b in zip(replay, cokl, strict=True)]
        objectives = (lambda weights: policy(weights, 0).log_mass), (lambda weights: policy(weights, 1).probs @ rewards)
        slopes = [_slopes(objective, layers) for objective in objectives]
        apart = []
        for objective, slope in zip(objectives, slopes, strict=True):
            predicted = float(sum((a * b).sum() for a, b in zip(slopes[0], slope, strict=True)))
            up, down = (
                float(objective([w + step * d for w, d in zip(layers, extra, strict=True)])) for step in (1e-5, -1e-5)
            )
            apart.append(abs((up - down) / 2e-5 - predicted) / (1 + abs(predicted)))
        signs.add(predicted > 0)
        return largest(*apart)

    worst = worst_over(range(effort.samples // 4), error)
    detail = "replay's step is ahead on J in some, behind in others" if len(signs) == 2 else "one sign only"
    domain = f"{effort.samples // 4} random networks that two contexts share"
    return [Evidence("central differences", domain, worst, DIFFERENCE, detail)]


def _slopes(objective: Callable[[list[Tensor]], Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
    """The gradient of a scalar with respect to each weight."""
    leaves = [weight.clone().requires_grad_() for weight in weights]
    return torch.autograd.grad(objective(leaves), leaves)


@claim("cokl-gap-in-a-restricted-class", BEYOND)
def restricted_class(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """a class of policies whose best J_CoKL is at least 1 - e has only maximizers with 1 - Z <= e; in a class too small
    for pi+ = ref+ beside Z = 1, CoKL's optimum has Z < 1, and it can lie below full forward KL's

    The bound is the unique maximizer's, for the maximizer over the class. The class: logits of the reference but for
    one correct action's, which t is added to. Raising Z then moves pi+; with q p < 1 - p for that action's p in ref+
    full forward KL weighs this movement less than CoKL does, and for a large beta stays further from the reference."""
    reference_logits = torch.log(torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64))
    correct = CorrectSet.from_mask(torch.tensor([True, True, False]))
    reference = Policy(reference_logits, correct)
    shifts = torch.linspace(-2, 12, 140_001, dtype=torch.float64)
    family = Policy(reference_logits + shifts[:, None] * torch.tensor([1.0, 0, 0], dtype=torch.float64), correct)

    def best(name: str, beta: float) -> tuple[float, float, bool]:
        """Z and J of the maximizer, and whether it is at an end of the class."""
        values = family.mass - beta * formulas.regularizers[name].value(family, reference)
        index = int(values.argmax())
        return float(family.mass[index]), float(values[index]), index in (0, len(shifts) - 1)

    betas = (1.0, 3.0, 10.0)
    ours, theirs = ([best(name, beta) for beta in betas] for name in ("cokl", "forward_kl"))
    above = worst_over(ours, lambda one: 1 - one[0] - (1 - one[1])) + sum(
        at_an_end for *_, at_an_end in (*ours, *theirs)
    )
    gap = min(1 - mass for mass, *_ in ours)
    margins = [their[0] - our[0] for our, their in zip(ours, theirs, strict=True)]
    detail = f"forward KL's Z minus CoKL's at beta 1, 3, 10: {', '.join(f'{margin:.4f}' for margin in margins)}"
    return [
        Evidence("grid", "140,001 members of a one-parameter class, beta 1, 3, 10: 1 - Z <= e", above, 1e-12),
        Evidence("grid", "the same: 1 - Z at least", float(not gap > 1e-3), 0, f"{gap:.4f}"),
        Evidence("grid", "the same: below forward KL at beta 3 and 10", float(not min(margins[1:]) > 1e-4), 0, detail),
    ]


@claim("token-means-do-not-leave-mass-free", BEYOND)
def token_means(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """with token means CoKL's descent direction has the part (E_{ref+}[1 / length] - E_{pi+}[1 / length]) grad log Z,
    zero where all correct answers have one length; otherwise it is in general no gradient of any objective

    A response's score is grad log Z + grad log pi+. Its mean over ref+ minus its mean over pi+, each divided by the
    length, has the first part times the difference of the mean inverse lengths. The field is a gradient only if its
    Jacobian is symmetric. Answers are whole sequences here, with a logit each; the toolkit's exact gradient over these
    logits is pi+ - ref+, the weights of the scores."""
    rng = np.random.default_rng(9)
    mask = torch.tensor([True, True, True, False, False])
    correct = CorrectSet.from_mask(mask)

    def errors(case: tuple[tuple[Tensor, Tensor], list[float]]) -> tuple[float, float, float]:
        (logits, reference), lengths = case
        inverse = 1 / torch.tensor(lengths, dtype=torch.float64)

        def field(logits: Tensor) -> Tensor:
            """E_{ref+}[score / length] - E_{pi+}[score / length], CoKL's descent direction with token means."""
            policy = Policy(logits, correct)
            weights = -formulas.regularizers["cokl"].logit_gradient(policy, Policy(reference, correct)) * inverse
            return weights - weights.sum() * policy.probs

        plus, target = (_plus(values, mask) for values in (logits, reference))
        push = float((target - plus) @ inverse) * Policy(logits, correct).log_mass_logit_gradient()
        inside = target * inverse - float(target @ inverse) * plus - (plus * inverse - float(plus @ inverse) * plus)
        jacobian = torch.autograd.functional.jacobian(field, logits)
        asymmetry = float((jacobian - jacobian.T).abs().max())
        apart = distance(field(logits) - push, inside)
        return (apart, asymmetry, 0.0) if len(set(lengths)) == 1 else (apart, 0.0, asymmetry)

    count = max(effort.samples // 20, 3)
    pairs = [(torch.from_numpy(rng.normal(size=5)), torch.from_numpy(rng.normal(size=5))) for _ in range(count)]
    split, symmetric, bent = worst_of_each(product(pairs, ([1.0, 2, 4, 3, 1], [3.0] * 5)), errors)
    domain, detail = f"{count} random policies over five answers", f"asymmetry {bent:.4f}"
    return [
        Evidence("float64", f"{domain}: the two parts", split, 1e-12),
        Evidence("autograd", f"{domain} of one length: a symmetric Jacobian", symmetric, 1e-12),
        Evidence("autograd", f"{domain} of lengths 1, 2, 4: not in the worst", float(not bent > 1e-2), 0, detail),
    ]


def _plus(logits: Tensor, correct: Tensor) -> Tensor:
    """(A,): the softmax over the correct actions."""
    return logits.masked_fill(~correct, -math.inf).softmax(-1)


@claim("term-2-noise", BEYOND)
def noise(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Cov(sum delta s | K > 0) = E[1 / K | K > 0] Cov(s | correct), and without the condition Pr(K > 0) times that plus
    Pr(K > 0) Pr(K = 0) mu_theta+ mu_theta+^T

    Given K = k the correct responses are k independent draws from pi+, whose mean has covariance Cov / k and the
    same expectation for every k >= 1. The gate's part is the variance of Pr(K > 0)'s indicator times that mean."""

    def errors(case: tuple[Bandit, int]) -> tuple[float, float]:
        bandit, size = case
        probs, groups, sums = _term2(formulas.regularizers["cokl"], bandit, size)
        policy = bandit.policy(bandit.current)
        scores = torch.eye(len(bandit.current), dtype=torch.float64) - policy.probs
        plus, mass = _plus(bandit.current, bandit.correct), float(policy.mass)
        mean = plus @ scores
        some = formulas.positive_count_probability(math, mass, size)
        ways = (math.comb(size, k) * mass**k * (1 - mass) ** (size - k) / k for k in range(1, size + 1))
        expected = sum(ways) / some * _covariance(plus, scores)
        held = bandit.correct[groups].any(-1)
        gate = some * (1 - some) * torch.outer(mean, mean)
        return (
            distance(_covariance(probs[held], sums[held]), expected),
            distance(_covariance(probs, sums) - some * expected, gate),
        )

    given, whole = worst_of_each(bandits(), errors)
    domain = f"{len(SHAPES)} bandits, all groups"
    return [
        Evidence("enumeration", f"{domain} with K > 0", given, ENUMERATED),
        Evidence("enumeration", domain, whole, ENUMERATED),
    ]


@claim("baseline-of-term-2", BEYOND)
def baseline(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """weights delta - 1 / G have term 2's expectation for every G, and are zero at K = G; off-policy delta becomes
    gamma and 1 / G the unclipped ratio over G

    Scores have mean zero under the policy, and ratio-weighted scores under the behaviour policy. At Z near 1 nearly
    every group has K = G, where the weights with the baseline vanish while delta's noise is Cov(s | correct) / G."""
    both = (formulas.regularizers["cokl"], formulas.cokl_with_baseline)

    def difference(bandit: Bandit, size: int) -> float:
        (probs, _, without), (_, _, having) = (_term2(regularizer, bandit, size) for regularizer in both)
        return distance(probs @ without, probs @ having)

    def errors(case: tuple[Bandit, int]) -> tuple[float, float, float]:
        bandit, size = case
        _, groups, sums = _term2(formulas.cokl_with_baseline, bandit, size)
        silent = float(sums[bandit.correct[groups].all(-1)].abs().max())
        nearby = Bandit(
            bandit.reference, bandit.current, bandit.current + 0.1 * bandit.reference.tanh(), bandit.correct
        )
        return difference(bandit, size), difference(nearby, size), silent

    worst, off, silent = worst_of_each(bandits(), errors)
    noises = []
    certain = _at_mass(random_bandit(2, 4, 2), 0.99)
    for regularizer in both:
        probs, _, sums = _term2(regularizer, certain, 3)
        noises.append(float(_covariance(probs, sums).trace()))
    detail = f"trace of the covariance at Z = 0.99, G = 3: {noises[0]:.4f} without, {noises[1]:.4f} with"
    domain = f"{len(SHAPES)} bandits, all groups"
    return [
        Evidence("enumeration", f"{domain}, on-policy", worst, ENUMERATED, detail),
        Evidence("enumeration", f"{domain}, ratios within the clipping range", off, ENUMERATED),
        Evidence("enumeration", f"{domain} with K = G", silent, 1e-14),
    ]


def _term2(regularizer: Regularizer, bandit: Bandit, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """All groups of the behaviour policy: probabilities (M,), actions (M, G), sums of weight times score (M, A)."""
    groups, probs = all_groups(bandit.behavior, size)
    rollout = bandit.responses(groups)
    weights = regularizer.surrogate_weights(rollout, rollout, SurrogateConfig()).rollout
    assert weights is not None
    scores = torch.eye(len(bandit.current), dtype=torch.float64) - bandit.current.softmax(-1)
    return probs, groups, (weights[..., None] * scores[groups]).sum(1)


def _covariance(probs: Tensor, values: Tensor) -> Tensor:
    """(A, A): of values (M, A) with probabilities (M,), made to sum to one."""
    shares = probs / probs.sum()
    centred = values - shares @ values
    return centred.T @ (shares[:, None] * centred)
