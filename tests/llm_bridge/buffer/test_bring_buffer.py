"""Buffers from responses that were sampled elsewhere: one schema, and what differs is refused at its column and row."""

import gzip
import json
import shutil
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

import torch

from cokl.support.errors import InputError
from llm_bridge.buffer.bring_buffer import bring_buffer
from llm_bridge.buffer.groups import Buffer, model_fingerprint
from llm_bridge.buffer.rows import SCHEMA
from tests.llm_bridge.toy import make_model, make_tokenizer

TOKENIZER = make_tokenizer()
PAD, END, SIZE = TOKENIZER.pad_token_id, TOKENIZER.eos_token_id, len(TOKENIZER)
TEXTS = ["\\boxed{4}", "\\boxed{5}", "\\boxed{6}", "5 + 5 \\boxed{4}"]
IDS = [[*TOKENIZER(text)["input_ids"], END] for text in TEXTS]
PROMPTS = [[{"role": "user", "content": f"{number} + 2"}] for number in (2, 2, 0, 0)]
GIVEN: dict[str, list] = {
    "prompt": PROMPTS,
    "data_source": ["sums"] * 4,
    "ground_truth": ["4", "4", "2", "2"],
    "response_ids": IDS,
    "reward": [1.0, 0.0, 0.0, 0.6],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brought") / "model"
    torch.manual_seed(0)
    make_model(TOKENIZER).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


def of_schema(columns):
    """Python values as arrays of the schema's types; arrays stay as they are."""
    kept = {name: values for name, values in columns.items() if values is not None}
    return pa.table(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values, SCHEMA.field(name).type)
            for name, values in kept.items()
        }
    )


def bring(model, tmp_path, judge=None, options=(), **columns):
    pq.write_table(of_schema(GIVEN | columns), tmp_path / "responses.parquet")
    return bring_buffer(tmp_path / "responses.parquet", str(model), judge, **dict(options))


def test_rows_become_groups_in_their_order(model, tmp_path):
    buffer = bring(model, tmp_path, extra_info=['{"tolerances": [0.5]}'] * 4)
    assert [group.ground_truth for group in buffer.groups] == ["4", "2"]
    assert [group.rewards.tolist() for group in buffer.groups] == [[1, 0], [0, 1]]
    assert [ids.tolist() for group in buffer.groups for ids in group.response_ids] == IDS
    chat = TOKENIZER("<|user|>2 + 2<|im_end|><|assistant|>")["input_ids"]
    assert buffer.groups[0].prompt_ids.tolist() == chat
    assert buffer.groups[0].extra_info == {"tolerances": [0.5]}
    for threshold in (0.6, 0.9):  # a reward of 0.6 is not above 0.6
        strict = bring(model, tmp_path, options={"correct_above": threshold})
        assert [group.rewards.tolist() for group in strict.groups] == [[1, 0], [0, 0]]


def test_what_pandas_writes_is_of_the_schema(model, tmp_path):
    pd.DataFrame(GIVEN).to_parquet(tmp_path / "responses.parquet")
    assert pq.read_schema(tmp_path / "responses.parquet").field("ground_truth").type == pa.large_string()
    brought = bring_buffer(tmp_path / "responses.parquet", str(model))
    assert brought.table() == bring(model, tmp_path).table()


def test_tools_tokens_and_prompts_of_another_template_are_brought_along(model, tmp_path):
    masks = [[place != 1 for place in range(len(ids))] for ids in IDS]
    prompt_ids = [[7, 8, place] for place in (2, 2, 0, 0)]
    buffer = bring(model, tmp_path, response_mask=masks, prompt_ids=prompt_ids)
    assert [group.prompt_ids.tolist() for group in buffer.groups] == [[7, 8, 2], [7, 8, 0]]
    assert [mask.tolist() for group in buffer.groups for mask in group.masks] == masks


@pytest.mark.parametrize("thinking", [True, False])
def test_prompts_have_the_tokens_of_the_template_with_or_without_thinking(model, tmp_path, thinking):
    thinks = shutil.copytree(model, tmp_path / "thinks")
    tokenizer = make_tokenizer()
    tokenizer.chat_template += "{% if enable_thinking %}!{% endif %}"
    tokenizer.save_pretrained(thinks)
    buffer = bring(thinks, tmp_path, options={"thinking": thinking})
    chat = TOKENIZER("<|user|>2 + 2<|im_end|><|assistant|>" + "!" * thinking)["input_ids"]
    assert buffer.groups[0].prompt_ids.tolist() == chat


