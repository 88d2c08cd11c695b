import hashlib
import os
from dataclasses import replace
from io import BufferedReader

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cokl.support.errors import InputError
from llm_bridge.buffer.groups import Buffer, CachedGroup, DrawOrder, model_fingerprint, prompt_key


def _group(index: int = 0, rewards: tuple[int, ...] = (1, 0, 1)) -> CachedGroup:
    lengths = range(1, len(rewards) + 1)
    return CachedGroup(
        prompt=[{"role": "system", "content": "s"}, {"role": "user", "content": f"{index} + 1?"}],
        data_source="math",
        ground_truth=str(index + 1),
        prompt_ids=np.arange(4 + index),
        response_ids=[np.arange(length) + index for length in lengths],
        rewards=np.array(rewards),
        extra_info={"multiple": True, "tolerances": [0.5, index]},
    )


def test_what_is_saved_is_loaded(tmp_path):
    buffer = Buffer((_group(0), _group(1, (0, 0, 0))), "abc")
    buffer.save(tmp_path / "folder" / "buffer.parquet")
    loaded = Buffer.load(tmp_path / "folder" / "buffer.parquet", "abc")
    assert len(loaded) == 2
    assert loaded.group_size == 3
    for old, new in zip(buffer.groups, loaded.groups, strict=True):
        for name in ("prompt", "data_source", "ground_truth", "extra_info"):
            assert getattr(old, name) == getattr(new, name)
        np.testing.assert_array_equal(old.prompt_ids, new.prompt_ids)
        np.testing.assert_array_equal(old.rewards, new.rewards)
        for expected, got in zip(old.response_ids, new.response_ids, strict=True):
            np.testing.assert_array_equal(expected, got)


@pytest.mark.parametrize("truth", ["4", 4, 4.5, True, ["4", "5"], {"answer": "4", "within": [0.1, 2]}])
def test_a_ground_truth_keeps_its_type(tmp_path, truth):
    """A judge is to be told of a cached prompt what it is told of the data set's row."""
    Buffer((replace(_group(), ground_truth=truth),), "abc").save(tmp_path / "buffer.parquet")
    (loaded,) = Buffer.load(tmp_path / "buffer.parquet", "abc").groups
    assert (loaded.ground_truth, type(loaded.ground_truth)) == (truth, type(truth))
    assert loaded.key == prompt_key(_group().prompt, truth)


def test_masks_and_temperature_are_kept(tmp_path):
    masks = [np.array([1]), np.array([1, 0]), np.array([0, 1, 1])]
    group = replace(_group(), masks=masks)
    Buffer((group,), "abc", 0.7).save(tmp_path / "buffer.parquet")
    loaded = Buffer.load(tmp_path / "buffer.parquet", "abc")
    assert loaded.temperature == 0.7
    assert [mask.tolist() for mask in loaded.groups[0].masks] == [mask.tolist() for mask in masks]
    assert [mask.tolist() for mask in group.drawn(2, [0], correct_first=True).masks] == [[1], [0, 1, 1]]


@given(rewards=st.lists(st.integers(0, 1), min_size=1, max_size=8), data=st.data())
def test_a_draw_keeps_responses_with_what_is_known_of_them(rewards, data):
    group, count = _group(3, tuple(rewards)), data.draw(st.integers(1, len(rewards)))
    for correct_first in (False, True):
        drawn = group.drawn(count, [data.draw(st.integers(0, 99)), 7], correct_first)
        lengths = [len(ids) for ids in drawn.response_ids]  # each response of the group has its own
        assert len(set(lengths)) == count
        assert lengths == sorted(lengths)
        assert drawn.rewards.tolist() == [rewards[length - 1] for length in lengths]
        if correct_first:
            assert drawn.rewards.sum() == min(count, sum(rewards))


def test_draws_repeat_for_a_seed_and_give_every_response_the_same_chance():
    group = _group(0, (1, 0, 1, 1, 0))
    draws = [group.drawn(2, [seed, 1], correct_first=True) for seed in range(600)]
    again = [group.drawn(2, [seed, 1], correct_first=True) for seed in range(600)]
    assert [draw.response_ids[0].tolist() for draw in draws] == [draw.response_ids[0].tolist() for draw in again]
    counts = np.bincount([len(ids) for draw in draws for ids in draw.response_ids], minlength=6)[1:]
    assert counts[[1, 4]].tolist() == [0, 0]
    assert np.abs(counts[[0, 2, 3]] - 400).max() < 60  # five standard deviations of 600 draws with chance 2/3


def test_a_prompts_key_is_of_its_messages_and_its_answer():
    group = _group(0)
    reordered = [dict(reversed(message.items())) for message in group.prompt]
    assert group.key == prompt_key(reordered, group.ground_truth)
    assert group.key == prompt_key([message | {"tool_calls": None} for message in group.prompt], group.ground_truth)
    others = [replace(group, ground_truth="2"), replace(group, prompt=group.prompt[1:]), _group(1)]
    assert len({other.key for other in [group, *others]}) == 4
    assert replace(group, data_source="elsewhere", rewards=np.array([0, 0, 0])).key == group.key


