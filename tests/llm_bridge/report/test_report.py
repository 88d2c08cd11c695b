"""Tables and figures from an experiment's results, whole and with parts missing."""

import re

import numpy as np
import pandas as pd
import pytest

from cokl.support.errors import InputError
from llm_bridge.experiment.config import MATH_SETS
from llm_bridge.report import figures as llm
from llm_bridge.report.result_tables import main_scores, result_tables, sweep
from llm_bridge.report.results import Results, read_results, save_results
from llm_bridge.report.tables import Table, to_markdown, to_screen, write_tables
from tests.oracles import llm_tables

SETTING = ["model", "method", "beta", "kl_prompts"]
METHODS = ("cokl", "grpo", "forward_kl", "cokl_floor", "base", "cokl_without_term1", "cokl_without_term2")


def results(models: tuple[str, ...] = ("tiny_1", "large")) -> Results:
    """Results of every kind: CoKL swept over beta and batch size, forward KL over beta."""
    rng = np.random.default_rng(0)
    scores, dynamics, groups, costs = [], [], [], []
    for model in models:
        for method in METHODS:
            beta, prompts = (0.0, 0) if method in ("base", "grpo") else (1.0, 8)
            settings = [(beta, prompts, 1)]
            settings += [(0.1, 8, 0), (10.0, 8, 0)] if method in ("cokl", "forward_kl") else []
            settings += [(1.0, 32, 0), (0.1, 32, 0)] if method == "cokl" else []
            scores += [
                [model, method, b, k, main, *rng.integers(0, 99, 3) / 8, rng.normal()] for b, k, main in settings
            ]
            dynamics += [
                [model, method, b, 8, step, rng.random(), rng.random()] for b, _, _ in settings for step in (50, 0)
            ]
            groups.append([model, method, 64, rng.integers(0, 64)])
            costs.append([model, method, 100 * rng.random(), 2000 * rng.random()])
    return Results(
        pd.DataFrame(scores, columns=[*SETTING, "main", *MATH_SETS, "chat_val"]),
        pd.DataFrame(dynamics, columns=[*SETTING, "step", "math_val", "chat_val"]).drop_duplicates([*SETTING, "step"]),
        pd.DataFrame(groups, columns=["model", "method", "groups", "zero_correct_groups"]),
        pd.DataFrame(costs, columns=["model", "method", "first_step_seconds", "mean_length"]),
    )


def tables(of: Results) -> dict[str, Table]:
    return {table.name: table for table in result_tables(of)}


def test_results_survive_saving_and_reading(tmp_path):
    saved = results()
    save_results(saved, tmp_path)
    read = read_results(tmp_path)
    for name in ("scores", "dynamics", "zero_correct", "costs"):
        expected = getattr(saved, name).reset_index(drop=True)
        pd.testing.assert_frame_equal(getattr(read, name), expected, check_dtype=False, check_exact=True)


def test_tables_are_the_definitions():
    source = results()
    made = tables(source)
    rows = source.scores[source.scores["main"] == 1].to_dict("records")
    assert len(made["raw"].frame) == 2 * len(METHODS)
    expected = {(row["model"], row["method"]): row for row in llm_tables.normalized(rows, list(MATH_SETS))}
    for row in made["normalized"].frame.to_dict("records"):
        for name, value in expected[row["model"], row["method"]].items():
            assert row[name] == value if isinstance(value, str) else row[name] == pytest.approx(value)
    for name, methods in (("ablation", {"cokl", "cokl_without_term1", "cokl_without_term2"}),
                          ("floor", {"cokl", "cokl_floor"})):  # fmt: skip
        frame = made[name].frame
        assert set(zip(frame["model"], frame["method"], strict=True)) == {
            (model, method) for model in ("tiny_1", "large") for method in methods
        }
        for row in frame.to_dict("records"):
            assert row["overall"] == pytest.approx(expected[row["model"], row["method"]]["overall"])
    for row, counts in zip(
        made["zero_correct"].frame.to_dict("records"), source.zero_correct.to_dict("records"), strict=True
    ):
        assert row["zero_correct"] == pytest.approx(100 * counts["zero_correct_groups"] / counts["groups"])
        assert row["zero_correct"] + row["at_least_one"] == pytest.approx(100)


