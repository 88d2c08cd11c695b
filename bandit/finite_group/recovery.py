"""The measured correctness recovery: what groups of G change in the expected update, against R_G (Appendix B).

The effect is a pressure on log Z: how much more log Z changes, to first order and per unit step of gradient descent on
the logits, with the expected sampled update than with the exact one, -<E[g_G] - g, grad log Z>. For reference groups
that hold a correct response and rollouts of the current policy, the paper predicts E[g_G] - g = R_G'(Z) grad Z, hence
the pressure -R_G'(Z) Z |grad log Z|^2 = (1 - Z)^G |grad log Z|^2 >= 0.

Axes: R runs, B inputs, N test inputs, A actions, M groups per input, G responses, C clusters.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandit.engine.divergence import uniform_where_lost
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import Split, layer_sizes
from bandit.engine.sampled import Responses, draw, gather_actions
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.groups import draw_filtered
from bandit.finite_group.plan import GroupRun
from cokl.groups import ResponseGroups, SurrogateConfig
from cokl.metrics import expected_zero_correct_rate
from cokl.policy import Policy
from cokl.regularizers import Regularizer

COLUMNS = ["cluster", "measured", "standard_error", "predicted", "predicted_at_rollout", "p_correct"]
"""The columns of `measure`."""

# Test inputs are measured in blocks of about this many drawn responses, to stay in cache.
_DRAWS_PER_BLOCK = 200_000


def pressures(
    regularizer: Regularizer,
    policy: Policy,
    reference: Policy,
    groups: tuple[Responses, Responses],
    size: int,
    surrogate: SurrogateConfig,
) -> Tensor:
    """(R, B, M): the pressure on log Z of each pair of groups, beyond that of the exact gradient.

    policy: (R, B, A). reference: (1, B, A). groups: M groups of `size` of the reference and M of the behaviour policy,
    one after the other in the last axis of their (R or 1, B, M * G).
    """
    direction = policy.log_mass_logit_gradient()
    mean_direction = (policy.probs * direction).sum(-1)[..., None, None]
    runs = policy.logits.shape[0]
    streams = [Responses(*(tensor.expand(runs, -1, -1) for tensor in vars(one).values())) for one in groups]
    cached, rollout = (_groups(policy, one, size) for one in streams)
    weights = regularizer.surrogate_weights(cached, rollout, surrogate)
    effect = (regularizer.logit_gradient(policy, reference) * direction).sum(-1)[..., None]
    for weight, one in zip(weights, streams, strict=True):
        if weight is not None:
            along = gather_actions(direction, one.actions).unflatten(-1, (-1, size)) - mean_direction
            effect = effect - (weight.view_as(along) * along).sum(-1)
    return effect


def _groups(policy: Policy, responses: Responses, size: int) -> ResponseGroups:
    log_probs = gather_actions(policy.log_probs, responses.actions)
    tensors = (log_probs, responses.rewards, responses.behavior_log_probs, responses.reference_log_probs)
    return ResponseGroups(*(tensor.reshape(-1, size) for tensor in tensors))


def predicted_pressure(policy: Policy, gate: Policy, size: int) -> Tensor:
    """(R, B): -R_G'(Z) Z |grad log Z|^2 for `policy`, with (1 - Z)^G taken from the policy `gate`."""
    return expected_zero_correct_rate(gate, size) * policy.log_mass_logit_gradient().square().sum(-1)


def measure(
    config: FiniteGroupConfig,
    run: GroupRun,
    split: Split,
    clusters: Tensor,
    mlp: StackedMLP,
    behavior_parameters: Tensor,
    noise: np.random.Generator,
) -> pd.DataFrame:
    """A row per run of the stack and cluster that has test inputs; means over these inputs.

    clusters: (N,) int64, each test input's. behavior_parameters: (R, P), of the networks that drew the rollouts.
    measured is the pressure and standard_error that of its groups; predicted is from the policy's Z,
    predicted_at_rollout takes the zero-correct probability of the policy that drew the rollouts instead.
    """
    regularizer = run.method.regularizer
    assert regularizer is not None
    size = int(run.group_size)
    count = max(2, config.recovery_draws // size)
    filtered = run.method.filtered and run.groups != "unfiltered"
    surrogate = SurrogateConfig(config.epsilon_is)
    behavior_mlp = mlp if run.optimizer_steps == 1 else StackedMLP(layer_sizes(config), behavior_parameters)
    runs = behavior_parameters.shape[0]
    block = max(1, _DRAWS_PER_BLOCK // (runs * count * size))
    parts: dict[str, list[Tensor]] = {}
    for rows in torch.arange(len(split.inputs), device=clusters.device).split(block):
        reference = split.reference(rows)
        inputs = split.inputs[rows][None]
        policy = Policy(uniform_where_lost(mlp.forward(inputs)), reference.correct)
        behavior = (
            policy
            if behavior_mlp is mlp
            else Policy(uniform_where_lost(behavior_mlp.forward(inputs)), reference.correct)
        )

        def uniforms(*shape: int, batch: int = len(rows)) -> Tensor:
            return torch.from_numpy(noise.random((batch, *shape))).to(clusters.device)

        if filtered:
            cached = draw_filtered(reference, uniforms(count, size + 1))
        else:
            cached = draw(reference, reference, uniforms(count * size))
        rollout = draw(behavior, reference, uniforms(count * size))
        effects = pressures(regularizer, policy, reference, (cached, rollout), size, surrogate).double()
        for name, values in {
            "measured": effects.mean(-1),
            "variance": effects.var(-1) / count,
            "predicted": predicted_pressure(policy, policy, size),
            "predicted_at_rollout": predicted_pressure(policy, behavior, size),
            "p_correct": policy.mass,
        }.items():
            parts.setdefault(name, []).append(values.double())
    totals = {name: torch.cat(values, dim=1) for name, values in parts.items()}
    present, cluster_of, inputs_of = clusters.unique(return_inverse=True, return_counts=True)
    means = {
        name: values.new_zeros(runs, len(present)).index_add_(1, cluster_of, values) / inputs_of
        for name, values in totals.items()
    }
    errors = (means.pop("variance") / inputs_of).sqrt()
    columns = {"cluster": present.expand(runs, -1), "standard_error": errors, **means}
    return pd.DataFrame({name: columns[name].flatten().tolist() for name in COLUMNS})
