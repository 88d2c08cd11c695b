"""The process in which answers are parsed and compared, a script that `llm_bridge.rewards.verifier` starts.

A pipe brings the arguments of `judge` and takes the reason of its verdict. The kernel ends the process when an answer
has used its CPU time, and refuses it memory beyond the limit. Standalone: it imports nothing of ours.
"""

from __future__ import annotations

import importlib
import itertools
import re
import resource
import signal
import sys
import unicodedata
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

NEAR_THE_LIMIT = 32 << 20
"""Bytes: an answer that came this close to the memory limit was stopped by it, even if math-verify caught the error."""
MOST_ANSWERS = 2000
"""Answers after which the process ends, so that caches of symbolic expressions do not use up its memory."""


def main(pipe: Connection, seconds: str, memory_bytes: str) -> None:
    """Say "started" or what is wrong; judge until the pipe ends, an answer is too much or there were `MOST_ANSWERS`.

    seconds: CPU time per answer. memory_bytes: over the idle process.
    """
    try:
        importlib.import_module("math_verify")  # whose error a verdict would not tell
        if judge("\\sqrt{8}", ["2\\sqrt2"], False, []) != "correct":  # loads all that answers need
            raise RuntimeError("math-verify does not find the root of 8 equal to twice that of 2")
        cpu_seconds, memory_limit = float(seconds), _memory("VmSize") + int(memory_bytes)
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    except Exception as error:
        pipe.send_bytes(f"{type(error).__name__}: {error}".encode()[:1000])
        return
    pipe.send_bytes(b"started")
    for _ in range(MOST_ANSWERS):
        request = pipe.recv()
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            reason = judge(*request)
        except MemoryError:
            reason = "memory"
        signal.setitimer(signal.ITIMER_PROF, 0)
        if reason != "correct" and _memory("VmPeak") > memory_limit - NEAR_THE_LIMIT:
            reason = "memory"
        pipe.send_bytes(reason.encode())
        if reason == "memory":
            return


def judge(gold: str, answers: Sequence[str], multiple: bool, tolerances: Sequence[float]) -> str:
    """Compare the answers in the last boxes of a response with the gold answer; returns the reason of the verdict.

    A list may be in one box or, if `multiple`, be spread over as many boxes as it has members.
    """
    gold, *answers = (typeset(text, multiple) for text in (gold, *answers))
    golds = _members(gold)
    if not golds:
        return "unreadable_gold"
    allowed = tolerances if len(tolerances) == len(golds) else [*tolerances, 0.0][:1] * len(golds)
    candidates = [answers[-1]]
    if multiple and len(answers) >= len(golds) > 1:
        candidates.append(", ".join(answers[-len(golds) :]))
    for candidate in candidates:
        members = _members(candidate)
        if len(members) == len(golds):
            agree = _all_agree(golds, members, allowed)
        else:  # one may be a list in another form; as sets, two lists would lose how often they have a member
            distinct = len({*golds}) == len(golds) and len({*members}) == len(members)
            agree = distinct and 1 in (len(golds), len(members)) and _equal(gold, candidate, 0.0)
        if agree:
            return "correct"
    return "incorrect"


