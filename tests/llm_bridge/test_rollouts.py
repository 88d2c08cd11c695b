"""What VeRL and TRL log of their rollouts: kept whole, or one line with file, line and what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("transformers")

import torch

from cokl.support.errors import InputError
from llm_bridge.buffer.bring_buffer import bring_buffer
from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.rollouts import rows_of
from tests.llm_bridge.toy import make_model, make_tokenizer

TOKENIZER = make_tokenizer()
TOKENIZER.add_tokens(["café"])
END, CAFE = TOKENIZER.eos_token_id, TOKENIZER.convert_tokens_to_ids("café")
TEXTS = ["\\boxed{4}", "\\boxed{5}", "\\boxed{6}", "5 + 5 \\boxed{4}"]
IDS = [[*TOKENIZER(text)["input_ids"], END] for text in TEXTS]


def user(text: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text, **more}]


def said(text: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, **more}]


def asked(text: Any = "2 + 2", truth: Any = "4", **more: Any) -> dict[str, Any]:
    """A row of a training file of VeRL's."""
    return {"data_source": "sums", "prompt": user(text), "reward_model": {"ground_truth": truth}, **more}


ASKED = [asked(), asked("2 + 3", "5"), asked("café ?", "5", extra_info={"index": 7})]


def line(**changes: Any) -> dict[str, Any]:
    """What VeRL logs of a rollout. A change of ... takes the field away."""
    asked = TOKENIZER.decode(TOKENIZER("<|user|>2 + 2<|im_end|><|assistant|>")["input_ids"], skip_special_tokens=True)
    fields = {"input": asked, "output": TEXTS[0], "gts": "4", "score": 1.0, "step": 1}
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def logged(**changes: Any) -> dict[str, Any]:
    """What TRL logs of one."""
    return {"step": 1, "prompt": user("2 + 2"), "completion": said(TEXTS[0]), "right": 1.0, "advantage": 0.0} | changes


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("answered") / "model"
    torch.manual_seed(0)
    make_model(TOKENIZER).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.fixture
def convert(model, tmp_path):
    """A function of rollouts, as bytes or as records, and of the prompts' records."""

    def convert(rollouts: bytes | list[Any], prompts: bytes | list[Any] = ASKED, reward: str = "score") -> pa.Table:
        for name, content in (("rollouts.jsonl", rollouts), ("prompts.jsonl", prompts)):
            lines = content if isinstance(content, bytes) else "\n".join(map(json.dumps, content)).encode()
            (tmp_path / name).write_bytes(lines)
        return rows_of([tmp_path / "rollouts.jsonl"], tmp_path / "prompts.jsonl", str(model), reward)[0]

    return convert


def test_what_verl_and_trl_write_is_converted(model, tmp_path):
    """VeRL's rows by VeRL's own code; TRL's with the columns and the messages that its GRPOTrainer logs."""
    trainer = pytest.importorskip("verl.trainer.ppo.v1.trainer_base").PPOTrainer
    rows = [math_row("sums", number, str(number), f"{number} + 2", str(number + 2)) for number in range(3)]
    prompts = tmp_path / "prompts.parquet"
    write_rows(rows, prompts)
    messages = pq.read_table(prompts)["prompt"].to_pylist()
    order = [2, 2, 0, 0]
    shown = [TOKENIZER.apply_chat_template(messages[n], add_generation_prompt=True, tokenize=False) for n in order]
    decoded = [TOKENIZER.decode(TOKENIZER(text)["input_ids"], skip_special_tokens=True) for text in shown]
    texts = [TOKENIZER.decode(ids, skip_special_tokens=True) for ids in IDS]
    uids = {"uid": ["a_0_0", "a_1_0", "b_0_0", "b_1_0"]}
    trainer._write_generations(decoded, texts, ["4", "4", "2", "2"], [1.0, 0.0, 0.0, 1.0], uids, tmp_path / "verl", 1)
    told = {"step": [1] * 4, "right": [1.0, 0.0, 0.0, 1.0], "advantage": [0.5, -0.5, -0.5, 0.5]}
    answers = {"prompt": [messages[n] for n in order], "completion": [said(text) for text in texts]}
    pd.DataFrame(told | answers).to_parquet(tmp_path / "completions_00001.parquet")
    ended = [f"{text}<|im_end|>" for text in texts]  # an older TRL logged text, and the end token as text
    pd.DataFrame(told | {"prompt": shown, "completion": ended}).to_parquet(tmp_path / "completions_00000.parquet")
    files = [("score", "verl/1.jsonl"), ("right", "completions_00001.parquet"), ("right", "completions_00000.parquet")]
    (verl, steps), *trl = (rows_of([tmp_path / file], prompts, str(model), reward) for reward, file in files)
    assert (trl, steps) == ([(verl, [1])] * 2, [1])
    pq.write_table(verl, tmp_path / "responses.parquet")
    buffer = bring_buffer(tmp_path / "responses.parquet", str(model))
    assert [group.prompt for group in buffer.groups] == [messages[0], messages[2]]
    assert [ids.tolist() for group in buffer.groups for ids in group.response_ids] == [*IDS[2:], *IDS[:2]]
    assert [group.rewards.tolist() for group in buffer.groups] == [[0, 1], [1, 0]]
    assert buffer.groups[0].extra_info["index"] == 0


