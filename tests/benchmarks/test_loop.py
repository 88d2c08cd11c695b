"""The loop's benchmark with a tiny model: each part is measured where it happens, by method."""

import pytest
import torch

from benchmarks.loop import COEFFICIENTS, PARTS, Loop
from cokl.support.errors import InputError
from tests.llm_bridge import toy


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(3)
    tokenizer = toy.make_tokenizer()
    toy.make_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_row_for_each_method_and_a_second_for_each_part(model_folder, capsys):
    assert Loop(model_folder, steps=3).run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].strip("| ").split(" | ")[: len(PARTS)] == list(PARTS)
    rows = {cells[0]: [*map(float, cells[1:])] for cells in (line.strip("| ").split(" | ") for line in lines[3:])}
    assert len(rows) == len(COEFFICIENTS)
    for *parts, step, ratio, memory in rows.values():
        assert parts[0] > 0
        assert step == pytest.approx(sum(parts), abs=0.03)  # each is rounded to 0.01
        assert ratio == pytest.approx(step / rows["plain RL"][-3], rel=0.2)
        assert 0.1 < memory < 8
    compared = {name for name, cells in rows.items() if cells[2] > 0}  # with the reference, another model
    assert compared == {"Reverse KL"}
    assert rows["plain RL"][-2] == 1


def test_one_step_is_too_few(model_folder):
    with pytest.raises(InputError, match="--steps 1: expected 2 or more"):
        Loop(model_folder, steps=1).run()
