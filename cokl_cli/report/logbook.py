"""The logbook: every claim of the paper, what came out here, and the command and time it takes.

REPRODUCTION.json is the record, an entry for each kind of results; REPRODUCTION.md is made from it alone. A kind that
is not among the results given keeps its entry, or is called "not run here".
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cokl.support.errors import InputError
from cokl.support.files import read_json
from cokl.support.results import read_config
from cokl.support.statistics import plain_markdown_table
from cokl.support.verdicts import Evidence
from cokl_cli.report.results import Judged, finished, sources

RECORD, PAGE = "REPRODUCTION.json", "REPRODUCTION.md"
NOT_RUN = "not run here"
UNJUDGED = "no verdict"
"""What stands in place of a verdict if there are too few seeds for one, or nothing to judge."""

Record = dict[str, Any]
"""Of one kind of results, with the fields of `RECORDED`. seconds and commit are None if not recorded. A claim is
known by its name, and has also `results`, which of several."""
_JUDGED = {
    "name": str,
    "statement": str,
    "origin": str,
    "where": str,
    "verdict": str,
    "measured": [{"kind": str, "text": str, "part": str}, ...],
}
RECORDED = {
    "command": str, "scope": str, "hardware": str, "seconds": float | int | None, "commit": str | None,
    "claims": [_JUDGED],
}  # fmt: skip
_ENVIRONMENT = {
    "cpu": str,
    "cpu_count": int | None,
    "versions": {"torch": str},
    "seconds": float | int,
    "git_commit": str | None,
}


def listed() -> dict[str, Judged]:
    """What the logbook has a section for."""
    return {name: source for name, source in sources().items() if isinstance(source, Judged)}


def records(roots: Iterable[Path]) -> dict[str, Record]:
    """What the folders hold, by kind.

    The first folder of a kind counts, with all others of the same configuration up to its first seed. Raises InputError
    for a folder without results.
    """
    folders: dict[str, list[Path]] = {}
    for root in roots:
        by_name = finished(root)
        if not by_name:
            raise InputError(f"results: there are none in {root}")
        for name in listed():
            folders[name] = list(dict.fromkeys([*folders.get(name, []), *map(Path.resolve, by_name.get(name, []))]))
    return {name: _record(listed()[name], found) for name, found in folders.items() if found}


def _record(source: Judged, folders: list[Path]) -> Record:
    """Of one kind, whose results are in these folders."""
    first = read_config(folders[0])
    alike = [folder for folder in folders if {**read_config(folder), "first_seed": 0} == {**first, "first_seed": 0}]
    judged = [
        {
            "name": claim.name,
            "statement": claim.statement,
            "origin": claim.origin,
            "where": claim.place,
            "verdict": claim.verdict or UNJUDGED,
            "measured": [dataclasses.asdict(one) for one in (claim.primary, *claim.secondary)],
        }
        | ({"results": folder.name} if len(alike) > 1 else {})
        for folder in alike
        for claim in source.claims(folder)
    ]
    remedy = "remove it and run the command of these results again"
    environments = [read_json(folder / "environment.json", [_ENVIRONMENT, ...], remedy) for folder in alike]
    last = environments[0][-1]
    return {
        "command": "; ".join(dict.fromkeys(source.made_by(read_config(folder)) for folder in alike)),
        "scope": source.scope(first, len(judged)),
        "hardware": f"{last['cpu']}, {last['cpu_count']} cores, torch {last['versions']['torch']}",
        "seconds": round(sum(one["seconds"] for records in environments for one in records), 1),
        "commit": last["git_commit"],
        "claims": judged,
    }


def render(book: Mapping[str, Record]) -> str:
    """The page of a record. What is not in the record is listed as not run here."""
    parts = [_HEAD, "## At a glance", _table(["experiment", "scope", "hardware", "time", "verdicts"], _glance(book))]
    for name, source in listed().items():
        if name not in book:
            continue
        record = book[name]
        parts.append(f'<details markdown="1"><summary>{source.title}</summary>')
        parts.append(f"Made by `{record['command']}`{_time(record, ' in ')}{_commit(record)}.")
        parts.append(_table(["claim", "where", "verdict", source.evidence], _rows(source, record["claims"])))
        parts.append("</details>")
    return "\n\n".join(parts) + "\n"


def _rows(source: Judged, judged: Iterable[Record]) -> Iterator[list[str]]:
    """A row per claim, with its verdict and measurement in each of the results."""
    by_name: dict[str, list[Record]] = {}
    for claim in judged:
        by_name.setdefault(claim["name"], []).append(claim)
    for claims_of in by_name.values():
        first, measured = claims_of[0], []
        for one in claims_of:
            which = f"{one['results']}, {one['verdict']}: " if "results" in one else ""
            measured.append(which + source.brief([Evidence(**piece) for piece in one["measured"]]))
        verdicts = ", ".join(one["verdict"] for one in claims_of)
        yield [first["statement"], first["where"], verdicts, "<br>".join(measured)]


_HEAD = f"""# Reproduction

What the paper claims, and what was found here. `cokl logbook` makes this page from the results of the commands below;
[{RECORD}]({RECORD}) is the same for programs. The claims and their verdicts are folded below the first table. The
arguments are in the findings on [the labs](bandit/FINDINGS.md) and [the theory](theory/FINDINGS.md).

The primary measurement gives the verdict: *held*, *not held* or *undecided*. If decided measurements
contradict each other, primary or secondary, the verdict is *depends*. With fewer than four seeds there is *no verdict*.
A verdict holds only for the environment of its section. A claim that was judged in several results has the verdict and
the measurement of each. A number in a run's name, as in plasticity-5, is its first seed. The number after ± is half the
width of a 95% t-interval over seeds. The [glossary](docs/glossary.md) explains terms such as retention, match, mass
drift and narrowed-2.

In the section on theory, *held* means that every check of the statement succeeded on the check's domain. Only "proved
in Coq" covers the statement itself on its whole domain, which is every finite set of responses. The domains and all
secondary measurements are in
[{RECORD}]({RECORD}). Times are wall-clock times, on a machine that other work may have shared."""


def _glance(book: Mapping[str, Record]) -> Iterator[list[str]]:
    for name, source in listed().items():
        if name not in book:
            yield [source.title, f"`{source.command}`", "", "", NOT_RUN]
            continue
        record = book[name]
        beyond = [claim["verdict"] for claim in record["claims"] if claim["origin"] == "beyond"]
        papers = [claim["verdict"] for claim in record["claims"] if claim["origin"] == "paper"]
        outcome = "; ".join(
            whose + ", ".join(f"{number} {verdict}" for verdict, number in Counter(verdicts).items())
            for verdicts, whose in ((papers, ""), (beyond, "beyond the paper: "))
            if verdicts
        )
        yield [source.title, record["scope"], record["hardware"], _time(record) or "not recorded", outcome]


def _time(record: Record, before: str = "") -> str:
    seconds = record["seconds"]
    if seconds is None:
        return ""
    return before + (f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes")


def _commit(record: Record) -> str:
    return f", commit {record['commit'][:12]}" if record["commit"] else ""


def _table(columns: list[str], rows: Iterable[Iterable[str]]) -> str:
    return plain_markdown_table(columns, rows, rule=[" --- "] * len(columns))
