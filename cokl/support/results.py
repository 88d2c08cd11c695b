"""A results folder, which belongs to one configuration, and the processes that fill it, a file a stack of runs.

The folder holds config.json, environment.json and, as they end, the runs; a run that is there is not computed again.

Assumption beyond the paper: each process computes with one thread, so that results do not depend on the number of
cores and a busy machine does not stall on thread hand-overs. Annotations are evaluated here, since the command line's
parser reads those of subclasses in other modules.
"""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from cokl.support.errors import InputError
from cokl.support.extras import not_installed
from cokl.support.files import locked, read_json, read_parquet, write_parquet, write_text
from cokl.support.options import require

if TYPE_CHECKING:
    import pandas as pd
    from tqdm import tqdm

MOST_JOBS = 10_000
SECONDS_IN_A_FILE = 20.0
"""Between two counts of the progress."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where an experiment's results go, and who computes them."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to save in and to resume from; runs/NAME-PRESET if not given, runs/PRESET for the sweep."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes; one per core if not given."""
    backend: Literal["loky", "ray"] = "loky"
    """Processes of this machine, or a Ray cluster: the one RAY_ADDRESS names, or else one started here."""

    @contextlib.contextmanager
    def results_folder(self, config: Mapping[str, Any]) -> Iterator[Path]:
        """The folder, held for the results of `config` (JSON values); a temporary one if `out` is not given.

        Raises InputError for a number of jobs that no machine runs, and for a folder that cannot be written, is in use
        by another process, or holds results of another configuration.
        """
        if self.jobs is not None:
            require(1 <= self.jobs <= MOST_JOBS, "jobs", f"1 to {MOST_JOBS}", self.jobs)
        if self.out is None:
            with TemporaryDirectory() as temporary:
                yield Path(temporary)
        else:
            with _held(Path(self.out), json.loads(json.dumps(config))):
                yield Path(self.out)


HERE = Execution()
"""On this machine, on all of its cores, and nothing kept."""


WITHOUT_CONFIG = "restore that file from a copy, or take another folder and remove this one"


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration whose results a folder holds. Raises InputError if it cannot be read."""
    return dict(read_json(folder / "config.json", dict, WITHOUT_CONFIG))


@contextlib.contextmanager
def _held(folder: Path, config: dict[str, Any]) -> Iterator[None]:
    """Lock `folder`, compare its configuration, and add its process and date to environment.json."""
    stored, history = folder / "config.json", folder / "environment.json"
    try:
        require_own(folder, (stored.name, history.name, "card.csv"))  # the last is a card's, finished or not
        with locked(folder / ".lock", f"{folder} is in use by another run"):
            if not stored.exists():
                if history.exists():
                    raise InputError(f"{folder} has lost its config.json; {WITHOUT_CONFIG}")
                write_text(json.dumps(config, indent=2) + "\n", stored)
            elif (there := read_config(folder)) != config:
                raise InputError(
                    f"{folder} holds the results of another configuration ({'; '.join(differences(there, config))}); "
                    "choose another --out or remove that folder"
                )
            records = read_json(history, list) if history.exists() else []
            here = describe_environment(config.get("device", "cpu"))
            if not records or not here.items() <= records[-1].items():
                records.append({**here, "seconds": 0.0})
            write_text(json.dumps(records, indent=2) + "\n", history)
            before, started = records[-1]["seconds"], time.monotonic()
            try:
                yield
            finally:
                records[-1]["seconds"] = round(before + time.monotonic() - started, 1)
                records[-1]["ended"] = today()
                write_text(json.dumps(records, indent=2) + "\n", history)
    except OSError as error:
        raise InputError(f"cannot use {folder}: {error.strerror or error}; choose another folder") from error


def require_own(folder: Path, marks: Collection[str]) -> None:
    """Raises InputError if a folder holds other things than results, of which one of the files `marks` would be there.

    Hidden files are no such things.
    """
    others = [path.name for path in sorted(folder.glob("[!.]*"))] if folder.is_dir() else []
    if others and not any((folder / mark).exists() for mark in marks):
        raise InputError(f"{folder} holds other things, such as {others[0]}; choose another --out, of a new folder")


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as "path: old there, new asked for"; long values are cut."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))]
    there, asked = (text if len(text) <= 200 else f"{text[:200]}..." for text in (str(old), str(new)))
    return [] if old == new else [f"{path}: {there} there, {asked} asked for"]


def describe_environment(device: str) -> dict[str, Any]:
    """Versions, device, threads and git commit, as JSON values."""
    import torch

    packages = ("cokl", "torch", "numpy", "numba", "llvmlite", "scipy", "pandas", "pyarrow")
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    versions["torch"] = str(torch.__version__)  # with the build, which a package from PyPI does not have in its name
    return {
        "versions": versions,
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "threads_per_process": 1,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "git_commit": git_commit(),
    }


def today() -> str:
    """The date, in universal time."""
    return datetime.now(UTC).date().isoformat()


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def git_commit() -> str | None:
    """The commit of this code, with "-dirty" if files differ from it; None outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        described = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


