"""The six sets are made from files in each source's schema; what is wrong with a file is one clear line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cokl.support.errors import InputError
from cokl_cli.commands.llm import Prepare
from llm_bridge.data import sources
from llm_bridge.data.prepare import TABLE_E2, prepare
from llm_bridge.data.rows import SCHEMA
from llm_bridge.experiment.config import PRESETS, REVISIONS

INSTRUCTION = (
    "Solve the following math problem. Please reason step by step, and put your final answer within \\boxed{}.\n\n"
)
PROBLEMS = 51_100


def nemotron_row(number: int, trajectory: int) -> dict:
    return {
        "uuid": f"{number:08d}",
        "expected_answer": str(number),
        "problem": f"What is {number}?",
        "original_expected_answer": str(number),
        "changed_answer_to_majority": False,
        "data_source": "aops",
        "messages": [{"role": "assistant", "content": f"way {trajectory}"}],
        "used_in": ["train"],
        "metadata": {"reason_low_no_tool": {"count": 8, "pass": 4, "accuracy": 0.5}},
        "license": "cc-by-4.0",
        "tools": [],
    }


def math500_row(number: int) -> dict:
    return {
        "problem": f"Compute {number}.",
        "solution": f"It is $\\boxed{{{number}}}$.",
        "answer": str(number),
        "subject": "Algebra",
        "level": 3,
        "unique_id": f"test/algebra/{number}.json",
    }


def olympiad_row(number: int) -> dict:
    return {
        "id": 1600 + number,
        "question": f"Find {number}.",
        "solution": ["So it is."],
        "final_answer": ["$1,-2$"] if number == 1 else ["1", "-2"] if number == 2 else [str(number)],
        "context": "Let $x$ be given." if number == 3 else None,
        "modality": "Text-only",
        "difficulty": "Competition",
        "is_multiple_answer": number == 1,
        "unit": None,
        "answer_type": "Numerical",
        "error": "1e-1" if number == 4 else "0.1,0.5" if number == 2 else None,
        "question_type": "Open-ended",
        "subfield": "Algebra",
        "subject": "Math",
        "language": "English",
    }


def wildchat_row(split: str, number: int) -> dict:
    return {
        "data_source": "wildchat-if",
        "prompt": [{"content": f"Tell me about {split} {number}\n", "role": "user"}],
        "ability": "chat",
        "reward_model": {"style": "model"},
        "extra_info": {"index": number, "split": split},
    }


def write_json_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    rows = [nemotron_row(number, trajectory) for number in range(PROBLEMS) for trajectory in range(2)]
    rows.append(nemotron_row(7, 0) | {"uuid": "another"})
    rows.append(nemotron_row(PROBLEMS, 0) | {"expected_answer": ""})
    write_json_lines(folder / "nvidia/Nemotron-Math-v2/data/low.jsonl", rows)
    write_json_lines(folder / "HuggingFaceH4/MATH-500/test.jsonl", [math500_row(number) for number in range(500)])
    olympiad = folder / "Hothan/OlympiadBench" / sources.OLYMPIAD_FILE
    write_parquet(olympiad, [olympiad_row(number) for number in range(674)])
    for split, count in [("train", 7544), ("val", 250)]:
        path = folder / "princeton-pli/RLMT" / sources.WILDCHAT_FILES[split]
        write_parquet(path, [wildchat_row(split, number) for number in range(count)])
    return folder


@pytest.fixture(scope="module")
def prepared(data_dir, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared")
    prepare(out, data_dir)
    return out


@pytest.fixture
def broken(data_dir, tmp_path):
    """A folder of links to all copies, in which one may be replaced."""
    for path in data_dir.rglob("*.*"):
        if path.is_file():
            link = tmp_path / "copies" / path.relative_to(data_dir)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return tmp_path / "copies"


def replace(path, write, rows):
    path.unlink()
    write(path, rows)


def test_all_sets_have_table_e2s_counts_and_one_schema(prepared):
    for name, count in TABLE_E2.items():
        path = prepared / f"{name}.parquet"
        assert pq.read_metadata(path).num_rows == count
        assert pq.read_schema(path) == SCHEMA


def test_every_source_is_pinned_to_a_commit():
    known = (sources.NEMOTRON, sources.MATH500, sources.OLYMPIAD, sources.WILDCHAT)
    assert all(re.fullmatch("[0-9a-f]{40}", source.revision) for source in known)


def test_trajectories_of_one_problem_count_once_and_validation_is_apart(prepared):
    train, val = (
        {row["prompt"][0]["content"]: row for row in pq.read_table(prepared / f"math_{split}.parquet").to_pylist()}
        for split in ("train", "val")
    )
    assert len(train) == 50_000
    assert len(val) == 1_000
    assert not set(train) & set(val)
    for prompt, row in (train | val).items():
        number = row["reward_model"]["ground_truth"]
        assert prompt == f"{INSTRUCTION}What is {number}?"
        assert row["extra_info"]["source_id"] == f"{int(number):08d}"


def test_olympiad_keeps_lists_contexts_and_tolerances(prepared):
    rows = pq.read_table(prepared / "olympiad.parquet").to_pylist()
    answers = [row["reward_model"]["ground_truth"] for row in rows[:5]]
    assert answers == ["0", "$1,-2$", "1, -2", "3", "4"]
    assert [row["extra_info"]["multiple"] for row in rows[:5]] == [False, True, True, False, False]
    assert [row["extra_info"]["tolerances"] for row in rows[:5]] == [[], [], [0.1, 0.5], [], [0.1]]
    assert rows[3]["prompt"] == [{"role": "user", "content": f"{INSTRUCTION}Let $x$ be given.\n\nFind 3."}]
    assert rows[3]["extra_info"]["source_id"] == "1603"


def test_math500_and_chat_are_taken_as_they_are(prepared):
    row = pq.read_table(prepared / "math500.parquet").to_pylist()[42]
    assert row["prompt"][0]["content"] == f"{INSTRUCTION}Compute 42."
    assert row["reward_model"] == {"style": "rule", "ground_truth": "42"}
    row = pq.read_table(prepared / "chat_val.parquet").to_pylist()[9]
    assert row["prompt"] == [{"role": "user", "content": "Tell me about val 9\n"}] == row["extra_info"]["conversation"]
    assert row["extra_info"]["source_id"] == "val/9"
    assert row["data_source"] == "chat_val"


def test_the_draw_depends_on_the_seed_alone(prepared, data_dir, broken, tmp_path, monkeypatch):
    low = broken / "nvidia/Nemotron-Math-v2/data/low.jsonl"
    backwards = low.read_text().splitlines(keepends=True)[::-1]
    low.unlink()
    low.write_text("".join(backwards))
    prepare(tmp_path / "a", broken)
    monkeypatch.setattr("llm_bridge.data.prepare.DRAW_SEED", 1)
    prepare(tmp_path / "b", data_dir)
    again, other, first = (
        {name: (folder / f"{name}.parquet").read_bytes() for name in TABLE_E2}
        for folder in (tmp_path / "a", tmp_path / "b", prepared)
    )
    assert again == first
    assert {name for name in TABLE_E2 if other[name] != first[name]} == {"math_train", "math_val"}


def test_what_is_there_is_not_made_again(prepared, tmp_path):
    prepare(prepared, tmp_path / "nowhere")


MATH500 = "HuggingFaceH4/MATH-500/test.jsonl"
OLYMPIAD = f"Hothan/OlympiadBench/{sources.OLYMPIAD_FILE}"
CHAT = f"princeton-pli/RLMT/{sources.WILDCHAT_FILES['val']}"


@pytest.mark.parametrize(
    ("file", "write", "rows", "message"),
    [
        (MATH500, write_json_lines, [{"problem": "1"}], "not as expected .KeyError: 'unique_id'.*pinned revision"),
        (MATH500, write_json_lines, [math500_row(1)], "math500: expected 500 rows .*, got 1"),
        (MATH500, write_json_lines, [7], "not as expected .TypeError"),
        (OLYMPIAD, write_parquet, [{"id": 1}], "not as expected .KeyError: 'context'"),
        (OLYMPIAD, write_parquet, [olympiad_row(0) | {"error": "small"}], "could not convert string to float: 'small'"),
        (CHAT, write_parquet, [wildchat_row("val", 0) | {"extra_info": None}], "not as expected"),
        (CHAT, write_parquet, [wildchat_row("val", 0)], "chat_val: expected 250 rows .*, got 1"),
        (CHAT, write_json_lines, [], "not as expected .ArrowInvalid"),
    ],
)
def test_a_wrong_file_is_one_clear_line_and_nothing_is_written(broken, tmp_path, file, write, rows, message):
    replace(broken / file, write, rows)
    with pytest.raises(InputError, match=message) as error:
        prepare(tmp_path / "out", broken)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_copy_is_named_with_its_revision(tmp_path):
    with pytest.raises(InputError, match=rf"wildchat-if_train.parquet is missing: .*{sources.WILDCHAT.revision}"):
        prepare(tmp_path / "out", tmp_path)


def test_prepare_fetches_the_models_at_their_commits_too(data_dir, monkeypatch, tmp_path, capsys):
    fetched: set[tuple[str, ...]] = set()

    def model(name, revision, allow_patterns):
        fetched.add((name, revision))
        return str(tmp_path / name)

    monkeypatch.setattr("huggingface_hub.snapshot_download", model)
    config = PRESETS["qwen3-0.6b"]
    assert Prepare(preset="qwen3-0.6b", settings=config, out=tmp_path / "out", data_dir=data_dir).run() == 0
    assert fetched == {(name, REVISIONS[name]) for name in (config.model, config.reward_model)}
    assert (tmp_path / "out" / "data" / "done").is_file()
    assert capsys.readouterr().out.count("model: ") == 2


@pytest.mark.parametrize("source", [sources.MATH500, sources.WILDCHAT])
def test_without_network_the_way_out_is_said(monkeypatch, tmp_path, source):
    import socket

    def refuse(*_args, **_kwargs):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the hub tries again, 23 s in all
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r"cannot download some.file of .*give --data-dir DIR") as error:
        source.file("some.file", None)
    assert "\n" not in str(error.value)


def test_a_download_is_the_first_use_of_the_hubs_package(tmp_path):
    """Its parts are loaded when they are named. A file that is there needs no network."""
    source = sources.WILDCHAT
    place = tmp_path / "cokl" / source.repository / source.revision
    place.mkdir(parents=True)
    (place / "rows").write_text("")
    code = "from llm_bridge.data import sources; print(sources.WILDCHAT.file('rows', None))"
    environment = {**os.environ, "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(place / "rows")
