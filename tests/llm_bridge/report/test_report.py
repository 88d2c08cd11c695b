"""Tables and the figure from an experiment's results, whole and with parts missing."""

import re

import numpy as np
import pandas as pd
import pytest

from cokl.support.errors import InputError
from llm_bridge.experiment.config import MATH_SETS
from llm_bridge.report import figures as llm
from llm_bridge.report.results import Results, read_results, save_results
from llm_bridge.report.tables import Table, result_tables, to_markdown, write_tables
from tests.oracles import llm_tables

METHODS = ("cokl", "grpo", "forward_kl", "cokl_floor", "base", "cokl_without_term1", "correct_forward_kl")


def results() -> Results:
    """Results of every kind: CoKL and forward KL are searched over beta."""
    rng = np.random.default_rng(0)
    scores, dynamics, groups = [], [], []
    for method in METHODS:
        settings = [(0.0 if method in ("base", "grpo") else 1.0, 1)]
        settings += [(10.0, 0), (0.1, 0)] if method in ("cokl", "forward_kl") else []
        scores += [["m", method, b, main, *rng.integers(0, 99, 3) / 8, rng.normal()] for b, main in settings]
        dynamics += [["m", method, step, rng.random(), rng.random()] for step in (50, 0)]
        groups.append(["m", method, 64, rng.integers(0, 64)])
    return Results(
        pd.DataFrame(scores, columns=["model", "method", "beta", "main", *MATH_SETS, "chat_val"]),
        pd.DataFrame(dynamics, columns=["model", "method", "step", "math_val", "chat_val"]),
        pd.DataFrame(groups, columns=["model", "method", "groups", "zero_correct_groups"]),
    )


def scores_alone(scores: pd.DataFrame) -> Results:
    return Results(scores, *[pd.DataFrame()] * 2)


def tables(of: Results) -> dict[str, Table]:
    return {table.name: table for table in result_tables(of)}


def test_results_survive_saving_and_reading(tmp_path):
    saved = results()
    save_results(saved, tmp_path)
    read = read_results(tmp_path)
    assert read.math_columns == MATH_SETS
    for name, table in vars(saved).items():
        pd.testing.assert_frame_equal(getattr(read, name), table, check_exact=True)


def test_strata_are_reported_apart_and_never_averaged():
    columns = ["model", "method", "beta", "main", "known", "unknown", "chat_val", "distinct"]
    rows = [["s", "base", 0.0, 1, 90.0, 3.0, 59.0, 4.0], ["s", "grpo", 0.0, 1, 1.0, 0.0, 98.0, 0.5]]
    rows += [["s", "cokl", beta, int(beta == 1), 50 * beta, 6.0, 97.0, 2.5] for beta in (1.0, 0.1)]
    made = tables(scores_alone(pd.DataFrame(rows, columns=columns)))
    assert made["raw"].frame.to_numpy().tolist() == [[*row[:2], *row[4:]] for row in rows[:3]]
    assert made["beta_search"].frame["known"].tolist() == [5, 50]
    assert made["normalized"].frame.empty
    assert "Overall" not in "".join(map(to_markdown, made.values()))


def test_tables_are_the_definitions():
    source = results()
    made = tables(source)
    rows = source.scores[source.scores["main"] == 1].to_dict("records")
    assert made["raw"].frame["method"].tolist() == [
        "base", "grpo", *(name for name in METHODS if name not in ("base", "grpo"))
    ]  # fmt: skip
    expected = {row["method"]: row for row in llm_tables.normalized(rows, list(MATH_SETS))}
    for row in made["normalized"].frame.to_dict("records"):
        for name, value in expected[row["method"]].items():
            assert row[name] == value if isinstance(value, str) else row[name] == pytest.approx(value)
    for row, counts in zip(
        made["zero_correct"].frame.to_dict("records"), source.zero_correct.to_dict("records"), strict=True
    ):
        assert row["zero_correct"] == pytest.approx(100 * counts["zero_correct_groups"] / counts["groups"])
        assert row["zero_correct"] + row["at_least_one"] == pytest.approx(100)
    search = made["beta_search"].frame
    assert list(zip(search["method"], search["beta"], strict=True)) == [
        (method, beta) for method in ("cokl", "forward_kl") for beta in (0.1, 1, 10)
    ]
    of_cokl = source.scores[source.scores["method"] == "cokl"].set_index("beta")
    for row in search[search["method"] == "cokl"].to_dict("records"):
        math = sum(of_cokl.loc[row["beta"], name] for name in MATH_SETS) / 3
        assert row["overall"] == pytest.approx((math + of_cokl.loc[row["beta"], "chat_val"]) / 2)


