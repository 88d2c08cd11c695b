"""Dual-anchor normalization of anyone's scores, as a table and as a command."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cokl_cli.app import main
from llm_bridge.paper.numbers import PAPER
from llm_bridge.report.normalize import normalize, reversed_anchors
from tests.oracles import llm_tables

MATH = ["math_val", "math500", "olympiad"]
GOOD = """model,method,math_val,math500,olympiad,chat_val
tiny,base,30,70,34,-12
tiny,cokl,20,65,24,70
tiny,grpo,2,6,4,72
"""


@st.composite
def score_rows(draw) -> list[dict]:
    """Two models with anchors apart on every column, and up to three more methods, in any order."""
    score = st.integers(-9999, 9999).map(lambda value: value / 100)
    rows = []
    for model in ("small", "large"):
        base = {name: draw(score) for name in (*MATH, "chat_val")}
        gap = st.integers(1, 9999).map(lambda value: value / 100)
        grpo = {name: value + draw(st.sampled_from((-1, 1))) * draw(gap) for name, value in base.items()}
        anchors = [{"model": model, "method": "base", **base}, {"model": model, "method": "grpo", **grpo}]
        methods = draw(st.lists(st.sampled_from(("cokl", "forward_kl", "my method")), unique=True))
        others = [{"model": model, "method": name, **{c: draw(score) for c in (*MATH, "chat_val")}} for name in methods]
        rows += draw(st.permutations([*anchors, *others]))
    return rows


@settings(max_examples=20)
@given(score_rows())
def test_agrees_with_the_definition(rows):
    table = normalize(pd.DataFrame(rows), MATH)
    expected = pd.DataFrame(llm_tables.normalized(rows, MATH))
    pd.testing.assert_frame_equal(table, expected, check_like=True, rtol=1e-9, atol=1e-9)
    base = table[table["method"] == "base"][[*MATH, "chat_val"]].to_numpy()
    assert (base == [100, 100, 100, 0]).all()
    grpo = table[table["method"] == "grpo"][[*MATH, "chat_val"]].to_numpy()
    assert (grpo == [0, 0, 0, 100]).all()


@settings(max_examples=20)
@given(score_rows(), st.sampled_from([0.5, -2.0, 4.0]), st.integers(-50, 50))
def test_does_not_depend_on_a_scores_unit_and_origin(rows, scale, shift):
    frame = pd.DataFrame(rows)
    moved = frame.assign(**{name: scale * frame[name] + shift for name in (*MATH, "chat_val")})
    pd.testing.assert_frame_equal(normalize(moved, MATH), normalize(frame, MATH), rtol=1e-6, atol=1e-6)


def test_anchors_the_wrong_way_round_are_said():
    frame = pd.DataFrame(
        [["m", "base", 10.0, 5.0, 1.0], ["m", "grpo", 12.0, 4.0, 0.0]],
        columns=["model", "method", "a", "b", "chat_val"],
    )
    first, second = reversed_anchors(frame, ["a", "b"])
    assert "lost nothing on a" in first
    assert "gained nothing on chat_val" in second
    assert reversed_anchors(frame.assign(a=[12.0, 10.0], chat_val=[0.0, 1.0]), ["a", "b"]) == []


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and errors of `cokl llm ...`."""
    with pytest.raises(SystemExit) as ended:
        main(["llm", *map(str, arguments)])
    return ended.value.code, *capsys.readouterr()


def test_command_prints_and_writes_the_papers_table(capsys, tmp_path):
    out = tmp_path / "normalized.csv"
    code, screen, errors = run(capsys, "normalize", PAPER / "raw.csv", "--out", out)
    assert (code, errors) == (0, "")
    written, printed = pd.read_csv(out), pd.read_csv(PAPER / "normalized.csv")
    assert list(written.columns) == list(printed.columns)
    assert (written[["model", "method"]] == printed[["model", "method"]]).all(axis=None)
    np.testing.assert_allclose(written.iloc[:, 2:], printed.iloc[:, 2:], rtol=0, atol=0.005 + 1e-9)
    assert "86.47*" in screen
    assert "84.10+" in screen


def test_other_math_columns_the_other_anchor_name_and_other_formats(capsys, tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("extra,model, method ,aime,chat_val\nx,m,base,50,0\nx,m,none,10,20\nx,m,Some_method,40,15\n")
    assert run(capsys, "normalize", scores, "--math-columns", "aime", "--out", tmp_path / "t.md")[0] == 0
    assert "**75.00**" in (tmp_path / "t.md").read_text()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("olympiad", "olymp", "no column 'olympiad'; expected model, method, math_val, math500, olympiad, chat_val"),
        ("tiny,base,30,70,34,-12\n", "", "tiny: no row for the anchor method base; expected one"),
        ("tiny,grpo", "tiny,dapo", "tiny: no row for the anchor method grpo or none; expected one"),
        ("tiny,cokl", "tiny,none", "tiny: more than one row for the anchor method grpo or none; expected one"),
        ("tiny,cokl", "tiny,base", "row 2 is a second row for model tiny, method base; expected one"),
        ("tiny,cokl", "other,cokl", "other: no row for the anchor method base; expected one"),
        ("65,", "a lot,", "row 2, math500: expected a finite number of at most 1e+100, got 'a lot'"),
        ("65,", ",", "row 2, math500: expected a finite number of at most 1e+100, got ''"),
        ("65,", "inf,", "row 2, math500: expected a finite number of at most 1e+100, got 'inf'"),
        ("tiny,cokl", ",cokl", "row 2 has no model"),
        ("cokl,20,65,24,70", "cokl,20", "row 2, math500: expected a finite number of at most 1e+100, got ''"),
        ("cokl,20,65,24,70", "cokl,20,65,24,70,8,9", "is not a readable CSV file"),
        ("math_val,", "math500,", "no column 'math_val'"),
        ("olympiad,chat_val", "olympiad,olympiad", "no column 'chat_val'"),
        ("tiny,grpo,2,", "tiny,grpo,30,", "tiny, math_val: the anchors base and grpo score the same"),
        (GOOD, "", "is not a readable CSV file"),
        (GOOD[GOOD.index("\n") :], "\n", "no rows; expected one for each model and method"),
    ],
)
def test_defects_of_the_file_are_one_clear_line(capsys, tmp_path, old, new, says):
    assert old in GOOD
    scores = tmp_path / "scores.csv"
    scores.write_text(GOOD.replace(old, new, 1))
    code, screen, errors = run(capsys, "normalize", scores, "--out", tmp_path / "out.csv")
    (line,) = errors.splitlines()
    assert (code, screen) == (2, "")
    assert line.startswith("cokl: error: ")
    assert says in line
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.csv"], "no file"),
        (["scores.csv", "--math-columns"], "math-columns: expected at least one column"),
        (["scores.csv", "--math-columns", "math500,math500"], "math-columns: expected different columns"),
        (["scores.csv", "--math-columns", "chat_val"], "math-columns: expected different columns other than chat_val"),
        (["scores.csv", "--out", "out.xlsx"], "out: expected a name that ends in .csv or .md, got out.xlsx"),
    ],
)
def test_wrong_options_are_one_clear_line(capsys, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores.csv").write_text(GOOD)
    code, screen, errors = run(capsys, "normalize", *arguments)
    assert (code, screen) == (2, "")
    (line,) = errors.splitlines()
    assert says in line


def test_a_column_given_twice_is_refused(capsys, tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text(GOOD.replace("\n", ",1\n").replace("chat_val,1", "chat_val,math500"))
    assert "column 'math500' is there twice" in run(capsys, "normalize", scores)[2]
