"""The logbook of claims: theory, controlled experiment, task shift and the paper's own tables, in one list."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bandit.shift.claims import judge as judge_shift
from bandit.shift.score import score, settled
from bandit.sweep.claims import judge as judge_sweep
from bandit.sweep.score import read_sweep
from cokl.support.files import read_json, read_result
from cokl_cli.report.found import Found
from cokl_cli.report.section import Section, text

_GOOD, _BAD = ("held", "confirmed", "holds"), ("not held", "contradicted", "fails")


@dataclass(frozen=True)
class Entry:
    """A claim: where it belongs, what it says, where the paper says so, its verdict, and what was measured.

    derivation: an argument in words, if there is one. data: the file with the numbers.
    """

    area: str
    statement: str
    source: str
    verdict: str
    measured: tuple[str, ...]
    derivation: str = ""
    data: Path | None = None


def section(found: Found, page: Path) -> Section:
    """Every claim that the results allow to be judged, and the checks of the paper's own tables."""
    entries = list(_entries(found))
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
    kind = "good" if entry.verdict in _GOOD else "bad" if entry.verdict in _BAD else "open"
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


def _entries(found: Found) -> Iterator[Entry]:
    for folder in found.sweeps:
        for claim in judge_sweep(read_sweep(folder)):
            yield Entry(
                f"controlled experiment, {folder.name}",
                claim.statement,
                "Results paragraph",
                claim.verdict,
                (claim.measured,),
                data=folder / "sweep.parquet",
            )
    for folder in found.shifts:
        for shift_claim in judge_shift(score(settled(read_result(folder / "shift.parquet")))):
            yield Entry(
                f"task shift, {folder.name}",
                shift_claim.statement,
                "",
                shift_claim.verdict or "too few seeds",
                tuple(shift_claim.lines()),
                data=folder / "shift.parquet",
            )
    for folder in found.theory:
        yield from _theory(folder / "claims.json")
    yield from _paper_tables()


def _theory(path: Path) -> Iterator[Entry]:
    import theory.claims  # noqa: F401  registers them
    from theory.claim import registered_claims

    known = registered_claims()
    for row in read_json(path, list):
        claim = known.get(row["claim"])
        derivation = " ".join((claim.check.__doc__ or "").split()) if claim else ""
        yield Entry(
            "theory",
            f"{row['claim']}: {row['statement']}",
            row["source"],
            "holds" if row["holds"] else "fails",
            tuple(_evidence(evidence) for evidence in row["evidence"]),
            derivation,
            path,
        )


def _evidence(row: dict[str, Any]) -> str:
    """One piece of evidence: how, where, how far off, and what else is said."""
    error = "infinite" if row["error"] is None else f"{row['error']:.2g}"
    said = f"{row['method']} ({row['verdict']}), {row['domain']}: {error}, accepted {row['accepted']:.2g}"
    return f"{said}; {row['detail']}" if row["detail"] else said


def _paper_tables() -> Iterator[Entry]:
    from llm_bridge.paper.check import check_paper
    from llm_bridge.paper.numbers import PAPER, read_paper

    for check in check_paper(read_paper()):
        verdict = "held" if check.holds else "not held"
        yield Entry("the paper's tables", check.claim, check.source, verdict, (check.measured,), data=PAPER / "raw.csv")