def test_methods_without_rollout_groups_have_no_rate():
    source = results()
    counts = source.zero_correct.assign(groups=[0, 8, 0, 8, 8, 8, 8], zero_correct_groups=[0, 0, 0, 8, 4, 2, 1])
    frame = tables(Results(source.scores, source.dynamics, counts))["zero_correct"].frame
    assert list(frame["zero_correct"]) == [0, 100, 50, 25, 12.5]


@pytest.mark.parametrize("name", ["raw", "normalized", "beta_search"])
def test_marks_are_the_best_and_second_best_printed_numbers(name):
    table = tables(results())[name]
    marks, frame = table.marks(), table.frame
    within = ["model", "method"] if name == "beta_search" else ["model"]
    anchors = {"raw": ("base", "grpo"), "normalized": ("base",)}.get(name, ())
    rows = frame.to_dict("records")
    ranked = [*MATH_SETS, "math_avg", "chat_val", "overall"]
    for i, row in enumerate(rows):
        for column in ranked:
            rivals = [other[column] for other in rows
                      if all(other[key] == row[key] for key in within) and other["method"] not in anchors]  # fmt: skip
            expected = "" if row["method"] in anchors else llm_tables.mark(row[column], rivals)
            assert marks[column].iloc[i] == expected
    assert (marks == "best").to_numpy().sum() >= len(ranked)
    assert not marks[["model", "method"]].to_numpy().any()


def test_equal_printed_numbers_share_a_mark():
    frame = pd.DataFrame({"model": "m", "method": ["cokl", "forward_kl", "reverse_kl"], "overall": [1.001, 1.004, 0.9]})
    assert list(Table("floor", frame).marks()["overall"]) == ["best", "best", ""]


def test_markdown_shows_the_numbers():
    for table in result_tables(results()):
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")][2:]
        shown = [[re.sub(r"\*\*|</?u>", "", cell.strip()) for cell in line.strip("|").split("|")] for line in lines]
        assert shown == table.cells().to_numpy().tolist()


@pytest.mark.parametrize("kept", [["base"], ["cokl"], ["base", "grpo"]])
def test_what_is_missing_is_said_and_the_rest_is_shown(kept, tmp_path):
    scores = results().scores
    few = scores_alone(scores[scores["method"].isin(kept) & (scores["main"] == 1)])
    write_tables(result_tables(few), tmp_path)
    said = (tmp_path / "tables.md").read_text()
    assert ("m: no row for the anchor method" in said) == (len(kept) == 1)
    for note in ("no groups were counted", "no method has scores for two values of beta"):
        assert note in said
    assert len(pd.read_csv(tmp_path / "raw.csv")) == len(kept)
    assert llm.draw(few) == {}


def test_written_tables_keep_every_digit(tmp_path):
    write_tables(result_tables(results()), tmp_path)
    for name, table in tables(results()).items():
        written = pd.read_csv(tmp_path / f"{name}.csv")
        pd.testing.assert_frame_equal(written, table.frame, check_dtype=False, check_exact=True)


def test_an_earlier_runs_tables_do_not_stay(tmp_path):
    for of in (results(), scores_alone(results().scores)):
        save_results(of, tmp_path / "results")
        write_tables(result_tables(of), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*/*.csv")) == ["scores.csv"]
    assert not (tmp_path / "zero_correct.csv").exists()
    assert (tmp_path / "raw.csv").exists()


def test_a_folder_without_results_says_so_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"expected scores\.csv"):
        read_results(tmp_path)
    (tmp_path / "scores.csv").write_text("model,method,beta\nm,base,0\n")
    with pytest.raises(InputError, match="no column 'main'"):
        read_results(tmp_path)
    (tmp_path / "scores.csv").write_text("")
    with pytest.raises(InputError, match="no CSV table"):
        read_results(tmp_path)


def test_the_figure_draws_the_results():
    source = results()
    math, _, mean = llm.draw(source)["llm_training_dynamics"].axes
    rows = source.dynamics[source.dynamics["method"] == "cokl"].sort_values("step")
    drawn = [{line.get_label(): np.asarray(line.get_xydata()) for line in axes.lines} for axes in (math, mean)]
    np.testing.assert_allclose(drawn[0]["CoKL"], rows[["step", "math_val"]])
    np.testing.assert_allclose(drawn[1]["CoKL"][:, 1], rows[["math_val", "chat_val"]].mean(axis=1))


def test_where_forms_are_counted_the_figure_draws_accuracy_over_them_in_the_steps_order():
    source = results()
    forms = source.dynamics.assign(distinct=source.dynamics["step"].map({0: 5.0, 50: 2.0}))
    drawing = llm.dynamics(Results(source.scores, forms, source.zero_correct))
    path = drawing.marks.query("panel == 'last' and method == 'cokl'")
    assert path["x"].tolist() == [5.0, 2.0]
    assert path["y"].tolist() == forms[forms["method"] == "cokl"].sort_values("step")["math_val"].tolist()
    assert drawing.panels["last"].x == "Different right answers"
