"""The CoKL method: regularizers, correctness decomposition, GRPO, floor and metrics, as pure functions on tensors."""

__version__ = "0.1.0"
