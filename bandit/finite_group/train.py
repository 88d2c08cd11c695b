"""The finite-group lab's runs: a regularizer sampled in groups of G or exact, and the correctness recovery measured.

The recovery is what groups of G change in the expected update, against R_G (Appendix B). The effect is a pressure on
log Z: how much more log Z changes, to first order and per unit step of gradient descent on the logits, with the
expected sampled update than with the exact one, -<E[g_G] - g, grad log Z>. For reference groups that hold a correct
response and rollouts of the current policy, the paper predicts E[g_G] - g = R_G'(Z) grad Z, hence the pressure
-R_G'(Z) Z |grad log Z|^2 = (1 - Z)^G |grad log Z|^2 >= 0.

Axes: R runs, B inputs, N training or test inputs, A actions, M groups per input, G responses, C clusters. The runs of a
stack differ in their coefficient only.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandit.config import TrainingConfig
from bandit.engine.divergence import cut_off, spare_samplers, uniform_where_lost, warn_of_diverged
from bandit.engine.environment import Environment, RandomStream, random_generator
from bandit.engine.exact import Objective, averages, policy_metrics
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, Split, layer_sizes, minibatches, seed_task
from bandit.engine.runs import Run, opened
from bandit.engine.sampled import Responses, draw, draw_actions, gather_actions, method_logit_gradient, responses_to
from bandit.finite_group.config import FiniteGroupConfig
from cokl import methods
from cokl.groups import ResponseGroups, SurrogateConfig
from cokl.metrics import expected_zero_correct_rate
from cokl.policy import Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError
from cokl.support.files import write_parquet
from cokl.support.results import HERE, Execution, Work, compute

EXACT = "exact"
ESTIMATE = ["method", "beta", "groups", "optimizer_steps", "group_size"]
"""The columns that tell the runs of a seed apart."""
IDENTITY = ("seed", "method", "beta", "groups", "group_size", "optimizer_steps", "step")
"""The columns that say which run and step a row belongs to."""
COLUMNS = ["cluster", "measured", "standard_error", "predicted", "predicted_at_rollout", "p_correct"]
"""The columns of `measure`."""
METRICS = (*IDENTITY, "p_correct", "conditional_kl", "passes")
RECOVERY = (*IDENTITY, *COLUMNS)

# Test inputs are measured in blocks of about this many drawn responses, to stay in cache.
_DRAWS_PER_BLOCK = 200_000


def train(config: FiniteGroupConfig, execution: Execution = HERE) -> dict[str, pd.DataFrame]:
    """Train everything that `config` asks for; the metrics and the measured recovery, also saved.

    Both have the columns IDENTITY; group_size is infinite where groups is "exact". "finite_group", a row per run and
    evaluated step: p_correct, coverage_at_K, coverage_at_K_correct, conditional_kl, zero_correct_rate; and passes, how
    often each training input has been drawn on average. "recovery", a row per run, recovery step and cluster: COLUMNS.
    Raises InputError for unknown methods or devices and for a folder that cannot be used.
    """
    runs = planned_runs(config)
    with opened(config, runs, execution, True) as here:
        stacks = [list(members) for _, members in itertools.groupby(runs, key=_stacked_together)]
        works = [
            Work(
                _train_stack,
                (config, stack, here.parameters[stack[0].seed], here.device),
                here.folder / "runs" / f"{number:05d}-{_name(stack[0])}.parquet",
                len(stack),
            )
            for number, stack in enumerate(stacks)
        ]
        table = pd.concat(compute(works, execution, "runs", True), ignore_index=True)
        of_clusters = table["cluster"].notna()
        metrics = table[~of_clusters].drop(columns=[name for name in COLUMNS if name != "p_correct"])
        drawn = metrics["step"] * config.batch_size / metrics["optimizer_steps"]
        metrics["passes"] = drawn / config.environment.train_inputs
        recovery = table.loc[of_clusters, [*IDENTITY, *COLUMNS]].astype({"cluster": "int64"})
        tables = {
            "finite_group": metrics.reset_index(drop=True),
            "recovery": recovery.reset_index(drop=True),
        }
        for name, rows in tables.items():
            write_parquet(rows, here.folder / f"{name}.parquet")
    warn_of_diverged(tables["finite_group"], "p_correct", ESTIMATE)
    return tables


@dataclass(frozen=True)
class GroupRun(Run):
    """A run, and how its regularizer is estimated.

    groups: "exact", with an infinite `group_size`, or one of the config's reference groups. optimizer_steps: mu.
    """

    groups: str
    group_size: float
    optimizer_steps: int


def planned_runs(config: FiniteGroupConfig) -> list[GroupRun]:
    """All runs, by seed, method and how the regularizer is estimated, then coefficient. Raises InputError.

    Each method is trained on its exact objective and with fresh groups of every G, for every mu if it weighs rollouts.
    With the first mu alone, methods that weigh both streams are trained with the other reference groups.
    """
    runs = []
    for seed, name in itertools.product(range(config.seeds), config.methods):
        method = methods.get(name, config.regularizer_options)
        streams = method.streams()
        # Without rollouts there is no policy to be off.
        possible = config.optimizer_steps if "rollout" in streams else config.optimizer_steps[:1]
        estimates = [(EXACT, math.inf, optimizer_steps) for optimizer_steps in possible]
        both = len(streams) == 2
        steps_of = {"fresh": possible if streams else (), "cached": config.optimizer_steps[: int(both)]}
        steps_of["unfiltered"] = config.optimizer_steps[: int(both and method.filtered)]
        for groups in config.reference_groups:
            for optimizer_steps, size in itertools.product(steps_of[groups], config.group_sizes):
                estimates.append((groups, float(size), optimizer_steps))
        betas = sorted(config.betas) if method.regularizer is not None else [0.0]
        for estimate, beta in itertools.product(estimates, betas):
            runs.append(GroupRun(seed, method, beta, *estimate))
    if all(run.groups == EXACT for run in runs):
        raise InputError("methods: expected one that the reference groups can estimate; nothing else is compared here")
    return runs


def _stacked_together(run: GroupRun) -> tuple:
    return run.seed, run.method.name, run.groups, run.group_size, run.optimizer_steps


def _name(run: GroupRun) -> str:
    return f"seed-{run.seed}-{run.method.name}-{run.groups}-{run.group_size:g}"


def _train_stack(config: FiniteGroupConfig, stack: list[GroupRun], parameters: Tensor, device: str) -> pd.DataFrame:
    seed = stack[0].seed
    clusters = Environment(config.environment, seed).test_clusters.to(device)
    table = train_stack(config, seed_task(config, seed, parameters.to(device)), clusters, stack)
    return table.reindex(columns=[*table.columns, *(name for name in COLUMNS if name not in table)])


def train_stack(config: FiniteGroupConfig, task: SeedTask, test_clusters: Tensor, runs: list[GroupRun]) -> pd.DataFrame:
    """Train `runs`, all of `task`'s seed and alike but for beta.

    A row per run and evaluated step; and, where `cluster` is not missing, one per run, recovery step and cluster. Both
    hold the policy before that step's update. A run that diverges ends there; see `bandit.engine.divergence`.
    test_clusters: the cluster of each test input, (N,) int64.
    """
    shared = runs[0]
    mlp = StackedMLP(layer_sizes(config), task.parameters.expand(len(runs), -1))
    trainer = Trainer(mlp, config, config.learning_rate)
    betas = torch.tensor([run.beta for run in runs]).to(task.parameters)
    exact = shared.groups == EXACT
    objective = (
        Objective(shared.method, betas, task.train) if exact else SampledObjective(config, shared, betas, task.train)
    )
    # A cached group belongs to a training input, so the test inputs have none to measure with.
    measured = set() if exact or shared.groups == "cached" else set(config.recovery_steps)
    metrics = partial(_metrics, config, group_size=shared.group_size)
    noise = random_generator(task.seed, RandomStream.RECOVERY_GROUPS)
    batches = minibatches(config, task.seed, RandomStream.RL_BATCHES)
    inputs = task.train.inputs[:0]
    behavior: Tensor | None = None
    frames: list[pd.DataFrame] = []

    def keep(rows: pd.DataFrame, step: int) -> None:
        """Rows of all runs, those of each one beside each other, with the columns that say whose they are."""
        run_of_row = [run for run in range(len(runs)) for _ in range(len(rows) // len(runs))]
        rows = rows.set_axis(run_of_row)
        beta = [runs[run].beta for run in run_of_row]
        values = (shared.seed, shared.method.name, beta, shared.groups, shared.group_size, shared.optimizer_steps, step)
        identity = dict(zip(IDENTITY, values, strict=True))
        frames.append(pd.DataFrame({**identity, **{str(name): rows[name] for name in rows}}, index=rows.index))

    for done in range(config.steps):
        if done % config.eval_interval == 0:
            keep(pd.DataFrame(averages(mlp, task.test, metrics)), done)
        if done % shared.optimizer_steps == 0:
            batch = next(batches).to(betas.device)
            inputs = task.train.inputs[batch][None]
            if isinstance(objective, SampledObjective):
                objective.take(batch)
            behavior = mlp.parameters() if done in measured else None
        if behavior is not None and (done + 1) % shared.optimizer_steps == 0:
            keep(measure(config, shared, task.test, test_clusters, mlp, behavior, noise), done)
        trainer.step(inputs, partial(spare_samplers, partial(objective.gradient, batch=batch)))
    keep(pd.DataFrame(averages(mlp, task.test, metrics)), config.steps)
    table = cut_off(frames, trainer.failed_at.tolist(), IDENTITY)
    return table.sort_values(["beta", "step"], kind="stable", ignore_index=True)


class SampledObjective(Objective):
    """The same with the sampled surrogate of what `run`'s method adds; its groups serve until the next `take`."""

    def __init__(self, config: FiniteGroupConfig, run: GroupRun, betas: Tensor, split: Split) -> None:
        super().__init__(run.method, betas, split)
        self.size = int(run.group_size)
        self.filtered = run.method.filtered and run.groups != "unfiltered"
        self.surrogate = SurrogateConfig(config.epsilon_is)
        self.rollout_noise = random_generator(run.seed, RandomStream.ROLLOUT_GROUPS)
        self.reference_noise = random_generator(run.seed, RandomStream.REFERENCE_GROUPS)
        self.cache: Responses | None = None
        self.rollout: Responses | None = None
        if run.groups == "cached":
            self.cache = self.reference_groups(split.reference(slice(None)))

    def reference_groups(self, reference: Policy) -> Responses:
        """Fresh groups (1, B, G) of `reference` (1, B, A)."""
        batch = reference.logits.shape[1]
        if self.filtered:
            return draw_filtered(reference, self._uniforms(self.reference_noise, batch, 1, self.size + 1))
        return draw(reference, reference, self._uniforms(self.reference_noise, batch, self.size))

    def take(self, batch: Tensor) -> None:
        """Continue with another minibatch: (B,) int64, positions in the split."""
        self.references = (
            self.reference_groups(self.split.reference(batch)) if self.cache is None else self.cache[batch]
        )
        self.rollout = None

    def added_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        """(R, B, A): the sampled surrogate's gradient; `policy` draws the rollouts at the first call after `take`."""
        if self.rollout is None:
            uniforms = self._uniforms(self.rollout_noise, policy.logits.shape[1], self.size)
            self.rollout = draw(policy, reference, uniforms)
        return method_logit_gradient(self.method, policy, self.references, self.rollout, self.betas, self.surrogate)

    def _uniforms(self, noise, *shape: int) -> Tensor:
        return torch.from_numpy(noise.random(shape)).to(self.betas.device)


def _metrics(config: TrainingConfig, policy: Policy, reference: Policy, group_size: float) -> dict[str, Tensor]:
    """The sweep's metrics and, of finite groups, the expected share that hold no correct response, (R, B) each."""
    metrics = policy_metrics(config, policy, reference)
    if math.isfinite(group_size):
        metrics["zero_correct_rate"] = expected_zero_correct_rate(policy, int(group_size))
    return metrics


def draw_filtered(policy: Policy, uniforms: Tensor) -> Responses:
    """M groups of G independent responses of `policy` (R, B, A) to each input, given a correct response in each group.

    So the buffer's filter leaves reference groups (Appendix B). The groups of an input lie one after the other, (R, B,
    M * G). uniforms: (B, M, G + 1) or (R, B, M, G + 1) float64 in [0, 1); the first of a group places its first correct
    response.
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