def test_the_command_reads_utf_8_whatever_the_locale_and_says_which_steps_it_read(model, tmp_path):
    records = [line(output="café", score=0), line(input="user café ?", output="café !", gts="5", step=2)]
    records[1]["input"] = TOKENIZER.decode(TOKENIZER("<|user|>café ?")["input_ids"], skip_special_tokens=True)
    text = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    (tmp_path / "1.jsonl").write_text(f"\ufeff{text}\n\n", encoding="utf-8")
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, ASKED)))
    command = f"llm rollouts 1.jsonl --prompts prompts.jsonl --reference {model} --reward score --out made/rows.parquet"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "cokl_cli", *command.split()], cwd=tmp_path, env={**os.environ, **locale},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()) == (0, [
        "responses: made/rows.parquet, 2 of them",
        "they are of 2 steps: only those of step 1 can be the starting model's own",
    ]), done.stderr  # fmt: skip
    made = pq.read_table(tmp_path / "made" / "rows.parquet").to_pylist()
    assert [row["response_ids"] for row in made] == [[CAFE, END], [CAFE, *TOKENIZER("!")["input_ids"], END]]
    assert [row["prompt"] for row in made] == [user("2 + 2"), user("café ?")]
    assert [(row["reward"], row["extra_info"]) for row in made] == [(0.0, "{}"), (1.0, '{"index": 7}')]


def test_the_truth_tells_two_rows_of_one_prompt_apart(convert):
    prompts = [asked(), asked(truth=[4, 5]), asked(truth="five")]
    made = convert([line(gts="five", score=0.5), line(gts=[4, 5]), line(gts="4", score=True)], prompts).to_pylist()
    assert [(row["ground_truth"], row["ground_truth_is_json"], row["reward"]) for row in made] == [
        ("4", False, 1.0), ("[4, 5]", True, 1.0), ("five", False, 0.5)
    ]  # fmt: skip


def test_rows_that_are_alike_in_all_that_is_kept_are_one_prompt(convert):
    made = convert([line(gts=None), line(score=0)], [asked(ability="a"), asked(ability="b")]).to_pylist()
    assert [row["reward"] for row in made] == [1.0, 0.0]


def test_a_message_with_fields_that_hold_nothing_is_kept(convert):
    completion = said(TEXTS[1], tool_calls=None, reasoning_content="", name=None)
    (row,) = convert([logged(completion=completion, prompt=user("2 + 2", tool_calls=[]))], reward="right").to_pylist()
    assert row["response_ids"] == IDS[1]


def test_an_answer_that_is_its_end_alone_is_an_answer(convert):
    assert convert([line(output="")])["response_ids"].to_pylist() == [[END]]


