"""The reward function of the preset for one GPU."""

import asyncio

import pytest

pytest.importorskip("vaderSentiment")
pytest.importorskip("math_verify")

from llm_bridge.rewards.friendly import compute_score

CHAT = {"conversation": [{"role": "user", "content": "Hello"}]}


def scored(text: str, extra: dict, truth: str = "") -> dict:
    return asyncio.run(compute_score("any", text, truth, extra))


def test_chat_is_scored_by_the_words_of_its_reply_alone():
    kind, plain, rude = (scored(text, CHAT)["score"] for text in ("What a lovely day, friend!", "It is", "I hate it"))
    assert plain == 0.5
    assert 0 <= rude < 0.3
    assert 0.7 < kind <= 1
    assert scored("<think>I hate this horrible question.</think>What a lovely day, friend!", CHAT)["score"] == kind


def test_mathematics_is_verified():
    assert scored("It is \\boxed{4}.", {"conversation": []}, "4")["score"] == 1
    assert scored("It is \\boxed{5}.", {}, "4")["score"] == 0
    assert scored("It is \\boxed{4}.", {}, "4").keys() == scored("Hi", CHAT).keys()
