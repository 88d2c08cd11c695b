"""A results folder: written whole or not at all, resumable, and locked by one process.

config.json records the configuration and digests of the code; results of another one are refused.

Layout: config.json, environment.json, seconds.json (of each process that ended by itself), .lock,
reference/seed-N.parquet, runs/CHUNK.parquet, and at the end the tables. Each Parquet file has its checksum beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cokl.support.chunks import FORMAT, Origin, made_from
from cokl.support.errors import InputError
from cokl.support.files import differences, hold, read_json, remedy, set_aside, write_text


@contextmanager
def open_folder(
    folder: Path, config: dict[str, Any], code: dict[str, str], keep_going: bool = False
) -> Iterator[Origin]:
    """Hold `folder` for the results of `config` (JSON values, "device" among them), or resume from those there.

    code: digests by module, as `cokl.support.code` gives them. keep_going: resume from results of other code, with a
    note on stderr. Raises InputError if the folder cannot be written, is locked by another process, or holds the
    results of another configuration or, unless `keep_going`, of other code.
    """
    config = json.loads(json.dumps(config))
    origin = Origin(folder, digest(config), digest(code), keep_going)
    with hold(folder / ".lock", f"{folder} is in use by another run"):
        try:
            for leftover in folder.rglob(".*.tmp"):
                leftover.unlink()
            _record(folder, {**config, "format": FORMAT, "code": code}, origin)
        except OSError as error:
            raise InputError(f"cannot use {folder}: {remedy(error)}") from error
        record_environment(folder / "environment.json", config["device"], origin.code)
        started = time.monotonic()
        yield origin
        spent = folder / "seconds.json"
        before = read_json(spent, list) if spent.is_file() else []
        write_text(json.dumps([*before, round(time.monotonic() - started, 1)]) + "\n", spent)


def _record(folder: Path, asked: dict[str, Any], origin: Origin) -> None:
    """Write config.json where there are no results yet; where there are, check that they are those of `asked`."""
    path = folder / "config.json"
    chunks = [chunk for name in ("reference", "runs") for chunk in folder.rglob(f"{name}/*.parquet")]
    stored = _stored_config(path, chunks, origin)
    if stored is None or not (chunks or any(folder.glob("*.parquet")) or any(folder.rglob("reference/*.npy"))):
        write_text(json.dumps(asked, indent=2) + "\n", path)
        return
    if not isinstance(stored.get("format"), int) or stored["format"] < FORMAT:
        raise InputError(
            f"{folder} holds results of an older version of this code; they can be read but not resumed; "
            "choose another --out"
        )
    if stored["format"] > FORMAT:
        raise InputError(
            f"{folder} holds results of a newer version of this code; use that version, or choose another --out"
        )
    code, asked_code = stored.pop("code", {}), asked.pop("code")
    differing = differences(stored, asked)
    if differing:
        raise InputError(
            f"{folder} holds the results of another configuration ({'; '.join(differing)}); "
            "choose another --out or remove that folder"
        )
    changed = sorted(name for name in {*code, *asked_code} if code.get(name) != asked_code.get(name))
    if changed:
        resume_with_other_code(folder, changed, origin.keep_going)


def resume_with_other_code(folder: Path, changed: Sequence[str], keep_going: bool) -> None:
    """Print which modules have changed since a folder was begun. Raises InputError unless `keep_going`."""
    names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    if not keep_going:
        raise InputError(
            f"{folder} holds results of other code (changed since: {names}); resume with --keep-going, "
            "or choose another --out"
        )
    print(f"note: resuming with results of other code (changed since: {names})", file=sys.stderr)


def _stored_config(path: Path, chunks: list[Path], origin: Origin) -> dict[str, Any] | None:
    """The content of config.json; None if there is none and no chunk has another configuration than `origin`."""
    if os.path.lexists(path):
        path.read_bytes()
        stored: dict[str, Any] | None = _read_or_set_aside(path, dict)
        if stored is not None:
            return stored
    digests = {made_from(chunk) for chunk in chunks} - {None}
    if digests - {origin.config}:
        raise InputError(
            f"{path.parent} holds results of another configuration, whose config.json is lost; choose another --out"
        )
    return None


def _read_or_set_aside(path: Path, kind: type) -> Any:
    """A JSON file's content; None if it is damaged, in which case it is renamed, with a note on stderr."""
    try:
        return read_json(path, kind)
    except InputError as error:
        kept = set_aside(path)
        print(f"note: {error.args[0].split('; remove')[0]}; kept as {kept.name}", file=sys.stderr)
        return None


def digest(value: Any) -> str:
    """The first 16 hexadecimal digits of a JSON value's SHA-256."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def record_environment(path: Path, device: str, code: str) -> None:
    """Record versions and machine; a folder that is resumed in another environment lists both, with a note."""
    current = {**describe_environment(device), "code": code}
    history = (_read_or_set_aside(path, list) if path.exists() else None) or []
    if current in history:
        return
    if history:
        changes = "; ".join(differences(history[-1], current))
        print(f"note: resuming with results made in another environment ({changes})", file=sys.stderr)
    write_text(json.dumps([*history, current], indent=2) + "\n", path)


def describe_environment(device: str) -> dict[str, Any]:
    """Versions, device, threads and git commit, as JSON values."""
    import torch

    packages = ("cokl", "torch", "numpy", "numba", "llvmlite", "scipy", "pandas", "pyarrow")
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    versions["torch"] = str(torch.__version__)  # with the build, which a package from PyPI does not have in its name
    return {
        "versions": versions,
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
