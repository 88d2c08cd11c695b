"""Identical loss code, end to end: see `gradients`, which also prints the figures as a table."""

import pytest

pytest.importorskip("verl")

from tests.llm_bridge.trainer import gradients


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def found(request, tmp_path_factory):
    return gradients.run(request.param, tmp_path_factory.mktemp("gradients"))


def test_verls_gradient_is_its_own_plus_that_of_cokls_surrogate(found):
    plain = found[found["setting"] == ""]
    assert set(plain["method"]) == {name for name in gradients.METHODS if gradients.methods.get(name).streams()}
    for column, values in (("mode", gradients.MODES), ("micro_batch", ("one", "half", "all"))):
        assert plain.groupby("method")[column].nunique().eq(len(values)).all()
        assert plain[plain["method"] == "cokl"].groupby(column)["turn"].count().min() >= 3
    assert found["error"].max() < 1e-5


def test_it_is_under_packing_training_prompts_a_kl_loss_and_other_policy_losses(found):
    counts = found[found["method"] == "cokl"].groupby("setting")["mode"].nunique()
    assert set(counts.index) == {"", *gradients.SETTINGS}
    assert counts.eq(len(gradients.MODES)).all()


def test_the_regularizer_has_a_part_in_every_gradient(found):
    assert found["share"].min() > 1e-3


def test_nothing_is_clipped(found):
    assert found["clipped"].max() == 0


def test_an_adapters_gradient_is_that_of_the_surrogate_too(tmp_path):
    found = gradients.run(1, tmp_path, lora=True)
    assert set(found["mode"]) == set(gradients.MODES)
    assert found["error"].max() < 1e-5
    assert found["share"].min() > 1e-3
