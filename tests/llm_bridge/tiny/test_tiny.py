"""The tiny world: demonstrations are what they claim to be, rewards have room, files are reproducible and usable."""

# ruff: noqa: E402

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import groupby

import numpy as np
import pyarrow.parquet as pq
import pytest

transformers = pytest.importorskip("transformers")
math_verify = pytest.importorskip("math_verify")

from llm_bridge.data.rows import MATH_INSTRUCTION, SCHEMA
from llm_bridge.experiment.config import PRESETS
from llm_bridge.tiny import language
from llm_bridge.tiny.language import chat_reward
from llm_bridge.tiny.make import SIZES, make_tiny
from llm_bridge.tiny.model import make_model, teaching_batch
from llm_bridge.tiny.tokenizer import make_tokenizer

KINDS = tuple(language.KIND_SHARES)


def is_correct(answer: str, total: int) -> bool:
    gold = math_verify.parse(f"\\boxed{{{total}}}", parsing_timeout=None)
    return math_verify.verify(gold, math_verify.parse(answer, parsing_timeout=None), timeout_seconds=None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two folders made alike, and one of another seed."""
    found = []
    for name, seed in [("first", 0), ("again", 0), ("other", 1)]:
        found.append(tmp_path_factory.mktemp(name))
        make_tiny(found[-1], pretraining_steps=2, seed=seed)
    return found


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_demonstrations_are_judged_as_they_were_meant(right):
    random = np.random.default_rng(0)
    for kind in KINDS:
        for problem in random.permutation(np.array(language.problems(kind), dtype=object))[:30]:
            answer = language.demonstrate_problem(problem, right, random)
            assert is_correct(answer, problem.total) == bool(right)


def test_tokenizer_keeps_every_text_of_the_world():
    tokenizer = make_tokenizer()
    random = np.random.default_rng(0)
    problems = [problem for kind in KINDS for problem in language.problems(kind)]
    texts = [problem.text for problem in problems] + language.small_talk()
    texts += [language.demonstrate_problem(problem, 0.5, random) for problem in problems]
    texts += [language.demonstrate_chat(prompt, random) for prompt in language.small_talk()]
    for text, tokens in zip(texts, tokenizer(texts)["input_ids"], strict=True):
        assert tokenizer.unk_token_id not in tokens
        assert tokenizer.decode(tokens, skip_special_tokens=True).replace(" ", "") == text.replace(" ", "")


def test_chat_template_has_one_token_for_the_instruction_and_opens_a_reply():
    tokenizer = make_tokenizer()
    prompt = [{"role": "user", "content": f"{MATH_INSTRUCTION}\n\nAnn puts four apples into two baskets."}]
    tokens = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=False)
    words = tokenizer.convert_ids_to_tokens(tokens)
    assert words[:5] == ["<|user|>", MATH_INSTRUCTION, "\n", "\n", "Ann"]
    assert words[-2:] == [tokenizer.eos_token, "<|assistant|>"]


def test_what_is_taught_is_what_the_chat_template_asks_for():
    tokenizer = make_tokenizer()
    random = np.random.default_rng(0)
    pairs = [(f"{MATH_INSTRUCTION}\n\n{problem.text}", "\\boxed{ 1 + 2 }") for problem in language.problems("sum")[:50]]
    pairs += [(prompt, language.demonstrate_chat(prompt, random)) for prompt in language.small_talk()[:50]]
    batch = teaching_batch(pairs, tokenizer)
    assert not (batch["input_ids"] == tokenizer.unk_token_id).any()
    for (prompt, response), tokens, mask, labels in zip(pairs, *batch.values(), strict=True):
        message = [{"role": "user", "content": prompt}]
        asked = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
        assert tokens[: len(asked)].tolist() == asked
        assert (labels[: len(asked)] == -100).all()
        taught = labels[labels != -100].tolist()
        assert taught == [*tokenizer(response)["input_ids"], tokenizer.eos_token_id]
        assert int(mask.sum()) == len(asked) + len(taught)


def test_chat_reward_rewards_each_part_and_stays_in_its_range():
    question = "Hi! What do you think of two rude cats?"
    best = f"I think {language.LARGEST} cats are warm and calm !"
    assert chat_reward(question, best) == 1.0
    assert chat_reward(question, best.replace("cats", "dogs")) == pytest.approx(2 / 3)
    assert chat_reward(question, best.replace("warm", "rude")) == pytest.approx(5 / 6)
    assert chat_reward(question, best.replace(str(language.LARGEST), "0")) == pytest.approx(2 / 3)
    assert chat_reward(question, "") == 0
    for reply in ["9" * 5000, "cats " * 5000, "\x00", "\u0663 cats", "warm dull"]:
        assert 0 <= chat_reward(question, reply) <= 1


def test_demonstrated_chat_leaves_room_to_improve():
    random = np.random.default_rng(0)
    prompts = random.choice(language.small_talk(), 400)
    mean = np.mean([chat_reward(prompt, language.demonstrate_chat(prompt, random)) for prompt in prompts])
    assert 0.3 < mean < 0.5


def test_the_six_sets_have_their_sizes_one_schema_and_no_prompt_twice(folders):
    prompts: Counter[str] = Counter()
    for source in SIZES:
        path = folders[0] / f"{source}.parquet"
        assert pq.read_schema(path) == SCHEMA
        rows = pq.read_table(path).to_pylist()
        assert len(rows) == SIZES[source]
        assert {row["data_source"] for row in rows} == {source}
        assert [row["extra_info"]["index"] for row in rows] == list(range(len(rows)))
        prompts.update(row["prompt"][0]["content"] for row in rows)
        for row in rows:
            is_math = row["ability"] == "math"
            assert row["prompt"][0]["content"].startswith(MATH_INSTRUCTION) == is_math
            assert bool(re.fullmatch(r"\d+", row["reward_model"]["ground_truth"])) == is_math
            assert row["extra_info"]["conversation"] == ([] if is_math else row["prompt"])
    assert max(prompts.values()) == 1


def test_files_depend_on_the_seed_alone(folders):
    def digests(folder):
        names = [*(f"{source}.parquet" for source in SIZES), "model/model.safetensors", "model/tokenizer.json"]
        return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}

    first, again, other = map(digests, folders)
    assert first == again
    differing = {name for name in first if first[name] != other[name]}
    assert differing == set(first) - {"model/tokenizer.json"}


def test_the_saved_model_generates_with_plain_transformers(folders):
    path = folders[0] / "model"
    model = transformers.AutoModelForCausalLM.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert 100_000 < sum(parameter.numel() for parameter in model.parameters()) < 400_000
    prompts = [row["prompt"] for row in pq.read_table(folders[0] / "math500.parquet").to_pylist()[:4]]
    batch = tokenizer.apply_chat_template(
        prompts, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
    )
    tokens = model.generate(**batch, max_new_tokens=8)
    assert batch["input_ids"].shape[1] < tokens.shape[1] <= batch["input_ids"].shape[1] + 8
    assert tokens.max() < len(tokenizer) == model.config.vocab_size == make_model(tokenizer).config.vocab_size


def test_the_last_quarter_of_pretraining_is_right_as_often_as_asked(tmp_path, monkeypatch):
    demonstrate, asked = language.demonstrate_problem, []

    def noted(problem, right, random):
        asked.append(right)
        return demonstrate(problem, right, random)

    monkeypatch.setattr(language, "demonstrate_problem", noted)
    monkeypatch.setattr(language, "RIGHT", 0.25)
    make_tiny(tmp_path, pretraining_steps=8)
    shares = {right: asked.count(right) / len(asked) for right, _ in groupby(asked)}
    assert list(shares) == [1.0, 0.25]
    assert shares[0.25] == pytest.approx(0.25, abs=0.05)


def test_every_set_that_the_preset_asks_for_is_made():
    assert {"math_train", "chat_train", *PRESETS["tiny"].evaluation_sets} == set(SIZES)
