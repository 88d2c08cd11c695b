"""CoKL in TRL: `GRPOTrainer` and `GRPOConfig` with a regularizer, and its buffer. Importing it loads TRL."""

import trl as _trl

from cokl.support.errors import InputError as _InputError

if not _trl.__version__.startswith("1.16."):  # hooks of GRPOTrainer that TRL does not promise to keep
    raise _InputError(f"trl: expected version 1.16, got {_trl.__version__}; pip install trl==1.16.0")

from llm_bridge.trl.answers import fill_buffer as fill_buffer
from llm_bridge.trl.config import CoKLGRPOConfig as CoKLGRPOConfig
from llm_bridge.trl.trainer import CoKLGRPOTrainer as CoKLGRPOTrainer
