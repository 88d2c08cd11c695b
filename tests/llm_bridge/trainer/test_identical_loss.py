"""Identical loss code, end to end: see `identity`, which also prints the figures as a table."""

import pytest

pytest.importorskip("verl")

from cokl import methods
from tests.llm_bridge.trainer import identity


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def gradients(request, tmp_path_factory):
    return identity.run(request.param, tmp_path_factory.mktemp("identity"))


def test_verls_gradient_is_that_of_cokls_surrogate(gradients):
    joint = gradients[gradients["method"].notna()]
    rows = identity.GROUP * (identity.RL_PROMPTS + 2 * identity.KL_PROMPTS) // gradients["ranks"].iloc[0]
    assert set(joint["method"]) == set(identity.METHODS)
    assert set(joint["mode"]) == set(identity.MODES)
    assert {1, rows} <= set(joint["micro_batch"])
    assert joint["error"].max() < 1e-6


def test_the_identity_holds_for_rows_with_an_advantage_and_a_weight(gradients):
    training = gradients[gradients["training"].notna()]
    assert set(training["method"]) == set(identity.METHODS)
    assert training["error"].max() < 1e-6


def test_the_identity_holds_without_padding_and_with_batches_cut_by_tokens(gradients):
    packed = gradients[gradients["packing"].notna()]
    assert set(packed["packing"]) == set(identity.PACKINGS)
    everything, seen = (
        {methods.get(name).streams() for name in names} for names in (identity.METHODS, packed["method"])
    )
    assert seen == everything
    assert packed["error"].max() < 1e-6
    counts = packed.groupby("packing")["micro_batches"].min()
    assert counts["packed"] == 1
    assert (counts[["dynamic", "dynamic, packed"]] > 1).all()


def test_verls_grpo_part_is_that_of_a_batch_without_the_added_rows(gradients):
    without = gradients[gradients["method"].isna()]
    assert without["error"].max() < 1e-6
    assert without["metric_error"].max() < 1e-6


def test_the_worker_logs_the_regularization_loss(gradients):
    assert gradients["loss_error"].max() < 1e-5


def test_every_regularizer_has_a_part_in_the_gradient(gradients):
    shares = gradients.groupby("method")["share"].min()
    assert shares["none"] < 1e-6
    assert (shares.drop("none") > 1e-2).all()
