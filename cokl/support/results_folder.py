"""A results folder: written whole or not at all, resumable, and tied to the configuration that made it.

Layout: config.json, environment.json, reference/seed-N.npy, runs/CHUNK.parquet, and at the end sweep.parquet.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cokl.support.errors import InputError
from cokl.support.files import differences, read_json, write_text


def open_folder(folder: Path, config: dict[str, Any]) -> None:
    """Make `folder` ready for the results of `config` (JSON values, "device" among them), or go on with those there.

    Raises InputError if it cannot be written or holds the results of another configuration.
    """
    stored = folder / "config.json"
    if stored.exists():
        differing = differences(read_json(stored, dict), json.loads(json.dumps(config)))
        if differing:
            raise InputError(
                f"{folder} holds the results of another configuration ({'; '.join(differing)}); "
                "choose another --out or remove that folder"
            )
    elif any((folder / name).exists() for name in ("reference", "runs")):
        raise InputError(f"{folder} holds results without the config.json they belong to; choose another --out")
    else:
        write_text(json.dumps(config, indent=2) + "\n", stored)
    _record_environment(folder / "environment.json", config["device"])


def _record_environment(path: Path, device: str) -> None:
    """Write what the results are made with; when a sweep goes on in another environment, say so and list both."""
    current = describe_environment(device)
    history = read_json(path, list) if path.exists() else []
    if current in history:
        return
    if history:
        changes = "; ".join(differences(history[-1], current))
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
