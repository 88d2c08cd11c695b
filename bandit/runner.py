"""The sweep: every method, coefficient and seed, trained in stacks over all cores, saved as it is done.

Assumption beyond the paper: each process computes with one thread, so that results do not depend on the number of
cores and a busy machine does not stall on thread hand-overs.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from bandit.config import PRESETS, SweepConfig
from bandit.reference import pretrain, seed_task
from bandit.store import open_folder, write_atomically, write_parquet
from bandit.training import Run, policy_metrics, train
from cokl import regularizers
from cokl.errors import InputError

# Stacked runs per process: enough to amortise the reference's share, few enough for activations to stay in cache.
RUNS_PER_CHUNK_CPU = 5
RUNS_PER_CHUNK_CUDA = 512


def sweep(
    config: SweepConfig = PRESETS["paper"],
    out: Path | str | None = None,
    jobs: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, method, beta, step, p_correct, coverage_at_K, coverage_at_K_correct, conditional_kl; K is
    `config.coverage_draws`. Rows of method "reference" hold the frozen reference. out: folder to save in and to resume
    from; None keeps nothing. jobs: processes on a CPU, by default one per core. progress: show bars with rate and ETA.
    Raises InputError for unknown methods or devices and for a folder that cannot be used.
    """
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            return sweep(config, temporary, jobs, progress)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: expected at least 1, got {jobs}")
    device = resolve_device(config.device)
    runs = planned_runs(config)
    folder = Path(out)
    open_folder(folder, {**config.as_dict(), "device": device})
    if device == "cuda":
        jobs = 1
    elif jobs is None:
        jobs = usable_cores()

    references = [(seed, folder / "reference" / f"seed-{seed}.npy") for seed in range(config.seeds)]
    missing = [(config, seed, path, device) for seed, path in references if not path.exists()]
    _in_parallel(_make_reference, missing, [1] * len(missing), config.seeds, jobs, "references", progress)

    chunks = [(chunk, folder / "runs" / f"{_chunk_name(chunk)}.parquet") for chunk in _chunks(runs, device)]
    missing_chunks = [(config, chunk, folder, path, device) for chunk, path in chunks if not path.exists()]
    sizes = [len(chunk) for _, chunk, *_ in missing_chunks]
    _in_parallel(_make_chunk, missing_chunks, sizes, len(runs), jobs, "runs", progress)

    with _one_thread():
        frames = [_reference_rows(config, seed, path, device) for seed, path in references]
    table = pd.concat([*frames, *(pd.read_parquet(path) for _, path in chunks)], ignore_index=True)
    table = _in_order(table, config)
    write_parquet(table, folder / "sweep.parquet")
    return table


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


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(runs: list[Run], device: str) -> list[list[Run]]:
    """Runs that are trained as one stack: one seed, and on a CPU one method, so that no stack waits for another's."""
    size = RUNS_PER_CHUNK_CUDA if device == "cuda" else RUNS_PER_CHUNK_CPU
    chunks = []
    for _, group in itertools.groupby(runs, key=lambda run: (run.seed, None if device == "cuda" else run.method)):
        members = list(group)
        pieces = -(-len(members) // size)
        chunks += [piece.tolist() for piece in np.array_split(np.array(members, dtype=object), pieces)]
    return chunks


def _chunk_name(chunk: list[Run]) -> str:
    first, last = chunk[0], chunk[-1]
    return f"seed-{first.seed}-{first.method}-{first.beta:g}-to-{last.method}-{last.beta:g}"


def _make_reference(config: SweepConfig, seed: int, path: Path, device: str) -> None:
    parameters = pretrain(config, seed, device, _dtype(config)).cpu().numpy()
    write_atomically(path, lambda temporary: _save_array(temporary, parameters))


def _save_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def _load_task(config: SweepConfig, seed: int, path: Path, device: str):
    parameters = torch.from_numpy(np.load(path)).to(device, _dtype(config))
    return seed_task(config, seed, parameters)


def _make_chunk(config: SweepConfig, chunk: list[Run], folder: Path, path: Path, device: str) -> None:
    seed = chunk[0].seed
    task = _load_task(config, seed, folder / "reference" / f"seed-{seed}.npy", device)
    write_parquet(train(config, task, chunk), path)


def _reference_rows(config: SweepConfig, seed: int, path: Path, device: str) -> pd.DataFrame:
    task = _load_task(config, seed, path, device)
    reference = task.test.reference(slice(None))
    metrics = policy_metrics(config, reference, reference)
    means = {name: values.double().mean(-1).tolist() for name, values in metrics.items()}
    return pd.DataFrame({"seed": seed, "method": "reference", "beta": 0.0, "step": 0, **means})


def _in_order(table: pd.DataFrame, config: SweepConfig) -> pd.DataFrame:
    order = {method: position for position, method in enumerate(("reference", *config.methods))}
    keys = table.assign(method=table["method"].map(order))
    return table.loc[keys.sort_values(["seed", "method", "beta", "step"]).index].reset_index(drop=True)


def _dtype(config: SweepConfig) -> torch.dtype:
    return {"float32": torch.float32, "float64": torch.float64}[config.dtype]


def _in_parallel(
    work: Callable[..., None],
    tasks: list[tuple[Any, ...]],
    sizes: list[int],
    total: int,
    jobs: int,
    unit: str,
    progress: bool,
) -> None:
    """Do all tasks in `jobs` processes; the bar counts `sizes` and starts with what an earlier sweep has left done."""
    if not tasks:
        return
    with tqdm(total=total, initial=total - sum(sizes), desc=unit, unit=unit[:-1], disable=not progress) as bar:
        for size in _results(work, tasks, sizes, jobs):
            bar.update(size)


def _results(work: Callable[..., None], tasks: list[tuple[Any, ...]], sizes: list[int], jobs: int) -> Iterable[int]:
    if jobs == 1:
        for task, size in zip(tasks, sizes, strict=True):
            yield _with_one_thread(work, task, size)
        return
    parallel = joblib.Parallel(n_jobs=min(jobs, len(tasks)), return_as="generator_unordered", batch_size=1)
    yield from parallel(
        joblib.delayed(_with_one_thread)(work, task, size) for task, size in zip(tasks, sizes, strict=True)
    )


def _with_one_thread(work: Callable[..., None], task: tuple[Any, ...], size: int) -> int:
    with _one_thread(), torch.no_grad():
        work(*task)
    return size


@contextmanager
def _one_thread():
    """Compute with one thread inside, with as many as before outside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
