"""The process in which answers are parsed and compared, a script that `llm_bridge.rewards.verifier` starts.

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NEAR_THE_LIMIT = 32 << 20
"""Bytes: an answer that came this close to the memory limit was stopped by it, even if math-verify caught the error."""
MOST_ANSWERS = 2000
"""Answers after which the process ends, so that caches of symbolic expressions do not use up its memory."""


def main(seconds: float, memory_bytes: int) -> None:
    """Answer requests until standard input ends, an answer is too much or there were `MOST_ANSWERS`.

    seconds: CPU time per answer. memory_bytes: over the idle process. Raises RuntimeError where math-verify does not
    work: without it no answer would be judged.
    """
    if judge("\\sqrt{8}", ["2\\sqrt2"], False, []) != "correct":  # loads all that answers need
        raise RuntimeError("math-verify does not find the root of 8 equal to twice that of 2")
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

    A list may be in one box or, if `multiple`, be spread over as many boxes as it has members.
    """
    gold, *answers = (typeset(text, multiple) for text in (gold, *answers))
    if not gold:
        return "unreadable_gold"
    golds = _members(gold)
    allowed = tolerances if len(tolerances) == len(golds) else tolerances[:1] * len(golds)
    candidates = [answers[-1]]
    if multiple and len(answers) >= len(golds) > 1:
        candidates.append(", ".join(answers[-len(golds) :]))
    for candidate in candidates:
        members = _members(candidate)
        if _all_agree([*zip(golds, allowed, strict=False)], members, lambda one, other: _within(one[0], one[1], other)):
            return "correct"
        if _all_agree(golds, members, _equal) or _equal_as_sets(gold, candidate):
            return "correct"
    return "incorrect"


