"""A results folder: written whole or not at all, resumable, and tied to the configuration that made it.

Layout: config.json, environment.json, reference/seed-N.npy, runs/CHUNK.parquet, and at the end sweep.parquet.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cokl.errors import InputError


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it into place. Raises InputError if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}; choose another folder") from error


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table atomically."""
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False))


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_sweep(folder: Path) -> pd.DataFrame:
    """The table of a finished sweep. Raises InputError if there is none."""
    path = folder / "sweep.parquet"
    if not path.is_file():
        raise InputError(
            f"no finished sweep in {folder}: {path.name} is not there; run cokl bandit sweep --out {folder}"
        )
    table = read_parquet(path)
    missing = {"seed", "method", "beta", "step", "p_correct", "conditional_kl"} - set(table.columns)
    if missing or not any(name.startswith("coverage_at_") for name in table.columns):
        raise InputError(
            f"{path} is no sweep table: {', '.join(sorted(missing)) or 'coverage_at_K'} is not among its columns"
        )
    return table


def read_parquet(path: Path) -> pd.DataFrame:
    """A table of ours. Raises InputError if the file is damaged."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """An array of ours. Raises InputError if the file is damaged or of another shape."""
    try:
        array = np.load(path)
        if array.shape != shape:
            raise ValueError(f"expected shape {shape}, got {array.shape}")
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, error) from error
    return array


def _read_json(path: Path, kind: type) -> Any:
    """A JSON file of ours holding a `kind`. Raises InputError if it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, kind):
            raise ValueError(f"expected a {kind.__name__}")
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    return value


def _damaged(path: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:120]
    return InputError(f"{path} is damaged ({reason}); remove it and run the same command again")


def open_folder(folder: Path, config: dict[str, Any]) -> None:
    """Make `folder` ready for the results of `config` (JSON values, "device" among them), or go on with those there.

    Raises InputError if it cannot be written or holds the results of another configuration.
    """
    stored = folder / "config.json"
    if stored.exists():
        differences = _differences(_read_json(stored, dict), json.loads(json.dumps(config)))
        if differences:
            raise InputError(
                f"{folder} holds the results of another configuration ({'; '.join(differences)}); "
                "choose another --out or remove that folder"
            )
    elif any((folder / name).exists() for name in ("reference", "runs")):
        raise InputError(f"{folder} holds results without the config.json they belong to; choose another --out")
    else:
        write_text(json.dumps(config, indent=2) + "\n", stored)
    _record_environment(folder / "environment.json", config["device"])


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as "path: old there, new asked for"."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [line for key in keys for line in _differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))]
    return [] if old == new else [f"{path}: {old} there, {new} asked for"]


def _record_environment(path: Path, device: str) -> None:
    """Write what the results are made with; when a sweep goes on in another environment, say so and list both."""
    current = describe_environment(device)
    history = _read_json(path, list) if path.exists() else []
    if current in history:
        return
    if history:
        changes = "; ".join(_differences(history[-1], current))
        print(f"note: going on with results made in another environment ({changes})", file=sys.stderr)
    write_text(json.dumps([*history, current], indent=2) + "\n", path)


def describe_environment(device: str) -> dict[str, Any]:
    """Versions, device, threads and git commit, as JSON values."""
    import torch

    packages = ("cokl", "torch", "numpy", "numba", "llvmlite", "scipy", "pandas", "pyarrow")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "threads_per_process": 1,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "git_commit": git_commit(),
    }


def _cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def git_commit() -> str | None:
    """The commit of this code, with "-dirty" if files differ from it; None outside a git checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
