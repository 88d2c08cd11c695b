"""What is collected from the logs of an experiment, from logs written by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cokl.support.errors import InputError
from cokl_cli.commands.llm import Report
from llm_bridge.experiment.config import PRESETS
from llm_bridge.report.collect import collect
from llm_bridge.report.results import read_results

CONFIG = replace(PRESETS["smollm2"], math_steps=5, chat_steps=3, chat_batch=10, group_size=4)


def logged(folder: Path, *attempts: dict[int, dict[str, float]]) -> None:
    """Each attempt's log, with a last line that a killed job did not finish."""
    folder.mkdir(parents=True)
    for number, steps in enumerate(attempts):
        lines = [json.dumps({"step": step, "data": data}) for step, data in steps.items()]
        (folder / f"{number:03d}.jsonl").write_text("\n".join(lines) + '\n{"step": 9, "da')


def evaluated(chat: float, first: float) -> dict[str, float]:
    return {f"val/{name}/mean@8": first + 0.1 * place for place, name in enumerate(CONFIG.math_sets)} | {
        "val/chat_val/mean@8": chat
    }


@pytest.fixture
def root(tmp_path):
    logged(tmp_path / "math" / "metrics", {4: evaluated(0.9, 0.0), 5: evaluated(0.25, 0.5)})
    for name, main, beta in (("cokl", 1, 1.0), ("cokl-beta-0.1", 0, 0.1)):
        killed = {1: {"cokl/zero_correct": 0.25}, 2: {"cokl/zero_correct": 0.99}}
        again = {2: {"cokl/zero_correct": 0.5}, 3: {"cokl/zero_correct": 0.0} | evaluated(0.75, 0.125)}
        logged(tmp_path / "chat" / name / "metrics", killed, again)
        run = {"method": "cokl", "beta": beta, "kl_prompts": 12, "main": bool(main)}
        (tmp_path / "chat" / name / "run.json").write_text(json.dumps(run))
    return tmp_path


def test_scores_are_those_of_the_last_step(root):
    scores = collect(CONFIG, root).scores.set_index(["method", "beta"])
    assert scores["chat_val"].to_dict() == {("base", 0.0): 25.0, ("cokl", 1.0): 75.0, ("cokl", 0.1): 75.0}
    first = CONFIG.math_sets[0]
    assert scores[first].to_dict() == {("base", 0.0): 50.0, ("cokl", 1.0): 12.5, ("cokl", 0.1): 12.5}
    assert scores["main"].to_dict() == {("base", 0.0): 1, ("cokl", 1.0): 1, ("cokl", 0.1): 0}
    assert collect(CONFIG, root).dynamics["step"].tolist() == [0, 3]


def test_groups_without_a_correct_response_are_counted_over_the_steps_of_main_runs(root):
    """12 groups in each of 3 steps; a quarter, a half and none of them, by the last attempt at each."""
    (counted,) = collect(CONFIG, root).zero_correct.to_dict("records")
    assert (counted["method"], counted["groups"], counted["zero_correct_groups"]) == ("cokl", 36, 9)


def test_nothing_to_report_is_one_line(tmp_path):
    with pytest.raises(InputError, match="nothing to report"):
        collect(CONFIG, tmp_path)


def test_a_report_is_of_the_experiment_as_it_was_configured(root):
    """Not of the preset, whose chat stage has more steps, nor of an evaluation on the way."""
    (root / "config.json").write_text(json.dumps(CONFIG.as_dict()))
    assert not Report(out=root).run()
    scores = read_results(root / "results").scores
    assert scores["chat_val"].tolist() == [25, 75, 75]
    with pytest.raises(InputError, match=r"config\.json"):
        Report(out=root / "elsewhere").run()