@dataclass(frozen=True)
class Work:
    """A pure function's call whose result, a table, belongs in `path`. size: what the progress counts."""

    function: "Callable[..., pd.DataFrame]"
    arguments: tuple[Any, ...]
    path: Path
    size: int = 1


def compute(works: list[Work], execution: Execution, unit: str, progress: bool) -> "list[pd.DataFrame]":
    """All tables, in order: what is not yet in its path is computed in processes, and saved as it ends.

    Raises InputError if a process dies, for a damaged file, and whatever a work's function raises.
    """
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = [work for work in works if not work.path.exists()]
    done = sum(work.size for work in works) - sum(work.size for work in left)
    backend = _backend(execution)
    # joblib gives Ray's results as a list alone, so that they come back, and are saved, in waves.
    streams = execution.backend == "loky"
    wave = max(1, len(left)) if streams else 4 * backend["n_jobs"]
    try:
        with (
            _without_this_folder_in_the_path(),
            progress_bar(sum(work.size for work in works), unit, done, bool(left) and progress) as bar,
            joblib.parallel_config(**backend),
        ):
            for start in range(0, len(left), wave):
                results = joblib.Parallel(batch_size=1, return_as="generator_unordered" if streams else "list")(
                    joblib.delayed(_perform)(place, left[place]) for place in range(len(left))[start : start + wave]
                )
                for place, table in results:
                    write_parquet(table, left[place].path)
                    bar.update(left[place].size)
    except TerminatedWorkerError as error:
        raise InputError(
            "a worker process died, probably because memory is short; finished work is saved; resume with fewer --jobs"
        ) from error
    return [read_parquet(work.path) for work in works]


@contextlib.contextmanager
def _without_this_folder_in_the_path() -> Iterator[None]:
    """Start processes that import nothing from the current folder, where a random.py would be the library's to them."""
    before = os.environ.get("PYTHONSAFEPATH", "")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ["PYTHONSAFEPATH"] = before


def _backend(execution: Execution) -> dict[str, Any]:
    """The arguments of joblib's configuration. Raises InputError without Ray where it is asked for."""
    if execution.backend == "loky":
        jobs = execution.jobs or usable_cores()
        # A terminal sends Ctrl-C to the workers too; the command alone answers it.
        quiet = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)} if jobs > 1 else {}
        return {"backend": "loky", "n_jobs": jobs, **quiet}
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address == "local" and "ray" not in sys.modules:
        # A cluster started here listens on every interface. Ray reads this as it is imported, and lets only those in
        # who know the token, which it puts into ~/.ray/auth_token.
        os.environ["RAY_AUTH_MODE"] = "token"
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise InputError(f"backend: {not_installed('ray')}") from error
    if not ray.is_initialized():
        options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        ray.init(address, log_to_driver=False, **options)
    register_ray()  # type: ignore[no-untyped-call]
    return {"backend": "ray", "n_jobs": execution.jobs or int(ray.cluster_resources()["CPU"])}  # type: ignore[no-untyped-call]


def _perform(place: int, work: Work) -> "tuple[int, pd.DataFrame]":
    with one_thread():
        return place, work.function(*work.arguments)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread and without autograd inside, as before outside."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_in_gigabytes() -> float:
    """What the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def progress_bar(total: int, unit: str, done: int = 0, shown: bool = True) -> "tqdm[Any]":
    """Counts to `total` on standard error, starting at `done`; less often in a file than on a terminal.

    The terminal's size is not tqdm's, which shows nothing on one that does not know its own.
    """
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    seconds, columns = (0.1, shutil.get_terminal_size().columns - 1) if terminal else (SECONDS_IN_A_FILE, None)
    return tqdm(
        desc=unit, total=total, initial=done, unit=unit.removesuffix("s"), disable=not shown, mininterval=seconds,
        ncols=columns, nrows=24,
    )  # fmt: skip
