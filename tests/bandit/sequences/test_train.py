"""What the options of training on sequences do."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from bandit.engine.sequences.automata import Automata, decided_early
from bandit.sequences.config import SequenceConfig
from cokl.support.errors import InputError
from tests.bandit.sequences.cases import case
from tests.oracles import sequences as oracle

TINY = SequenceConfig(
    methods=("none", "cokl"),
    betas=(0.1, 1.0),
    seeds=1,
    selection_seeds=1,
    length=3,
    symbols=3,
    forbidden=1,
    clusters=3,
    input_dim=4,
    train_inputs=40,
    test_inputs=6,
    steps=4,
    eval_interval=2,
    batch_size=5,
    group_size=2,
    reference_group_size=3,
    buffer_size=12,
    kl_groups=4,
    hidden=(8,),
    pretrain_steps=20,
    prior_steps=3,
)


@pytest.mark.parametrize("deciding", [1, 2, 4])
def test_a_verdict_stands_after_the_deciding_tokens(deciding):
    """Of machines that can change their minds later, so that reading on would be seen."""
    machines = case(4, prompts=6, seed=2).machines
    automata = decided_early(Automata(*(torch.tensor(part) for part in zip(*machines, strict=True))), deciding)
    responses = list(itertools.product(range(3), repeat=4))
    expected = [[oracle.accepts(machine, response[:deciding]) for response in responses] for machine in machines]
    assert automata.accept(torch.tensor(responses).expand(6, -1, -1)).tolist() == expected
    read_on = [[oracle.accepts(machine, response) for response in responses] for machine in machines]
    assert (read_on == expected) == (deciding == 4)


def test_no_more_tokens_decide_than_there_are():
    with pytest.raises(InputError, match="deciding: expected at most 3, the length, got 4"):
        dataclasses.replace(TINY, deciding=4)


def test_seeds_start_where_they_are_asked_to_and_never_meet_the_selection_seeds():
    config = dataclasses.replace(TINY, first_seed=100, seeds=2)
    assert config.roles == {100: "report", 101: "report", 1000: "selection"}
    assert list(dataclasses.replace(TINY, first_seed=998, seeds=2).roles)[:2] == [998, 999]
    with pytest.raises(InputError, match="seeds: expected at most 1000"):
        dataclasses.replace(TINY, first_seed=999, seeds=2)


def test_a_coefficient_of_zero_is_refused():
    with pytest.raises(InputError, match="betas: expected finite coefficients > 0"):
        dataclasses.replace(TINY, betas=(0.0, 0.1))