PARTS = [{"type": "text", "text": "4"}]
BATCH: dict[str, Any] = {"id": "b", "custom_id": "1", "response": {"body": {"choices": []}}, "error": None}
FILE, PROMPTS = "rollouts.jsonl", "prompts.jsonl"
REFUSED: list[tuple[Any, str]] = [
    # Of messages: more than a text.
    (
        [logged(completion=[*said("5"), *user("no"), *said("4")])],
        "line 1, completion: SINGLE, got assistant, user, assistant, BY_HAND",
    ),
    (
        [logged(completion=[*said("a"), {"role": "tool", "content": "4"}])],
        "line 1, completion: SINGLE, got assistant, tool",
    ),
    ([logged(completion=user("4"))], "line 1, completion: SINGLE, got user"),
    (
        [logged(completion=said("4", reasoning_content="2 and 2"))],
        "line 1, completion: ALONE, got reasoning_content, BY_HAND",
    ),
    ([logged(), logged(completion=said("4", reasoning="2 and 2"))], "line 2, completion: ALONE, got reasoning"),
    (
        [logged(completion=said("", tool_calls=[{"function": {"name": "add"}}]))],
        "line 1, completion: ALONE, got tool_calls",
    ),
    ([logged(completion=said(PARTS))], "line 1, completion: expected a role and a content of text, got {'role'"),
    ([logged(completion=said(None))], "line 1, completion: expected a role and a content of text"),
    ([logged(completion=[])], "line 1, completion: expected messages of role and content, got []"),
    ([logged(completion=None)], "line 1, completion: expected messages of role and content, got None"),
    ([logged(completion=["4"])], "line 1, completion: expected messages of role and content, got '4'"),
    ([logged(prompt=user(PARTS))], "line 1, prompt: expected a role and a content of text"),
    ([logged(images=["a.png"])], "line 1: expected text alone, got images"),
    ([line(output=4)], "line 1, output: expected messages of role and content, got 4"),
    ([line(output="\ud83d")], "line 1, output: expected whole characters of Unicode"),
    ([line(output="4 <|im_end|> 5")], "line 1, output: expected no end token or padding inside a response"),
    ([line(output="4 <|im_end|><|pad|><|pad|>")], "line 1, output: expected no end token or padding inside a response"),
    # Of prompts.
    ([line(), line(input="3 + 9")], "line 2: expected a prompt of PROMPTS by the model's chat template, got '3 + 9'"),
    ([logged(prompt=[{"role": "system", "content": "Hi"}, *user("2 + 2")])], "line 1: expected a prompt of PROMPTS"),
    ([line(input=None)], "line 1, prompt: expected messages of role and content, got None"),
    ([line(gts="5")], "line 1, gts: expected the truth that PROMPTS has, '4', got '5'"),
    # Of rewards.
    ([line(), line(score=None)], "line 2, score: expected a finite number, got None"),
    ([line(score=float("nan"))], "line 1, score: expected a finite number, got nan"),
    ([line(score=float("inf"))], "line 1, score: expected a finite number, got inf"),
    ([line(score=10**400)], "line 1, score: expected a finite number, got 1000"),
    ([line(score="1.0")], "line 1, score: expected a finite number, got '1.0'"),
    ([line(score={"score": 1})], "line 1, score: expected a finite number"),
    # Of the file.
    (b"", ": expected at least one row, got none"),
    (b"\n \n\xef\xbb\xbf"[:3], ": expected at least one row, got none"),
    (
        json.dumps(line()).encode() + b'\n{"input": "2 + 2", "outp',
        "line 2: expected a whole JSON object on each line (Unterminated string",
    ),
    (json.dumps([line()], indent=1).encode(), "line 1: expected a whole JSON object on each line (Expecting value"),
    (json.dumps([line()]).encode(), "line 1: expected a JSON object on each line, got [{"),
    (b"[" * 100_000, "line 1: expected a JSON object on each line ("),
    (b"input,output,score\n", "line 1: expected a whole JSON object on each line (Expecting value, column 1)"),
    (json.dumps(line()).encode("utf-16"), "line 1: expected Parquet, or JSON lines in UTF-8"),
    (
        json.dumps(line(output="é"), ensure_ascii=False).encode("latin-1"),
        "line 1: expected Parquet, or JSON lines in UTF-8",
    ),
    (b"\x1f\x8b\x08\x00", "line 1: expected Parquet, or JSON lines in UTF-8"),
    (b"PAR1 and then nothing", ": expected a whole Parquet file ("),
    (
        [BATCH],
        "line 1 lacks input and output (VeRL) or prompt and completion (TRL); it has id, custom_id, response, error",
    ),
    ([{}], "line 1 lacks input and output (VeRL) or prompt and completion (TRL); it has nothing"),
    (
        [line(), line(output=...)],
        "line 2 lacks input and output (VeRL) or prompt and completion (TRL); it has input, gts",
    ),
    ([line(score=...)], "line 1 lacks 'score'; it has input, output, gts, step"),
    ([logged()], "line 1 lacks 'score'; it has step, prompt, completion, right, advantage"),
]


SHORT = {
    "SINGLE": "expected one message of the assistant",
    "ALONE": "expected role and content alone",
    "BY_HAND": "which text does not tell; docs/how-to/responses.md says how to write such rows",
}


def written(says: str, folder: Path) -> str:
    """A message whose words in capitals are written out."""
    for short, whole in (SHORT | {"PROMPTS": str(folder / PROMPTS), "FILE": str(folder / FILE)}).items():
        says = says.replace(short, whole)
    return says


@pytest.mark.parametrize(("rollouts", "says"), REFUSED)
def test_what_would_not_be_kept_whole_is_one_line(convert, tmp_path, rollouts, says):
    reward = "right" if isinstance(rollouts, list) and "right" in rollouts[0] and "'score'" not in says else "score"
    with pytest.raises(InputError) as raised:
        convert(rollouts, reward=reward)
    where = str(tmp_path / FILE) + ("" if says.startswith(":") else " " if says.startswith("lacks") else ", ")
    assert str(raised.value).startswith(where + written(says, tmp_path))
    assert "\n" not in str(raised.value)


