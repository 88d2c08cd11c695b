"""The whole experiment: coefficients from the selection seeds, then both stages with each reported seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from llm_bridge.experiment.plasticity.config import PlasticityConfig
from llm_bridge.experiment.plasticity.report import chosen, write
from llm_bridge.experiment.plasticity.runs import Run, llm_config, reported_runs, selection_runs, train
from llm_bridge.experiment.plasticity.scores import RUNS, collect, read_rows, scored_runs
from llm_bridge.experiment.stages import Experiment


def plasticity(config: PlasticityConfig, root: Path, seeds: Sequence[int], keep_going: bool) -> None:
    """Train what `seeds` lack, a seed at a time, and write ROOT/{stages.csv, steps.csv, results.md} after each.

    Rows that are in ROOT already are not made again. A reported seed waits for all selection seeds. Raises InputError
    for a folder of another experiment or other code, and for a job that fails or hangs.
    """
    named = replace(
        llm_config(config, 0),
        buffer_prompts=config.prompts,
        reference_group_size=config.cached,
        math_steps=config.steps[0],
        chat_steps=config.steps[1],
        pretraining_steps=config.pretraining_steps,
    )
    Experiment(named, root, keep_going=keep_going).open([("cokl", None, None), ("reverse_kl", None, None)])
    for seed in (*config.selection_seeds, *config.reported_seeds):
        if seed in seeds:
            runs = selection_runs() if seed in config.selection_seeds else reported_runs(chosen(read_rows(root, RUNS)))
            _train_missing(config, seed, runs, root)
            write(root)


def _train_missing(config: PlasticityConfig, seed: int, runs: Sequence[Run], root: Path) -> None:
    folder = root / f"seed-{seed}"
    collect(config, seed, runs, folder, root)  # what an interrupted job has finished
    missing = [run for run in runs if run not in scored_runs(root, seed)]
    starts = [replace(run, stage=1) for run in missing if run.stage == 2]
    needed = [run for run in runs if run in missing or run in starts]
    if missing:
        train(config, seed, needed, folder)
        collect(config, seed, needed, folder, root)
