"""What grad log Z, replay's extra direction, does to the prior task along CoKL's training and along replay's own.

At one state of the network replay's descent direction is CoKL's plus beta times the mean over the buffer of grad log Z
(theory, `replay-adds-mass`); from groups of G, CoKL's keeps (1 - Z)^G of it. So the logit of a prompt's Z rises per
step faster with replay than with CoKL by

    beta mean_j K_ij [(1 - Z_j of replay) - (1 - Z_j of CoKL)^(G + 1)],    K_ij = <grad logit Z_i, D grad logit Z_j>,

with D the learning rate over Adam's denominators times the clipping, and the second term in samples alone. The tangent
kernel K is measured along one method's run. What the other's logit Z becomes follows by integrating from there.

Assumption beyond the paper: the prediction takes four things from the measured run: the other task's push, what holds
pi+, K and D. It ignores the delay by Adam's first moment. The buffer is represented by its first J prompts.

Axes: I prompts whose logit Z is followed, as many test prompts as prompts of the buffer, J, which come last; P
parameters; M measured steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bandit.engine.networks import StackedMLP
from bandit.engine.runs import code_behind
from bandit.engine.two_tasks.config import Mode
from bandit.engine.two_tasks.plan import kl_prompts
from bandit.engine.two_tasks.tasks import Minibatch, TwoTasks
from bandit.engine.two_tasks.train import TwoTaskTrainer
from bandit.interference.config import LABS, InterferenceConfig
from bandit.sequences.config import SequenceConfig
from bandit.sequences.train import SequenceTrainer
from bandit.shift.train import ShiftTrainer
from cokl import methods
from cokl.support.experiment import HERE, Execution
from cokl.support.files import write_result
from cokl.support.results_folder import open_folder
from cokl.support.workers import Work, Workers, require_jobs

COKL, REPLAY = "cokl", "correct_forward_kl"
FIRST = 5
"""The first measured step; before it Adam's denominators are those of one or two minibatches."""
_TOGETHER = 64
"""Prompts whose gradients are computed at once."""


@dataclass(frozen=True)
class Measured:
    """What is measured along one run.

    steps: (M,). logits: (M, I), logit Z. kernel: (M, I, J), K. new, own: (M, I), what the new task and the method's
    whole regularizer add to logit Z in a step. learned: (M,), mean correctness on the new task.
    """

    steps: np.ndarray
    logits: np.ndarray
    kernel: np.ndarray
    new: np.ndarray
    own: np.ndarray
    learned: np.ndarray


def interference(config: InterferenceConfig, execution: Execution = HERE, progress: bool = True) -> pd.DataFrame:
    """A row per setting, seed, measured method and step; also saved as interference.parquet.

    correct: mean Z of the test prompts; predicted: the other method's, from this run alone. new, own: mean change of
    logit Z in a step that the new task and the method's regularizer make. kernel: the mean of K. learned: correctness
    on the new task. Raises InputError for a folder that cannot be used.
    """
    require_jobs(execution.jobs)
    code = code_behind(__name__, map(methods.get, (COKL, REPLAY)))
    units = [(setting, config.first_seed + seed) for setting in config.settings for seed in range(config.seeds)]
    settings = {**config.as_dict(), "device": "cpu"}
    with execution.results_folder() as folder, open_folder(folder, settings, code, execution.keep_going) as origin:
        works = [
            Work(
                _both,
                (config, *unit),
                folder / "runs" / "{}-seed-{}.parquet".format(*unit),
                "{} of seed {}".format(*unit),
            )
            for unit in units
        ]
        tables = Workers(execution.backend, execution.jobs).do(works, origin, "pairs of runs", progress)
        table = pd.concat(tables, ignore_index=True)
        write_result(table, folder / "interference.parquet")
    return table


def _both(config: InterferenceConfig, setting: str, seed: int) -> pd.DataFrame:
    lab, mode = LABS[setting]
    trainer: TwoTaskTrainer = SequenceTrainer(lab) if isinstance(lab, SequenceConfig) else ShiftTrainer(lab)
    task = trainer.task(lab, seed, trainer.base_parameters(seed))
    group = lab.group_size if mode == "sampled" else math.inf
    frames = []
    for method in (COKL, REPLAY):
        run = measure(trainer, task, mode, method, config.coefficient, config.prompts, config.every)
        other = predicted(run, config.coefficient, method == COKL, group)
        tested = len(run.logits[0]) - run.kernel.shape[2]
        columns = {"correct": _mass(run.logits), "predicted": _mass(other), "new": run.new, "own": run.own}
        means = {name: values[:, :tested].mean(1) for name, values in columns.items()}
        identity = {"setting": setting, "seed": seed, "method": method, "step": run.steps}
        kernel = run.kernel[:, :tested].mean((1, 2))
        frames.append(pd.DataFrame({**identity, **means, "kernel": kernel, "learned": run.learned}))
    return pd.concat(frames, ignore_index=True)


