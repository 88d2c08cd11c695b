"""VeRL's private parts that this package rests on, each with what would take its place where VeRL has it no more.

VeRL promises none of them. A branch of its repository drops the queue (TransferQueue) and with it the trainer "V1". An
override whose original is gone would never be called and say nothing, so every start looks for all of them first, and
a test compares how they are called with the pinned version. Public are the decorators that register trainers and agent
loops, `VERL_USE_EXTERNAL_MODULES`, and Hydra's callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple


class Part(NamedTuple):
    """arguments: the names that the pinned version gives them, without self. instead: what would replace it."""

    arguments: str
    instead: str


_V1 = "verl.trainer.ppo.v1"
PARTS: dict[str, dict[str, Part]] = {
    f"{_V1}.trainer_base:PPOTrainer": {
        "_build_replay_buffer": Part("", "VeRL's pick among groups where it drops some; a tiny model's shorter step"),
        "_fetch_one_gen_batch": Part("", "number the prompts where the dataloader's batch gets its names"),
        "_next_train_batch": Part("num_prompts", "join the added rows to the prompts before they go to the rollouts"),
        "_step_once": Part("metrics timing_raw sample_batch_size", "ask the rollouts for the added rows too"),
        "_submit_batch_to_rollout": Part("batch", "call the agent loops on a batch of prompts, for the buffer"),
        "_balance_batch": Part("batch metrics logging_prefix keep_minibatch", "order rows after the rollouts are in"),
        "_compute_reward_colocate": Part("batch metrics", "hand the reward loop all columns of the fresh rows"),
        "_compute_old_log_prob": Part("batch metrics", "take the log-probabilities of the buffer's responses"),
        "_compute_advantage": Part("batch metrics", "weights beside the advantages"),
        "_update_actor": Part("batch metrics", "one call per optimizer step, with the step's advantages"),
        "_compute_metrics": Part("batch metrics timing_raw global_steps epoch", "select the RL rows before metrics"),
        "_val_metrics_update": Part(
            "data_sources sample_uids reward_extra_infos_dict sample_turns expected_acc_counts",
            "average validation rows ourselves, from the dumped generations",
        ),
        "_save_checkpoint": Part("", "write the place in the buffer beside VeRL's state"),
        "_load_checkpoint": Part("", "read it there"),
        "_lengths_to_mask": Part("lengths width", "three lines of our own"),
    },
    f"{_V1}.replay_buffer:ReplayBuffer": {
        "_select_prompt_uids": Part("partition_id sampleable_keys batch_size", "refuse filter_groups"),
    },
    "verl.trainer.ppo.core_algos": {
        "agg_loss": Part(
            "loss_mat loss_mask loss_agg_mode dp_size batch_num_tokens global_batch_size loss_scale_factor",
            "nothing is called, but advantages are made for how it averages",
        )
    },
    "transfer_queue": {
        "kv_batch_get": Part("keys partition_id select_fields", "columns of the batch that the trainer then holds"),
        "kv_batch_put": Part("keys partition_id fields tags data_parser", "the same"),
        "kv_clear": Part("keys partition_id", "nothing"),
    },
}
"""By module, or by class after a colon. `trainer_base:TRAINER_REGISTRY` is read too, to name trainers."""


def find(owner: str, name: str) -> Any:
    """A part of the installed VeRL; None where it is not there."""
    module, _, class_name = owner.partition(":")
    try:
        there: Any = import_module(module)
    except ImportError:
        return None
    return getattr(getattr(there, class_name, None) if class_name else there, name, None)


def missing(parts: dict[str, dict[str, Part]] = PARTS) -> Iterable[str]:
    """Of these, what the installed VeRL lacks, each with its replacement."""
    for owner, names in parts.items():
        yield from (f"{owner}.{name} ({part.instead})" for name, part in names.items() if find(owner, name) is None)