def test_filtering_leaves_the_prompts_with_a_correct_response():
    kept = Buffer((_group(0, (0, 0)), _group(1, (0, 1)), _group(2, (0, 0))), "abc").filtered()
    assert [group.ground_truth for group in kept.groups] == ["2"]
    with pytest.raises(InputError, match="no correct response"):
        Buffer((_group(0, (0, 0)),), "abc").filtered()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.array([1, 0, 2])}, "rewards 0 or 1"),
        ({"rewards": np.array([1, 0])}, "expected 3 responses"),
        ({"prompt_ids": np.array([], dtype=int)}, "'prompt_ids', row 3: expected at least one"),
        ({"response_ids": [np.arange(2)] * 3}, "'response_mask', row 3: expected one for each of response_ids"),
        ({"prompt": [{"role": "user", "content": ["a"]}]}, "messages of role and content, both text"),
        ({"prompt": [{"role": "user", "content": "a", "tool_calls": "b"}]}, "messages of role and content, both text"),
    ],
)
def test_a_group_that_no_method_could_use_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        Buffer((_group(), replace(_group(1), **change)), "abc")


def test_an_empty_buffer_is_refused():
    with pytest.raises(InputError, match="empty"):
        Buffer((), "abc")


@pytest.mark.parametrize("column", ["prompt", "response_ids", "reward", "response_mask"])
def test_a_missing_column_is_named(tmp_path, column):
    path = tmp_path / "buffer.parquet"
    Buffer((_group(),), "abc").save(path)
    pq.write_table(pq.read_table(path).drop_columns(column), path)
    with pytest.raises(InputError, match=f"lacks the column '{column}'"):
        Buffer.load(path, "abc")


def test_a_file_that_is_no_buffer_is_refused_in_one_line(tmp_path):
    path = tmp_path / "buffer.parquet"
    with pytest.raises(InputError, match="no buffer at"):
        Buffer.load(path, "abc")
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match="expected a whole Parquet file"):
        Buffer.load(path, "abc")
    Buffer((_group(),), "abc").save(path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata(None), path)
    with pytest.raises(InputError, match=r"another model \(not named\)"):
        Buffer.load(path, "abc")
    pq.write_table(table.set_column(8, "reward", pc.add(table["reward"], 0.5)), path)
    with pytest.raises(InputError, match="expected rewards 0 or 1"):
        Buffer.load(path, "abc")
    Buffer((_group(),), "abc").save(path)
    content = bytearray(path.read_bytes())
    content[content.index(b"math")] ^= 1  # in a page, whose checksum Parquet keeps
    path.write_bytes(content)
    with pytest.raises(InputError, match="expected a whole Parquet file"):
        Buffer.load(path, "abc")


def test_a_buffer_of_another_model_is_refused(tmp_path):
    Buffer((_group(),), "abc").save(tmp_path / "buffer.parquet")
    with pytest.raises(InputError, match="another model"):
        Buffer.load(tmp_path / "buffer.parquet", "abd")


def test_the_fingerprint_sees_weights_and_tokenizer_and_nothing_else(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"a LoRA's, which are no model's")
    with pytest.raises(InputError, match="no weights"):
        model_fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_bytes(b"tokens")
    first = model_fingerprint(tmp_path)
    (tmp_path / "README.md").write_bytes(b"text")
    assert model_fingerprint(tmp_path) == first
    (tmp_path / "tokenizer.json").write_bytes(b"other tokens")
    second = model_fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert len({first, second, model_fingerprint(tmp_path)}) == 3


def test_weights_are_read_again_only_once_they_are_written_again(tmp_path, monkeypatch):
    """By the same number of bytes, a second later."""
    read, digest = [], hashlib.file_digest

    def counted(file: BufferedReader, name: str) -> object:
        read.append(file.name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    first = model_fingerprint(tmp_path)
    assert model_fingerprint(tmp_path) == first
    assert len(read) == 1
    weights.write_bytes(b"WEIGHTS")
    os.utime(weights, ns=(0, weights.stat().st_mtime_ns + 10**9))
    assert model_fingerprint(tmp_path) != first
    assert len(read) == 2


@given(size=st.integers(1, 40), seed=st.integers(0, 2**31), counts=st.lists(st.integers(0, 50), max_size=8))
def test_every_prompt_is_drawn_once_before_any_is_drawn_again(size, seed, counts):
    order = DrawOrder(size, seed)
    drawn = [index for count in counts for index in order.draw(count)]
    assert order.position == len(drawn) == sum(counts)
    for start in range(0, len(drawn), size):
        epoch = drawn[start : start + size]
        assert len(set(epoch)) == len(epoch)
    assert drawn == DrawOrder(size, seed).draw(sum(counts))


@given(size=st.integers(1, 40), seed=st.integers(0, 2**31), before=st.integers(0, 99), after=st.integers(1, 99))
def test_a_draw_goes_on_from_its_position(size, seed, before, after):
    whole = DrawOrder(size, seed).draw(before + after)
    assert DrawOrder(size, seed, before).draw(after) == whole[before:]


def test_orders_differ_between_seeds_and_epochs():
    first = DrawOrder(64, 0)
    epochs = [tuple(first.draw(64)), tuple(first.draw(64)), tuple(DrawOrder(64, 1).draw(64))]
    assert len(set(epochs)) == 3


BOTH = ("reference", "rollout")


@pytest.mark.parametrize(
    ("streams", "length", "temperature", "missed"),
    [
        (BOTH, 2, 0.7, []),  # the longest response, of three tokens, is wrong
        (BOTH, 1, 0.7, [("length", "2")]),
        (BOTH, 1, 1.0, [("length", "2"), ("temperature", "0.7")]),
        (("rollout",), 1, 1.0, [("length", "2")]),  # no cached response is weighed beside a fresh one
        (("reference",), 1, 1.0, []),
    ],
)
def test_fresh_responses_are_as_long_as_the_correct_cached_ones_and_of_their_temperature(
    streams, length, temperature, missed
):
    buffer = Buffer((_group(0, (1, 1, 0)), _group(1, (1, 0, 0))), "abc", 0.7)
    found = [(what, value) for what, _, value in buffer.missed(streams, length, temperature)]
    assert found == missed
