"""A miniature whose responses can be listed, in an arithmetic that a comparison to 1e-8 needs."""

from dataclasses import dataclass
from typing import Literal

import pytest

from bandit.plasticity.run import plasticity
from bandit.plasticity.sequences.config import SequencePlasticityConfig
from bandit.plasticity.sequences.train import Sequences
from cokl.support.experiment import Execution


@dataclass(frozen=True)
class PreciseConfig(SequencePlasticityConfig):
    """The lab's own, in float64."""

    dtype: Literal["float32", "float64"] = "float64"


TINY = PreciseConfig(
    betas=(0.03, 0.5),
    cached=(2, 4),
    seeds=2,
    selection_seeds=1,
    length=3,
    symbols=4,
    forbidden=2,
    states=2,
    clusters=3,
    input_dim=3,
    train_inputs=12,
    test_inputs=6,
    steps=6,
    new_steps=5,
    evaluated_steps=(0, 2, 5),
    prompts=3,
    group_size=4,
    hidden=(5, 4),
    pretrain_steps=10,
    pretrain_batch_size=6,
    prior_steps=4,
    learning_rate=0.03,
    matched_correctness=0.5,
    changes=("narrowed-1", "moved-2"),
)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """The miniature's results folder."""
    folder = tmp_path_factory.mktemp("plasticity") / "tiny-sequences"
    plasticity(TINY, Execution(out=folder, jobs=1), progress=False, space=Sequences)
    return folder
