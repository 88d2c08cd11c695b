"""Tests that need VeRL are left out where it is not installed, and nowhere else: skipped is not passed.

Where VeRL is installed, and with LLM_TESTS set, as `make llm-test` does, a module that cannot be imported is a failure.
"""

import importlib.util
import os

import pytest

NEEDED = importlib.util.find_spec("verl") is not None or "LLM_TESTS" in os.environ


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _not_passed_over((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _not_passed_over((yield))


def _not_passed_over(report):
    if report.skipped and NEEDED and "could not import" in str(report.longrepr):
        report.outcome = "failed"
    return report
