"""The list of VeRL's private parts is whole, and a part that is gone is told."""

import re
from pathlib import Path

import pytest

pytest.importorskip("verl")

from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from llm_bridge.trainer.base import RewardedTrainer
from llm_bridge.trainer.buffer_filler import BufferTrainer
from llm_bridge.trainer.joint import CoKLTrainer, RewardedCoKLTrainer
from llm_bridge.trainer.start.hooks import HOOKS, missing

TRAINER = "verl.trainer.ppo.v1.trainer_base:PPOTrainer"


def test_every_private_method_of_verls_trainer_that_is_used_is_listed():
    trainers = (RewardedTrainer, CoKLTrainer, RewardedCoKLTrainer, BufferTrainer)
    ours = {name for trainer in trainers for name in vars(trainer)}
    files = Path("llm_bridge/trainer").glob("*.py")
    text = "".join(path.read_text("utf-8") for path in files)
    called = set(re.findall(r"(?:self|super\(\)|trainer)\.(_[a-z]\w+)\(", text))
    theirs = {name for name in (*vars(PPOTrainer), *vars(PPOTrainerSync)) if re.match("_(?!abc)[a-z]", name)}
    assert (ours | called) & theirs == set(HOOKS[TRAINER])


def test_the_pinned_verl_has_all_of_them_and_a_lost_one_is_named():
    assert not list(missing())
    lost = {
        TRAINER: {"_setup": "", "_next_batch": "the other one"},
        "verl.utils.device:Device": {"anything": "nothing"},
    }
    assert list(missing(lost)) == [
        f"{TRAINER}._next_batch (the other one)",
        "verl.utils.device:Device.anything (nothing)",
    ]