def test_a_reward_function_gives_the_verdicts(model, tmp_path):
    asked = []

    async def judge(data_source, solution_str, ground_truth, extra_info):
        asked.append((data_source, ground_truth))
        return {"score": float(str(ground_truth["answer"]) in solution_str)}

    truths = [json.dumps({"answer": number}) for number in (4, 4, 6, 6)]
    buffer = bring(model, tmp_path, judge, reward=None, ground_truth=truths, ground_truth_is_json=[True] * 4)
    assert [group.rewards.tolist() for group in buffer.groups] == [[1, 0], [1, 0]]
    assert asked == [("sums", {"answer": 4})] * 2 + [("sums", {"answer": 6})] * 2


def test_it_is_saved_for_its_model(model, tmp_path):
    bring(model, tmp_path, options={"temperature": 0.7}).save(tmp_path / "buffer.parquet")
    loaded = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(str(model)))
    assert (len(loaded), loaded.group_size, loaded.temperature) == (2, 2, 0.7)
    with pytest.raises(InputError, match="sampled from another model"):
        Buffer.load(tmp_path / "buffer.parquet", "another")


MASKS = [[True] * len(ids) for ids in IDS]
OF_TOKENS, APART = r"expected list<item: int64>, got \S+", "row {}: expected rows of a prompt that follow each other"
OTHER_KINDS = ["a"], [b"a"], {"a": 1}, [[1]], [1.5], None, 1, date(2026, 1, 1)
REFUSED = {
    "response_ids": [
        *((pa.array([ids] * 4), OF_TOKENS) for ids in OTHER_KINDS),
        ([[1, None], *IDS[1:]], r"row 0: expected no null, got \[1, None\]"),
        ([*IDS[:3], None], "row 3: expected no null, got None"),
        ([*IDS[:3], []], "row 3: expected at least one"),
        ([IDS[0], [-1], *IDS[2:]], r"row 1: expected token ids >= 0, got \[-1\]"),
        ([*IDS[:2], [SIZE], IDS[3]], f"row 2: expected token ids of .* below {SIZE}, got {SIZE}"),
        ([[9007199254740993], *IDS[1:]], "row 0: expected token ids of .*, got 9007199254740993"),
        ([[*IDS[0], END], *IDS[1:]], "row 0: expected no padding and no second end token"),
        ([[*IDS[0], PAD], *IDS[1:]], "row 0: expected no padding and no second end token"),
    ],
    "prompt_ids": [([[PAD, 7]] * 4, r"row 0: expected no padding, got \[0, 7\]")],
    "prompt": [
        (pa.array([[{"role": "user", "content": "a", "tool_calls": None}]] * 4), "expected list<item: struct<role"),
        (pa.array([[{"role": "user", "content": [{"text": "a"}]}]] * 4), "expected list<item: struct<role: string"),
        (pa.array(["a"] * 4), "expected list<item: struct<role: string, content: string>>, got string"),
        ([[{"role": "user", "content": None}], *PROMPTS[1:]], "row 0: expected no null, got"),
        ([[], *PROMPTS[1:]], "row 0: expected at least one"),
    ],
    "ground_truth": [
        (pa.array([{"target": 4}] * 4), "expected string, got struct<target: int64>"),
        (["4", None, "2", "2"], "row 1: expected no null"),
    ],
    "extra_info": [
        (pa.array([{"a": 1}] * 4), "expected string, got struct<a: int64>"),
        (["{}", "None", "{}", "{}"], "row 1: expected a JSON object as Python's json.dumps writes it, got 'None'"),
        (['{"a": NaN}', "{}", "{}", "{}"], "row 0: expected a JSON object"),
    ],
    "response_mask": [
        (pa.array([[2] * len(ids) for ids in IDS]), "expected list<item: bool>, got list"),
        (pa.array([[-1] * len(ids) for ids in IDS]), "expected list<item: bool>, got list"),
        (pa.array([[0.5] * len(ids) for ids in IDS]), "expected list<item: bool>, got list"),
        ([*MASKS[:3], [True]], "row 3: expected one for each of response_ids"),
        ([[False] * len(IDS[0]), *MASKS[1:]], "row 0: expected true on at least one token"),
    ],
    "reward": [
        ([1.0, None, 0.0, 0.0], "row 1: expected no null"),
        ([1.0, 0.0, np.nan, 0.0], "row 2: expected a finite number, got nan"),
        (pa.array([1, 0, 0, 0]), "expected double, got int64"),
    ],
    "log_probs": [(pa.array([[-1.0]] * 4), "expected one of each of prompt, .* and no other")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values", "message"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
def test_what_differs_is_one_line_that_names_its_column_and_row(model, tmp_path, name, values, message):
    with pytest.raises(InputError, match=rf"responses.parquet, column '{name}'(:|,) {message}") as raised:
        bring(model, tmp_path, **{name: values})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompt_ids": [[7], [8], [9], [9]]}, APART.format(1) + " .*prompt_ids"),
        ({"data_source": ["a", "b", "c", "c"]}, APART.format(1) + " .*data_source"),
        ({"prompt": [PROMPTS[0], PROMPTS[2]] * 2, "ground_truth": ["4"] * 4}, APART.format(2)),
        ({"ground_truth": ["4", "4", "2", "5"]}, "prompt 1: expected 2 responses, as for the first prompt"),
        ({"ground_truth": ['"4"'] * 4, "ground_truth_is_json": [True] * 4}, "row 0: expected JSON .* else than text"),
        ({"reward": None}, "lacks the column 'reward'; it has prompt, data_source"),
        ({"response_ids": None}, "lacks the column 'response_ids'"),
        ({name: values[:0] for name, values in GIVEN.items()}, "expected at least one row, got none"),
    ],
)
def test_rows_that_do_not_go_together_are_refused(model, tmp_path, columns, message):
    with pytest.raises(InputError, match=message):
        bring(model, tmp_path, **columns)


