"""The list of VeRL's private parts is whole, and holds against the installed version."""

import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("verl")

from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from llm_bridge.experiment.trainer import RewardedCoKLTrainer, RewardedTrainer
from llm_bridge.trainer.buffer_filler import BufferTrainer
from llm_bridge.trainer.core import CoKLTrainer
from llm_bridge.trainer.verl_parts import PARTS, find, missing

TRAINER = "verl.trainer.ppo.v1.trainer_base:PPOTrainer"


def test_every_private_method_of_verls_trainer_that_is_used_is_listed():
    trainers = RewardedTrainer, CoKLTrainer, RewardedCoKLTrainer, BufferTrainer
    ours = {name for trainer in trainers for name in vars(trainer)}
    files = [*Path("llm_bridge/trainer").glob("*.py"), Path("llm_bridge/experiment/trainer.py")]
    text = "".join(path.read_text("utf-8") for path in files)
    called = set(re.findall(r"(?:self|super\([^)]*\)|trainer)\.(_[a-z]\w+)\(", text))
    theirs = {name for name in (*vars(PPOTrainer), *vars(PPOTrainerSync)) if re.match("_(?!abc)[a-z]", name)}
    assert (ours | called) & theirs == set(PARTS[TRAINER])


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in PARTS.items() for name in names])
def test_a_part_is_called_as_the_pinned_version_has_it(owner, name):
    arguments = [argument for argument in inspect.signature(find(owner, name)).parameters if argument != "self"]
    assert arguments == PARTS[owner][name].split()


def test_a_lost_part_is_named():
    assert not list(missing())
    lost = {TRAINER: {"_setup": "", "_next_batch": ""}, "verl.utils.device:Device": {"anything": ""}}
    assert list(missing(lost)) == [f"{TRAINER}._next_batch", "verl.utils.device:Device.anything"]
