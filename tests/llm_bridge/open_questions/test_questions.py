"""Who has answered what, and the lists of right answers."""

import json

import pytest

from cokl.support.errors import InputError
from llm_bridge.open_questions import questions
from llm_bridge.open_questions.questions import Question, built_in, read

PLACES = Question(
    "Name a place.",
    "city",
    ("Sudan", "South Sudan", "New York", "New York City", "Nice", "São Paulo", "Niger", "Malta"),
)
ANIMALS = Question("Name an animal.", "animal", ("cat", "polar bear", "bear"), places=False)


@pytest.mark.parametrize(
    ("question", "reply", "answer"),
    [
        (PLACES, "The answer is South Sudan.", "South Sudan"),
        (PLACES, "South Sudan, not Sudan", None),
        (PLACES, "Niger, the Niger!", "Niger"),
        (PLACES, "New York City", "New York City"),
        (PLACES, "New Yorkers", None),
        (PLACES, "nice question!", None),
        (PLACES, "1. Sao Paulo\n2. Nice", None),
        (PLACES, "1. Sao Paulo\n2.", "São Paulo"),
        (PLACES, "Sa\u0303o Paulo", "São Paulo"),
        (PLACES, "Nigeria", None),
        (PLACES, "(Niger)", "Niger"),
        (PLACES, "", None),
        (ANIMALS, "The Polar Bear is white", "polar bear"),
        (ANIMALS, "concatenate", None),
        (ANIMALS, "A bear, a cat", None),
        (PLACES, "Malta", "Malta"),
        (PLACES.narrowed(), "Niger", "Niger"),
        (PLACES.narrowed(), "Sao Paulo", "São Paulo"),
        (PLACES.narrowed(), "Malta", None),
        (PLACES.narrowed(), "Malta, Niger", None),
        (ANIMALS.narrowed(), "a bear", None),
        (ANIMALS.narrowed(), "a Polar bear", "polar bear"),
    ],
)
def test_the_answer_is_the_one_name_that_stands_as_whole_words(question, reply, answer):
    assert question.answer(reply) == answer


def test_the_built_in_questions_are_32_of_which_8_of_the_same_kinds_are_held_out():
    asked = built_in()
    held_out = [question for question in asked if question.held_out]
    trained = {question.kind for question in asked if not question.held_out}
    assert (len(asked), len(held_out)) == (32, 8)
    assert {question.kind for question in held_out} <= trained
    assert len(trained) == 7
    assert len({question.text for question in asked}) == 32
    known = {
        "Name a country in Africa.": ("Kenya", "France"),
        "Name a US state.": ("Ohio", "Toronto"),
        "Name a city in Japan.": ("Osaka", "Seoul"),
        "Name a capital city in Asia.": ("Tokyo", "Osaka"),
        "Name a city in Texas.": ("Houston", "Boston"),
        "Name a chemical element.": ("neon", "neutron"),
        "Name an animal.": ("horse", "table"),
        "Name a country where people speak Spanish.": ("Peru", "Japan"),
        "Name a first name for a girl.": ("Anna", "Peter"),
    }
    by_text = {question.text: question for question in asked}
    for text, (right, wrong) in known.items():
        assert by_text[text].answer(right) == right
        assert by_text[text].answer(wrong) is None


def test_lists_of_another_version_are_refused(monkeypatch):
    monkeypatch.setattr(questions, "POPULATION", 90_000)
    with pytest.raises(InputError, match=r"not those of the experiment.*requirements\.lock"):
        built_in()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"question": "Name a bird.", "answers": []}', r"line 1: expected a list of at least one right answer"),
        ('{"question": "Name a bird.", "answers": [" "]}', r"line 1: expected a list of at least one right answer"),
        ('{"question": "Name a bird.", "answers": "wren"}', r"line 1: expected a list"),
        ('{"question": "Name a bird."}', r"line 1: expected a list"),
        ('{"question": "", "answers": ["wren"]}', r'line 1: expected \{"question"'),
        ("[1]", r'line 1: expected \{"question"'),
        ("{", r"line 1: expected JSON"),
        ('{"question": "Q", "answers": ["a"], "held_out": 1}', r"line 1: expected true or false"),
        ('{"question": "Q", "answers": ["a"], "held_out": true}', r"at least one question to train on"),
        ("", r"at least one question to train on"),
    ],
)
def test_a_file_of_ones_own_is_refused_in_one_line(tmp_path, line, message):
    file = tmp_path / "own.jsonl"
    file.write_text(line)
    with pytest.raises(InputError, match=message) as refused:
        read(file)
    assert "\n" not in str(refused.value)


def test_a_file_of_ones_own_is_read_in_utf8_with_or_without_a_mark(tmp_path):
    file = tmp_path / "own.jsonl"
    told = {"question": "Name a café.", "answers": ["Zürich", "Zürich", " Bräu "]}
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text(json.dumps(told, ensure_ascii=False) + "\n\n", encoding=encoding)
        (question,) = read(file)
        assert (question.text, question.names) == ("Name a café.", ("Zürich", "Bräu"))
        assert question.answer("ZURICH!") == "Zürich"  # capitals do not count
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        read(file)
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "none.jsonl")
