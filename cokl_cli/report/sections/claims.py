"""Every claim with its verdict: theory, controlled experiment and labs, in one list."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from cokl.support.verdicts import Claim
from cokl_cli.report.html import Section, text
from cokl_cli.report.logbook import UNJUDGED
from cokl_cli.report.results import sources

ShownClaim = tuple[str, Claim, Path]
"""The kind of results by its name, the claim, and the folder of its results."""


def every_claim(shown: Mapping[str, Path]) -> list[ShownClaim]:
    """Every claim that the results allow to be judged."""
    known = sources()
    return [(name, claim, at) for name, at in shown.items() for claim in known[name].claims(at)]


def section(rows: Sequence[ShownClaim], page: Path) -> Section:
    """Claims to search through."""
    known = sources()
    verdicts = Counter(claim.verdict or UNJUDGED for _, claim, _ in rows)
    options = "".join(f'<option value="{name}">{name} ({number})</option>' for name, number in verdicts.items())
    body = f"""
<p>What was claimed, by the paper or by us, and what came out. A verdict speaks of these results alone; open a claim for
its evidence, its derivation and its data.</p>
<div class="controls">
<label>Search <input type="search" id="claims-search" placeholder="words of a claim or its source"></label>
<label>Verdict <select id="claims-verdict"><option value="">any ({len(rows)})</option>{options}</select></label>
<output id="claims-count" aria-live="polite"></output>
</div>
<div id="claims-list" tabindex="0" role="region" aria-label="Claims">
{"".join(_article(known[name].title, claim, at, page) for name, claim, at in rows)}</div>
"""
    return Section("claims", "Claims and their verdicts", body)


def _article(area: str, claim: Claim, folder: Path, page: Path) -> str:
    verdict = claim.verdict or UNJUDGED
    kind = {"held": "good", "not held": "bad"}.get(verdict, "open")
    evidence = "".join(f"<li>{text(line)}</li>" for line in claim.lines)
    derivation = f"<h4>Derivation</h4><p>{text(claim.derivation)}</p>" if claim.derivation else ""
    data = f'<a href="{text(link(folder, page))}">{text(folder)}</a>'
    return (
        f'<details class="claim" data-verdict="{text(verdict)}">'
        f'<summary><span class="verdict {kind}">{text(verdict)}</span> {text(claim.statement)}'
        f' <span class="source">{text(area)}{": " if claim.place else ""}{text(claim.place)}</span></summary>'
        f"<ul>{evidence}</ul>{derivation}<p>Data: {data}</p></details>"
    )


def link(target: Path, page: Path) -> str:
    """From the page to a file beside it, as it stands on this disk."""
    return Path(os.path.relpath(target.resolve(), page.resolve().parent)).as_posix()