def test_two_sources_of_verdicts_are_refused(model, tmp_path):
    with pytest.raises(InputError, match="'reward': expected none beside a reward function"):
        bring(model, tmp_path, lambda **row: 1.0)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.json.gz", "cut.parquet", "none.parquet", "."])
def test_another_format_is_told_how_to_convert_and_never_to_be_removed(model, tmp_path, name):
    frame = pd.DataFrame({"prompt": [0], "reward": [1.0]})
    frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    frame.to_csv(tmp_path / "rows.csv")
    (tmp_path / "rows.json.gz").write_bytes(gzip.compress((tmp_path / "rows.jsonl").read_bytes()))
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and then nothing")
    converts, whole = "got another format; `cokl llm rollouts` converts", r"expected a whole Parquet file \("
    with pytest.raises(InputError, match=converts if name.startswith("rows") else whole) as raised:
        bring_buffer(tmp_path / name, str(model))
    assert not {"remove", "damaged", "\n"} & {*str(raised.value).split(), *str(raised.value)}


SCALARS = [
    st.none(), st.booleans(), st.integers(-1, SIZE), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0.0, 1.0]),
    st.floats(), st.text(max_size=3), st.sampled_from(["{}", '{"a": 1}', "[4]", '"4"', "4"]), st.binary(max_size=2),
    st.dates(), st.datetimes(), st.timedeltas(), st.times(), st.decimals(0, 9, places=2),
]  # fmt: skip
KINDS_OF_VALUES = st.recursive(
    st.sampled_from(SCALARS).map(lambda values: values | st.none()) | st.sampled_from(SCALARS),
    lambda kinds: st.one_of(
        kinds.map(lambda values: st.lists(values, max_size=3)),
        kinds.map(lambda values: st.fixed_dictionaries({"role": values, "content": values})),
    ),
    max_leaves=3,
)
"""Strategies of a column's values, of which pyarrow infers the type."""
OTHER_TYPES = [
    pa.int32(), pa.uint64(), pa.float32(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.float32()), pa.list_(pa.int64(), 1),
]  # fmt: skip


