"""The tiny world: problems with many correct answers, small talk with a style to learn, and the words of both.

A problem asks to put a number of things, written as a word, into two baskets; every pair that adds up to it is correct,
so an answer cannot be copied from the prompt and the distribution among correct answers means something: each person
prefers another one. A number is stated as it is (plain), as twice another (`math500`) or as a sum (`olympiad`, the
hardest); the training and validation problems mix all three kinds.

Demonstrations end up right only with probability `RIGHT`, which leaves the model pretrained on them room to improve.
Small talk names an animal, a number and two adjectives; the reward is in `chat_reward`, and raising it (larger numbers,
kinder words) pulls at the numbers that problems need.

Assumption beyond the paper: the tiny world is ours; the paper has no experiment of this size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from llm_bridge.data.rows import MATH_INSTRUCTION

LARGEST = 20
RIGHT = 0.5
PREFERENCE_EXPONENT = 1.0
NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
PREFERRED_SHARE = {"Ann": 0.1, "Ben": 0.25, "Cora": 0.4, "Dan": 0.6, "Eve": 0.75, "Finn": 0.9}
"""Where in the range of the first number each person's favourite answer lies."""
THINGS = ("apples", "balls", "books", "coins", "eggs", "keys", "nuts", "pears", "pens", "shells", "stones", "toys")
ANIMALS = ("bears", "birds", "cats", "dogs", "ducks", "foxes", "frogs", "goats", "mice", "owls")
KIND = ("brave", "calm", "clever", "gentle", "lovely", "warm")
UNKIND = ("dull", "grim", "loud", "mean", "messy", "rude")
GREETINGS = ("Hello", "Hey", "Hi", "Please")

Kind = Literal["plain", "double", "sum"]
KIND_SHARES: dict[Kind, float] = {"plain": 0.5, "double": 0.2, "sum": 0.3}


@dataclass(frozen=True)
class Problem:
    """`total` things are to be put into two baskets; `text` says so."""

    person: str
    total: int
    text: str


def problems(kind: Kind) -> list[Problem]:
    """Every problem of a kind."""
    amounts = {
        "plain": [(n, f"{NUMBER_WORDS[n]} {{}}") for n in range(4, LARGEST + 1)],
        "double": [(2 * n, f"twice {NUMBER_WORDS[n]} {{}}") for n in range(2, LARGEST // 2 + 1)],
        "sum": [
            (n + more, f"{NUMBER_WORDS[n]} {{}} and {NUMBER_WORDS[more]} more")
            for n, more in product(range(2, LARGEST), range(2, LARGEST))
            if n + more <= LARGEST
        ],
    }
    return [
        Problem(person, total, f"{person} puts {amount.format(thing)} into two baskets.")
        for (total, amount), person, thing in product(amounts[kind], PREFERRED_SHARE, THINGS)
    ]


def small_talk() -> list[str]:
    """Every chat prompt."""
    return [
        f"{greeting}! What do you think of {NUMBER_WORDS[number]} {adjective} {animals}?"
        for greeting, number, adjective, animals in product(GREETINGS, range(2, LARGEST + 1), KIND + UNKIND, ANIMALS)
    ]


def demonstrate_problem(problem: Problem, right: float, random: np.random.Generator) -> str:
    """An answer of the kind that the model is pretrained on: right with probability `right`, else off by 1 to 4."""
    first = random.choice(problem.total - 1, p=preference(problem)) + 1
    second = problem.total - first
    if random.random() >= right:
        near = [number for number in range(max(second - 4, 0), min(second + 4, LARGEST) + 1) if number != second]
        second = random.choice(near)
    return f"\\boxed{{ {first} + {second} }}"


def preference(problem: Problem) -> np.ndarray:
    """Probabilities of the first number being 1, ..., total - 1: a Zipf law around the person's favourite."""
    firsts = np.arange(1, problem.total)
    favourite = PREFERRED_SHARE[problem.person] * problem.total
    ranks = np.argsort(np.argsort(np.abs(firsts - favourite), kind="stable"), kind="stable") + 1
    weights = ranks**-PREFERENCE_EXPONENT
    return weights / weights.sum()


def demonstrate_chat(prompt: str, random: np.random.Generator) -> str:
    """A reply of the kind that the model is pretrained on: to the point, kind and generous at times only."""
    asked = prompt.rstrip("?").split()[-1]
    animals = asked if random.random() < 0.5 else random.choice(ANIMALS)
    adjectives = [random.choice(KIND if random.random() < 0.4 else UNKIND) for _ in range(2)]
    number = random.binomial(LARGEST, 0.3)
    return f"I think {number} {animals} are {adjectives[0]} and {adjectives[1]} !"


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


def vocabulary() -> Iterator[str]:
    """Every word, in a fixed order."""
    yield MATH_INSTRUCTION
    yield from ("\\boxed{", "}", "+", "!", "?", ".", "I", "What", "do", "you", "think", "of", "are", "and")
    yield from ("puts", "into", "two", "baskets", "more", "twice")
    yield from (str(number) for number in range(LARGEST + 1))
    yield from (word for word in NUMBER_WORDS if word != "two")
    for words in (PREFERRED_SHARE, THINGS, ANIMALS, KIND, UNKIND, GREETINGS):
        yield from words
