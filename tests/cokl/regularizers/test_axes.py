"""Everything stays on the device of its inputs; sets of no context, of one action and of many."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from cokl.policy import CorrectSet, Policy
from tests.cokl.cases import VARIANTS


@pytest.mark.parametrize("valid", [None, torch.ones(2, 3, dtype=torch.bool)])
def test_everything_stays_on_the_device_of_its_inputs(valid: Tensor | None):
    """On the device "meta", which holds shapes alone and mixes with no other."""
    correct = CorrectSet(
        torch.zeros(2, 3, dtype=torch.int64).to("meta"), None if valid is None else valid.to("meta"), 5
    )
    policy = Policy(torch.zeros(2, 5, device="meta"), correct)
    reference = Policy(torch.ones(2, 5, device="meta"), correct)
    assert correct.mask.device.type == "meta"
    assert correct.sizes.device.type == "meta"
    assert policy.log_incorrect_mass.device.type == "meta"
    for regularizer in VARIANTS.values():
        assert regularizer.value(policy, reference).device.type == "meta"
        assert regularizer.logit_gradient(policy, reference).device.type == "meta"


def test_sets_of_no_context_of_one_action_and_of_many():
    none = CorrectSet.from_mask(torch.zeros(0, 4, dtype=torch.bool))
    assert (none.actions.shape, none.mask.shape, none.sizes.shape) == ((0, 1), (0, 4), (0,))
    single = CorrectSet.from_mask(torch.tensor([[True], [False]]))
    assert single.mask.tolist() == [[True], [False]]
    assert single.actions.shape == (2, 1)
    mask = torch.from_numpy(np.random.default_rng(0).random(10_000) < 0.3)
    many = CorrectSet.from_mask(mask)
    assert many.actions.tolist() == np.flatnonzero(mask.numpy()).tolist()
