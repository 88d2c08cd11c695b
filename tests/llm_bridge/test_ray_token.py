"""Whoever lacks the token of a Ray cluster that the toolkit starts is refused, and the run goes to its end.

The cluster is a sweep's, with the core's Ray in `make nightly-test` and with VeRL's in `make llm-test`; a VeRL job asks
for the same token.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import environment
from tests.llm_bridge.conftest import NEEDED

pytestmark = [] if NEEDED else [pytest.mark.nightly]

SWEEP = """
import sys
from pathlib import Path
from cokl.support.results import Execution, Work, compute

def table(index):
    import pandas
    return pandas.DataFrame({"index": [index]})

def tables(count):
    works = [Work(table, (index,), Path(sys.argv[1], f"{index}.parquet")) for index in range(count)]
    return compute(works, Execution(jobs=2, backend="ray"), "works", progress=False)

tables(1)
import ray
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.readline()
print([frame["index"].item() for frame in tables(3)])
"""
CLIENT = "import ray; ray.init({!r}, log_to_driver=False); print(ray.get(ray.remote(lambda: 'let in').remote()))"


def outside() -> dict[str, str]:
    """The environment without what decides about Ray's token."""
    left_out = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def test_a_verl_job_asks_for_a_token(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    config = PRESETS["smollm2"]
    variables = environment(config, tmp_path / "metrics.jsonl")
    assert variables["RAY_AUTH_MODE"] == "token"


def test_a_client_without_the_token_is_refused_and_the_run_unharmed(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("HOME", str(home))
    variables = {**outside(), "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        [sys.executable, "-c", SWEEP, str(tmp_path)], env=variables,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stdout
        address = run.stdout.readline().strip()
        assert address

        def client(**token: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", CLIENT.format(address)]
            variables = {**outside(), **token}
            return subprocess.run(command, check=False, env=variables, capture_output=True, text=True, timeout=240)

        refused = client(RAY_AUTH_MODE="disabled")
        assert refused.returncode != 0
        assert "let in" not in refused.stdout
        assert "uthenticat" in refused.stderr
        token = (home / ".ray" / "auth_token").read_text()
        assert "let in" in client(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token).stdout
        rest, complaints = run.communicate("\n", timeout=240)
    assert run.returncode == 0, complaints
    assert rest.strip() == "[0, 1, 2]"
    assert "__ray_terminate__" not in complaints