def typeset(text: str, multiple: bool = False) -> str:
    r"""An answer without what is typography, in the LaTeX that math-verify reads.

    Characters of all scripts become LaTeX; spacing, colour, alignment, an introduction and a final stop go; digits in
    groups of three become one number; "and" and "or" become commas; a currency's sign goes behind its number.

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
        text = re.sub(pattern, replacement, text)
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
_COMMANDS = {"langle": "(", "rangle": ")", "lg": r"\log_{10}", "varnothing": r"\emptyset"}
_NAMES = "pi|exp|ln|log|sin|cos|tan|cot|arcsin|arccos|arctan|alpha|beta|lambda|omega|theta"
_CURRENCY = r"(?:\\\$|[¢-¥₠-⃏])"
_TYPOGRAPHY: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"(?<=[\^_]\{.)\}[\^_]\{(?=.\})", ""),  # a run of raised or lowered characters
    (r"\\(?:fcolorbox ?\{[^{}]*\}|[a-z]*color(?:box)?) ?(?:\[[^][{}]*\])? ?\{[^{}]*\}|(?<!\\)\\!", ""),
    (r"\\(?:begin|end) ?\{(?:align|gather|split)(?:ed)?\*?\}|(?<!\\)&(?=[=<>]|\\[lg]e)", ""),
    (r"(?:(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z])|thinspace(?![A-Za-z])|$)|~(?!=)|\s)+", " "),
    (rf"\\({'|'.join(_COMMANDS)})(?![A-Za-z])", lambda command: _COMMANDS[command[1]]),
    (r"\\(?:bm|boldsymbol|underline|[lL]arge|[hH]uge|left|right)(?![A-Za-z])", ""),
    (r"(?<![\d} ])\\(?:mathrm|text) ?\{([A-Za-z])\}", r"\1"),
    (r"\^ ?(\\[dt]?frac ?(?:\d\d|\d?\{[^{}]*\}(?:\d|\{[^{}]*\})))", r"^{\1}"),
    (r"^ ?(?:\\text ?\{[^{}]*(?:\bis|[:=]) ?\}|(?i:(?:the )?(?:final )?answer(?: is)?:? ))(?=.)", ""),
    (r"^ ?(?:=|\\approx )", ""),
    (r"(?<![\d.^_])\d{1,3}(?:\.\d{3})?(?:(?:\{,\}|[ '\u2019])\d{3})+(?![\d/])", _joined),
    (rf"({_CURRENCY}) ?(-?(?:\d+(?:[.,]\d+)*|\.\d+|\\frac ?(?:\d\d|\{{\d+\}}\{{\d+\}})|[a-z](?![A-Za-z])))", r"\2\1"),
    (r" ?(?:\\text ?\{ ?(?:percent(?:age)?|pct) ?\}|\b(?:percent(?:age)?|pct)\b)", r"\\%"),
    (r" ?(?:\\text ?\{ ?(?:degrees?|deg) ?\}|(?<!\\)\b(?:degrees?|deg)\b)", r"^\\circ "),
    (r",? ?\\text ?\{ ?(?:and|or) ?\} ?|[ ,]+and +|(?<![A-Za-z]{2})[ ,]+or +(?![A-Za-z]{2})", ", "),
    (r"(?<![\d.,/^_])(\d+) ([1-9]\d?)/([1-9]\d*)(?![\d/])", r"\1\\frac{\2}{\3}"),
    (r"\\text ?\{ ?\}", ""),
    (r"√ ?(\d+|[A-Za-z]|\([^()]*\)|\{[^{}]*\})", r"\\sqrt{\1}"),
    (r"√", r"\\sqrt"),
    (rf"\\(?:operatorname|mathrm|text) ?\{{({_NAMES})\}}|(?<![\\A-Za-z])({_NAMES})(?![A-Za-z])", r"\\\1\2 "),
    (r"(?<=\d)i(?![A-Za-z])", " i"),  # otherwise math-verify takes it for a symbol
    (r"(?<![. ]) ?[.,;] ?(\}?) ?$", r"\1"),
]
_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm)|mbox) ?\{([^{}]*)\}")
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+\.?\d*|\.\d+)e([+-]?\d+)(?![\w.])")
_PERCENT = re.compile(r"(\d+\.?\d*|\.\d+) ?\\?%")
_NAME = re.compile(r"(?:(?:\\(?:angle|triangle) ?)?[A-Z]{2,}|\\(?:text|mathrm) ?\{ ?[A-Za-z]+ ?\}) ?=(?!.*=) ?")
_SIGN = rf"\^ ?\{{? ?\\circ ?\}}?(?: ?[CF])?|\\?%|{_CURRENCY}"
_UNIT = re.compile(
    rf"(?<=[\w}})]) ?(?:{_SIGN})?"
    r"(?: ?(?:(?<=[\d})])|(?<=[\d})] ))(?P<bare>[A-Za-z]{2,}(?:[ /]+[A-Za-z]+)*))?"
    r"(?: ?\\(?:text|mathrm|mbox|textrm) ?\{[^{}]+\})?"
    r"(?: ?(?<=[A-Za-z}])\^ ?\{?\d\}?)?$"
)
_MEASURES = re.compile(
    r"[kcdmμnMG]?(?:m|g|s|L|l|W|J|N|V|A|Hz|Pa|eV|mol|cal)|[kMG]B|h|in|ft|yd|mi|mph|lbs?|oz|min|hrs?|sec|am|pm|AM|PM|rad|"
    r"foot|feet|inch|yard|mile|pound|ounce|cup|(?:kilo|centi|milli)?(?:met(?:er|re)|lit(?:er|re)|gram)|second|minute|hour|day|"
    r"week|months?|year|dollar|cent|euro|unit|person|people|per|square|sq|cubic|"
    r"(?!(?:one|two|three|four|five|sixe|seven|eight|nine|ten|hundred|thousand|\w*illion|lakh|crore|percent|dozen|score|"
    r"pair|couple|halve|third|quarter|\w*th)s$)[a-z]{3,}(?<![su])s"
)
"""Words that say of what a number is: measures, and plurals of things that are counted. No number word is one."""
_CHOICE = re.compile(
    r"\(?([A-Z])\)?|\(([A-Z])\) .*|([A-Z])[.):] ?[^A-Z]*|(?:[Oo]ption|[Cc]hoice) \(?([A-Z])\)?|"
    r"[^A-Z]*[\d})] \(([A-Z])\)"
)


def _members(text: str) -> list[str]:
    r"""The members of a list or of a set in braces, a list of one for any other answer; one with \pm is two."""
    text = _WRAPPED.sub(r"\1", text) if _WRAPPED.fullmatch(text) else text
    braces = re.fullmatch(r"\\\{((?:(?!\\[{}]|\\mid|[:|]).)*)\\\}", text)
    members, depth = [""], 0
    for mark in braces[1] if braces else text:
        depth += (mark in "([{") - (mark in ")]}")
        if mark in ",;" and depth == 0:
            members.append("")
        else:
            members[-1] += mark
    return [
        member.strip().replace("\\pm", sign)
        for member in members
        for sign in (("+", "-") if member.count("\\pm") == 1 and "\\mp" not in member else ("\\pm",))
        if member.strip()
    ]


def _all_agree(golds: list[str], answers: list[str], allowed: Sequence[float]) -> bool:
    """Whether each gold member agrees, within what is allowed it, with an answer of its own, in any order."""
    rest = list(answers)
    for gold, tolerance in zip(golds, allowed, strict=True):
        found = next((answer for answer in rest if _equal(gold, answer, tolerance)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _equal(gold: str, answer: str, tolerance: float) -> bool:
    """Whether two answers are equal as texts, or as mathematics with the same words behind them."""
    if _letters(gold) == _letters(answer):
        return True
    label, chosen = (_CHOICE.fullmatch(_WRAPPED.sub(r"\1", text)) for text in (gold, answer))
    if label and chosen and label[1]:
        return label[1] in chosen.groups()
    return any(_readable(*pair) and _verified(*pair, tolerance) for pair in _comparable(gold, answer))


def _letters(text: str) -> str:
    """A text without fonts, spaces but between digits, and case unless it has a digit: 5 mW is not 5 MW."""
    text = re.sub(r"(?<!\d) +| +(?!\d)", "", _WRAPPED.sub(r"\1", text))
    return text if re.search(r"[\\\d]", text) else text.casefold()


def _comparable(gold: str, answer: str) -> list[tuple[str, str]]:
    """The pairs of mathematical texts one of which must be equal.

    What follows a number is compared as text. Where one answer alone has it, it is left out if it says of what the
    number is; a percentage may also be a share. So is a name in front that one alone has. No percent sign reaches
    math-verify, whose parser fails on it beside the antlr4 4.9 that VeRL's configuration needs.
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
    """A number, and what stands behind it: a currency's sign, a degree or percent sign, words; "" for none."""
    found = _UNIT.search(text)
    if found is None or (found["bare"] and not _says_of_what(found["bare"])):  # letters are a product of symbols
        return text, ""
    return text[: found.start()], found[0]


