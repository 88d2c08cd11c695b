"""The plasticity lab's runs: phase 1 of the controlled experiment, then another reward without a regularizer.

Phase 2 starts from the final policies of phase 1 on another reward, in sampled GRPO groups or in expectation, without a
regularizer.

Assumption beyond the paper: methods are compared where phase 1 reached the matched correctness: between the two
neighbouring coefficients whose means over the selection seeds enclose it, interpolated with the same weights in every
seed; at the nearest coefficient where none enclose it.

Axes: R runs, N training inputs, B inputs, C clusters, A actions, P parameters, G responses. Nothing couples the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandit.engine.divergence import spare_samplers, warn_of_diverged, without_diverged
from bandit.engine.environment import Environment, RandomStream, random_generator, some_of
from bandit.engine.exact import evaluate
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import layer_sizes, seed_task
from bandit.engine.runs import Run, opened, stacks
from bandit.engine.sampled import Responses, draw_actions, gather_actions, grpo_logit_gradient
from bandit.plasticity.config import PRESETS, PlasticityConfig, kind_of
from bandit.sweep.train import steps
from cokl import methods
from cokl.policy import CorrectSet, Policy
from cokl.support.files import write_parquet
from cokl.support.results import HERE, Execution, Work, compute

START = ["method", "beta"]
"""What names a policy that phase 2 starts from, up to its seed; the reference is one."""
NEW = ["change", "mode"]
COLUMNS = ("seed", "role", *START, *NEW, "step", "reward", "below_half", "p_correct", "conditional_kl")

LESS = 0.2
"""The reward of the correct actions that are not preferred."""
_RUNS_PER_STACK = 5

Step = tuple[Tensor, Callable[[Tensor], Tensor]]
"""What the network reads in a step, (1, rows, D), and the loss's gradient by its logits (R, rows, A)."""

without_diverged_runs = partial(without_diverged, metric="reward", run=START)
"""The table without the coefficients of which some seed diverged."""


def train(config: PlasticityConfig, execution: Execution = HERE) -> dict[str, pd.DataFrame]:
    """The lab's table, of `plasticity`."""
    return {"plasticity": plasticity(config, execution)}


