"""What is told of a package that is not there: something that pip installs beside a wheel."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from cokl.support.extras import EXTRAS, not_installed

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("cokl", "bandit", "theory", "llm_bridge", "figures", "cokl_cli", "benchmarks")
OF_SMOLLM2 = {"reasoning_gym", "vaderSentiment"}
"""Pinned beside its results in requirements-llm.lock; pip knows them by these names."""


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=\[]", one)[0].lower().replace("_", "-") for one in requirements}


def imported() -> set[str]:
    """Top-level modules that our packages import anywhere, and that are neither ours nor Python's."""
    names = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - set(PACKAGES)


def test_every_module_that_we_import_is_a_dependency_or_of_an_extra():
    of_extras = {module for modules in EXTRAS.values() for module in modules}
    core = {"yaml" if name == "pyyaml" else name.replace("-", "_") for name in distributions(PROJECT["dependencies"])}
    assert imported() - core == of_extras | OF_SMOLLM2


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if extra not in ("trl", "llm")])
def test_an_extra_brings_what_it_is_named_for(extra):
    brings = distributions(PROJECT["optional-dependencies"][extra])
    installed = packages_distributions()
    for module in EXTRAS[extra]:
        assert {name.lower().replace("_", "-") for name in installed[module]} & brings, module


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("flint", 'flint is not installed; install it with pip install "cokl[theory]"'),
        ("ray", 'ray is not installed; install it with pip install "cokl[cluster]"'),
        ("math_verify", 'math_verify is not installed; install it with pip install "cokl[math]"'),
        (
            "verl",
            'verl is not installed; install it with pip install "cokl[llm]", or "cokl[llm-cpu]" where there is no GPU',
        ),
        ("reasoning_gym", "reasoning_gym is not installed; install it with pip install reasoning_gym"),
    ],
)
def test_the_line_names_what_pip_installs(module, line):
    assert not_installed(module) == line
    for extra in re.findall(r"cokl\[([\w-]+)\]", line):
        assert extra in PROJECT["optional-dependencies"]