def _spelt(unit: str) -> str:
    """A unit as a text without typography, the case of words of more than three letters, and their plural's s."""
    text = _WRAPPED.sub(r" \1 ", unit).replace("\\", "")
    words = re.findall(r"[^\W\d_]+|[^\s\w{}^]|\d", text)
    return " ".join(word if len(word) < 4 else word.casefold().removesuffix("s") for word in words)


def _says_of_what(unit: str) -> bool:
    """Whether a unit is a sign or words, all of which say of what a number is, so that it may be missing."""
    text = _WRAPPED.sub(r"\1", unit).strip()
    words = re.findall(r"[^ /.,()-]+", re.sub(rf"{_SIGN}|\^ ?\{{?\d\}}?", " ", text))
    return bool(words or re.match(_SIGN, text)) and all(_MEASURES.fullmatch(word) for word in words)


def _readable(*texts: str) -> bool:
    """Whether texts are mathematics. math-verify multiplies the letters of words, so that 0 times any of them is 0."""
    if any(re.search(r"\\(?:text|mbox)|\\[lc]?dots|\.\.|\d ?'", text) for text in texts):
        return False
    letters = [re.sub(r"\\(?:begin|end) ?\{\w+\*?\}|\\[A-Za-z]+", " ", text) for text in texts]
    products = {letter for text in letters for run in re.findall(r"[^\W\d_]{2,}", text) for letter in run}
    return all(products <= {*text} for text in letters)


