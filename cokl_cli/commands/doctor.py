"""The command `cokl doctor`. It looks packages up without importing them; only PyTorch is imported, for its devices."""

from __future__ import annotations

import platform
import sys
import textwrap
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from cokl_cli.output import Output

PARTS = {
    "": "the controlled experiment, the labs, figures, the paper's tables",
    "theory": "cokl theory, and the end of cokl reproduce",
    "report": "cokl report",
    "math": "the verifier of mathematical answers",
    "cluster": "--backend ray",
    "llm": "cokl llm run on GPUs",
    "llm-cpu": "cokl llm run --preset tiny on a CPU",
    "dev": "tests, documentation, notebooks",
}
"""What each extra is for; "" is what every installation has."""


@dataclass(frozen=True)
class Doctor(Output):
    """What is installed, which parts work here, and what the rest needs. Exit code 1 if the core is incomplete."""

    def run(self) -> int:
        """Print a line per part."""
        installed = self.outcome()
        print("Python {python}, cokl {cokl}, device: {device}, {platform}".format(**installed))
        for part in installed["parts"]:
            missing = part["missing"]
            print(f"{'missing' if missing else 'ok':9}{part['extra'] or 'core':9}{part['for']}")
            if missing:
                print(f"{'':18}{part['install']}")
                print(textwrap.fill(", ".join(missing), 79, initial_indent=f"{'':18}for ", subsequent_indent=" " * 22))
        return 1 if installed["parts"][0]["missing"] else 0

    def outcome(self) -> dict[str, Any]:
        """Versions, the device, and for each part what is missing and the command that installs it."""
        parts = []
        for extra, purpose in PARTS.items():
            needed = _needed(extra)
            missing = [name for name in needed if _version(name) is None]
            if extra == "llm" and not missing and _device() == "cpu":
                missing = ["a CUDA device"]
            parts.append({"extra": extra, "for": purpose, "missing": missing, "install": _install(extra),
                          "versions": {name: _version(name) for name in needed}})  # fmt: skip
        return {
            "python": platform.python_version(),
            "cokl": version("cokl"),
            "platform": platform.platform(terse=True),
            "device": _device(),
            "parts": parts,
        }


def _needed(extra: str) -> list[str]:
    """Names of the distributions that an extra, or "" for none, asks for on this machine."""
    from packaging.requirements import Requirement

    asked = [Requirement(text) for text in requires("cokl") or ()]
    if extra:
        asked = [requirement for requirement in asked if requirement.marker]
    return sorted(r.name for r in asked if not r.marker or r.marker.evaluate({"extra": extra}))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _device() -> str:
    if _version("torch") is None:
        return "none without PyTorch"
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _install(extra: str) -> str:
    if extra == "llm-cpu" and sys.version_info[:2] == (3, 11):
        return "in the checkout: make llm-setup"
    return f'in the checkout: pip install ".[{extra}]"' if extra else "in the checkout: pip install ."
