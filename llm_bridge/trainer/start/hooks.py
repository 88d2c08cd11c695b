"""VeRL's private parts that this package hangs on, each with what would take its place where VeRL has it no more.

VeRL promises none of them. A branch of its repository drops the queue (TransferQueue) and with it the trainer "V1". An
override whose original is gone would never be called and say nothing, so every start looks for all of them first.
Public are the worker's `set_loss_fn`, the decorators that register trainers and agent loops, and
`VERL_USE_EXTERNAL_MODULES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

_LOOP, _V1 = "verl.experimental.agent_loop.agent_loop", "verl.trainer.ppo.v1.trainer_base"
HOOKS: dict[str, dict[str, str]] = {
    f"{_V1}:PPOTrainer": {
        "_setup": "set the joint loss where the workers are made, before the first step",
        "_init_resource_pool_mgr": "name the reference policy's role where roles are mapped to workers",
        "_build_replay_buffer": "nothing: it makes a tiny model's step shorter, and no more",
        "_fetch_one_gen_batch": "number the prompts where the dataloader's batch gets its names",
        "_next_train_batch": "join the added rows to the batch of prompts before it is given to the rollouts",
        "_step_once": "ask the rollouts for the added rows too, where the trainer waits for a number of prompts",
        "_submit_batch_to_rollout": "call the agent loops on a batch of prompts, for the buffer's job",
        "_balance_batch": "order rows, and spread whole groups over mini-batches, after the rollouts are in",
        "_compute_reward_colocate": "hand the reward loop all columns of the rows that are not cached",
        "_compute_old_log_prob": "take log-probabilities of RL rows and added rows apart",
        "_compute_ref_log_prob": "take them of the regularized fresh rows alone",
        "_compute_advantage": "compute group weights beside the advantages, as a column that goes to the workers",
        "_update_actor": "one call per optimizer step, with the step's weights in the batch",
        "_compute_metrics": "select the RL rows before metrics are computed",
        "_val_metrics_update": "average validation rows ourselves, from the dumped generations",
        "_save_checkpoint": "write the place in the buffer beside VeRL's state",
        "_load_checkpoint": "read it there",
        "_lengths_to_mask": "three lines of our own",
    },
    _V1: {"TRAINER_REGISTRY": "subclass the task runner, and start that instead of VeRL's main"},
    _LOOP: {"_agent_loop_registry": "the file of agent loops that `rollout.agent.agent_loop_config_path` names"},
    "verl.utils.device": {"auto_set_device": "check the configuration in the trainer, after Ray has started"},
    "transfer_queue": {
        "kv_batch_get": "columns of the batch itself (DataProto or TensorDict), which the trainer then holds",
        "kv_batch_put": "the same",
        "kv_clear": "nothing",
    },
}
"""By module, or by class after a colon: its attributes that are used, and what would replace each."""


def missing(hooks: dict[str, dict[str, str]] = HOOKS) -> Iterable[str]:
    """Of these, what the installed VeRL lacks, each with its replacement."""
    for owner, names in hooks.items():
        module, _, class_name = owner.partition(":")
        try:
            there: Any = import_module(module)
        except ImportError:
            there = None
        there = getattr(there, class_name, None) if class_name else there
        yield from (f"{owner}.{name} ({instead})" for name, instead in names.items() if not hasattr(there, name))