def measure(
    trainer: TwoTaskTrainer, task: TwoTasks, mode: Mode, method: str, beta: float, prompts: int, every: int
) -> Measured:
    """Train one method as the lab does, and measure on the way. prompts: most test prompts, and most of the buffer."""
    config, chosen = trainer.config, methods.get(method)
    rate = config.new_learning_rate or config.learning_rate
    exact = trainer.objective("exact", chosen, torch.tensor([beta], dtype=torch.float64))
    learned, held = task.new_test[:prompts], task.buffer.used_by(chosen).prompts[:prompts]
    rows: list[tuple[np.ndarray | float, ...]] = []
    clips: list[float] = []
    for done, mlp, optimizer in trainer.steps(task, mode, chosen, [beta], kl_prompts(config.kl_groups, chosen)):
        if done:
            clips.append(float(optimizer.clip))
        if done == FIRST or (done and done % every == 0) or done == config.steps:
            bias = 1 - config.adam_betas[1] ** done
            denominator = (optimizer.moments[1].double() / bias).sqrt() + config.adam_epsilon
            step = rate * float(np.mean(clips[-every:])) / denominator
            both = [mass_slopes(trainer, mlp, part) for part in (task.prior_test[:prompts], held)]
            slopes = torch.cat([slope for slope, _ in both])
            gain = -_slope(trainer, mlp, learned, lambda policy, _: exact.rl(policy, policy))
            own = -_slope(trainer, mlp, held, lambda policy, batch: exact.regularization(policy, policy, batch))
            moved = slopes * step
            _, of_new = mass_slopes(trainer, mlp, learned)
            logits = torch.cat([logit for _, logit in both]).numpy()
            kernel = (moved @ both[1][0].T).numpy()
            rows.append(
                (done, logits, kernel, (moved @ gain).numpy(), (moved @ own).numpy(), _mass(of_new.numpy()).mean())
            )
    return Measured(*map(np.array, zip(*rows, strict=True)))


def predicted(run: Measured, beta: float, of_cokl: bool, group: float) -> np.ndarray:
    """(M, I): the other method's logit Z. of_cokl: whether `run` is CoKL's. group: G, infinite in expectations."""
    gap, gaps, at = np.zeros_like(run.logits[0]), [], 0
    for step in range(run.steps[-1] + 1):
        while at + 1 < len(run.steps) and run.steps[at + 1] <= step:
            at += 1
        following = min(at + 1, len(run.steps) - 1)
        span = max(run.steps[following] - run.steps[at], 1)
        share = min(max((step - run.steps[at]) / span, 0), 1)
        kernel, logits = ((1 - share) * of[at] + share * of[following] for of in (run.kernel, run.logits))
        if step in run.steps:
            gaps.append(gap)
        cokl, replay = (logits, logits + gap) if of_cokl else (logits + gap, logits)
        held = slice(-kernel.shape[1], None)
        extra = (1 - _mass(replay[held])) - (1 - _mass(cokl[held])) ** (group + 1)
        gap = gap + (1 if of_cokl else -1) * beta * kernel @ extra / kernel.shape[1]
    return run.logits + np.array(gaps)


def mass_slopes(trainer: TwoTaskTrainer, mlp: StackedMLP, prompts: Any) -> tuple[Tensor, Tensor]:
    """Of one run's network: (N, P) and (N,) float64, the gradient of each prompt's logit Z, and logit Z itself."""
    slopes, logits = [], []
    for start in range(0, len(prompts.inputs), _TOGETHER):
        part = prompts[start : start + _TOGETHER]
        inputs, count = trainer.network_inputs(part.inputs), len(part.inputs)
        rows = mlp.forward(inputs)
        policy = trainer.policies(rows, [Minibatch(part, torch.empty(0))])[0]
        # The gradient of the mean of log Z over prompts, as `Trainer.step` takes it, is each prompt's over all rows.
        of_rows = trainer.joined([policy.log_mass_logit_gradient()], rows) * (count / inputs.shape[1])
        copies = StackedMLP(trainer.layer_sizes(trainer.config), mlp.parameters().expand(count, -1))
        copies.forward(inputs.view(count, -1, inputs.shape[2]))
        copies.backward(of_rows.view(count, -1, rows.shape[2]))
        wrong = policy.log_incorrect_mass.double().flatten()
        slopes.append(torch.cat([block.flatten(1) for block in copies.gradients], 1).double() / wrong.exp()[:, None])
        logits.append(policy.log_mass.double().flatten() - wrong)
    return torch.cat(slopes), torch.cat(logits)


def _slope(trainer: TwoTaskTrainer, mlp: StackedMLP, prompts: Any, gradient: Callable[..., Tensor]) -> Tensor:
    """(P,) float64: the gradient of the mean over prompts of what `gradient` differentiates by logits."""
    inputs, minibatch = trainer.network_inputs(prompts.inputs), Minibatch(prompts, torch.empty(0))
    logits = mlp.forward(inputs)
    policy = trainer.policies(logits, [minibatch])[0]
    mlp.backward(trainer.joined([gradient(policy, minibatch)], logits))
    return mlp.flat_gradient.double() / inputs.shape[1]


def _mass(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))
