"""The process in which answers are parsed and compared, a script that `cokl.responses.verifier` starts.

Standard input brings a request in JSON a line, standard output gives the reason of its verdict a line. The kernel ends
the process when an answer has used its CPU time, and refuses it memory beyond the limit. Standalone: it imports nothing
of ours.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import signal
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

NEAR_THE_LIMIT = 32 << 20
"""Bytes: an answer that came this close to the memory limit was stopped by it, even if math-verify caught the error."""
MOST_ANSWERS = 2000
"""Answers after which the process ends, so that caches of symbolic expressions do not use up its memory."""


def main(seconds: float, memory_bytes: int) -> None:
    """Answer requests until standard input ends, an answer is too much or there were `MOST_ANSWERS`.

    seconds: CPU time per answer. memory_bytes: over the idle process. Raises RuntimeError where math-verify does not
    work: without it no answer would be judged.
    """
    if judge("1\\text{ m}", ["100\\text{ cm}"], False, []) != "correct":  # loads all that answers need
        raise RuntimeError("math-verify does not find 1 m equal to 100 cm")
    replies = os.dup(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    memory_limit = _memory("VmSize") + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    os.write(replies, b"started\n")
    for line in itertools.islice(sys.stdin, MOST_ANSWERS):
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            reason = judge(**json.loads(line))
        except MemoryError:
            reason = "memory"
        signal.setitimer(signal.ITIMER_PROF, 0)
        if reason != "correct" and _memory("VmPeak") > memory_limit - NEAR_THE_LIMIT:
            reason = "memory"
        os.write(replies, f"{reason}\n".encode())
        if reason == "memory":
            return


def judge(gold: str, answers: list[str], multiple: bool, tolerances: list[float]) -> str:
    """Compare the answers in the last boxes of a response with the gold answer; returns the reason of the verdict.

    A list may be in one box or spread over as many boxes as it has members.
    """
    gold, *answers = (typeset(text, multiple) for text in (gold, *answers))
    if not gold:
        return "unreadable_gold"
    golds = _split(gold) if multiple else [gold]
    candidates = [answers[-1]]
    if len(golds) > 1 and len(answers) >= len(golds):
        candidates.append(", ".join(answers[-len(golds) :]))
    for candidate in candidates:
        members = _split(candidate) if multiple else [candidate]
        pairs = [(golds, members)] if multiple else [([one], [other]) for one, other in _in_one_unit(gold, candidate)]
        if tolerances and any(_close(*pair, tolerances) for pair in pairs):
            return "correct"
        # math-verify makes a list a set, in which a member that is named twice counts once.
        if (len(set(golds)) == len(golds) and _equal(gold, candidate)) or (multiple and _all_equal(golds, members)):
            return "correct"
    return "incorrect"


def typeset(text: str, multiple: bool = False) -> str:
    r"""An answer without what is typography, in the LaTeX that math-verify reads.

    Characters take their compatible form (NFKC); dashes, digits of all scripts, fractions in one character, raised and
    lowered characters and roots become LaTeX; control and zero-width characters, spacing and colour commands, an
    introduction such as "The answer is" and a final stop go; digits in groups of three become one number.

    Args:
        text: an answer as LaTeX without dollar signs.
        multiple: the answer is a list separated by commas. There, as in tuples and sets, a comma groups digits only if
            members are separated by a comma and a space, or a semicolon.

    Examples:
        >>> typeset("\\color{red}\u2212\uff11\\,000\u00bd.")
        '-1000\\frac{1}{2}'
    """
    text = unicodedata.normalize("NFKC", "".join(map(_character, text)))
    for pattern, replacement in _TYPOGRAPHY:
        text = pattern.sub(replacement, text)
    if re.search(", |;", text) or not (multiple or re.search(r"[(\[]|\\\{", text)):
        text = re.sub(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)", _joined, text)
    return text.strip()


def _character(character: str) -> str:
    plain = unicodedata.normalize("NFKC", character).replace("\u2212", "-")
    form, kind = unicodedata.decomposition(character).partition(" ")[0], unicodedata.category(character)
    if form == "<fraction>":
        return r"\frac{{{}}}{{{}}}".format(*plain.split("\u2044"))
    if form in ("<super>", "<sub>"):
        return f"{'^' if form == '<super>' else '_'}{{{plain}}}"
    if kind in ("Cc", "Cf"):
        return " " * character.isspace()
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    return "-" if kind == "Pd" else _SYMBOLS.get(plain, plain)


def _joined(number: re.Match[str]) -> str:
    return re.sub(r"[^\d.]", "", number[0])


_FACTORS = {"dozen": "12", "thousand": "10^{3}", "million": "10^{6}", "billion": "10^{9}", "trillion": "10^{12}"}


def _as_factor(word: re.Match[str]) -> str:
    return rf"\cdot {_FACTORS[word[2]]}{word[1] or ''}"


_SYMBOLS = {
    "·": r"\cdot ",
    "∞": r"\infty ",
    "∈": r"\in ",
    "°": r"^\circ ",
    "\u2044": "/",
    "。": ".",
    "、": ",",
}
_CURRENCIES = {r"\$": "dollars", "€": "euros", "£": "pounds"}
_TYPOGRAPHY: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<=[\^_]\{.)\}[\^_]\{(?=.\})"), ""),  # a run of raised or lowered characters
    (re.compile(r"\\(?:fcolorbox ?\{[^{}]*\}|[a-z]*color(?:box)?) ?(?:\[[^][{}]*\])? ?\{[^{}]*\}|(?<!\\)\\!"), ""),
    (re.compile(r"(?:(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z])|thinspace(?![A-Za-z])|$)|~(?!=)|\s)+"), " "),
    (re.compile(r"\\(?:bm|boldsymbol|underline|[lL]arge|[hH]uge)(?![A-Za-z])"), ""),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"^ ?(?:\\text ?\{[^{}]*(?:\bis|[:=]) ?\}|(?i:the (?:final )?)?(?i:answer)(?: is|:| is:) )(?=.)"), ""),
    (re.compile(r"^ ?(?:=|\\approx )"), ""),
    (re.compile(r"(?<![\d.^_])\d{1,3}(?:\.\d{3})?(?:(?:\{,\}|[ '\u2019])\d{3})+(?![\d/])"), _joined),
    (re.compile(r" ?(?:\\text ?\{ ?(?:percent(?:age)?|pct) ?\}|\b(?:percent(?:age)?|pct)\b)"), r"\\%"),
    (re.compile(rf"(?<=\d) ?(\\text ?\{{)? ?({'|'.join(_FACTORS)})\b"), _as_factor),
    (re.compile(r"\\text ?\{ ?\}"), ""),
    (re.compile(r"(?<![\d.,/^_])(\d+) ([1-9]\d?)/([1-9]\d*)(?![\d/])"), r"\1\\frac{\2}{\3}"),
    (re.compile(r"√ ?(\d+|[A-Za-z]|\([^()]*\))"), r"\\sqrt{\1}"),
    (re.compile(r"√"), r"\\sqrt"),
    (re.compile(r"(?<![\\A-Za-z])(pi|exp|ln|log|sin|cos|tan|alpha|beta|lambda|omega|theta)(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"(?<=\d)i(?![A-Za-z])"), " i"),  # otherwise math-verify takes it for a symbol
    (re.compile(r"(?<![. ]) ?[.,;] ?(\}?) ?$"), r"\1"),
    (re.compile(r"^ ?(\\\$|€|£) ?(\d[\d.,]*)$"), lambda money: rf"{money[2]}\text{{ {_CURRENCIES[money[1]]}}}"),
]
_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm)|mbox) ?\{([^{}]*)\}")
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+\.?\d*|\.\d+)e([+-]?\d+)(?![\w.])")
_PERCENT = re.compile(r"(\d+\.?\d*|\.\d+) ?\\?%")
_BARE_UNIT = re.compile(r"(?<=[\d}])( ?)([A-Za-z]+(?:[ /][A-Za-z]+)*)(?![A-Za-z(\\{_])")
_UNIT = re.compile(r"(?:\\(?:text|mathrm|mbox|textrm) ?\{((?:[^{}]|\{\d\})*)\}|\\?%)(?: ?(\^)\{?(\d)\}?)?")
_ALIASES = {"%": "percent", "lb": "pound", "in": "inch", "hr": "hour", "min": "minute", "sec": "second"}


def _equal(gold: str, answer: str) -> bool:
    """Whether two answers are equal as texts, or as mathematics in one unit."""
    return _letters(gold) == _letters(answer) or any(_verified(*pair) for pair in _in_one_unit(gold, answer))


def _all_equal(golds: list[str], answers: list[str]) -> bool:
    """Whether two lists have the same members, in any order."""
    rest = list(answers)
    for gold in golds:
        found = next((answer for answer in rest if _equal(gold, answer)), None)
        if found is None:
            return False
        rest.remove(found)
    return not rest


def _letters(text: str) -> str:
    """A text without fonts, case and spaces, but those between digits; of a multiple choice, its letter."""
    text = _WRAPPED.sub(r"\1", text)
    choice = re.match(r"\(([A-Z])\)(?: |$)", text)
    text = choice[1] if choice else re.sub(r"(?<!\d) +| +(?!\d)", "", text)
    return text if "\\" in text else text.casefold()


class _Term(NamedTuple):
    number: str
    unit: str
    factor: Any
    """To base units; None where sympy knows no such unit, as for its dimension."""
    dimension: Any


def _in_one_unit(gold: str, answer: str) -> list[tuple[str, str]]:
    """The pairs of texts one of which must be equal, in the gold answer's unit.

    A unit that only one side has is dropped, a percentage may then also be a share. Units that sympy does not know must
    have a word in common. No percent sign reaches math-verify, whose parser fails on it beside the antlr4 4.9 that
    VeRL's configuration needs.
    """
    one, other = _terms(gold), _terms(answer)
    if not one and not other:
        return [(_PERCENT.sub(r"\\frac{\1}{100}", gold), _PERCENT.sub(r"\\frac{\1}{100}", answer))]
    dimensions = {term.dimension for term in one + other}
    if one and other and None not in dimensions:
        return [(_sum(one, one[0].factor), _sum(other, one[0].factor))] if len(dimensions) == 1 else []
    if one and other:
        words = [{word.removesuffix("s") for word in re.findall(r"\w+", side[0].unit.lower())} for side in (one, other)]
        return [(one[0].number, other[0].number)] if len(one) == len(other) == 1 and words[0] & words[1] else []
    terms = one or other
    texts = [_sum(terms, 1)] if dimensions == {1} else []
    # A percentage below one is no share without its sign.
    if len(terms) == 1 and not (terms[0].unit == "%" and re.match(r"-?0*(?:\.|$)", terms[0].number)):
        texts.append(terms[0].number)
    return [(text, answer) if one else (gold, text) for text in texts]


def _sum(terms: list[_Term], unit: Any) -> str:
    """The sum of some numbers with units, in one unit."""
    from sympy import latex

    return " + ".join(rf"({term.number.rpartition('=')[2]})\cdot({latex(term.factor / unit)})" for term in terms)


def _terms(text: str) -> list[_Term]:
    """The numbers with units, such as 3 hours and 20 minutes, of an answer that has nothing else; [] for another."""
    text = _BARE_UNIT.sub(lambda bare: rf"\text{{{bare[2]}}}" if _is_unit(bare[2], bare[1]) else bare[0], text)
    *numbers, rest = (re.sub(r"^[ +,]*", "", number) for number in _UNIT.split(text)[::4])
    if rest or not all(numbers):
        return []
    units = [f"{found[1] or '%'}{found[2] or ''}{found[3] or ''}" for found in _UNIT.finditer(text)]
    units = [re.sub(r"^ +|,? *\band *$|[ ,]+$|\.", "", unit) for unit in units]
    terms = [_Term(number, unit, *_measure(unit)) for number, unit in zip(numbers, units, strict=True)]
    return terms if len(set(units)) == len(units) else []  # 5 cm and 3 cm is a list


def _is_unit(words: str, space: str) -> bool:
    """Whether letters after a number, outside \\text, are a unit rather than a product of symbols."""
    if len(words) == 1 and not space:
        return False
    return all(len(word) > 3 or word == "and" or _measure(word)[0] is not None for word in re.split("[ /]", words))


def _measure(unit: str) -> tuple[Any, Any]:
    """A unit's factor to base units, and its dimension."""
    from sympy.physics import units

    factor: Any = 1
    dimension: Any = 1
    unit = re.sub(r"\b(?:square|sq) ([A-Za-z]+)", r"\1^2", re.sub(r"\bcubic ([A-Za-z]+)", r"\1^3", unit))
    for place, part in enumerate(re.split(r" per |/", unit.replace("mph", "mile/hour").replace("tre", "ter"))):
        found = re.fullmatch(r" ?([A-Za-z]+|%) ?\^?\{?(\d?)\}? ?", part)
        names = (found[1], _ALIASES.get(found[1].removesuffix("s"), ""), found[1].lower()) if found else ()
        quantity: Any = next((getattr(units, name) for name in names if hasattr(units, name)), None)
        if found is None or type(quantity) is not units.Quantity:
            return None, None
        exponent = int(found[2] or 1) * (-1 if place else 1)
        factor, dimension = factor * quantity.scale_factor**exponent, dimension * quantity.dimension.name**exponent
    return factor, dimension


