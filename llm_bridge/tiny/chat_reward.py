"""The tiny preset's chat reward: a program in place of a reward model."""

from __future__ import annotations

import re

from llm_bridge.tiny.language import ANIMALS, KIND, LARGEST, UNKIND


def chat_reward(question: str, reply: str) -> float:
    """How much a reply is to the point, kind and generous: a mean of three shares, in [0, 1].

    To the point: it names the animal asked about and no other. Kind: the share of kind words among the adjectives.
    Generous: the first number it names, relative to the largest there is. What is missing counts 0.
    """
    words = re.findall(r"\w+", reply)
    asked = {word for word in re.findall(r"\w+", question) if word in ANIMALS}
    named = {word for word in words if word in ANIMALS}
    adjectives = [word in KIND for word in words if word in KIND + UNKIND]
    numbers = [int(word) for word in words if re.fullmatch(r"[0-9]{1,3}", word)]
    to_the_point = float(bool(asked) and named == asked)
    kind = sum(adjectives) / len(adjectives) if adjectives else 0.0
    generous = min(next(iter(numbers), 0) / LARGEST, 1.0)
    return (to_the_point + kind + generous) / 3
