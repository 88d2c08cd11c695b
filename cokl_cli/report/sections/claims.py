"""The logbook of claims: theory, controlled experiment, labs and the paper's own tables, in one list."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from cokl_cli.report.entries import Entry, found_entries
from cokl_cli.report.found import Found
from cokl_cli.report.section import Section, text


def section(found: Found, page: Path) -> Section:
    """Every claim that the results allow to be judged, and the checks of the paper's own tables."""
    entries = list(found_entries(found))
    areas = Counter(entry.area for entry in entries)
    verdicts = Counter(entry.verdict for entry in entries)
    body = f"""
<p>What was claimed, by the paper or by us, and what came out. A verdict speaks of these results alone; open a claim for
its evidence, its derivation and its data.</p>
<div class="controls">
<label>Search <input type="search" id="claims-search" placeholder="words of a claim or its source"></label>
<label>About <select id="claims-area">{_options("everything", areas)}</select></label>
<label>Verdict <select id="claims-verdict">{_options("any", verdicts)}</select></label>
<output id="claims-count" aria-live="polite"></output>
</div>
<div id="claims-list" tabindex="0">{"".join(_article(entry, page) for entry in entries)}</div>
"""
    return Section("claims", "Logbook of claims", body)


def _options(all_of_them: str, counts: Counter[str]) -> str:
    rows = "".join(f'<option value="{text(name)}">{text(name)} ({number})</option>' for name, number in counts.items())
    return f'<option value="">{all_of_them} ({sum(counts.values())})</option>{rows}'


def _article(entry: Entry, page: Path) -> str:
    kind = {"held": "good", "not held": "bad"}.get(entry.verdict, "open")
    evidence = "".join(f"<li>{text(line)}</li>" for line in entry.measured)
    derivation = f"<h4>Derivation</h4><p>{text(entry.derivation)}</p>" if entry.derivation else ""
    data = f'<p>Data: <a href="{text(_link(entry.data, page))}">{text(entry.data)}</a></p>' if entry.data else ""
    return (
        f'<details class="claim" data-area="{text(entry.area)}" data-verdict="{text(entry.verdict)}">'
        f'<summary><span class="verdict {kind}">{text(entry.verdict)}</span> {text(entry.statement)}'
        f' <span class="source">{text(entry.area)}{": " if entry.source else ""}{text(entry.source)}</span></summary>'
        f"<ul>{evidence}</ul>{derivation}{data}</details>"
    )


def _link(target: Path, page: Path) -> str:
    """From the page to a file beside it, as it stands on this disk."""
    return Path(os.path.relpath(target.resolve(), page.resolve().parent)).as_posix()