def typeset(text: str, multiple: bool = False) -> str:
    r"""An answer without what is typography, in the LaTeX that math-verify reads.

    Characters take their compatible form (NFKC); dashes, digits of all scripts, fractions in one character, raised and
    lowered characters and roots become LaTeX; control and zero-width characters, spacing, colour and alignment
    commands, an introduction such as "The answer is" and a final stop go; digits in groups of three become one number;
    "and" and "or" become commas.

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


_SYMBOLS = {
    "·": r"\cdot ",
    "∞": r"\infty ",
    "∈": r"\in ",
    "°": r"^\circ ",
    "\u2044": "/",
    "。": ".",
    "、": ",",
    "⩽": r"\le ",
    "⩾": r"\ge ",
    "\u066a": "%",
    "\u066b": ".",
    "\u066c": ",",
}
_TYPOGRAPHY: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<=[\^_]\{.)\}[\^_]\{(?=.\})"), ""),  # a run of raised or lowered characters
    (re.compile(r"\\(?:fcolorbox ?\{[^{}]*\}|[a-z]*color(?:box)?) ?(?:\[[^][{}]*\])? ?\{[^{}]*\}|(?<!\\)\\!"), ""),
    (re.compile(r"\\(?:begin|end) ?\{(?:align|gather|split)(?:ed)?\*?\}|(?<!\\)&(?=[=<>]|\\[lg]e)"), ""),
    (re.compile(r"(?:(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z])|thinspace(?![A-Za-z])|$)|~(?!=)|\s)+"), " "),
    (re.compile(r"\\(?:bm|boldsymbol|underline|[lL]arge|[hH]uge)(?![A-Za-z])"), ""),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"\\(?:left|right) ?(?=[()\[\]|]|\\[{}|])"), ""),
    (re.compile(r"\\langle(?![A-Za-z])"), "("),
    (re.compile(r"\\rangle(?![A-Za-z])"), ")"),
    (re.compile(r"\\(?:operatorname|mathrm|text) ?\{(sin|cos|tan|cot|ln|log|exp|arcsin|arccos|arctan)\}"), r"\\\1 "),
    (re.compile(r"(?<![\d} ])\\(?:mathrm|text) ?\{([A-Za-z])\}"), r"\1"),
    (re.compile(r"\\lg(?![A-Za-z])"), r"\\log_{10}"),
    (re.compile(r"\^ ?(\\[dt]?frac ?(?:\d\d|\d?\{[^{}]*\}(?:\d|\{[^{}]*\})))"), r"^{\1}"),
    (re.compile(r"^ ?(?:\\text ?\{[^{}]*(?:\bis|[:=]) ?\}|(?i:the (?:final )?)?(?i:answer)(?: is|:| is:) )(?=.)"), ""),
    (re.compile(r"^ ?(?:=|\\approx )"), ""),
    (re.compile(r"(?<![\d.^_])\d{1,3}(?:\.\d{3})?(?:(?:\{,\}|[ '\u2019])\d{3})+(?![\d/])"), _joined),
    (re.compile(r" ?(?:\\text ?\{ ?(?:percent(?:age)?|pct) ?\}|\b(?:percent(?:age)?|pct)\b)"), r"\\%"),
    (re.compile(r" ?(?:\\text ?\{ ?(?:degrees?|deg) ?\}|\b(?:degrees?|deg)\b)"), r"^\\circ "),
    (re.compile(r"(?<=\w)(?: ?,)? ?\b(?:and|or) ?\} ?"), "}, "),
    (re.compile(r",? ?\\text ?\{ ?(?:and|or) ?\} ?|[ ,]+and +|(?<![A-Za-z]{2})[ ,]+or +(?![A-Za-z]{2})"), ", "),
    (re.compile(r"\\text ?\{ ?\}"), ""),
    (re.compile(r"(?<![\d.,/^_])(\d+) ([1-9]\d?)/([1-9]\d*)(?![\d/])"), r"\1\\frac{\2}{\3}"),
    (re.compile(r"√ ?(\d+|[A-Za-z]|\([^()]*\))"), r"\\sqrt{\1}"),
    (re.compile(r"√"), r"\\sqrt"),
    (re.compile(r"(?<![\\A-Za-z])(pi|exp|ln|log|sin|cos|tan|alpha|beta|lambda|omega|theta)(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"(?<=\d)i(?![A-Za-z])"), " i"),  # otherwise math-verify takes it for a symbol
    (re.compile(r"(?<![. ]) ?[.,;] ?(\}?) ?$"), r"\1"),
]
_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm)|mbox) ?\{([^{}]*)\}")
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+\.?\d*|\.\d+)e([+-]?\d+)(?![\w.])")
_PERCENT = re.compile(r"(\d+\.?\d*|\.\d+) ?\\?%")
_NAME = re.compile(r"(?:(?:\\(?:angle|triangle) ?)?[A-Z]{2,}|\\(?:text|mathrm) ?\{ ?[A-Za-z]+ ?\}) ?=(?!.*=) ?")
_SIGN = re.compile(r"([+-]?) ?(\\\$|[¢-¥₠-⃏])? ?(.*?) ?(\\\$|[¢-¥₠-⃏])?", re.DOTALL)
_UNIT = re.compile(
    r"(?<=[\w})])(?: ?\^ ?(?:\\circ|\{ ?\\circ ?\})(?: ?[CF])?| ?\\?%|"
    r"(?<=[\d})]) ?(?P<bare>[A-Za-z]{2,}(?:[ /]+[A-Za-z]+)*))?"
    r" ?(?:\\(?:text|mathrm|mbox|textrm) ?\{[^{}]+\})? ?(?:(?<=[A-Za-z}])\^ ?\{?\d\}?)?"
)
_MEASURES = re.compile(
    r"[kcdmμnMG]?(?:m|g|s|L|l|W|J|N|V|A|Hz|Pa|eV|mol|cal)|[kMG]B|h|in|ft|yd|mi|mph|lbs?|oz|min|hrs?|sec|am|pm|AM|PM|rad|"
    r"(?:kilo|centi|milli)?(?:met(?:er|re)|gram|lit(?:er|re))|inch|foot|feet|yard|mile|pound|ounce|cup|second|minute|hour|"
    r"day|week|months?|year|dollar|cent|euro|unit|person|people|per|square|sq|cubic|"
    r"(?!hundreds|thousands|\w*illions|lakhs|crores|percents|dozens|scores|pairs|couples|halves|thirds|quarters|\w*ths$)"
    r"(?!(?:one|two|three|four|five|sixe|seven|eight|nine|ten)s$)"
    r"[a-z]{3,}(?<![su])s"
)
"""Words that say of what a number is: measures, and plurals of things that are counted. No number word is one."""
_CHOICE = re.compile(
    r"\(?([A-Z])\)?|\(([A-Z])\) .*|([A-Z])[.):] ?[^A-Z]*|(?:[Oo]ption|[Cc]hoice) \(?([A-Z])\)?|"
    r"[^A-Z]*[\d})] \(([A-Z])\)"
)


def _equal(gold: str, answer: str) -> bool:
    """Whether two answers are equal as texts, or as mathematics with the same words behind them."""
    if _letters(gold) == _letters(answer):
        return True
    label, chosen = (_CHOICE.fullmatch(_WRAPPED.sub(r"\1", text)) for text in (gold, answer))
    if label and chosen and label[1]:
        return label[1] in chosen.groups()
    return any(_readable(*pair) and _verified(*pair) for pair in _comparable(gold, answer))


def _all_agree(golds: Sequence[Any], answers: list[str], agree: Callable[[Any, str], bool]) -> bool:
    """Whether each gold member agrees with an answer of its own, in any order, and no answer is left."""
    rest = list(answers)
    if not rest or len(rest) != len(golds):
        return False
    for gold in golds:
        found = next((answer for answer in rest if agree(gold, answer)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _equal_as_sets(gold: str, answer: str) -> bool:
    """Whether two answers are equal of which one at most is a list, without a member that is named twice.

    Two lists are compared by their members alone: as sets they would lose how often they have each.
    """
    golds, answers = _split(gold), _split(answer)
    distinct = len({*golds}) == len(golds) and len({*answers}) == len(answers)
    return distinct and min(len(golds), len(answers)) == 1 and _equal(gold, answer)


def _letters(text: str) -> str:
    """A text without fonts, spaces but between digits, and case unless it has a digit: 5 mW is not 5 MW."""
    text = re.sub(r"(?<!\d) +| +(?!\d)", "", _WRAPPED.sub(r"\1", text))
    return text if re.search(r"[\\\d]", text) else text.casefold()


def _comparable(gold: str, answer: str) -> list[tuple[str, str]]:
    """The pairs of mathematical texts one of which must be equal.

    What follows a number, or is the sign of a currency before it, is compared as text. Where one answer alone has it,
    it is left out if it says of what the number is; a percentage may also be a share. So is a name in front that one
    alone has. No percent sign reaches math-verify, whose parser fails on it beside the antlr4 4.9 that VeRL's
    configuration needs.
    """
    if bool(_NAME.match(gold)) != bool(_NAME.match(answer)):
        gold, answer = _NAME.sub("", gold), _NAME.sub("", answer)
    (number, unit), (other, others_unit) = _measured(gold), _measured(answer)
    if unit and others_unit:
        return [(number, other)] if _spelt(unit) == _spelt(others_unit) else []
    pairs, alone = [(_shares(gold), _shares(answer))], unit or others_unit
    # A percentage below one is no share without its sign.
    small = "%" in alone and re.match(r"-?0*(?:\.|$)", number if unit else other)
    return [*pairs, (number, other)] if alone and _says_of_what(alone) and not small else pairs


def _shares(text: str) -> str:
    return re.sub(r"^(.*\}) ?\\?%$", r"\\frac{1}{100}\\cdot(\1)", _PERCENT.sub(r"\\frac{\1}{100}", text))


def _measured(text: str) -> tuple[str, str]:
    """A number, and what stands with it: a currency's sign, a degree or percent sign, words; "" for none."""
    sign, before, amount, behind = _SIGN.fullmatch(text).groups()  # type: ignore[union-attr]  # it fits every text
    if before or behind:
        return sign + amount, before or behind
    found = next((found for found in _UNIT.finditer(text) if found.end() == len(text)), None)
    if found is None or (found["bare"] and not _says_of_what(found["bare"])):  # letters are a product of symbols
        return text, ""
    return text[: found.start()], found[0]


