"""Runs in a folder: what is measured, computed by hand; resumed runs; the comparison at one correctness."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from cokl.support.errors import InputError
from cokl.support.results import Execution, Work
from llm_bridge.open_questions import analysis, experiment, figures
from llm_bridge.open_questions.experiment import conduct, measured, open_model
from llm_bridge.open_questions.loop import Settings, Training, tokenize
from llm_bridge.open_questions.questions import Question
from tests.llm_bridge import toy

QUESTIONS = [
    Question("What do you think of cats ?", "own", ("cats", "dogs", "owls", "calm", "warm", "I")),
    Question("Split apples", "own", ("apples", "balls", "books", "1", "2", "3", "4", "5", "6")),
    Question("Split dogs", "own", ("2", "3", "coins"), held_out=True),
]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    toy.save_untaught(folder, seed=3)
    return folder


def stop_after(steps: int, monkeypatch) -> list[int]:
    """Interrupt training once so many steps are done. The list's one number is how many are left to do."""
    own, left = Training.step, [steps]

    def step(self):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return own(self)

    monkeypatch.setattr(Training, "step", step)
    return left


def test_what_is_measured_of_one_questions_answers():
    answers = ["a", None, "b", "a", "c", None, "a"]
    found = measured(answers, torch.tensor([-1.0, -2.0]).log_softmax(-1), torch.tensor([0.25, 0.75]).log())
    assert found["right"] == 5 / 7
    assert found["different"] == 3
    assert math.isnan(found["different_of_32"])
    assert found["entropy"] == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.2)))
    policy = math.exp(-1) / (math.exp(-1) + math.exp(-2))
    by_hand = 0.25 * math.log(0.25 / policy) + 0.75 * math.log(0.75 / (1 - policy))
    assert found["cached_kl"] == pytest.approx(by_hand, rel=1e-5)
    many = measured([*"abc"[:1] * 31, None, "b", "c"])  # of the 33 right ones, "c" is the 33rd
    assert (many["different"], many["different_of_32"]) == (3, 2)
    none = measured([None, None])
    assert (none["right"], none["different"]) == (0, 0)
    assert math.isnan(none["entropy"])


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(model_folder, tmp_path, monkeypatch):
    runs = [Settings("cokl", 0.2, seed=2, steps=18, prompts=2, group=4, cached=3, length=4, learning_rate=1e-3)]
    whole = conduct(tmp_path / "whole", model_folder, QUESTIONS, runs, Execution(jobs=1))

    left = stop_after(12, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        conduct(tmp_path / "stopped", model_folder, QUESTIONS, runs, Execution(jobs=1))
    left[0] = 10  # 8 of the 12 steps are kept
    stopped = conduct(tmp_path / "stopped", model_folder, QUESTIONS, runs, Execution(jobs=1))
    assert left[0] == 0
    pd.testing.assert_frame_equal(whole.drop(columns="step_seconds"), stopped.drop(columns="step_seconds"))
    assert sorted(whole["step"].unique()) == [0, 8, 16, 18]
    assert set(whole[whole["step"] == 0]["method"]) == {"base"}
    assert len(whole) == 4 * len(QUESTIONS)
    assert not list((tmp_path / "stopped").rglob("*.checkpoint"))
    for _, row in whole.iterrows():
        counts = dict(json.loads(row["answers"]))
        assert sum(counts.values()) == 64
        assert row["right"] == pytest.approx(1 - counts.get("", 0) / 64)
        assert row["different"] == len(set(counts) - {""})


def test_the_state_of_a_run_goes_when_its_table_is_there_and_not_before(tmp_path):
    works = [Work(pd.DataFrame, (), tmp_path / name) for name in ("done.parquet", "cut.parquet")]
    for work in works:
        work.path.with_suffix(".checkpoint").touch()
    works[0].path.touch()
    with experiment.steps_shown(works):
        deadline = time.monotonic() + 30
        while works[0].path.with_suffix(".checkpoint").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert works[1].path.with_suffix(".checkpoint").exists()


def test_afterwards_plain_rl_learns_what_is_left_of_each_list(model_folder, tmp_path, monkeypatch):
    run = Settings("cokl", 0.2, seed=2, steps=8, prompts=1, group=4, cached=3, length=4, learning_rate=1e-2)
    asked = [replace(QUESTIONS[0], names=("cats", "owls", "warm", "thank", "you", "split", "think"))]
    seen = []
    own = Training.step

    def step(self):
        told = own(self)
        seen.append((self.settings.method, self.questions[0].first, self.model.lm_head.weight[0, 0].item(), told))
        return told

    monkeypatch.setattr(Training, "step", step)
    without = conduct(tmp_path / "without", model_folder, asked, [run], Execution(jobs=1))
    rows = conduct(tmp_path / "with", model_folder, asked, [run], Execution(jobs=1), 3)
    assert [(method, first) for method, first, _, _ in seen] == [("cokl", "A")] * 16 + [("none", "N")] * 3
    assert len({weight for _, _, weight, _ in seen[-4:]}) == 4  # it is the run's own model that goes on
    new = rows.pop("new_reward")
    assert new[rows["step"] == 8].to_list() == [sum(told["reward"] for *_, told in seen[-3:]) / 3]
    assert new[rows["step"] == 0].isna().all()
    pd.testing.assert_frame_equal(rows.drop(columns="step_seconds"), without.drop(columns="step_seconds"))

    left = stop_after(8 + 2, monkeypatch)  # in the middle of what comes afterwards
    with pytest.raises(KeyboardInterrupt):
        conduct(tmp_path / "stopped", model_folder, asked, [run], Execution(jobs=1), 3)
    left[0] = 3
    stopped = conduct(tmp_path / "stopped", model_folder, asked, [run], Execution(jobs=1), 3)
    assert stopped["new_reward"].dropna().unique().tolist() == new.dropna().unique().tolist()


def test_seeds_and_coefficients_change_a_run_and_methods_share_a_buffer(model_folder, tmp_path):
    one: Any = {"steps": 8, "prompts": 2, "group": 4, "cached": 3, "length": 4, "learning_rate": 1e-2}
    runs = [Settings("cokl", 0.2, 2, **one), Settings("cokl", 0.9, 2, **one), Settings("cokl", 0.2, 3, **one)]
    rows = conduct(tmp_path, model_folder, QUESTIONS, runs, Execution(jobs=1))
    last = rows[rows["step"] == 8].groupby(["beta", "seed"])["cached_kl"].mean()
    assert last.nunique() == 3
    start = rows[rows["step"] == 0].groupby("seed")["answers"].sum()
    assert start.nunique() == 2
    model, tokenizer = open_model(model_folder)
    buffer, log_probs, _ = experiment.opened_buffer(
        experiment.sampled_buffer(model_folder, QUESTIONS, runs[0]), QUESTIONS, tokenizer
    )
    held = experiment.Held(QUESTIONS, buffer, log_probs, tokenize(tokenizer, QUESTIONS))
    drawn = {
        (settings.seed, step): held.measure(model, tokenizer, settings, step)[0]["answers"]
        for settings in (runs[0], runs[2])
        for step in (8, 16)
    }
    assert len(set(drawn.values())) == 4  # one model, measured with other draws for each seed and step
    trained = rows[(rows["step"] == 8) & ~rows["held_out"]]
    assert (trained["cached_kl"] > 0).all()


def test_a_folder_without_a_model_and_a_model_without_a_template_are_refused(model_folder, tmp_path):
    with pytest.raises(InputError, match="expected a folder with a model"):
        open_model(tmp_path)
    tokenizer = toy.make_tokenizer()
    tokenizer.chat_template = None
    toy.make_model(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no chat template"):
        open_model(tmp_path)


def test_too_little_memory_is_refused():
    experiment.require_memory(0.001)
    with pytest.raises(InputError, match=r"needs 1e\+06 GB"):
        experiment.require_memory(1e6)


def made(rights, differents, method="cokl", beta=0.1, seed=0):
    """A run's rows, of one question, at steps 8, 16, ..."""
    return pd.DataFrame(
        {
            "seed": seed, "method": method, "beta": beta, "step": [8 * (n + 1) for n in range(len(rights))],
            "question": "Q", "held_out": False, "right": rights, "different": differents,
            "different_of_32": math.nan, "entropy": 0.0, "cached_kl": 0.0,
        }
    )  # fmt: skip


def test_methods_are_compared_where_their_correctness_first_reaches_the_level():
    base = made([0.2], [4.0], "base", 0.0).assign(step=0)
    rows = pd.concat([base, made([0.6, 0.5, 1.0], [8.0, 2.0, 6.0]), made([0.3, 0.4], [5.0, 6.0], "none", 0.0)])
    paths = analysis.means(rows)
    assert paths.groupby("method").size().to_dict() == {"cokl": 4, "none": 3}  # each starts at the base
    found = analysis.matched(paths, 0.5).set_index("method")["different"]
    assert found["cokl"] == pytest.approx(4 + (8 - 4) * (0.3 / 0.4))
    assert math.isnan(found["none"])
    assert analysis.matched(paths, 0.8).set_index("method")["different"]["cokl"] == pytest.approx(2 + 4 * 0.3 / 0.5)


def test_held_out_questions_are_read_where_the_trained_ones_reach_the_level():
    trained = pd.concat([made([0.2], [4.0], "base", 0.0).assign(step=0), made([0.6, 0.8], [8.0, 6.0])])
    held_out = pd.concat([made([0.9], [1.0], "base", 0.0).assign(step=0), made([0.9, 0.7], [2.0, 3.0])])
    both = pd.concat([trained, trained.assign(right=1.0 - trained["right"]), held_out.assign(held_out=True)])
    paths = analysis.means(both)
    assert paths["right"].tolist() == [0.5] * 3  # means over the two questions that are trained on
    assert paths["right_held_out"].tolist() == [0.9, 0.9, 0.7]
    found = analysis.matched(analysis.means(pd.concat([trained, held_out.assign(held_out=True)])), 0.7).iloc[0]
    assert (found["different"], found["different_held_out"]) == (pytest.approx(7), pytest.approx(2.5))
    assert found["right_held_out"] == pytest.approx(0.8)


def test_differences_are_paired_by_seed():
    table = pd.DataFrame(
        {"seed": [0, 1, 2] * 2, "method": ["cokl"] * 3 + ["entropy"] * 3, "different": [5.0, 7.0, 9.0, 4.0, 5.0, 6.0]}
    )
    mean, half, seeds = analysis.difference(table, "entropy", "different")
    assert (mean, seeds) == (2.0, 3)
    assert half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-5)  # t of 2 degrees; the differences are 1, 2, 3


def test_a_point_of_the_trade_off_is_the_mean_end_and_each_run_has_a_path():
    runs = {0: ([0.2, 0.5, 0.9], [6.0, 9.0, 7.0]), 1: ([0.4, 0.8, 0.7], [4.0, 3.0, 10.0])}
    rows = [made(*numbers, seed=seed).assign(step=[0, 8, 16]) for seed, numbers in runs.items()]
    drawing = figures.tradeoff(pd.concat(rows))
    marks = drawing.marks[drawing.marks["panel"] == "different"]
    paths, points = marks[marks["kind"] == "seed"], marks[marks["kind"] == "point"]
    assert {tuple(zip(path["x"], path["y"], strict=True)) for _, path in paths.groupby("run")} == {
        tuple(zip(*numbers, strict=True)) for numbers in runs.values()
    }
    found = {str(point["label"]): (point["x"], point["y"]) for _, point in points.iterrows()}
    assert found["CoKL"] == pytest.approx((0.8, 8.5))
    assert found["Before training"] == pytest.approx((0.3, 5.0))
    assert "means over 2 seeds" in drawing.caption


def test_the_screen_tells_names_counts_and_what_is_wrong():
    counts = [["Kenya", 30], ["", 20], *[[name, 1] for name in "abcdefghijklmn"]]
    rows = made([44 / 64], [15], "none").assign(answers=json.dumps(counts), question="Name a country in Africa.")
    paths = made([0.25, 44 / 64], [3.0, 15.0], "none")
    shown = figures.screen(rows, paths, "Name a country in Africa.").splitlines()
    assert "After plain RL: 15 different right answers, 69% right" in shown
    assert any(line.split()[:2] == ["Kenya", "30"] and line.count("█") == round(30 * 48 / 64) for line in shown)
    assert any(line.split()[:5] == ["6", "other", "right", "ones", "6"] for line in shown)
    assert any(line.split()[:4] == ["no", "right", "answer", "20"] for line in shown)
    assert [line.split() for line in shown[-3:]] == [
        ["before", "step", "16"],
        ["Plain", "RL:", "right", "25%", "69%"],
        ["different,", "of", "64", "3.0", "15.0"],
    ]
    assert max(map(len, shown)) <= 80
