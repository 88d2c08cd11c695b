"""A third party's package with a regularizer of its own, built and installed as its users would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NAME = "twin_of_forward_kl"
"""No name of ours."""

_PROJECT = f"""
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "somebodys-regularizer"
version = "0.1"

[project.entry-points."cokl.regularizers"]
{NAME} = "somebodys_regularizer:Twin"

[tool.setuptools]
py-modules = ["somebodys_regularizer"]
"""

_MODULE = f"""
import torch

from cokl.groups import SurrogateWeights
from cokl.regularizers import Regularizer, register


@register
class Twin(Regularizer):
    name, label = "{NAME}", "Twin of forward KL"
    streams = ("reference",)

    def value(self, policy, reference):
        return (reference.probs * (reference.log_probs - policy.log_probs)).sum(-1)

    def surrogate_weights(self, reference, rollout, config):
        return SurrogateWeights(-torch.ones_like(reference.rewards) / reference.rewards.shape[-1], None)
"""


def install(folder: Path) -> dict[str, str]:
    """Build and install the package into `folder`, offline; the environment variables with which it is found."""
    source, target = folder / "source", folder / "installed"
    source.mkdir()
    (source / "pyproject.toml").write_text(_PROJECT)
    (source / "somebodys_regularizer.py").write_text(_MODULE)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target), str(source)]
    subprocess.run([*pip, *options], check=True, capture_output=True, text=True)
    paths = [str(target), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
