"""Where a checkpoint says that a buffer was left."""

import json

import pytest

from cokl.support.errors import InputError
from llm_bridge.buffer.groups import DrawOrder


def test_a_run_resumes_where_its_checkpoint_was_written(tmp_path):
    order = DrawOrder(size=5, seed=3)
    order.draw(7)
    order.save(tmp_path)
    resumed = DrawOrder(size=5, seed=3)
    resumed.resume(tmp_path)
    assert resumed.position == 7
    assert resumed.draw(6) == order.draw(6)


@pytest.mark.parametrize(
    "stored",
    [
        {"size": 6, "seed": 3, "content": "", "position": 7},
        {"size": 5, "seed": 4, "content": "", "position": 7},
        {"size": 5, "seed": 3, "content": ""},
        {"size": 5, "seed": 3, "content": "", "position": "7"},
        {"size": 5, "seed": 3, "position": 7},
        {"size": 5, "seed": 3, "position": 7, "content": "another"},
    ],
)
def test_another_buffers_or_seeds_position_is_refused(stored, tmp_path):
    (tmp_path / DrawOrder.FILE).write_text(json.dumps(stored))
    order = DrawOrder(size=5, seed=3, position=2)
    with pytest.raises(InputError, match="belongs to another buffer, method or seed; start a new run"):
        order.resume(tmp_path)
    assert order.position == 2


def test_a_folder_without_a_position_is_no_checkpoint(tmp_path):
    with pytest.raises(InputError, match="not a checkpoint of a regularized run"):
        DrawOrder(size=5, seed=3).resume(tmp_path)
