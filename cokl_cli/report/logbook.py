"""The logbook: every claim of the paper, what came out here, and the command and time it takes.

REPRODUCTION.json is the record, an entry for each experiment; REPRODUCTION.md is made from it alone. An experiment that
is not among the results given keeps its entry, or is called "not run here".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cokl.support.errors import InputError
from cokl.support.experiment import Experiment
from cokl.support.statistics import plain_markdown_table
from cokl.support.verdicts import chance_findings
from cokl_cli.experiments import experiments, finished

RECORD, PAGE = "REPRODUCTION.json", "REPRODUCTION.md"
NOT_RUN = "not run here"

Record = dict[str, Any]
"""Of one experiment: command, scope, hardware, seconds (None if not recorded), commit, claims (statement, where,
verdict, measured, results: which, of those that were pooled) and table (rows of text, by column) or None."""


UNJUDGED = "no verdict"
"""What stands in place of a verdict if there are too few seeds for one, or nothing to judge."""


def listed() -> dict[str, Experiment]:
    """The experiments that the logbook has a section for: those that judge claims."""
    return {
        name: experiment
        for name, experiment in experiments().items()
        if type(experiment).claims is not Experiment.claims or experiment.claims_of
    }


def records(roots: Iterable[Path]) -> dict[str, Record]:
    """What the folders hold, by the name of the experiment.

    Of several results of one experiment the first of the first folder counts, unless it pools its folders. Raises
    InputError for a folder without results.
    """
    made: dict[str, Record] = {}
    for root in roots:
        by_name = finished(root)
        if not by_name:
            raise InputError(f"results: there are none in {root}")
        for name, experiment in listed().items():
            folders = by_name.get(name, [])
            if folders and name not in made and not experiment.claims_of:
                made[name] = _record(experiment, folders if experiment.pools_folders else folders[:1])
    return made


def _record(experiment: Experiment, folders: list[Path]) -> Record:
    """Of one experiment, whose results are in these folders."""
    claims = [
        {
            "statement": claim.statement,
            "where": claim.where,
            "verdict": claim.verdict or UNJUDGED,
            "measured": [claim.measured, *claim.evidence],
        }
        | ({"results": experiment.area_of(folder)} if experiment.pools_folders else {})
        for folder in folders
        for claim in experiment.claims(folder)
    ]
    return {**experiment.record(folders), "table": experiment.headline(folders[0]), "claims": claims}


def render(book: Mapping[str, Record]) -> str:
    """The page of a record. What is not in the record is listed as not run here."""
    parts = [_HEAD, "## At a glance", _table(["experiment", "scope", "hardware", "time", "verdicts"], _glance(book))]
    for name, experiment in listed().items():
        parts.append(f"## {experiment.title}")
        if name not in book:
            parts.append(f"{NOT_RUN.capitalize()}. The command is `{experiment.command}`.")
            if experiment.claims_of:
                parts[-1] += f' Its claims are those of "{experiments()[experiment.claims_of].title}".'
            elif judged := experiment.paper_claims():
                parts.append(_table(_COLUMNS, [[statement, where, NOT_RUN] for statement, where in judged]))
            continue
        record = book[name]
        made = f"Made by `{record['command']}`"
        parts.append(f"{made}{_time(record, ' in ')}{_commit(record)}.")
        parts.append(_table([*_COLUMNS, experiment.measured_as], _rows(experiment, record["claims"])))
        tested = [claim["verdict"] for claim in record["claims"] if " ± " in claim["measured"][0]]
        if len(tested) > 1 and (by_chance := chance_findings(tested)):
            parts.append(by_chance)
        if record["table"]:
            table = record["table"]
            parts += [f"Mean ± {experiment.spread}:", _table(list(table), zip(*table.values(), strict=True))]
    return "\n\n".join(parts) + "\n"


def _rows(experiment: Experiment, claims: Iterable[Record]) -> Iterator[list[str]]:
    """A row per claim, with its verdict and measurement in each of the results that were pooled."""
    by_statement: dict[tuple[str, str], list[Record]] = {}
    for claim in claims:
        by_statement.setdefault((claim["statement"], claim["where"]), []).append(claim)
    for (statement, where), judged in by_statement.items():
        verdicts = [one["verdict"] for one in judged]
        measured = [
            (f"{one['results']}, {one['verdict']}: ".removeprefix(f"{experiment.area}, ") if "results" in one else "")
            + experiment.brief(one["measured"])
            for one in judged
        ]
        yield [statement, where, ", ".join(verdicts), "<br>".join(measured)]


_COLUMNS = ["claim", "where", "verdict"]

_HEAD = f"""# Reproduction

What the paper claims, and what was found here. `cokl logbook` makes this page from the results of the commands below;
[{RECORD}]({RECORD}) is the same for programs. This page has the verdicts. The arguments are in the findings on [the
labs](bandit/FINDINGS.md) and [the theory](theory/FINDINGS.md).

The primary measurement gives the verdict: *held*, *not held* or *undecided*. If decided measurements
contradict each other, primary or secondary, the verdict is *depends*. With fewer than four seeds there is *no verdict*.
A verdict holds only for the environment of its section. A claim that was judged in several results (two runs or two
maps) has the verdict and the measurement of each. A number in a run's name, as in plasticity-5, is its first seed.
The number after ± is half the width of a 95% t-interval over seeds, unless stated otherwise. The
[glossary](docs/glossary.md) explains terms such as retention, match, mass drift and narrowed-2.

In the section on theory, *held* means that every check of the statement succeeded on the check's domain. Only "proved
in Coq" covers the statement itself on its whole domain, which is every finite set of responses. The domains and all
secondary measurements are in
[{RECORD}]({RECORD}). Times are wall-clock times, on a machine that other work may have shared."""


def _glance(book: Mapping[str, Record]) -> Iterator[list[str]]:
    for name, experiment in listed().items():
        if name not in book:
            yield [experiment.title, "", "", "", NOT_RUN]
            continue
        record = book[name]
        beyond = [claim["verdict"] for claim in record["claims"] if "beyond" in claim["where"]]
        papers = [claim["verdict"] for claim in record["claims"] if "beyond" not in claim["where"]]
        outcome = "; ".join(
            whose + ", ".join(f"{number} {verdict}" for verdict, number in Counter(verdicts).items())
            for verdicts, whose in ((papers, ""), (beyond, "beyond the paper: "))
            if verdicts
        )
        yield [experiment.title, record["scope"], record["hardware"], _time(record) or "not recorded", outcome]


def _time(record: Record, before: str = "") -> str:
    seconds = record["seconds"]
    if seconds is None:
        return ""
    return before + (f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes")


def _commit(record: Record) -> str:
    return f", commit {record['commit'][:12]}" if record["commit"] else ""


def _table(columns: list[str], rows: Iterable[Iterable[str]]) -> str:
    return plain_markdown_table(columns, rows, rule=[" --- "] * len(columns))
