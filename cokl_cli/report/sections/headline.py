"""The head of the page: what was run, what came out, what CoKL is, and what the words mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_LOSS = (
    r"\mathcal{L}_{\mathrm{CoKL}} = D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+} \Vert \pi^{+}),",
    r"\pi^{+}(y) = \frac{r(y)\,\pi(y)}{Z_\pi},",
    r"Z_\pi = \sum_y r(y)\,\pi(y)",
)


def section(shown: Mapping[str, Path], judged: Sequence[Judged]) -> Section:
    """A row per experiment, and what CoKL is, with figure 1."""
    words = "".join(f"<dt>{text(word)}</dt><dd>{text(meaning)}</dd>" for word, meaning in GLOSSARY.items())
    body = f"""
{table(_runs(shown, judged))}
<p>RL with verified answers makes a model right more often, and lets it forget all but a few of its ways of being right.
CoKL is a penalty that holds on to the reference's mix of correct answers and leaves free how often it is right. The
best of all policies pays nothing in correctness for what it keeps; trained networks pay a little, as the tables
show.</p>
<div class="formula">{"".join(convert(part, display="block") for part in _LOSS)}</div>
<details><summary>Words of this page</summary><dl>{words}</dl></details>
{picture(schematic())}
"""
    return Section("headline", "At a glance", body)


def _runs(shown: Mapping[str, Path], judged: Sequence[Judged]) -> pd.DataFrame:
    """What was run, and how many of its claims are held, as the terminal counts them."""
    rows = []
    for name, folder in shown.items():
        own = [claim for area, claim, _ in judged if area == titles()[name]]
        held = sum(claim.verdict == "held" for claim in own)
        rows.append((titles()[name], f"{held} of {len(own)}" if own else "", str(folder)))
    return pd.DataFrame(rows, columns=["experiment", "claims held", "results"])
