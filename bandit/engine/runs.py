"""What the labs on the single task share around a run: which are stacked, the folder, the device, the reference."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from bandit.engine.reference import pretrain
from cokl.methods import Method
from cokl.support.code import with_code
from cokl.support.errors import InputError
from cokl.support.results import Execution, Work, compute

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
    """A results folder that is held for runs on the single task, and each seed's reference (P,)."""

    folder: Path
    device: str
    parameters: dict[int, torch.Tensor]


@contextmanager
def opened(
    config: Any, runs: Sequence[Any], execution: Execution, progress: bool, chosen: Mapping[str, Any] | None = None
) -> Iterator[Opened]:
    """Hold `execution.out` for these runs, with the references of their seeds pretrained where it lacks them.

    chosen: JSON values that say which runs they are, where `config` alone does not; kept with it in config.json.
    Raises InputError for a device that is not there and for a folder that cannot be used.
    """
    device = resolve_device(config.device)
    described = {**config.as_dict(), **(chosen or {}), "device": device}
    with execution.results_folder(with_code(described, regularizer_classes(run.method for run in runs))) as folder:
        seeds = list(dict.fromkeys(run.seed for run in runs))
        works = [Work(_make_reference, (config, seed, device), reference_path(folder, seed)) for seed in seeds]
        tables = compute(works, execution, "references", progress)
        yield Opened(folder, device, dict(zip(seeds, map(parameters_of, tables), strict=True)))


def regularizer_classes(methods: Iterable[Method]) -> dict[str, type]:
    """The class that decides each method's numbers, by the method's name."""
    return {method.name: type(method.regularizer) for method in methods if method.regularizer is not None}


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


def _make_reference(config: Any, seed: int, device: str) -> pd.DataFrame:
    parameters = pretrain(config, seed, device, dtype=getattr(torch, config.dtype))
    return parameters_table(parameters, f"the reference of seed {seed}")
