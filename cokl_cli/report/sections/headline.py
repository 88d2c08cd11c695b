"""The head of the page: what was run and when, what came out, what CoKL is, and what the words mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
from latex2mathml.converter import convert

from bandit.sweep.figures import schematic
from cokl_cli.report.sections.claims import Judged
from cokl_cli.results import titles
from figures.page import Section, picture, table, text

GLOSSARY = {
    "replay": "Training on stored correct answers of the reference: CoKL's first term alone.",
    "term 1": "Of CoKL's gradient: raise the log-likelihood of correct reference answers, as replay does.",
    "term 2": "Of CoKL's gradient: lower it for the policy's own correct answers, so that the mass is left alone.",
    "mass": "Z, the total probability of all correct answers: how often a policy is right.",
    "matched": "Compared at the coefficient at which a method's correctness is closest to a common target.",
    "retention": "How much of the old task is kept: 100 is the model before, 0 what plain RL leaves.",
    "adaptation": "How much of the new task is learned: 0 is the model before, 100 what plain RL reaches.",
    "coverage": "The expected share of all correct answers among k draws.",
}
"""What readers may not know, by the word as texts of the page have it."""
_WORDS = re.compile(rf"\b({'|'.join(GLOSSARY)})\b", re.IGNORECASE)
_LOSS = (
    r"\mathcal{L}_{\mathrm{CoKL}} = D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+} \Vert \pi^{+}),",
    r"\pi^{+}(y) = \frac{r(y)\,\pi(y)}{Z_\pi},",
    r"Z_\pi = \sum_y r(y)\,\pi(y)",
)


def section(finished: Mapping[str, Sequence[Path]], judged: Sequence[Judged], missing: int) -> Section:
    """Three cards that link to the claims, a row per experiment, and two sentences with figure 1."""
    verdicts = [claim.verdict for _, claim, _ in judged]
    open_, held, against = (
        sum(verdict in among for verdict in verdicts)
        for among in (("undecided", "depends", None), ("held",), ("not held",))
    )
    beside = f"; undecided, depending on the setting, or on too few seeds: {open_}" if open_ else ""
    body = f"""
<div class="cards">
{_card("good", held, "claims held", "#claims?claims-verdict=held")}
{_card("bad", against, f"not held{beside}", "#claims?claims-verdict=not+held")}
{_card("open", missing, "experiments not run here, with their commands", "#missing" if missing else "#environment")}
</div>
{table(_runs(finished, judged))}
<p>RL with verified answers makes a model right more often, and lets it forget all but a few of its ways of being right.
CoKL is a penalty that holds on to the reference's mix of correct answers and leaves free how often it is right. The
best of all policies pays nothing in correctness for what it keeps. What a trained network pays is measured below.</p>
<div class="formula">{"".join(convert(part, display="block") for part in _LOSS)}</div>
<details><summary>Words of this page</summary><dl>{_words()}</dl></details>
{picture(schematic())}
"""
    return Section("headline", "At a glance", body)


def _words() -> str:
    return "".join(f"<dt>{text(word)}</dt><dd>{text(meaning)}</dd>" for word, meaning in GLOSSARY.items())


def _card(kind: str, number: int, words: str, target: str) -> str:
    return f'<a class="card {kind}" href="{target}"><b>{number}</b>{text(words)}</a>'


def _runs(finished: Mapping[str, Sequence[Path]], judged: Sequence[Judged]) -> pd.DataFrame:
    """What was run, when it was made, and how many of its claims are held, as the terminal counts them."""
    rows = []
    for name, folders in finished.items():
        for folder in folders:
            own = [claim for _, claim, where in judged if where == folder]
            made = datetime.fromtimestamp((folder / "config.json").stat().st_mtime)
            held = sum(claim.verdict == "held" for claim in own)
            counted = f"{held} of {len(own)}" if own else ""
            rows.append((titles()[name], folder.name, f"{made:%d %B %Y, %H:%M}", counted))
    return pd.DataFrame(rows, columns=["experiment", "results", "begun", "claims held"])


def explained(body: str) -> str:
    """The body with the first mention of each word of the glossary explained on hovering, in prose and in headings."""
    seen: set[str] = set()

    def mark(match: re.Match[str]) -> str:
        word = match[0].lower()
        if word in seen:
            return match[0]
        seen.add(word)
        return f'<abbr title="{text(GLOSSARY[word])}" tabindex="0">{match[0]}</abbr>'

    def paragraph(match: re.Match[str]) -> str:
        parts = re.split(r"(<[^>]*>)", match[0])
        return "".join(part if part.startswith("<") else _WORDS.sub(mark, part) for part in parts)

    return re.sub(r"<(p|figcaption|summary|th|h3)\b.*?</\1>", paragraph, body, flags=re.DOTALL)