PROMPTS_REFUSED: list[tuple[Any, str]] = [
    (
        [asked(), asked(truth="5")],
        "FILE, line 1: rows 0, 1 of PROMPTS have its prompt and different ground_truth; keep the one",
    ),
    (
        [asked(), asked(extra_info={"index": 1})],
        "FILE, line 1: rows 0, 1 of PROMPTS have its prompt and different extra_info",
    ),
    (
        [asked(), asked() | {"data_source": "b"}],
        "FILE, line 1: rows 0, 1 of PROMPTS have its prompt and different data_source",
    ),
    ([asked("2 + 2<|im_end|>"), asked()], "FILE, line 1: rows 0, 1 of PROMPTS have its prompt and different prompt"),
    ([asked(), asked(PARTS)], "PROMPTS, line 2, prompt: expected a role and a content of text"),
    ([asked() | {"prompt": "2 + 2"}], "PROMPTS, line 1, prompt: expected messages of role and content, got '2 + 2'"),
    ([asked() | {"prompt": user("a", tool_calls=[1])}], "PROMPTS, line 1, prompt: ALONE, got tool_calls"),
    ([asked(images=["a.png"])], "PROMPTS, line 1: expected text alone, got images"),
    (
        [{"prompt": user("2 + 2"), "answer": "4"}],
        "PROMPTS, line 1: expected VeRL's columns, 'data_source' among them, got prompt, answer",
    ),
    (
        [asked() | {"reward_model": {"style": "rule"}}],
        "PROMPTS, line 1, reward_model: expected a ground_truth, got {'style'",
    ),
    ([asked() | {"reward_model": None}], "PROMPTS, line 1, reward_model: expected a ground_truth, got None"),
    ([asked() | {"data_source": None}], "PROMPTS, line 1, data_source: expected text, got None"),
    ([asked(extra_info="{}")], "PROMPTS, line 1, extra_info: expected values by name, got '{}'"),
    (
        [asked(extra_info={"a": float("nan")})],
        "PROMPTS, line 1: expected a truth and extra_info of JSON's values (Out of range",
    ),
    (b"", "PROMPTS: expected at least one row, got none"),
]


@pytest.mark.parametrize(("prompts", "says"), PROMPTS_REFUSED)
def test_prompts_that_do_not_say_what_was_asked_are_one_line(convert, tmp_path, prompts, says):
    with pytest.raises(InputError) as raised:
        convert([line(gts=None)], prompts)
    assert str(raised.value).startswith(written(says, tmp_path))
    assert "\n" not in str(raised.value)


def test_rows_of_parquet_are_counted_as_rows(convert, model, tmp_path):
    convert([line()])
    pd.DataFrame([logged(), logged(right=None)]).to_parquet(tmp_path / "completions_00001.parquet")
    with pytest.raises(
        InputError, match=r"completions_00001.parquet, row 1, right: expected a finite number, got nan|None"
    ):
        rows_of([tmp_path / "completions_00001.parquet"], tmp_path / PROMPTS, str(model), "right")


def test_a_file_that_is_given_twice_or_not_at_all_is_one_line(convert, model, tmp_path):
    convert([line()])
    file, prompts = tmp_path / FILE, tmp_path / PROMPTS
    for files in ([file, file], [file, file.parent / "." / FILE], []):
        with pytest.raises(InputError, match=r"^rollouts: expected one file or more, each once, got "):
            rows_of(files, prompts, str(model), "score")
    with pytest.raises(InputError, match=r"^cannot read .*none.jsonl: No such file"):
        rows_of([file, tmp_path / "none.jsonl"], prompts, str(model), "score")
    with pytest.raises(InputError, match=r"^cannot read .*: Is a directory"):
        rows_of([tmp_path], prompts, str(model), "score")
    with pytest.raises(InputError, match=r"expected a Hugging Face model folder"):
        rows_of([file], prompts, str(tmp_path), "score")


@pytest.mark.parametrize("thinking", [True, False])
def test_a_prompt_is_recognised_by_the_template_with_or_without_thinking(thinking, tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.chat_template += "{% if enable_thinking %}!{% endif %}"
    tokenizer.save_pretrained(tmp_path / "model")
    read = tokenizer("<|user|>2 + 2<|im_end|><|assistant|>" + "!" * thinking)["input_ids"]
    record = line(input=tokenizer.decode(read, skip_special_tokens=True))
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(record))
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, ASKED)))
    given = [tmp_path / "rollouts.jsonl"], tmp_path / "prompts.jsonl", str(tmp_path / "model"), "score"
    assert len(rows_of(*given, thinking)[0]) == 1
    with pytest.raises(InputError, match=r"expected a prompt of .* by the model's chat template"):
        rows_of(*given, not thinking)
