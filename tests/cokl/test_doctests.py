"""Public functions: every docstring has its sections and a short example, and the examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import docstring_parser
import pytest
import torch

from cokl.groups import RowIndex
from cokl.policy import CorrectSet, Policy

MODULES = [
    importlib.import_module(f"cokl.{name}")
    for name in ("arrays", "decomposition", "floor", "groups", "grpo", "methods", "metrics", "policy", "regularizers")
] + [
    importlib.import_module(name)
    for name in ("llm_bridge.buffer.groups", "llm_bridge.rewards.verifier", "theory.recovery")
]
NAMES = {"torch": torch, "CorrectSet": CorrectSet, "Policy": Policy, "RowIndex": RowIndex}
"""What an example has besides its module's names, as docs/reference/index.md says."""
WITHOUT_EXAMPLE = {"model_fingerprint", "model_folder"}
"""They need a model's files."""


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__}.{name}", function


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_run(module: ModuleType) -> None:
    failed, _ = doctest.testmod(module, extraglobs=NAMES)
    assert not failed, "an example does not give what its docstring shows; the difference is above"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_and_result_has_a_line(name: str) -> None:
    function = FUNCTIONS[name]
    documented = docstring_parser.google.parse(inspect.getdoc(function) or "")
    assert [parameter.arg_name for parameter in documented.params] == list(inspect.signature(function).parameters)
    assert documented.returns
    assert documented.examples or function.__name__ in WITHOUT_EXAMPLE


def test_some_thirty_functions_are_public() -> None:
    assert len(FUNCTIONS) >= 30