def plasticity(
    config: PlasticityConfig = PRESETS["paper"], execution: Execution = HERE, progress: bool = True
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per policy, change, mode and step.

    The selection seeds come first, since they find the match, of which only the reported policies nearest to it meet
    every change. Columns: COLUMNS, and what phase 1 reached, coverage under pi and under pi+ among it. A policy whose
    network diverged has rows without metrics. execution: where results are kept, by default nowhere, and who computes
    them. Raises InputError for unknown methods or devices and for a folder that cannot be used.
    """
    starts = [start for seed in config.roles for start in planned(config, seed)]
    with opened(config, starts, execution, progress) as here:

        def made(role: str, matched: set[tuple[str, float]]) -> pd.DataFrame:
            works = []
            for stack in stacked([start for start in starts if config.roles[start.seed] == role]):
                everything = [role == "report" and meets_all(start, matched) for start in stack]
                first = stack[0]
                name = f"seed-{first.seed}-{first.name}-{first.beta:g}.parquet"
                arguments = (config, stack, here.parameters[first.seed], everything, here.device)
                works.append(Work(_train_stack, arguments, here.folder / "runs" / name, len(stack)))
            return pd.concat(compute(works, execution, f"{role} runs", progress)).assign(role=role)

        selection = made("selection", set())
        matched = set(match(selection, config)[START].itertuples(index=False, name=None))
        table = _in_order(pd.concat([made("report", matched), selection], ignore_index=True))
        write_parquet(table, here.folder / "plasticity.parquet")
    warn_of_diverged(table.drop_duplicates(["seed", *START]), "reward", START)
    return table


@dataclass(frozen=True)
class Start(Run):
    """A policy that phase 2 starts from. reference: whether it is the reference, which phase 1 does not train."""

    reference: bool = False

    @property
    def name(self) -> str:
        """What tables call its method."""
        return "reference" if self.reference else self.method.name


def planned(config: PlasticityConfig, seed: int) -> list[Start]:
    """Every policy of one seed. Raises InputError for unknown methods."""
    starts = [Start(seed, methods.get("none"), 0.0, reference=True)]
    for method in [methods.get(name) for name in config.methods]:
        betas = sorted(config.betas) if method.regularizer is not None else [0.0]
        starts += [Start(seed, method, beta) for beta in betas]
    return starts


def stacked(starts: list[Start]) -> list[list[Start]]:
    """Policies that are trained as one stack: those of a seed that differ in their coefficient only."""
    return stacks(starts, lambda start: (start.seed, start.name), _RUNS_PER_STACK)


def meets_all(start: Start, matched: set[tuple[str, float]]) -> bool:
    """Whether a policy of a reported seed meets every change: those nearest the match."""
    return start.method.regularizer is None or (start.name, start.beta) in matched


def match(table: pd.DataFrame, config: PlasticityConfig) -> pd.DataFrame:
    """A row per coefficient that the match takes, with its weight: START, weight, and reached, where its method is.

    Chosen on the selection seeds. The reference and unregularized RL have no coefficient to choose.
    """
    selection = without_diverged_runs(table).query("role == 'selection'").drop_duplicates(["seed", *START])
    target = config.matched_correctness
    lines = []
    for method, rows in selection.groupby("method", sort=False):
        means = rows.groupby("beta")["p_correct"].mean()
        betas, reached = means.index.to_numpy(), means.to_numpy()
        crossing = np.flatnonzero((reached[:-1] - target) * (reached[1:] - target) <= 0)
        weights = {betas[np.abs(reached - target).argmin()]: 1.0}
        if len(crossing) and reached[crossing[0]] != reached[crossing[0] + 1]:
            left = int(crossing[0])
            share = (target - reached[left]) / (reached[left + 1] - reached[left])
            weights = {betas[left]: 1 - share, betas[left + 1]: share}
        at = sum(weight * means[beta] for beta, weight in weights.items())
        lines += [(method, beta, weight, at) for beta, weight in weights.items()]
    return pd.DataFrame(lines, columns=[*START, "weight", "reached"])


class PlasticityStream(IntEnum):
    """Independent random streams of a seed, `np.random.default_rng([seed, stream])`, apart from the engine's.

    The environment, the reference, and phase 1's minibatches have the engine's own streams, so that phase 1 is a run of
    the controlled experiment. Every policy, mode and change of a seed reads each stream here from its beginning, so
    that all share their draws.

    MOVED: uniform numbers (C, A), for `some_of`, as the engine's NARROWED. NEW_BATCHES: for each step `prompts`
    integers below N. NEW_ROLLOUTS: for each step uniform numbers (prompts, G), one a response, by inversion of the
    cumulated probabilities.
    """

    MOVED = 201
    NEW_BATCHES = 205
    NEW_ROLLOUTS = 206


class BothPhases:
    """Both phases on one seed's task. parameters: (P,), the reference's. A reward is a table, (R or 1, C, A)."""

    def __init__(self, config: PlasticityConfig, seed: int, parameters: Tensor) -> None:
        self.config, self.seed, self.parameters = config, seed, parameters
        self.task, self.environment = seed_task(config, seed, parameters), Environment(config.environment, seed)
        self.clusters = self.environment.train_clusters.to(parameters.device)

    def stack(self, parameters: Tensor) -> StackedMLP:
        """Networks with parameters (R, P)."""
        return StackedMLP(layer_sizes(self.config), parameters)

    def changed(self, change: str, final: StackedMLP) -> Tensor:
        """(R or 1, C, A): the reward of each action."""
        own = self._cluster_means(final.forward(self.task.train.inputs[None]))
        return reward_table(
            self.environment, self.seed, change, own, self._cluster_means(self.task.train.reference_log_probs[None])
        )

    def _cluster_means(self, logits: Tensor) -> Tensor:
        """(R, C, A): mean probabilities on each cluster's training inputs; zero for a cluster without any."""
        count = self.config.environment.clusters
        sizes = torch.bincount(self.clusters, minlength=count).clamp_min(1)[:, None]
        sums = logits.new_zeros(len(logits), count, logits.shape[-1])
        return sums.index_add_(1, self.clusters, logits.softmax(-1)) / sizes

    def new_step(self, reward: Tensor, mode: str, batch: Tensor, uniforms: Tensor) -> Step:
        """GRPO in groups, or minus the expected reward."""
        shown, correct = reward[:, self.clusters[batch]], self.task.train.correct[batch][None]
        sampled = partial(_grpo_gradient, rewards=shown, correct=correct, uniforms=uniforms)
        gradient = sampled if mode == "sampled" else partial(_expected_gradient, rewards=shown)
        return self.task.train.inputs[batch][None], gradient

    def expected(self, mlp: StackedMLP, reward: Tensor) -> Tensor:
        """(R, inputs): on the first `evaluated_inputs` test inputs."""
        inputs = self.task.test.inputs[: self.config.evaluated_inputs]
        clusters = self.environment.test_clusters[: len(inputs)].to(inputs.device)
        return (mlp.forward(inputs[None]).softmax(-1) * reward[:, clusters]).sum(-1).double()

    def draws(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless batches of `prompts` inputs (B,), and uniform numbers (B, G) float64 in [0, 1) for rollouts."""
        rng = random_generator(self.seed, PlasticityStream.NEW_BATCHES)
        uniforms = random_generator(self.seed, PlasticityStream.NEW_ROLLOUTS)
        shape = (self.config.prompts, self.config.group_size)
        while True:
            batch = torch.from_numpy(rng.integers(len(self.task.train.inputs), size=self.config.prompts))
            yield batch.to(self.parameters.device), torch.from_numpy(uniforms.random(shape)).to(self.parameters.device)

    def learn(self, start: Tensor, change: str, mode: str) -> list[pd.DataFrame]:
        """From policies (R, P) a row per run in each frame: change, mode, step, the mean reward, and the share of
        inputs below one half.
        """
        config, mlp, draws = self.config, self.stack(start), self.draws()
        reward = self.changed(change, self.stack(start))
        trainer = Trainer(mlp, config, config.learning_rate)
        frames = []
        for done in range(config.new_steps + 1):
            if done in config.evaluated_steps:
                expected = self.expected(mlp, reward)
                metrics = {"reward": expected.mean(-1), "below_half": (expected < 0.5).double().mean(-1)}
                frame = pd.DataFrame({name: values.tolist() for name, values in metrics.items()})
                frames.append(frame.assign(change=change, mode=mode, step=done))
            if done < config.new_steps:
                inputs, gradient = self.new_step(reward, mode, *next(draws))
                trainer.step(inputs, partial(spare_samplers, gradient))
        return frames


def _grpo_gradient(logits: Tensor, rewards: Tensor, correct: CorrectSet, uniforms: Tensor) -> Tensor:
    """(R, B, A): gradient of -J_GRPO on groups that the policy draws with `uniforms` (B, G), rewards (R or 1, B, A).

    correct: of phase 1, which phase 2 does not look at.
    """
    policy = Policy(logits, correct)
    actions = draw_actions(policy.probs, uniforms)
    log_probs = gather_actions(policy.log_probs, actions)
    drawn = Responses(actions, gather_actions(rewards.expand_as(logits), actions), log_probs, log_probs)
    return grpo_logit_gradient(policy, drawn)


def _expected_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """(R, B, A): gradient of minus the expected reward."""
    probs = logits.softmax(-1)
    return probs * ((probs * rewards).sum(-1, keepdim=True) - rewards)


def reward_table(environment: Environment, seed: int, change: str, own: Tensor, reference: Tensor) -> Tensor:
    """(R or 1, C, A): the reward of each action in each cluster, in the arithmetic of `own`.

    own, reference: (R, C, A) and (1, C, A), mean probabilities on a cluster's training inputs after phase 1.
    """
    correct = environment.correct.mask.to(own.device)
    kind, actions = kind_of(change)
    if kind in ("narrowed", "moved"):
        eligible = ~correct if kind == "moved" else correct
        stream = PlasticityStream.MOVED if kind == "moved" else RandomStream.NARROWED
        chosen = some_of(eligible, actions, seed, stream)
        return torch.zeros_like(reference).scatter_(-1, chosen[None], 1)
    if kind == "repaired":
        among = own.masked_fill(~correct, -1)
        return correct.to(own).expand_as(among).clone().scatter_(-1, among.argmax(-1, keepdim=True), 0)
    least = reference.masked_fill(~correct, torch.inf).argsort(-1)[..., : environment.config.correct_actions // 2]
    return (LESS * correct.to(own))[None].scatter(-1, least, 1)


def train_stack(space: BothPhases, starts: list[Start], everything: list[bool]) -> pd.DataFrame:
    """Both phases of a stack, all of one method: a row per run, change, mode and evaluated step.

    everything: for each run, whether it meets all changes or one alone, the primary one where it is among them.
    """
    config = space.config
    mlp = space.stack(space.parameters.expand(len(starts), -1))
    if not starts[0].reference:
        *_, (_, mlp, _) = steps(config, space.task, list(starts))
    facts = pd.DataFrame([(start.name, start.beta) for start in starts], columns=START)
    facts = pd.concat([facts, pd.DataFrame(evaluate(config, space.task, mlp))], axis=1).assign(seed=space.seed)
    final, frames = mlp.parameters(), []
    first = config.primary_change if config.primary_change in config.changes else config.changes[0]
    for change in config.changes:
        rows = [row for row, all_changes in enumerate(everything) if all_changes or change == first]
        if not rows:
            continue
        for mode in ("sampled", "exact"):
            for measured in space.learn(final[rows], change, mode):
                frames.append(pd.concat([facts.iloc[rows].reset_index(drop=True), measured], axis=1))
    return pd.concat(frames, ignore_index=True)


def _train_stack(
    config: PlasticityConfig, stack: list[Start], parameters: Tensor, everything: list[bool], device: str
) -> pd.DataFrame:
    return train_stack(BothPhases(config, stack[0].seed, parameters.to(device)), stack, everything)


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """By seed, as planned, and the columns that say which run a row is of first."""
    names = ["seed", "role", *START, "change", "mode", "step", "reward", "below_half"]
    return table[[*names, *(name for name in table if name not in names)]]
