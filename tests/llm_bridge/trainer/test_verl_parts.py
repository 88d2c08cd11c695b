"""VeRL's private parts that the trainers rest on: the list is whole, and the installed version has them so.

VeRL promises none of them. A branch of its repository drops the queue (TransferQueue) and with it the trainer "V1". An
override whose original is gone would never be called and say nothing. Public are the decorators that register trainers
and agent loops, `VERL_USE_EXTERNAL_MODULES`, and Hydra's callbacks.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("verl")

from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from llm_bridge.experiment.rewarded import RewardedCoKLTrainer, RewardedTrainer
from llm_bridge.trainer.buffer_filler import BufferTrainer
from llm_bridge.trainer.core import CoKLTrainer

_V1 = "verl.trainer.ppo.v1"
PARTS: dict[str, dict[str, str]] = {
    f"{_V1}.trainer_base:PPOTrainer": {
        "_setup": "",
        "_build_replay_buffer": "",
        "_init_dataloader": "",
        "_fetch_one_gen_batch": "",
        "_next_train_batch": "num_prompts",
        "_step_once": "metrics timing_raw sample_batch_size",
        "_submit_batch_to_rollout": "batch",
        "_balance_batch": "batch metrics logging_prefix keep_minibatch",
        "_compute_reward_colocate": "batch metrics",
        "_compute_advantage": "batch metrics",
        "_update_actor": "batch metrics",
        "_compute_metrics": "batch metrics timing_raw global_steps epoch",
        "_val_metrics_update": "data_sources sample_uids reward_extra_infos_dict sample_turns expected_acc_counts",
        "_save_checkpoint": "",
        "_load_checkpoint": "",
        "_lengths_to_mask": "lengths width",
    },
    "verl.trainer.ppo.core_algos": {
        "agg_loss": "loss_mat loss_mask loss_agg_mode dp_size batch_num_tokens global_batch_size loss_scale_factor",
        "kl_penalty": "logprob ref_logprob kl_penalty",
    },
    "verl.workers.utils.losses": {"ppo_loss": "config model_output data dp_group"},
    "verl.workers.utils.padding": {"no_padding_2_padding": "tensor data"},
    "verl.workers.engine_workers:ActorRolloutRefWorker": {"set_loss_fn": "loss_fn"},
    f"{_V1}.replay_buffer:ReplayBuffer": {"_select_prompt_uids": "partition_id sampleable_keys batch_size"},
    "transfer_queue": {
        "kv_batch_get": "keys partition_id select_fields",
        "kv_batch_put": "keys partition_id fields tags data_parser",
        "kv_clear": "keys partition_id",
    },
}
"""By module, or by class after a colon: its parts, and the names of their arguments without self."""


def test_every_private_method_of_verls_trainer_that_is_used_is_listed():
    trainers = RewardedTrainer, CoKLTrainer, RewardedCoKLTrainer, BufferTrainer
    ours = {name for trainer in trainers for name in vars(trainer)}
    files = [*Path("llm_bridge/trainer").glob("*.py"), Path("llm_bridge/experiment/rewarded.py")]
    text = "".join(path.read_text("utf-8") for path in files)
    called = set(re.findall(r"(?:self|super\([^)]*\)|trainer)\.(_[a-z]\w+)\(", text))
    theirs = {name for name in (*vars(PPOTrainer), *vars(PPOTrainerSync)) if re.match("_(?!abc)[a-z]", name)}
    assert (ours | called) & theirs == set(PARTS[f"{_V1}.trainer_base:PPOTrainer"])


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in PARTS.items() for name in names])
def test_a_part_is_called_as_the_pinned_version_has_it(owner, name):
    module, _, class_name = owner.partition(":")
    there = import_module(module)
    part = getattr(getattr(there, class_name) if class_name else there, name)
    arguments = [argument for argument in inspect.signature(part).parameters if argument != "self"]
    assert arguments == PARTS[owner][name].split()
