"""The loop's benchmark: each part's seconds are its own, on a clock that the parts move; the table is of them."""

from pathlib import Path

import pytest
import torch

from benchmarks import loop as benchmark
from benchmarks.loop import COEFFICIENTS, PARTS, Loop, cost, sample_buffer
from cokl import methods
from cokl.support.errors import InputError
from llm_bridge.open_questions import loop
from tests.llm_bridge import toy


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    toy.save_untaught(folder, seed=3)
    return folder


@pytest.mark.parametrize("method", COEFFICIENTS)
def test_a_parts_seconds_are_those_that_it_takes(method, model_folder, tmp_path, monkeypatch):
    """Sampling takes 100 s, judging 10, log-probabilities 1, an optimizer's step 1000; all else none.

    Each is slower when it is called first, in the step that is not counted.
    """
    clock, calls = [0.0], []

    def takes(seconds: float, name: str, function):
        def slow(*arguments):
            clock[0] += seconds * (1 if name in calls else 7)
            calls.append(name)
            return function(*arguments)

        return slow

    sample_buffer(model_folder, tmp_path / "buffer.parquet")
    monkeypatch.setattr(benchmark.time, "process_time", lambda: clock[0])
    for name, seconds in (("sample", 100), ("judge", 10), ("log_likelihoods", 1)):
        monkeypatch.setattr(loop, name, takes(seconds, name, getattr(loop, name)))
    monkeypatch.setattr(torch.optim.AdamW, "step", takes(1000, "step", torch.optim.AdamW.step))
    found = cost(method, COEFFICIENTS[method], model_folder, tmp_path / "buffer.parquet", 2)
    compares = methods.get(method).compares_with_reference
    memory, gradient = found.pop("memory"), found.pop("gradient")
    assert found == {"sampling": 100, "judging": 10, "reference": float(compares), "optimizer": 1000}
    assert compares == (method == "reverse_kl")
    if compares:  # all rows have a weight: two micro-batches in each step
        assert calls.count("log_likelihoods") == 2 * (1 + 2)
        assert gradient == 2
    assert 0.1 < memory < 30


def test_the_table_has_each_part_its_sum_the_ratio_and_the_memory(monkeypatch, capsys):
    def cost_of(function, *arguments):
        if function is not cost:
            return None
        step = {"sampling": 1.0, "judging": 0.5, "reference": 0.0, "gradient": 2.0, "optimizer": 0.5, "memory": 1.25}
        return step | ({"reference": 2.0, "memory": 2.5} if arguments[0] == "reverse_kl" else {})

    monkeypatch.setattr(benchmark, "apart", cost_of)
    assert Loop(Path("model")).run() == 0
    head, _, *rows = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[1:])
    assert head == [*PARTS, "a step", "over plain RL's", "peak memory, GB"]
    assert len(rows) == len(COEFFICIENTS)
    assert rows[0] == ["plain RL", "1.00", "0.50", "0.00", "2.00", "0.50", "4.00", "1.00", "1.25"]
    assert ["Reverse KL", "1.00", "0.50", "2.00", "2.00", "0.50", "6.00", "1.50", "2.50"] in rows


def test_one_step_is_too_few():
    with pytest.raises(InputError, match="--steps 1: expected 2 or more"):
        Loop(steps=1).run()
