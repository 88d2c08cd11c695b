"""Every mode, method, coefficient and seed of a lab on two tasks, trained in stacks, saved as it is done."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from torch import Tensor

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.runs import parameters_of, parameters_table, reference_path, regularizer_classes
from bandit.engine.tables import in_order
from bandit.engine.two_tasks.plan import RUN, ShiftRun, stacked
from bandit.engine.two_tasks.train import TwoTaskTrainer
from cokl.support.code import with_code
from cokl.support.files import write_parquet
from cokl.support.results import Execution, Work, compute, one_thread


def train_two_tasks(
    trainer: TwoTaskTrainer, runs: list[ShiftRun], name: str, columns: Sequence[str], execution: Execution
) -> pd.DataFrame:
    """Train what the folder lacks of `runs` and return their table, with these columns, also saved as NAME.parquet.

    Runs that differ in their coefficient only are trained as one stack. The table has the base model's rows, too. Warns
    of runs that diverged.
    """
    config = trainer.config
    described = with_code({**config.as_dict(), "device": "cpu"}, regularizer_classes(run.method for run in runs))
    with execution.results_folder(described) as folder:
        seeds = list(dict.fromkeys(run.seed for run in runs))
        works = [Work(_base, (trainer, seed), reference_path(folder, seed)) for seed in seeds]
        bases = dict(zip(seeds, map(parameters_of, compute(works, execution, "base models", True)), strict=True))
        works = [
            Work(
                _runs,
                (trainer, stack, bases[stack[0].seed]),
                folder / "runs" / f"{number:05d}-{_stack_name(stack[0])}.parquet",
                len(stack),
            )
            for number, stack in enumerate(stacked(runs))
        ]
        trained = compute(works, execution, "runs", True)
        with one_thread():
            frames = [trainer.base_rows(trainer.task(config, seed, base)) for seed, base in bases.items()]
        table = pd.concat([*frames, *trained], ignore_index=True)
        table = table.assign(role=table["seed"].map(config.roles))[list(columns)]
        methods = dict.fromkeys(["base", *(run.method.name for run in runs)])
        table = in_order(table, methods, ["seed", "mode", "method", "kl_prompts", "beta", "step"])
        write_parquet(table, folder / f"{name}.parquet")
    warn_of_diverged(table, "prior_correct", RUN)
    return table


def _stack_name(run: ShiftRun) -> str:
    return f"seed-{run.seed}-{run.mode}-{run.method.name}-{run.kl_prompts}"


def _base(trainer: TwoTaskTrainer, seed: int) -> pd.DataFrame:
    return parameters_table(trainer.base_parameters(seed), f"the base model of seed {seed}")


def _runs(trainer: TwoTaskTrainer, runs: list[ShiftRun], parameters: Tensor) -> pd.DataFrame:
    return trainer.train(trainer.task(trainer.config, runs[0].seed, parameters), runs)
