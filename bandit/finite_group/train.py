"""The finite-group lab's runs: a regularizer sampled in groups of G, or exact.

Axes: R runs, B inputs, A actions, M groups per input, G responses. The runs of a stack differ in their coefficient
only.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from bandit.config import TrainingConfig
from bandit.engine.divergence import cut_off, spare_samplers, warn_of_diverged
from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.exact import Objective, averages, policy_metrics
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, Split, layer_sizes, minibatches, seed_task
from bandit.engine.runs import Run, opened
from bandit.engine.sampled import Responses, draw_actions, draw_responses, method_logit_gradient, responses_to
from bandit.finite_group.config import FiniteGroupConfig
from cokl import methods
from cokl.groups import SurrogateConfig
from cokl.metrics import expected_zero_correct_rate
from cokl.policy import Policy
from cokl.support.errors import InputError
from cokl.support.files import write_parquet
from cokl.support.results import HERE, Execution, Work, compute

EXACT = "exact"
ESTIMATE = ["method", "beta", "groups", "optimizer_steps", "group_size"]
"""The columns that tell the runs of a seed apart."""
IDENTITY = ("seed", "method", "beta", "groups", "group_size", "optimizer_steps", "step")
"""The columns that say which run and step a row belongs to."""
COLUMNS = (*IDENTITY, "p_correct", "conditional_kl", "passes")


def train(config: FiniteGroupConfig, execution: Execution = HERE) -> dict[str, pd.DataFrame]:
    """Train everything that `config` asks for; the table "finite_group" has a row per run and evaluated step.

    Columns: IDENTITY, where group_size is infinite if groups is "exact"; p_correct, coverage_at_K,
    coverage_at_K_correct, conditional_kl, zero_correct_rate; and passes, how often each training input has been drawn
    on average. Raises InputError for unknown methods or devices and for a folder that cannot be used.
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
        drawn = table["step"] * config.batch_size / table["optimizer_steps"]
        table["passes"] = drawn / config.environment.train_inputs
        write_parquet(table, here.folder / "finite_group.parquet")
    warn_of_diverged(table, "p_correct", ESTIMATE)
    return {"finite_group": table}


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
    With the first mu alone, methods that weigh both streams are trained with cached groups.
    """
    runs = []
    for seed, name in itertools.product(range(config.seeds), config.methods):
        method = methods.get(name)
        streams = method.streams()
        # Without rollouts there is no policy to be off.
        possible = config.optimizer_steps if "rollout" in streams else config.optimizer_steps[:1]
        estimates = [(EXACT, math.inf, optimizer_steps) for optimizer_steps in possible]
        steps_of = {
            "fresh": possible if streams else (),
            "cached": config.optimizer_steps[:1] if len(streams) == 2 else (),
        }
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
    return train_stack(config, seed_task(config, stack[0].seed, parameters.to(device)), stack)


def train_stack(config: FiniteGroupConfig, task: SeedTask, runs: list[GroupRun]) -> pd.DataFrame:
    """Train `runs`, all of `task`'s seed and alike but for beta; a row per run and evaluated step.

    A run that diverges ends there; see `bandit.engine.divergence`.
    """
    shared = runs[0]
    mlp = StackedMLP(layer_sizes(config), task.parameters.expand(len(runs), -1))
    trainer = Trainer(mlp, config, config.learning_rate)
    betas = torch.tensor([run.beta for run in runs]).to(task.parameters)
    exact = shared.groups == EXACT
    objective = (
        Objective(shared.method, betas, task.train) if exact else SampledObjective(config, shared, betas, task.train)
    )
    metrics = partial(_metrics, config, group_size=shared.group_size)
    batches = minibatches(config, task.seed, RandomStream.RL_BATCHES)
    identity = {
        "seed": shared.seed,
        "method": shared.method.name,
        "beta": [run.beta for run in runs],
        "groups": shared.groups,
        "group_size": shared.group_size,
        "optimizer_steps": shared.optimizer_steps,
    }
    frames: list[pd.DataFrame] = []
    for done in range(config.steps + 1):
        if done % config.eval_interval == 0 or done == config.steps:
            frames.append(pd.DataFrame({**identity, "step": done, **averages(mlp, task.test, metrics)}))
            failed_at = trainer.failed_at
        if done % shared.optimizer_steps == 0:
            batch = next(batches).to(betas.device)
            if isinstance(objective, SampledObjective):
                objective.take(batch)
        if done < config.steps:
            gradient = partial(spare_samplers, partial(objective.gradient, batch=batch))
            trainer.step(task.train.inputs[batch][None], gradient)
    table = cut_off(frames, failed_at.tolist(), IDENTITY)
    return table.sort_values(["beta", "step"], kind="stable", ignore_index=True)


class SampledObjective(Objective):
    """The same with the sampled surrogate of what `run`'s method adds; its groups serve until the next `take`."""

    def __init__(self, config: FiniteGroupConfig, run: GroupRun, betas: Tensor, split: Split) -> None:
        super().__init__(run.method, betas, split)
        self.size = int(run.group_size)
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
        if self.method.filtered:
            return draw_filtered(reference, self._uniforms(self.reference_noise, batch, 1, self.size + 1))
        return draw_responses(reference, reference, self._uniforms(self.reference_noise, batch, self.size))

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
            self.rollout = draw_responses(policy, reference, uniforms)
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
