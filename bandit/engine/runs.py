"""What the experiments on the single task share around a run: the run itself, its device, its seed's reference."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bandit.config import TrainingConfig
from bandit.engine.reference import parameter_count, pretrain
from cokl.methods import Method
from cokl.support.errors import InputError
from cokl.support.files import read_array
from cokl.support.workers import Work, Workers


@dataclass(frozen=True)
class Run:
    """One training run; the beta of unregularized RL is 0."""

    seed: int
    method: Method
    beta: float


def references(
    config: TrainingConfig, folder: Path, device: str, workers: Workers, progress: bool
) -> dict[int, torch.Tensor]:
    """Each seed's reference parameters (P,), pretrained where `folder` does not hold them yet."""
    paths = {seed: folder / "reference" / f"seed-{seed}.npy" for seed in range(config.seeds)}
    missing = [Work(_make_reference, (config, seed, device), path) for seed, path in paths.items()]
    workers.do(missing, config.seeds, "references", progress)
    shape = (parameter_count(config),)
    return {seed: torch.from_numpy(read_array(path, shape)) for seed, path in paths.items()}


def resolve_device(device: str) -> str:
    """ "cpu" or "cuda" for a configured device. Raises InputError if CUDA is asked for and there is none."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise InputError("device: cuda was asked for, but this PyTorch sees no CUDA device; use --device cpu or auto")
    return "cuda" if device == "auto" and available else "cpu" if device == "auto" else device


def code_of(methods: Iterable[Method]) -> dict[str, str]:
    """A hash of each method's regularizer class, so that changed code does not go on with results of old code."""
    hashes = {}
    for method in methods:
        if method.regularizer is not None:
            regularizer_class = type(method.regularizer)
            try:
                code = inspect.getsource(regularizer_class).encode()
            except (OSError, TypeError):  # typed into an interpreter: no source to be had, only bytecode
                functions = [f.__code__ for f in vars(regularizer_class).values() if hasattr(f, "__code__")]
                code = b"".join(f.co_code + repr((f.co_names, f.co_consts)).encode() for f in functions)
            hashes[method.name] = hashlib.sha256(code).hexdigest()[:16]
    return hashes


def _make_reference(config: TrainingConfig, seed: int, device: str) -> np.ndarray:
    return pretrain(config, seed, device, _dtype(config)).cpu().numpy()


def _dtype(config: TrainingConfig) -> torch.dtype:
    return {"float32": torch.float32, "float64": torch.float64}[config.dtype]
