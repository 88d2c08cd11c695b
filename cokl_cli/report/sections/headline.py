"""The head of the page: what was run, what came out, and what CoKL is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from latex2mathml.converter import convert

from bandit.sweep.figures import schematic
from cokl_cli.report.html import Section, picture, table
from cokl_cli.report.results import sources
from cokl_cli.report.sections.claims import Judged

_LOSS = (
    r"\mathcal{L}_{\mathrm{CoKL}} = D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+} \Vert \pi^{+}),",
    r"\pi^{+}(y) = \frac{r(y)\,\pi(y)}{Z_\pi},",
    r"Z_\pi = \sum_y r(y)\,\pi(y)",
)


def section(shown: Mapping[str, Path], judged: Sequence[Judged]) -> Section:
    """A row per experiment, and what CoKL is, with figure 1."""
    body = f"""
{table(_runs(shown, judged))}
<p>RL with verified answers makes a model right more often, and lets it forget all but a few of its ways of being right.
CoKL is a penalty that holds on to the reference's mix of correct answers and leaves free how often it is right. The
best of all policies pays nothing in correctness for what it keeps; trained networks pay a little, as the tables
show.</p>
<div class="formula">{"".join(convert(part, display="block") for part in _LOSS)}</div>
{picture(schematic())}
"""
    return Section("headline", "At a glance", body)


def _runs(shown: Mapping[str, Path], judged: Sequence[Judged]) -> pd.DataFrame:
    """What was run, and how many of its claims are held, as the terminal counts them."""
    rows = []
    for name, folder in shown.items():
        title = sources()[name].title
        own = [claim for area, claim, _ in judged if area == title]
        held = sum(claim.verdict == "held" for claim in own)
        rows.append((title, f"{held} of {len(own)}" if own else "", str(folder)))
    return pd.DataFrame(rows, columns=["experiment", "claims held", "results"])
