"""The command that runs the experiment: its table, its picture, and what it refuses."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

from llm_bridge.open_questions import __main__ as command
from tests.llm_bridge.open_questions.test_experiment import QUESTIONS, model_folder  # noqa: F401  # a fixture


def run(monkeypatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["open_questions", *map(str, words)])
    try:
        command.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_runs_of_two_methods_are_one_table_and_a_picture(model_folder, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(command, "built_in", lambda: QUESTIONS)
    monkeypatch.setattr(command, "smollm2_in", lambda folder: model_folder)
    words = (tmp_path / "out", "--seeds", "3,4", "none", "cokl=0.1,0.3", "--jobs", 1, "--narrowed")
    assert run(monkeypatch, *words) == 0
    assert (tmp_path / "out" / "tradeoff.png").stat().st_size > 10_000
    rows = pd.read_csv(tmp_path / "out" / "RUNS.csv")
    runs = rows.groupby(["seed", "method", "beta"]).size()
    each = {("base", 0.0): 3, ("none", 0.0): 6, ("cokl", 0.1): 6, ("cokl", 0.3): 6}
    assert runs.to_dict() == {(seed, *key): count for seed in (3, 4) for key, count in each.items()}
    assert rows[rows["step"] == 16]["new_reward"].notna().all()
    shown = capsys.readouterr().out
    assert "tradeoff.png" in shown
    assert shown.count("cokl") == 4  # both coefficients at each seed's last step
    assert run(monkeypatch, *words[:-1]) == 2  # without what comes afterwards it is another experiment
    assert "afterwards: 8 there, 0 asked for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cokl=small"], "cokl=small: expected METHOD=BETA,BETA"),
        (["cokl"], "cokl: expected coefficients above 0"),
        (["none=0.1"], "none=0.1: expected coefficients above 0 for a regularizer, and none for plain RL"),
        (["nothing"], "unknown method 'nothing'"),
        (["none", "--seeds", "1 2"], "expected seeds separated by commas, such as 10,11, got '1 2'"),
    ],
)
def test_what_it_does_not_understand_is_told(words, said, tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, tmp_path / "out", *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_has_as_many_steps_as_are_asked_for(model_folder, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(command, "built_in", lambda: QUESTIONS)
    monkeypatch.setattr(command, "smollm2_in", lambda folder: model_folder)
    words = (tmp_path / "out", "none", "--jobs", 1, "--steps")
    assert run(monkeypatch, *words, 3) == 0
    assert sorted(pd.read_csv(tmp_path / "out" / "RUNS.csv")["step"].unique()) == [0, 3]
    assert run(monkeypatch, *words, 0) == 2
    assert "--steps 0: expected 1 or more" in capsys.readouterr().err


def test_a_step_has_as_many_prompts_as_are_asked_for(model_folder, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(command, "built_in", lambda: QUESTIONS)
    monkeypatch.setattr(command, "smollm2_in", lambda folder: model_folder)
    words = ("cokl=0.1", "--jobs", 1, "--steps", 2, "--prompts")
    trained = {}
    for prompts in (1, 2):
        assert run(monkeypatch, tmp_path / str(prompts), *words, prompts) == 0
        rows = pd.read_csv(tmp_path / str(prompts) / "RUNS.csv").dropna(subset=["prompts"])
        assert set(rows["prompts"]) == {prompts}
        trained[prompts] = rows["train_rows"].max()
    assert trained[2] > trained[1]
    assert run(monkeypatch, tmp_path / "out", *words, 0) == 2
    assert "--prompts 0: expected 1 or more" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path / "1", *words, 2) == 2  # another experiment
    assert "prompts=1" in capsys.readouterr().err
