"""What the experiments on the single task share around a run: the run itself, its device, its seed's reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from bandit.config import TrainingConfig
from bandit.engine.reference import pretrain
from cokl.methods import Method
from cokl.support.chunks import Origin
from cokl.support.code import code_of
from cokl.support.errors import InputError
from cokl.support.workers import Work, Workers


@dataclass(frozen=True)
class Run:
    """One training run; the beta of unregularized RL is 0."""

    seed: int
    method: Method
    beta: float


def references(
    config: TrainingConfig,
    origin: Origin,
    device: str,
    workers: Workers,
    progress: bool,
    seeds: Iterable[int] | None = None,
) -> dict[int, torch.Tensor]:
    """Each seed's reference parameters (P,), pretrained where the folder does not hold them yet.

    seeds: 0 to `config.seeds` - 1 if not given.
    """
    seeds = list(range(config.seeds) if seeds is None else seeds)
    works = [
        Work(_make_reference, (config, seed, device), reference_path(origin.folder, seed), f"reference of seed {seed}")
        for seed in seeds
    ]
    tables = workers.do(works, origin, "references", progress)
    return {seed: parameters_of(table) for seed, table in zip(seeds, tables, strict=True)}


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


def _make_reference(config: TrainingConfig, seed: int, device: str) -> pd.DataFrame:
    return parameters_table(
        pretrain(config, seed, device, getattr(torch, config.dtype)), f"the reference of seed {seed}"
    )
