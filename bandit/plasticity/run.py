"""The plasticity lab's runs: the selection seeds', which find the match, then the reported ones'; saved as made."""

from __future__ import annotations

import pandas as pd
import torch
from cokl.support.experiment import HERE, Execution
from cokl.support.workers import Work

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.runs import opened
from bandit.plasticity.actions import Actions
from bandit.plasticity.config import PRESETS, TwoPhases
from bandit.plasticity.plan import Start, meets_all, planned, stacked
from bandit.plasticity.score import START, match
from bandit.plasticity.train import AnswerSpace, train
from cokl.support.files import write_result


def plasticity(
    config: TwoPhases = PRESETS["paper"],
    execution: Execution = HERE,
    progress: bool = True,
    space: type[AnswerSpace] = Actions,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, also saved; `score` says its columns.

    execution: where results are kept, by default nowhere, and who computes them. space: what an answer is. A policy
    whose network diverged has rows without metrics. Raises InputError for unknown methods or devices and for a folder
    that cannot be used.
    """
    starts = [start for seed in config.roles for start in planned(config, seed)]
    with (
        execution.results_folder() as folder,
        opened(config, starts, space.__module__, folder, execution, progress, reference=space.reference) as here,
    ):

        def made(role: str, matched: set[tuple[str, str, int, float]]) -> pd.DataFrame:
            works = []
            for stack in stacked([start for start in starts if config.roles[start.seed] == role]):
                everything = [role == "report" and meets_all(start, config.phases[0].name, matched) for start in stack]
                first = stack[0]
                met = zip([start.identity for start in stack], everything, strict=True)
                key = f"seed {first.seed}, {', '.join(map(repr, met))}"
                name = f"seed-{first.seed}-{first.phase}-{first.name}-{first.cached}-{first.beta:g}.parquet"
                arguments = (space, config, stack, here.parameters[first.seed], everything, here.device)
                works.append(Work(_make_chunk, arguments, folder / "runs" / name, key, len(stack)))
            return pd.concat(here.workers.do(works, here.origin, f"{role} runs", progress)).assign(role=role)

        selection = made("selection", set())
        chosen = match(selection, config)
        matched = set(chosen[START].itertuples(index=False, name=None))
        table = _in_order(pd.concat([made("report", matched), selection], ignore_index=True))
        write_result(table, folder / "plasticity.parquet")
    warn_of_diverged(table.drop_duplicates(["seed", *START]), "reward", START)
    return table


def _make_chunk(
    space: type[AnswerSpace],
    config: TwoPhases,
    stack: list[Start],
    parameters: torch.Tensor,
    everything: list[bool],
    device: str,
) -> pd.DataFrame:
    return train(space(config, stack[0].seed, parameters.to(device)), stack, everything)


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """By seed, as planned, and the columns that say which run a row is of first."""
    names = ["seed", "role", *START, "change", "mode", "step", "reward", "below_half"]
    return table[[*names, *(name for name in table if name not in names)]]