def _verified(gold: str, answer: str) -> bool:
    from math_verify import verify

    try:
        golds, answers = _parse(gold), _parse(answer)
        options = {"allow_set_relation_comp": True, "timeout_seconds": None, "raise_on_error": True}
        return any(verify(g, a, **options) and _near(g, a) for g, a in itertools.product(golds, answers))
    except MemoryError:
        raise
    except Exception:
        return False


def _near(gold: Any, answer: Any) -> bool:
    """False for numbers, or containers of numbers, that only rounding to six decimals makes equal."""
    import sympy

    gold, answer = (side.rhs if isinstance(side, sympy.Rel) and side.lhs.is_Symbol else side for side in (gold, answer))
    if getattr(gold, "is_number", False) and getattr(answer, "is_number", False):
        difference, size = (abs(value).evalf(30) for value in (gold - answer, gold))
        return gold.doit() == answer.doit() or bool(difference <= size / 10_000)
    if isinstance(gold, sympy.Interval) and isinstance(answer, sympy.Interval):
        return bool(_near(gold.start, answer.start) and _near(gold.end, answer.end))
    if isinstance(gold, sympy.FiniteSet | sympy.Tuple):
        return all(any(_near(member, other) for other in answer.args) for member in gold.args)
    return True


def _parse(text: str) -> list[Any]:
    """All readings of an answer: 2e-1 is a number in scientific notation or has Euler's number."""
    from math_verify import LatexExtractionConfig, parse
    from math_verify.parser import NormalizationConfig

    # Units are ours, and no number is picked out of an answer that cannot be read as a whole.
    normalization = NormalizationConfig(units=False, malformed_operators=True, nits=True)
    config = [LatexExtractionConfig(normalization_config=normalization)]
    readings: list[Any] = []
    for reading in dict.fromkeys([text, _SCIENTIFIC.sub(r"\1\\cdot10^{\2}", text)]):
        readings += parse(f"\\boxed{{{reading}}}", config, parsing_timeout=None, raise_on_error=True)
    return readings


