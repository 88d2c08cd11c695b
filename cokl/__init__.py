"""The CoKL method: regularizers, correctness decomposition, GRPO, floor and metrics, as pure functions on tensors.

It imports nothing, so that the command line starts without PyTorch: `from cokl import methods, regularizers`.
"""

__version__ = "0.1.0"
