"""Tests that need VeRL are left out where it is not installed, and nowhere else: skipped is not passed.

Where VeRL is installed, and with LLM_TESTS set, as `make llm-test` does, a module that cannot be imported is a failure.
"""

import fcntl
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NEEDED = importlib.util.find_spec("verl") is not None or "LLM_TESTS" in os.environ


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _not_passed_over((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _not_passed_over((yield))


def pytest_collection_modifyitems(items):
    """Of the modules that start VeRL, the longest comes first and the others last: each waits for the one before."""
    verl = {item.path for item in items if "only_cluster" in item.fixturenames}
    items.sort(key=lambda item: (item.path.name != "test_end_to_end.py", item.path in verl))


def _not_passed_over(report):
    if report.skipped and NEEDED and "could not import" in str(report.longrepr):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="module")
def only_cluster() -> Iterator[None]:
    """One Ray cluster with VeRL at a time, whatever runs beside it: two would give their weight updates one socket."""
    with (Path(tempfile.gettempdir()) / f"cokl-verl-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