def _close(golds: list[str], answers: list[str], tolerances: list[float]) -> bool:
    """Whether all numbers agree within their tolerances; one tolerance serves all."""
    if len(golds) != len(answers):
        return False
    wanted, given = _numbers(golds), _numbers(answers)
    if wanted is None or given is None:
        return False
    allowed = tolerances if len(tolerances) == len(golds) else [tolerances[0]] * len(golds)
    pairs = zip(sorted(zip(wanted, allowed, strict=True)), sorted(given), strict=True)
    return all(abs(number - gold) <= tolerance for (gold, tolerance), number in pairs)


def _numbers(texts: list[str]) -> list[float] | None:
    try:
        numbers = [terms[0].number if len(terms := _terms(text)) == 1 else text for text in texts]
        readings = [[reading for reading in _parse(number) if not isinstance(reading, str)] for number in numbers]
        return [float(reading[-1].evalf()) for reading in readings]
    except MemoryError:
        raise
    except Exception:
        return None


def _split(text: str) -> list[str]:
    """The members of a list: split at commas and semicolons outside all brackets."""
    members, depth, start = [], 0, 0
    for position, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark in ",;" and depth == 0:
            members.append(text[start:position])
            start = position + 1
    return [member.strip() for member in [*members, text[start:]] if member.strip()]


def _memory(field: str) -> int:
    """Bytes of a field of this process's status, such as VmSize."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"no {field} in /proc/self/status")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