def _verified(gold: str, answer: str, tolerance: float) -> bool:
    try:
        return any(_agree(one, other, tolerance) for one, other in itertools.product(_parse(gold), _parse(answer)))
    except MemoryError:
        raise
    except Exception:
        return False  # not mathematics


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


def _agree(gold: Any, answer: Any, tolerance: float) -> bool:
    """Whether numbers differ by the tolerance at most, or math-verify finds two readings equal and they are near."""
    from math_verify import verify

    if tolerance and _are_numbers(gold, answer) and abs(gold - answer).evalf(30) <= tolerance:
        return True
    equal = verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True)
    return equal and _near(gold, answer)


def _near(gold: Any, answer: Any) -> bool:
    """False for numbers, or containers of numbers, that only rounding to six decimals makes equal."""
    import sympy

    gold, answer = (side.rhs if isinstance(side, sympy.Rel) and side.lhs.is_Symbol else side for side in (gold, answer))
    if _are_numbers(gold, answer):
        return gold.doit() == answer.doit() or bool(abs(gold - answer).evalf(30) <= abs(gold).evalf(30) / 10_000)
    if isinstance(gold, sympy.Interval) and isinstance(answer, sympy.Interval):
        return _near(gold.start, answer.start) and _near(gold.end, answer.end)
    if isinstance(gold, sympy.FiniteSet | sympy.Tuple):
        return all(any(_near(member, other) for other in answer.args) for member in gold.args)
    return True


def _are_numbers(*values: Any) -> bool:
    return all(getattr(value, "is_number", False) for value in values)


def _memory(field: str) -> int:
    """Bytes of a field of this process's status, such as VmSize."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) << 10


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), *sys.argv[2:])
