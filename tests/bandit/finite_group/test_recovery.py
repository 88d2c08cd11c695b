"""The expected sampled update is the exact one plus the recovery term: by enumeration, and in the lab's objective."""

import itertools
import math

import numpy as np
import pytest
import torch

from bandit.engine.environment import Environment
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import layer_sizes, pretrain, seed_task
from bandit.engine.sampled import Responses, method_logit_gradient, responses_to
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.train import GroupRun, SampledObjective, measure, predicted_pressure, pressures
from cokl import methods
from cokl.groups import SurrogateConfig
from cokl.policy import CorrectSet, Policy
from tests.bandit.finite_group.conftest import TINY
from theory.recovery import recovery_derivative

ACTIONS = 4
CORRECT = CorrectSet.from_mask(torch.tensor([[[True, False, True, False]]]))
CLIPPING = SurrogateConfig()


def policy_of(seed: int) -> Policy:
    generator = torch.Generator().manual_seed(seed)
    return Policy(torch.randn(1, 1, ACTIONS, generator=generator, dtype=torch.float64), CORRECT)


def all_groups(policy: Policy, size: int, filtered: bool) -> list[tuple[tuple[int, ...], float]]:
    """Every ordered group of `size` draws and its probability, given a correct response if `filtered`."""
    probs, correct = policy.probs[0, 0].tolist(), policy.correct.mask[0, 0].tolist()
    groups = [
        (group, math.prod(probs[action] for action in group))
        for group in itertools.product(range(ACTIONS), repeat=size)
        if not filtered or any(correct[action] for action in group)
    ]
    total = sum(probability for _, probability in groups)
    return [(group, probability / total) for group, probability in groups]


def all_pairs(
    policy: Policy, reference: Policy, behavior: Policy, size: int, filtered: bool
) -> tuple[Responses, Responses, torch.Tensor]:
    """All pairs of a reference and a rollout group, as one input's M groups, and their probabilities (M,)."""
    pairs = list(itertools.product(all_groups(reference, size, filtered), all_groups(behavior, size, filtered=False)))
    cached = torch.tensor([pair[0][0] for pair in pairs]).reshape(1, 1, -1)
    rollout = torch.tensor([pair[1][0] for pair in pairs]).reshape(1, 1, -1)
    probabilities = torch.tensor([pair[0][1] * pair[1][1] for pair in pairs], dtype=torch.float64)
    return (
        responses_to(reference, reference, cached),
        responses_to(behavior, reference, rollout),
        probabilities,
    )


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_expected_sampled_gradient_is_the_exact_one_plus_recovery(seed, size):
    """Over every reference group that holds a correct response and every rollout group (Appendix B)."""
    policy, reference = policy_of(seed), policy_of(seed + 100)
    cached, rollout, probabilities = all_pairs(policy, reference, policy, size, filtered=True)
    cokl = methods.get("cokl")
    pairs = len(probabilities)
    one, other = (Responses(*(t.view(1, pairs, size) for t in vars(r).values())) for r in (cached, rollout))
    repeated = Policy(policy.logits.expand(1, pairs, -1), CORRECT)
    gradients = method_logit_gradient(cokl, repeated, one, other, torch.ones(1).double(), CLIPPING)
    expected = (probabilities[:, None] * gradients).sum(1, keepdim=True)
    slope = float(recovery_derivative(policy.mass.item(), size))
    exact = cokl.logit_gradient(policy, reference, 1.0) + slope * policy.mass_logit_gradient()
    torch.testing.assert_close(expected, exact, rtol=0, atol=1e-14)


