"""`cokl demo` with a tiny model and questions of one's own: screen, pictures, resume, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cokl_cli.app import main
from cokl_cli.report.page import write
from tests.llm_bridge import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model's folder and a file of questions."""
    folder = tmp_path_factory.mktemp("demo")
    toy.save_untaught(folder / "model", seed=3)
    words = ["cats", "dogs", "owls", "calm", "warm", "I", "and", "of", "two", "are"]
    asked: list[dict[str, Any]] = [
        {"question": f"What do you think of {name} ?", "answers": words} for name in ("cats", "dogs", "owls")
    ]
    asked.append({"question": "Split apples", "answers": words, "held_out": True})
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, asked)))
    return folder


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_the_demo_shows_what_is_answered_before_and_after_and_resumes(folder, tmp_path, capsys):
    files = ("--model", folder / "model", "--questions", folder / "own.jsonl", "--out", tmp_path / "out")
    command = (*files, "--jobs", 1, "--steps", 8)
    assert run(*command) == 0
    first = capsys.readouterr()
    assert "2 runs of 8 steps, 1 at a time" in first.out
    for label in ("Before:", "After plain RL:", "After CoKL:"):
        assert any(line.startswith(label) and "different right answers" in line for line in first.out.splitlines())
    assert (
        first.out.index("64 replies to")
        < first.out.index("Before:")
        < first.out.index("Means over the questions that are trained on")
    )
    for name in ("answers", "training"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 10_000
    report = tmp_path / "report.html"
    write(tmp_path / "out", report)
    assert '<section id="open-questions">' in report.read_text("utf-8")
    assert run(*command) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "8/16" not in again.err
    for option, there, asked in (("beta", "0.03", "0.5"), ("seed", "0", "1")):
        assert run(*command, f"--{option}", asked) == 2
        said = f"holds the results of another configuration ({option}: {there} there, {asked} asked for)"
        assert said in capsys.readouterr().err
    other = tmp_path / "other.jsonl"
    other.write_text((folder / "own.jsonl").read_text("utf-8").replace("cats", "owls"), "utf-8")
    assert run(*(other if word == files[3] else word for word in command)) == 2
    assert len(capsys.readouterr().err) < 400  # not both files' answers
    another = shutil.copytree(folder / "model", tmp_path / "another")
    assert run(*(another if word == files[1] else word for word in command)) == 2
    assert "holds the results of another configuration (model: " in capsys.readouterr().err


def test_a_method_is_stored_under_its_one_name(folder, tmp_path, capsys):
    files = ("--model", folder / "model", "--questions", folder / "own.jsonl", "--out", tmp_path / "out")
    assert run(*files, "--jobs", 1, "--steps", 1, "--methods", "Replay") == 0
    assert "After Replay:" in capsys.readouterr().out
    assert [path.name for path in tmp_path.rglob("*-0.03.parquet")] == ["correct_forward_kl-0.03.parquet"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--methods", "nothing"], "unknown method 'nothing'"),
        (["--methods", "none,grpo,none"], "methods: expected different names"),
        (["--beta", "-1"], "beta: expected a finite coefficient"),
        (["--steps", "0"], "steps: expected at least 1"),
        (["--steps", "1e3"], "--steps INT: expected a whole number, got '1e3'"),
        (["--beta", "small"], "--beta FLOAT: expected a number, got 'small'"),
        (["--seed", "-1"], "seed: expected at least 0"),
        (["--questions", "missing.jsonl"], "missing.jsonl"),
        (["--model", "."], "expected a folder with a model"),
        (["--jobs", "100000"], "GB of memory"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(options, said, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    defaults = {"--model": str(folder / "model"), "--questions": str(folder / "own.jsonl"), "--out": "out"}
    given = {**defaults, options[0]: options[1]}
    assert run(*[word for pair in given.items() for word in pair]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(Path("out").rglob("*.parquet"))
