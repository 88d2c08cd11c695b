"""The head of the page: what came out of each experiment, what was run, and what CoKL is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from latex2mathml.converter import convert

from bandit.sweep.figures import schematic
from cokl.support.files import read_json
from cokl_cli.report.html import Section, picture, table, text
from cokl_cli.report.results import sources
from cokl_cli.report.sections.claims import ShownClaim

_LOSS = (
    r"\mathcal{L}_{\mathrm{CoKL}} = D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+} \Vert \pi^{+}),",
    r"\pi^{+}(y) = \frac{r(y)\,\pi(y)}{Z_\pi},",
    r"Z_\pi = \sum_y r(y)\,\pi(y)",
)


def section(shown: Mapping[str, Path], judged: Sequence[ShownClaim], answers: Mapping[str, str]) -> Section:
    """The answer of each experiment, by its name, then a row for each."""
    links = {name: f'<a href="#{source.anchor}">{text(source.title)}</a>' for name, source in sources().items()}
    told = "".join(f"<li>{links[name]}: <strong>{text(answer)}</strong></li>" for name, answer in answers.items())
    runs = table(_runs(shown, judged))
    body = f'<ul class="answers">{told}</ul><details><summary>What was run</summary>{runs}</details>'
    return Section("headline", "What came out", body)


def explained() -> Section:
    """What CoKL is, with Figure 1."""
    body = f"""
<p>RL with verified answers makes a model right more often, and lets it forget all but a few of its ways of being right.
CoKL is a penalty that holds on to the reference's mix of correct answers and leaves free how often it is right. The
best of all policies pays nothing in correctness for what it keeps; trained networks pay a little, as the tables
show.</p>
<div class="formula">{"".join(convert(part, display="block") for part in _LOSS)}</div>
{picture(schematic(), "figure1")}
"""
    return Section("cokl", "What CoKL is", body)


def _runs(shown: Mapping[str, Path], judged: Sequence[ShownClaim]) -> pd.DataFrame:
    """What was run, by which code and when, and how many of its claims are held, as the terminal counts them."""
    rows = []
    for name, folder in shown.items():
        own = [claim for kind, claim, _ in judged if kind == name]
        held = sum(claim.verdict == "held" for claim in own)
        rows.append((sources()[name].title, f"{held} of {len(own)}" if own else "", str(folder), *_made(folder)))
    return pd.DataFrame(rows, columns=["experiment", "claims held", "results", "version", "commit", "date"])


def _made(folder: Path) -> tuple[str, str, str]:
    """Version, commit and date of the last process that worked on a folder, "" where it does not say."""
    file = folder / "environment.json"
    records: list[dict[str, Any]] = read_json(file, list) if file.is_file() else []
    last = records[-1] if records else {}
    commit = last.get("git_commit") or ""
    return last.get("versions", {}).get("cokl", ""), short(commit), last.get("ended", "")


def short(commit: str) -> str:
    """Twelve digits of a commit, and whether files differed from it."""
    digits, *rest = commit.split("-", 1)
    return "-".join([digits[:12], *rest])