def expected_pressure(policy: Policy, reference: Policy, behavior: Policy, size: int, filtered: bool, name="cokl"):
    cached, rollout, probabilities = all_pairs(policy, reference, behavior, size, filtered)
    regularizer = methods.get(name).regularizer
    assert regularizer is not None
    return (pressures(regularizer, policy, reference, (cached, rollout), size, CLIPPING) * probabilities).sum(-1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_expected_pressure_is_the_prediction(size):
    policy, reference = policy_of(1), policy_of(2)
    expected = expected_pressure(policy, reference, policy, size, filtered=True)
    prediction = predicted_pressure(policy, policy, size)
    torch.testing.assert_close(expected, prediction, rtol=0, atol=1e-14)
    slope = float(recovery_derivative(policy.mass.item(), size))  # -<grad R_G(Z), grad log Z>
    along = (policy.mass_logit_gradient() * policy.log_mass_logit_gradient()).sum(-1)
    torch.testing.assert_close(prediction, -slope * along, rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_without_the_filter_the_reference_pulls_back(size):
    policy, reference = policy_of(1), policy_of(2)
    expected = expected_pressure(policy, reference, policy, size, filtered=False)
    direction = policy.log_mass_logit_gradient()
    missed = (1 - reference.mass) ** size
    reference_score = torch.zeros_like(policy.logits)
    policy.correct.add_to(reference_score, reference.conditional_probs).sub_(policy.probs)
    pulled_back = missed * (reference_score * direction).sum(-1)
    torch.testing.assert_close(expected, predicted_pressure(policy, policy, size) - pulled_back, rtol=0, atol=1e-14)
    at_reference = expected_pressure(reference, reference, reference, size, filtered=False)
    torch.testing.assert_close(at_reference, torch.zeros_like(at_reference), rtol=0, atol=1e-14)


def test_off_policy_the_rollout_policys_zero_correct_groups_decide():
    """The behaviour policy differs in its correctness mass only, so that no other bias mixes in."""
    policy, reference = policy_of(1), policy_of(2)
    behavior = Policy(policy.logits + 1.5 * CORRECT.mask, CORRECT)
    expected = expected_pressure(policy, reference, behavior, 2, filtered=True)
    torch.testing.assert_close(expected, predicted_pressure(policy, behavior, 2), rtol=0, atol=1e-14)
    assert (expected - predicted_pressure(policy, policy, 2)).abs() > 0.01


def test_a_regularizer_without_rollouts_has_no_recovery():
    policy, reference = policy_of(1), policy_of(2)
    expected = expected_pressure(policy, reference, policy, 2, filtered=True, name="correct_forward_kl")
    torch.testing.assert_close(expected, torch.zeros_like(expected), rtol=0, atol=1e-14)


def objective_of(config: FiniteGroupConfig, size: int, groups: str = "fresh"):
    """The lab's sampled CoKL objective on the miniature's training inputs, and the task."""
    task = seed_task(config, 0, pretrain(config, 0, "cpu", torch.float64))
    run = GroupRun(0, methods.get("cokl"), 1.0, groups, float(size), 1)
    return SampledObjective(config, run, torch.ones(1, dtype=torch.float64), task.train), run, task


def test_sampled_updates_converge_to_the_exact_one_as_groups_grow():
    """On the lab's own objective: a 99.9% interval around the mean effect along grad log Z holds R_G's prediction for
    every G; it excludes zero, the exact update, for few responses and includes it for many."""
    effects = {}
    for size in (1, 4, 64, 512):
        objective, _, task = objective_of(TINY, size)
        batch = torch.arange(200)
        reference = task.train.reference(batch)
        shift = torch.randn(1, 200, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        policy = Policy(reference.logits + 0.5 * shift, reference.correct)
        direction = policy.log_mass_logit_gradient()
        exact = methods.get("cokl").logit_gradient(policy, reference, 1.0)
        draws = []
        for _ in range(30):
            objective.take(batch)
            sampled = objective.added_gradient(policy, task.train.reference(batch))
            draws.append(-((sampled - exact) * direction).sum(-1).mean())
        mean, error = torch.stack(draws).mean(), torch.stack(draws).std() / math.sqrt(len(draws))
        prediction = predicted_pressure(policy, policy, size).mean()
        assert abs(mean - prediction) < 3.66 * error  # Student's t with 29 degrees of freedom
        effects[size] = (mean, error)
    for size, excluded in ((1, True), (4, True), (512, False)):
        mean, error = effects[size]
        assert (abs(mean) > 3.66 * error) == excluded
    assert effects[1][0] > effects[4][0] > effects[64][0] + 0.01
    assert effects[512][1] < effects[64][1] < effects[1][1]


@pytest.mark.parametrize("optimizer_steps", [1, 3])
def test_measured_means_over_clusters_lie_at_the_prediction(optimizer_steps):
    """Each cluster's z-score is a sum over many groups: their mean square is 1 up to its own 5-sigma interval."""
    config = FiniteGroupConfig(**{**vars(TINY), "dtype": "float64", "recovery_draws": 400})
    task = seed_task(config, 0, pretrain(config, 0, "cpu", torch.float64))
    clusters = Environment(config.environment, 0).test_clusters
    run = GroupRun(0, methods.get("cokl"), 1.0, "fresh", 2.0, optimizer_steps)
    shifted = task.parameters.expand(2, -1) * torch.tensor([[1.0], [1.3]])
    mlp = StackedMLP(layer_sizes(config), shifted)
    rows = measure(config, run, task.test, clusters, mlp, shifted, np.random.default_rng(1))
    assert len(rows) == 2 * len(clusters.unique())
    scores = (rows["measured"] - rows["predicted"]) / rows["standard_error"]
    assert abs((scores**2).mean() - 1) < 5 * math.sqrt(2 / len(scores))
    assert (rows["predicted"] > 20 * rows["standard_error"]).all()
    np.testing.assert_allclose(rows["predicted"], rows["predicted_at_rollout"], rtol=1e-12)
    policy = Policy(mlp.forward(task.test.inputs[None]), task.test.reference(slice(None)).correct)
    one = clusters == rows["cluster"].iloc[0]
    assert rows["p_correct"].iloc[0] == pytest.approx(policy.mass[0][one].mean().item())