def test_methods_without_rollout_groups_have_no_rate():
    source = results(("m",))
    counts = source.zero_correct.assign(groups=[0, 8, 0, 8, 8, 8, 8], zero_correct_groups=[0, 0, 0, 8, 4, 2, 1])
    frame = tables(Results(source.scores, zero_correct=counts))["zero_correct"].frame
    assert list(frame["zero_correct"]) == [0, 100, 50, 25, 12.5]


def test_anchors_come_first_and_models_stay_in_order():
    frame = main_scores(results())
    assert list(frame["model"]) == ["tiny_1"] * 7 + ["large"] * 7
    assert list(frame["method"][:4]) == ["base", "grpo", "cokl", "forward_kl"]


def test_sweeps_vary_one_setting_alone():
    beta = sweep(results(("m",)), "beta")
    assert list(zip(beta["method"], beta["beta"], strict=True)) == [
        ("cokl", 0.1), ("cokl", 1), ("cokl", 10), ("forward_kl", 0.1), ("forward_kl", 1), ("forward_kl", 10)
    ]  # fmt: skip
    batch = sweep(results(("m",)), "kl_prompts")
    assert list(zip(batch["method"], batch["kl_prompts"], strict=True)) == [("cokl", 8), ("cokl", 32)]
    source = results(("m",)).scores
    row = source[(source["method"] == "cokl") & (source["kl_prompts"] == 32) & (source["beta"] == 1)].iloc[0]
    assert batch["math_avg"].iloc[1] == sum(row[name] for name in MATH_SETS) / 3
    assert batch["overall"].iloc[1] == (batch["math_avg"].iloc[1] + row["chat_val"]) / 2


@pytest.mark.parametrize("name", ["raw", "normalized", "ablation", "floor", "beta_search", "kl_batch"])
def test_marks_are_the_best_and_second_best_printed_numbers(name):
    table = tables(results())[name]
    marks, frame = table.marks(), table.frame
    within = ["model", "method"] if name in ("beta_search", "kl_batch") else ["model"]
    anchors = {"raw": ("base", "grpo"), "normalized": ("base",)}.get(name, ())
    rows = frame.to_dict("records")
    for i, row in enumerate(rows):
        for column in table.ranked:
            rivals = [other[column] for other in rows
                      if all(other[key] == row[key] for key in within) and other["method"] not in anchors]  # fmt: skip
            expected = "" if row["method"] in anchors else llm_tables.mark(row[column], rivals)
            assert marks[column].iloc[i] == expected
    assert (marks == "best").to_numpy().sum() >= len(table.ranked)


def test_equal_printed_numbers_share_a_mark():
    frame = pd.DataFrame({"model": "m", "method": ["cokl", "forward_kl", "reverse_kl"], "overall": [1.001, 1.004, 0.9]})
    marks = Table("t", "T", frame, ("overall",)).marks()["overall"]
    assert list(marks) == ["best", "best", ""]


def cells_of(line: str, mark: str) -> list[str]:
    return [cell.strip() for cell in re.split(mark, line.strip().strip("|"))]


def test_every_format_shows_the_same_numbers():
    for table in result_tables(results()):
        numbers = table.cells().to_numpy().tolist()
        screen = to_screen(table).splitlines()[2:]
        markdown = [cells_of(line, r"\|") for line in to_markdown(table).splitlines() if line.startswith("|")][2:]
        for row, on_screen, in_markdown in zip(numbers, screen, markdown, strict=False):
            assert [re.sub(r"[*+]$", "", cell) for cell in re.split(r" {2,}", on_screen.strip())] == row
            assert [re.sub(r"\*\*|</?u>", "", cell) for cell in in_markdown] == row
        assert len(markdown) == len(numbers)


