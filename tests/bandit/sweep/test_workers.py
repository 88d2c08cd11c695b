"""Workers that die in the middle of a sweep, in local processes and on a real two-worker Ray cluster."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest
import ray
from cokl.support.chunks import Origin

from bandit import run_sweep
from cokl import regularizers
from cokl.support.errors import InputError
from cokl.support.results import Execution, Work, Workers


@pytest.fixture(scope="module")
def ray_cluster():
    """A local Ray cluster with two workers."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def deadly(tmp_path):
    """Register a regularizer that behaves as forward KL, but kills its process once, in its 30th gradient there."""
    sentinel = tmp_path / "killed"

    @regularizers.register
    class Deadly(regularizers.Regularizer):
        name = "deadly"
        label = "Deadly"
        calls = 0

        def value(self, policy, reference):
            type(self).calls += 1
            if type(self).calls == 30 and not sentinel.exists():
                sentinel.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return (reference.probs * (reference.log_probs - policy.log_probs)).sum(-1)

    yield sentinel
    del regularizers._registry["deadly"]


def sweep_with_a_death(backend, tiny, deadly: Path, tmp_path: Path) -> None:
    """Sweep twice, once with a worker dying on the way, and compare the tables' bytes."""
    config = dataclasses.replace(tiny, methods=("none", "deadly"), steps=40, eval_interval=20, seeds=3)
    run_sweep(config, Execution(out=tmp_path / "disturbed", jobs=2, backend=backend), progress=False)
    assert deadly.exists()
    run_sweep(config, Execution(out=tmp_path / "calm", jobs=2, backend=backend), progress=False)
    disturbed, calm = (tmp_path / name / "sweep.parquet" for name in ("disturbed", "calm"))
    assert disturbed.read_bytes() == calm.read_bytes()


@pytest.mark.nightly
def test_ray_runs_a_lost_workers_chunk_again(ray_cluster, tiny, deadly, tmp_path):
    sweep_with_a_death("ray", tiny, deadly, tmp_path)


def test_local_processes_run_a_lost_workers_chunk_again(tiny, deadly, tmp_path, capfd):
    sweep_with_a_death("loky", tiny, deadly, tmp_path)
    assert "a worker process died; its work is done again" in capfd.readouterr().err


@pytest.mark.nightly
def test_ray_gives_the_same_bytes_as_local_processes(ray_cluster, tiny, tmp_path):
    for backend in ("ray", "loky"):
        run_sweep(tiny, Execution(out=tmp_path / backend, jobs=2, backend=backend), progress=False)
    ray_table, loky_table = (tmp_path / backend / "sweep.parquet" for backend in ("ray", "loky"))
    assert ray_table.read_bytes() == loky_table.read_bytes()


@pytest.mark.nightly
def test_ray_saves_while_work_is_left(ray_cluster, tmp_path):
    """What has ended is saved when a later chunk fails, whose own error it is."""

    def piece(index):
        if index == 10:
            raise ZeroDivisionError
        return __import__("pandas").DataFrame({"place": range(index)})

    works = [Work(piece, (index,), tmp_path / f"{index}.parquet", str(index)) for index in range(12)]
    with pytest.raises(ZeroDivisionError):
        Workers("ray", 2).do(works, Origin(tmp_path, "config", "code"), "pieces", progress=False)
    assert {path.stem for path in tmp_path.glob("*.parquet")} >= {str(index) for index in range(9)}


def test_workers_that_keep_dying_are_reported(tmp_path):
    def dies():
        os.kill(os.getpid(), signal.SIGKILL)

    works = [Work(dies, (), tmp_path / f"{i}.parquet", str(i)) for i in range(2)]
    with pytest.raises(InputError, match="died 3 times in a row"):
        Workers("loky", 2).do(works, Origin(tmp_path, "config", "code"), "pieces", progress=False)
