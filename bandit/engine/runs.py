"""What the experiments share around a run: which are stacked, the folder, the device, the seed's reference."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from bandit.engine.reference import pretrain
from cokl.methods import Method
from cokl.support.chunks import Origin
from cokl.support.code import code_of
from cokl.support.errors import InputError
from cokl.support.experiment import Execution
from cokl.support.results_folder import open_folder
from cokl.support.workers import Work, Workers, require_jobs

_Run = TypeVar("_Run")


@dataclass(frozen=True)
class Run:
    """One training run; the beta of unregularized RL is 0."""

    seed: int
    method: Method
    beta: float


def stacks(runs: Iterable[_Run], alike: Callable[[_Run], Hashable], most: int) -> list[list[_Run]]:
    """Runs that are trained as one stack: those of which `alike` gives the same, at most so many."""
    groups: dict[Hashable, list[_Run]] = {}
    for run in runs:
        groups.setdefault(alike(run), []).append(run)
    return [
        part.tolist()
        for members in groups.values()
        for part in np.array_split(np.array(members, dtype=object), -(-len(members) // most))
    ]


@dataclass(frozen=True)
class Opened:
    """A results folder that is held for runs on the single task, who computes them, and each seed's reference (P,)."""

    origin: Origin
    workers: Workers
    device: str
    parameters: dict[int, torch.Tensor]


@contextmanager
def opened(
    config: Any,
    runs: Sequence[Run],
    training_module: str,
    folder: Path,
    execution: Execution,
    progress: bool,
    chosen: Mapping[str, Any] | None = None,
    reference: Callable[[Any, int, str], torch.Tensor] | None = None,
) -> Iterator[Opened]:
    """Hold `folder` for these runs, with references pretrained where it does not hold them yet.

    chosen: JSON values that say which runs they are, where `config` alone does not; kept with it in config.json.
    reference: of a configuration, a seed and a device the parameters (P,) that the seed's runs start from; None for
    those that the controlled experiment pretrains.
    Raises InputError for a device that is not there and for a folder that cannot be used.
    """
    require_jobs(execution.jobs)
    device = resolve_device(config.device)
    code = code_behind(training_module, (run.method for run in runs))
    settings = {**config.as_dict(), **(chosen or {}), "device": device}
    with open_folder(folder, settings, code, execution.keep_going) as origin:
        workers = Workers(execution.backend, 1 if device == "cuda" else execution.jobs)
        seeds = list(dict.fromkeys(run.seed for run in runs))
        works = [
            Work(
                _make_reference,
                (reference, config, seed, device),
                reference_path(folder, seed),
                f"reference of seed {seed}",
            )
            for seed in seeds
        ]
        tables = workers.do(works, origin, "references", progress)
        parameters = {seed: parameters_of(table) for seed, table in zip(seeds, tables, strict=True)}
        yield Opened(origin, workers, device, parameters)


def reference_path(folder: Path, seed: int) -> Path:
    """Where a results folder keeps the parameters that a seed starts from."""
    return folder / "reference" / f"seed-{seed}.parquet"


def parameters_table(parameters: torch.Tensor, what: str) -> pd.DataFrame:
    """Parameters (P,) as a table of one column. Raises InputError if they are not finite: `what` diverged."""
    if not bool(parameters.isfinite().all()):
        raise InputError(f"{what} diverged, so nothing can start from it; lower its learning rate")
    return pd.DataFrame({"parameter": parameters.cpu().numpy()})


def parameters_of(table: pd.DataFrame) -> torch.Tensor:
    """(P,): the parameters in a table that `parameters_table` made."""
    return torch.from_numpy(table["parameter"].to_numpy(copy=True))


def resolve_device(device: str) -> str:
    """ "cpu" or "cuda" for a configured device. Raises InputError if CUDA is asked for and there is none."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise InputError("device: cuda was asked for, but this PyTorch sees no CUDA device; use --device cpu or auto")
    return "cuda" if device == "auto" and available else "cpu" if device == "auto" else device


def code_behind(training_module: str, methods: Iterable[Method]) -> dict[str, str]:
    """Digests of all source that runs of these methods depend on: their training module's, and the regularizers'."""
    regularizers = [method.regularizer for method in methods if method.regularizer is not None]
    return code_of(training_module, [used for regularizer in regularizers for used in regularizer.made_of()])


def _make_reference(
    reference: Callable[[Any, int, str], torch.Tensor] | None, config: Any, seed: int, device: str
) -> pd.DataFrame:
    make = reference or partial(pretrain, dtype=getattr(torch, config.dtype))
    return parameters_table(make(config, seed, device), f"the reference of seed {seed}")
