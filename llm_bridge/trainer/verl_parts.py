"""VeRL's private parts that this package rests on, and how the pinned version calls them.

VeRL promises none of them. A branch of its repository drops the queue (TransferQueue) and with it the trainer "V1". An
override whose original is gone would never be called and say nothing, so every start looks for all of them first.
Public are the decorators that register trainers and agent loops, `VERL_USE_EXTERNAL_MODULES`, and Hydra's callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

_V1 = "verl.trainer.ppo.v1"
PARTS: dict[str, dict[str, str]] = {
    f"{_V1}.trainer_base:PPOTrainer": {
        "_build_replay_buffer": "",
        "_fetch_one_gen_batch": "",
        "_next_train_batch": "num_prompts",
        "_step_once": "metrics timing_raw sample_batch_size",
        "_submit_batch_to_rollout": "batch",
        "_balance_batch": "batch metrics logging_prefix keep_minibatch",
        "_compute_reward_colocate": "batch metrics",
        "_compute_old_log_prob": "batch metrics",
        "_compute_advantage": "batch metrics",
        "_update_actor": "batch metrics",
        "_compute_metrics": "batch metrics timing_raw global_steps epoch",
        "_val_metrics_update": "data_sources sample_uids reward_extra_infos_dict sample_turns expected_acc_counts",
        "_save_checkpoint": "",
        "_load_checkpoint": "",
        "_lengths_to_mask": "lengths width",
    },
    f"{_V1}.replay_buffer:ReplayBuffer": {"_select_prompt_uids": "partition_id sampleable_keys batch_size"},
    "verl.trainer.ppo.core_algos": {
        "agg_loss": "loss_mat loss_mask loss_agg_mode dp_size batch_num_tokens global_batch_size loss_scale_factor"
    },
    "transfer_queue": {
        "kv_batch_get": "keys partition_id select_fields",
        "kv_batch_put": "keys partition_id fields tags data_parser",
        "kv_clear": "keys partition_id",
    },
}
"""By module, or by class after a colon: its parts, and the names of their arguments without self."""


def find(owner: str, name: str) -> Any:
    """A part of the installed VeRL; None where it is not there."""
    module, _, class_name = owner.partition(":")
    try:
        there: Any = import_module(module)
    except ImportError:
        return None
    return getattr(getattr(there, class_name, None) if class_name else there, name, None)


def missing(parts: dict[str, dict[str, str]] = PARTS) -> Iterable[str]:
    """Of these, what the installed VeRL lacks."""
    return (f"{owner}.{name}" for owner, names in parts.items() for name in names if find(owner, name) is None)