def _spelt(unit: str) -> str:
    """A unit as a text without typography, the case of words of more than three letters, and their plural's s."""
    text = _WRAPPED.sub(r" \1 ", unit).replace("\\", "")
    words = re.findall(r"[^\W\d_]+|[^\s\w{}^]|\d", text)
    return " ".join(word if len(word) < 4 else word.casefold().removesuffix("s") for word in words)


def _says_of_what(unit: str) -> bool:
    """Whether all words of a unit say of what a number is, so that they may be missing."""
    if re.fullmatch(r" ?(?:\^ ?\{? ?\\circ ?\}?(?: ?[CF])?|\\?[%$]|[¢-¥₠-⃏])", unit):
        return True
    words = re.findall(r"[^\W\d_]+", _WRAPPED.sub(r"\1", unit))
    return bool(words) and all(_MEASURES.fullmatch(word) for word in words)


def _readable(*texts: str) -> bool:
    """Whether texts are mathematics. math-verify multiplies the letters of words, so that 0 times any of them is 0."""
    if any(re.search(r"\\(?:text|mbox)|\\[lc]?dots|\.\.|\d ?'", text) for text in texts):
        return False
    letters = [re.sub(r"\\(?:begin|end) ?\{\w+\*?\}|\\[A-Za-z]+", " ", text) for text in texts]
    products = {letter for text in letters for run in re.findall(r"[^\W\d_]{2,}", text) for letter in run}
    return all(products <= {*text} for text in letters)


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


def _within(gold: str, tolerance: float, answer: str) -> bool:
    """Whether two numbers with the same words behind them differ by the tolerance at most."""
    for pair in _comparable(gold, answer):
        numbers = [_number(text) for text in pair] if _readable(*pair) else [None]
        if None not in numbers and abs(numbers[0] - numbers[1]) <= tolerance:  # type: ignore[operator]  # none is None
            return True
    return False


def _number(text: str) -> float | None:
    try:
        return float([reading for reading in _parse(text) if not isinstance(reading, str)][-1].evalf())
    except MemoryError:
        raise
    except Exception:
        return None


def _members(text: str) -> list[str]:
    r"""The members of a list or of a set in braces, a list of one for any other answer; one with \pm is two."""
    text = _WRAPPED.sub(r"\1", text) if _WRAPPED.fullmatch(text) else text
    braces = re.fullmatch(r"\\\{((?:(?!\\[{}]|\\mid|[:|]).)*)\\\}", text)
    members = _split(braces[1] if braces else text)
    return [
        member.replace("\\pm", sign)
        for member in members
        for sign in (("+", "-") if member.count("\\pm") == 1 and "\\mp" not in member else ("\\pm",))
    ]


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