def test_missing_anchors_and_methods_are_said_and_the_rest_is_shown():
    source = results()
    scores = source.scores
    gone = (scores["model"] == "large") & (scores["method"] == "base")
    gone |= (scores["model"] == "tiny_1") & (scores["method"] == "cokl_without_term2")
    made = tables(Results(scores[~gone]))
    assert set(made["normalized"].frame["model"]) == {"tiny_1"}
    assert "large: no row for the anchor method base; expected one" in to_screen(made["normalized"])
    assert "tiny_1: no normalized scores of cokl_without_term2" in to_markdown(made["ablation"])
    assert len(made["ablation"].frame) == 2
    assert made["raw"].frame["model"].nunique() == 2
    assert "no groups were counted" in to_screen(made["zero_correct"])
    assert "no step was timed" in to_markdown(made["cost"])


@pytest.mark.parametrize("kept", [[], ["base"], ["cokl"], ["base", "grpo"]])
def test_almost_nothing_still_makes_a_report(kept, tmp_path):
    scores = results(("m",)).scores
    few = Results(scores[scores["method"].isin(kept) & (scores["main"] == 1)])
    write_tables(result_tables(few), tmp_path)
    for name in ("tables.txt", "tables.md"):
        assert (tmp_path / name).read_text().count("no normalized scores of cokl") >= ("cokl" not in kept)
    assert llm.draw(few) == {}


def test_written_tables_keep_every_digit(tmp_path):
    write_tables(result_tables(results()), tmp_path)
    for name, table in tables(results()).items():
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / f"{name}.csv"), table.frame, check_dtype=False)


def test_results_are_held_to_their_columns_and_one_main_setting(tmp_path):
    source = results()
    source.costs.drop(columns="mean_length").to_csv(tmp_path / "costs.csv", index=False)
    for scores, says in (
        (source.scores.drop(columns="chat_val"), r"scores\.csv: no column 'chat_val'"),
        (
            source.scores.assign(chat_val="good"),
            r"scores\.csv: row 1, chat_val: expected a finite number .* got 'good'",
        ),
        (source.scores, r"costs\.csv: no column 'mean_length'"),
    ):
        scores.to_csv(tmp_path / "scores.csv", index=False)
        with pytest.raises(InputError, match=says):
            read_results(tmp_path)
    with pytest.raises(InputError, match="tiny_1 has more than one main setting of cokl"):
        Results(source.scores.assign(main=1))


def points(axes) -> dict[str, list]:
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines if not line.get_label().startswith("_")}


def test_figures_draw_the_results():
    source = results(("m",))
    figures = llm.draw(source)
    assert list(figures) == ["llm_training_dynamics", "llm_beta", "llm_kl_batch"]
    math, _, mean = figures["llm_training_dynamics"].axes
    main = source.dynamics[(source.dynamics["method"] == "cokl") & (source.dynamics["beta"] == 1)].sort_values("step")
    assert points(math)["CoKL"] == main[["step", "math_val"]].to_numpy().tolist()
    assert points(mean)["CoKL"][1][1] == pytest.approx(main[["math_val", "chat_val"]].iloc[1].mean())
    _, _, overall = figures["llm_kl_batch"].axes
    assert points(overall)["CoKL"] == sweep(source, "kl_prompts")[["kl_prompts", "overall"]].to_numpy().tolist()
    raw = tables(source)["raw"].frame.set_index("method")
    assert {y for _, y in points(overall)["Base"]} == {raw.loc["base", "overall"]}
    assert len(llm.draw(results())["llm_beta"].axes) == 6


def test_a_folder_without_results_says_so_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"expected scores\.csv"):
        read_results(tmp_path)
