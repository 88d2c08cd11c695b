"""Buffers from responses that were sampled elsewhere: tokens or text, verdicts from a column or a function."""

import pandas as pd
import pytest

pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM

from cokl.responses.buffer import Buffer, model_fingerprint
from cokl.support.errors import InputError
from llm_bridge import bring_buffer as bring_module
from llm_bridge.bring_buffer import bring_buffer
from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.rewards.judge import Judge
from llm_bridge.tiny.model import make_model
from llm_bridge.tiny.tokenizer import make_tokenizer

TEXTS = ["\\boxed{4}", "\\boxed{5}", "\\boxed{6}", "\\boxed{4}"]
PLACES = [2, 2, 0, 0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("brought")
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    rows = [math_row("math_train", row, str(row), f"{row} + 2", str(row + 2), True, [0.5]) for row in range(3)]
    write_rows(rows, path / "prompts.parquet")
    return path


def bring(folder, tmp_path, judge=None, options=(), **columns):
    pd.DataFrame({"prompt": PLACES, **columns}).to_parquet(tmp_path / "responses.parquet")
    paths = folder / "prompts.parquet", tmp_path / "responses.parquet"
    return bring_buffer(*paths, str(folder / "model"), judge and Judge(judge), **dict(options))


def token_ids(texts=TEXTS):
    tokenizer = make_tokenizer()
    return [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]


def test_text_becomes_the_tokens_that_were_sampled(folder, tmp_path):
    text = bring(folder, tmp_path, response=TEXTS, reward=[1, 0, 0, 0])
    tokens = bring(folder, tmp_path, response_ids=token_ids(), reward=[1, 0, 0, 0])
    assert [group.ground_truth for group in text.groups] == ["2", "4"]  # in the prompts' order; one has no responses
    for one, other in zip(text.groups, tokens.groups, strict=True):
        assert [ids.tolist() for ids in one.response_ids] == [ids.tolist() for ids in other.response_ids]
        assert one.prompt_ids.tolist() == other.prompt_ids.tolist()
    assert [group.rewards.tolist() for group in text.groups] == [[0, 0], [1, 0]]
    assert text.groups[0].extra_info["tolerances"] == [0.5]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("tokens", [bring_module.BATCH_TOKENS, 1])
def test_missing_log_probabilities_are_the_references(folder, tmp_path, monkeypatch, temperature, tokens):
    """All responses in one padded pass, or each in its own."""
    monkeypatch.setattr(bring_module, "BATCH_TOKENS", tokens)
    texts = ["\\boxed{4}", "\\boxed{54444}", "\\boxed{6}", "5 + 5 = \\boxed{4}"]
    buffer = bring(folder, tmp_path, options={"temperature": temperature}, response=texts, reward=[1, 0, 0, 0])
    assert buffer.temperature == temperature
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    for group in buffer.groups:
        for response_ids, log_probs in zip(group.response_ids, group.log_probs, strict=True):
            for place in range(len(response_ids)):  # each token by itself, from all before it
                context = torch.tensor([*group.prompt_ids, *response_ids[:place]])
                expected = (model(context[None]).logits[0, -1] / temperature).log_softmax(-1)[response_ids[place]]
                assert log_probs[place] == pytest.approx(expected.item(), abs=1e-5)


def test_given_log_probabilities_are_kept(folder, tmp_path):
    computed = bring(folder, tmp_path, response_ids=token_ids(), reward=[1, 0, 0, 0])
    rows = [row for group in computed.groups for row in group.log_probs]  # of the prompts in their order, as PLACES has
    given = [(row + 0.01).tolist() for row in [*rows[2:], *rows[:2]]]
    buffer = bring(folder, tmp_path, response_ids=token_ids(), reward=[1, 0, 0, 0], log_probs=given)
    kept = [row for group in buffer.groups for row in group.log_probs]
    assert [row.tolist() for row in kept] == [*given[2:], *given[:2]]
    with pytest.raises(InputError, match=r"expected those of the reference at temperature 0\.3, got others by"):
        bring(
            folder, tmp_path, options={"temperature": 0.3}, response_ids=token_ids(), reward=[1, 0, 0, 0],
            log_probs=given,
        )  # fmt: skip


def test_another_models_responses_need_no_log_probabilities(folder, tmp_path):
    buffer = bring(folder, tmp_path, options={"log_probs": False}, response=TEXTS, reward=[1, 0, 0, 0])
    buffer.save(tmp_path / "buffer.parquet")
    assert not Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(folder / "model")).has_log_probs


def test_tools_tokens_and_prompts_of_another_template_are_brought_along(folder, tmp_path):
    masks = [[1] * len(ids) for ids in token_ids()]
    masks[0][1] = 0
    prompt_ids = [[7, 8, place] for place in PLACES]
    buffer = bring(
        folder, tmp_path, response_ids=token_ids(), reward=[1, 0, 0, 0], response_mask=masks, prompt_ids=prompt_ids
    )
    assert [group.prompt_ids.tolist() for group in buffer.groups] == [[7, 8, 0], [7, 8, 2]]
    assert [mask.tolist() for mask in buffer.groups[1].masks] == masks[:2]


def test_a_reward_function_gives_the_verdicts(folder, tmp_path):
    asked = []

    async def judge(data_source, solution_str, ground_truth, extra_info):
        asked.append((data_source, extra_info["source_id"]))
        return {"score": float(ground_truth in solution_str)}

    buffer = bring(folder, tmp_path, judge, response=TEXTS)
    assert [group.rewards.tolist() for group in buffer.groups] == [[0, 0], [1, 0]]
    assert asked == [("math_train", "0")] * 2 + [("math_train", "2")] * 2


def test_it_is_saved_for_its_model(folder, tmp_path):
    bring(folder, tmp_path, response=TEXTS, reward=[1, 0, 0, 1]).save(tmp_path / "buffer.parquet")
    loaded = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(folder / "model"))
    assert (len(loaded), loaded.group_size) == (2, 2)
    with pytest.raises(InputError, match="sampled from another model"):
        Buffer.load(tmp_path / "buffer.parquet", "another")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"response": TEXTS}, "lacks the column 'reward'"),
        ({"reward": [1, 0, 0, 0]}, "lacks the column 'response'"),
        ({"response": TEXTS, "reward": [1, 0, 0, 0], "prompt": [0, 0, 7, 7]}, "rows of .*prompts.parquet, 0 to 2"),
        ({"response": TEXTS, "reward": [1, 0, 0, 0], "prompt": [0, 0, 1, None]}, "integers, none missing, got float64"),
        ({"response": TEXTS, "reward": [1, 0, 0, 0], "prompt": [0, 0, 0, 1]}, "expected 3 responses"),
        ({"response_ids": token_ids(), "reward": [1, 0, 0, 0], "log_probs": [[-1.0]] * 4}, "one log-probability and"),
    ],
)
def test_what_cannot_be_a_buffer_is_one_line(folder, tmp_path, columns, message):
    with pytest.raises(InputError, match=message) as raised:
        bring(folder, tmp_path, **columns)
    assert "\n" not in str(raised.value)


def test_the_fingerprint_is_of_the_references_files(folder):
    assert model_fingerprint(str(folder / "model")) == model_fingerprint(folder / "model")