@st.composite
def tables(draw) -> pa.Table:
    """A good table in which up to six things are changed: a column's values, type, name or presence, or one value."""
    prompts, size = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    ids = [draw(st.lists(st.integers(END + 1, SIZE - 1), min_size=1, max_size=3)) for _ in range(prompts * size)]
    number = [row // size for row in range(len(ids))]
    columns: dict = {
        "prompt": [[{"role": "user", "content": str(prompt)}] for prompt in number],
        "data_source": ["sums"] * len(ids),
        "ground_truth": ["[4]"] * len(ids),
        "ground_truth_is_json": [draw(st.booleans())] * len(ids),
        "extra_info": [draw(st.sampled_from(["{}", '{"a": [1, null, "\\u00e9"]}']))] * len(ids),
        "prompt_ids": [[7, prompt] for prompt in number],
        "response_ids": ids,
        "response_mask": [[True] * (len(row) - 1) + [draw(st.booleans()) or len(row) == 1] for row in ids],
        "reward": [draw(st.sampled_from([0.0, 1.0])) for _ in ids],
    }
    for name in draw(st.sets(st.sampled_from(["ground_truth_is_json", "extra_info", "response_mask", "prompt_ids"]))):
        del columns[name]
    arrays = {name: pa.array(column, SCHEMA.field(name).type) for name, column in columns.items()}
    for _ in range(draw(st.integers(0, 6))):
        name, change = draw(st.sampled_from(list(arrays))), draw(st.sampled_from(["values", "type", "one"]))
        try:
            if change == "values":
                values = draw(KINDS_OF_VALUES)
                arrays[draw(st.sampled_from(SCHEMA.names))] = pa.array([draw(values) for _ in ids])
            elif change == "type":
                arrays[name] = arrays[name].cast(draw(st.sampled_from(OTHER_TYPES)))
            else:
                column = arrays[name].to_pylist()
                column[draw(st.integers(0, len(ids) - 1))] = draw(draw(KINDS_OF_VALUES))
                arrays[name] = pa.array(column, arrays[name].type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # no array can be so
            continue
    table = pa.table(arrays)
    if not draw(st.integers(0, 7)):
        table = table.rename_columns([draw(st.text(max_size=3)), *table.column_names[1:]])
    if not draw(st.integers(0, 7)):
        table = table.drop_columns(draw(st.sampled_from(table.column_names)))
    return table.take(draw(st.permutations(range(len(ids))))) if not draw(st.integers(0, 7)) else table


def test_any_arrow_table_round_trips_to_the_byte_or_is_one_line(model, tmp_path):
    path, counts = tmp_path / "rows.parquet", {"accepted": 0, "refused": 0}

    def written(table):
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(None), sink)
        return sink.getvalue().to_pybytes()

    @settings(max_examples=2000, suppress_health_check=list(HealthCheck))
    @given(table=tables())
    def holds(table):
        try:
            pq.write_table(table, path)
        except (pa.ArrowException, OSError):  # no Parquet file has such a type
            return
        said = ""
        try:
            buffer = bring_buffer(path, str(model))
        except InputError as error:
            said = str(error)
        assert "\n" not in said
        counts["refused" if said else "accepted"] += 1
        if said:
            return
        buffer.save(tmp_path / "buffer.parquet")
        loaded = Buffer.load(tmp_path / "buffer.parquet", buffer.fingerprint)
        loaded.save(tmp_path / "again.parquet")
        assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "buffer.parquet").read_bytes()
        names = [name for name in SCHEMA.names if name in table.column_names and name != "reward"]
        kept = pq.read_table(tmp_path / "buffer.parquet")
        schema = pa.schema([SCHEMA.field(name) for name in names])
        assert written(kept.select(names).cast(schema)) == written(table.select(names).cast(schema))
        verdicts = [float(reward > 0.5) for reward in table["reward"].to_pylist()]
        assert loaded.table()["reward"].to_pylist() == verdicts

    holds()
    assert min(counts.values()) > 200, counts


def test_a_chat_template_that_writes_nothing_is_one_line(model, tmp_path):
    shutil.copytree(model, tmp_path / "silent")
    (tmp_path / "silent" / "chat_template.jinja").write_text("")
    with pytest.raises(InputError, match="column 'prompt': expected text by the chat template of"):
        bring(tmp_path / "silent", tmp_path)


def test_a_response_with_its_prompt_and_a_tokenizer_without_tokens_are_one_line(model, tmp_path):
    chat = TOKENIZER("<|user|>2 + 2<|im_end|><|assistant|>")["input_ids"]
    with pytest.raises(InputError, match="column 'response_ids', row 1: expected a response without its prompt"):
        bring(model, tmp_path, response_ids=[IDS[0], chat + IDS[1], *IDS[2:]])
    bare = shutil.copytree(model, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*", "*.jinja"))
    with pytest.raises(InputError, match=r"^[^\n]+$"):
        bring(bare, tmp_path)


def test_the_command_takes_the_rows_own_rewards_and_no_option_that_it_does_not_read(
    model, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("verl")
    from cokl_cli.app import main

    monkeypatch.chdir(tmp_path)
    pq.write_table(of_schema(GIVEN), "rows.parquet")
    command = f"llm buffer --responses rows.parquet --reference {model}"
    for more, says in [
        ("", "buffer: runs/buffer/buffer.parquet, 2 prompts of 2 responses, 2 of them solved"),
        ("trainer.save_freq=10", "unknown trainer.save_freq=10"),
        ("--group-size 3", "unknown --group-size"),
        ("--correct-above nan", "correct_above: expected finite numbers, got nan"),
        ("--temperature 0", "temperature: expected a number > 0, got 0.0"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main([*command.split(), *more.split()])
        assert (ended.value.code, says in "".join(capsys.readouterr())) == (2 if more else 0, True), says
