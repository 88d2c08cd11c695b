"""The sweep: every method, coefficient and seed, trained in stacks over all cores, saved as it is done."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch

from bandit.sweep.config import PRESETS, SweepConfig
from bandit.engine.reference import parameter_count, pretrain, seed_task
from cokl.support.results_folder import open_folder
from bandit.engine.runs import Run
from bandit.engine.exact import policy_metrics
from bandit.sweep.train import train
from cokl.support.workers import Work, Workers, one_thread
from cokl import regularizers
from cokl.support.errors import InputError
from cokl.support.files import read_array, read_parquet, write_parquet
from cokl.regularizers import Regularizer

# Stacked runs per process: enough to amortise the reference's share, few enough for activations to stay in cache.
RUNS_PER_CHUNK_CPU = 5
RUNS_PER_CHUNK_CUDA = 512


def sweep(
    config: SweepConfig = PRESETS["paper"],
    out: Path | str | None = None,
    jobs: int | None = None,
    backend: Literal["loky", "ray"] = "loky",
    progress: bool = True,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, method, beta, step, p_correct, coverage_at_K, coverage_at_K_correct, conditional_kl; K is
    `config.coverage_draws`. Rows of method "reference" hold the frozen reference. out: folder to save in and to resume
    from; None keeps nothing. jobs: processes on a CPU, by default one per core. backend: local processes, or a Ray
    cluster. progress: show bars with rate and ETA.
    Raises InputError for unknown methods or devices and for a folder that cannot be used.
    """
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            return sweep(config, temporary, jobs, backend, progress)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: expected at least 1, got {jobs}")
    device = resolve_device(config.device)
    runs = planned_runs(config)
    folder = Path(out)
    code = code_of({run.method: run.regularizer for run in runs})
    open_folder(folder, {**config.as_dict(), "device": device, "regularizer_code": code})
    workers = Workers(backend, 1 if device == "cuda" else jobs)

    parameters = references(config, folder, device, workers, progress)
    chunks = [
        (chunk, folder / "runs" / f"{place:05d}-seed-{chunk[0].seed}-{chunk[0].method}.parquet")
        for place, chunk in enumerate(_chunks(runs, device))
    ]
    missing = [
        Work(_make_chunk, (config, chunk, parameters[chunk[0].seed], device), path, len(chunk))
        for chunk, path in chunks
    ]
    workers.do(missing, len(runs), "runs", progress)

    with one_thread():
        frames = [_reference_rows(config, seed, parameters[seed], device) for seed in parameters]
    table = pd.concat([*frames, *(read_parquet(path) for _, path in chunks)], ignore_index=True)
    table = _in_order(table, config)
    write_parquet(table, folder / "sweep.parquet")
    return table


def references(
    config: SweepConfig, folder: Path, device: str, workers: Workers, progress: bool
) -> dict[int, torch.Tensor]:
    """Each seed's reference parameters (P,), pretrained where `folder` does not hold them yet."""
    paths = {seed: folder / "reference" / f"seed-{seed}.npy" for seed in range(config.seeds)}
    missing = [Work(_make_reference, (config, seed, device), path) for seed, path in paths.items()]
    workers.do(missing, config.seeds, "references", progress)
    shape = (parameter_count(config),)
    return {seed: torch.from_numpy(read_array(path, shape)) for seed, path in paths.items()}


def planned_runs(config: SweepConfig) -> list[Run]:
    """All runs of a sweep, by seed, then method in the order asked for, then coefficient. Raises InputError."""
    runs = []
    for seed, method in itertools.product(range(config.seeds), config.methods):
        if method == "none":
            runs.append(Run(seed, method, 0.0, None))
            continue
        if method not in regularizers.names():
            raise InputError(f"unknown method {method!r}; known: none, {', '.join(regularizers.names())}")
        regularizer = regularizers.with_options(method, config.regularizer_options)
        runs += [Run(seed, method, beta, regularizer) for beta in sorted(config.betas)]
    return runs


def resolve_device(device: str) -> str:
    """ "cpu" or "cuda" for a configured device. Raises InputError if CUDA is asked for and there is none."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise InputError("device: cuda was asked for, but this PyTorch sees no CUDA device; use --device cpu or auto")
    return "cuda" if device == "auto" and available else "cpu" if device == "auto" else device


def _chunks(runs: list[Run], device: str) -> list[list[Run]]:
    """Runs that are trained as one stack: one seed, and on a CPU one method, so that no stack waits for another's."""
    size = RUNS_PER_CHUNK_CUDA if device == "cuda" else RUNS_PER_CHUNK_CPU
    chunks = []
    for _, group in itertools.groupby(runs, key=lambda run: (run.seed, None if device == "cuda" else run.method)):
        members = list(group)
        pieces = -(-len(members) // size)
        chunks += [piece.tolist() for piece in np.array_split(np.array(members, dtype=object), pieces)]
    return chunks


def code_of(used: Mapping[str, Regularizer | None]) -> dict[str, str]:
    """A hash of each regularizer's class by method, so that changed code does not go on with results of old code."""
    hashes = {}
    for method, regularizer in used.items():
        if regularizer is not None:
            try:
                code = inspect.getsource(type(regularizer)).encode()
            except (OSError, TypeError):  # typed into an interpreter: no source to be had, only bytecode
                functions = [f.__code__ for f in vars(type(regularizer)).values() if hasattr(f, "__code__")]
                code = b"".join(f.co_code + repr((f.co_names, f.co_consts)).encode() for f in functions)
            hashes[method] = hashlib.sha256(code).hexdigest()[:16]
    return hashes


def _make_reference(config: SweepConfig, seed: int, device: str) -> np.ndarray:
    return pretrain(config, seed, device, _dtype(config)).cpu().numpy()


def _make_chunk(config: SweepConfig, chunk: list[Run], parameters: torch.Tensor, device: str) -> pd.DataFrame:
    return train(config, seed_task(config, chunk[0].seed, parameters.to(device)), chunk)


def _reference_rows(config: SweepConfig, seed: int, parameters: torch.Tensor, device: str) -> pd.DataFrame:
    reference = seed_task(config, seed, parameters.to(device)).test.reference(slice(None))
    metrics = policy_metrics(config, reference, reference)
    means = {name: values.double().mean(-1).tolist() for name, values in metrics.items()}
    return pd.DataFrame({"seed": seed, "method": "reference", "beta": 0.0, "step": 0, **means})


def _in_order(table: pd.DataFrame, config: SweepConfig) -> pd.DataFrame:
    order = {method: position for position, method in enumerate(("reference", *config.methods))}
    keys = table.assign(method=table["method"].map(order))
    return table.loc[keys.sort_values(["seed", "method", "beta", "step"]).index].reset_index(drop=True)


def _dtype(config: SweepConfig) -> torch.dtype:
    return {"float32": torch.float32, "float64": torch.float64}[config.dtype]
