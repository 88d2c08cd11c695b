"""What results folders say of each claim, in one form and one vocabulary, whatever experiment it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cokl.support.files import read_json, read_result
from cokl.support.verdicts import Claim, Verdict, no_verdict
from cokl_cli.report.found import Found

UNJUDGED = "no verdict"
"""In a verdict's place where there are too few seeds for one, or nothing to judge."""


@dataclass(frozen=True)
class Entry:
    """A claim: where it belongs, what it says, where the paper says so, its verdict, and what was measured.

    measured: the primary measurement first. derivation: an argument in words, if there is one. data: the file with the
    numbers.
    """

    area: str
    statement: str
    source: str
    verdict: str
    measured: tuple[str, ...]
    derivation: str = ""
    data: Path | None = None


def sweep(folder: Path) -> Iterator[Entry]:
    """The claims of the controlled experiment."""
    from bandit.sweep.claims import judge
    from bandit.sweep.score import read_sweep

    table = read_sweep(folder)
    area = f"controlled experiment, {folder.name}"
    yield from _judged(area, judge(table), table["seed"].nunique(), folder / "sweep.parquet")


def shift(folder: Path) -> Iterator[Entry]:
    """What the paper claims of language models, in the task-shift lab."""
    from bandit.shift.claims import judge
    from bandit.shift.run import COLUMNS
    from bandit.shift.score import score, settled

    path = folder / "shift.parquet"
    for claim in judge(score(settled(read_result(path, COLUMNS)))):
        area = f"task shift, {folder.name}"
        yield Entry(area, claim.statement, claim.where, _called(claim.verdict), tuple(claim.lines()), data=path)


def sequences(folder: Path) -> Iterator[Entry]:
    """The sequence lab's one primary comparison."""
    from bandit.sequences.report import primary
    from bandit.sequences.run import SEQUENCES
    from bandit.sequences.score import PRIMARY, primary_lead
    from bandit.shift.score import label, settled
    from cokl.support.verdicts import verdict_on

    table = settled(read_result(folder / "sequences.parquet", SEQUENCES.columns))
    lead, seeds = primary_lead(table), table.loc[table["role"] == "report", "seed"].nunique()
    yield Entry(
        f"sequences, {folder.name}",
        f"At equal adaptation CoKL keeps more of the prior task's accuracy than {label(PRIMARY[2])}",
        "beyond the paper, whose main table has retention both ways",
        _called(verdict_on(*lead, seeds) if lead else None),
        (primary(table),),
        data=folder / "sequences.parquet",
    )


def phase(folder: Path) -> Iterator[Entry]:
    """One map's count of cells."""
    from bandit.phase.report import tally, verdict
    from bandit.phase.score import summarize
    from bandit.shift.run import COLUMNS

    cells = summarize(read_result(folder / "phase.parquet", (*COLUMNS, "x", "y")))
    yield Entry(
        f"map of {folder.name}",
        "CoKL has a higher Overall than its best rival, over the map",
        "Main Results, main table",
        _called(verdict(cells)),
        (tally(cells),),
        data=folder / "phase.parquet",
    )


def finite_group(folder: Path) -> Iterator[Entry]:
    """Appendix B's recovery."""
    from bandit.finite_group.claims import judge
    from bandit.finite_group.score import read_results

    _, recovery = read_results(folder)
    area = f"finite groups, {folder.name}"
    yield from _judged(area, judge(recovery), recovery["seed"].nunique(), folder / "recovery.parquet")


def calibration(folder: Path) -> Iterator[Entry]:
    """With how much of term 2 the paper's rows appear, and what that term is worth."""
    from bandit.calibration.config import CalibrationConfig
    from bandit.calibration.report import judge
    from bandit.calibration.run import lab_of
    from bandit.calibration.score import summarize
    from cokl.support.options import from_json

    config = from_json(CalibrationConfig, read_json(folder / "config.json", dict))
    found = summarize(read_result(folder / "calibration.parquet", (*lab_of(config).columns, "cell")), config)
    area = f"calibration, {folder.name}"
    yield from _judged(area, judge(found), config.seeds, folder / "calibration.parquet")


def llm_repeats(folder: Path) -> Iterator[Entry]:
    """CoKL's lead over each other method in several runs of the LLM experiment, replay's first."""
    from cokl.methods import label
    from cokl.support.statistics import with_spread
    from llm_bridge.report.repeats import MEASURE, METHOD, RIVAL, leads, read_runs

    table = read_runs(folder)
    for lead in sorted(leads(table).to_dict("records"), key=lambda lead: lead["method"] != RIVAL):
        judged = "the primary comparison" if lead["method"] == RIVAL else "Holm over all but the primary"
        said = with_spread(lead[MEASURE], lead[f"{MEASURE}_half_width"], 1)
        yield Entry(
            f"repeated runs, {folder.name}",
            f"CoKL has a higher Overall than {label(lead['method'])}",
            "Ablation of the loss structure" if METHOD in lead["method"] else "Main Results, main table",
            _called(lead["verdict"]),
            (f"{said} points over {table['run'].nunique()} runs; {judged}",),
            data=folder / "runs.csv",
        )


def theory(folder: Path) -> Iterator[Entry]:
    """The claims of the theory, the paper's and those beyond it, as they were checked."""
    import theory.claims  # noqa: F401  registers them
    from theory.claim import registered_claims

    path = folder / "claims.json"
    known = registered_claims()
    for row in read_json(path, list):
        claim = known.get(row["claim"])
        yield Entry(
            "theory",
            f"{row['claim']}: {row['statement']}",
            row["source"],
            "held" if row["holds"] else "not held",
            tuple(_evidence(evidence) for evidence in row["evidence"]),
            " ".join((claim.check.__doc__ or "").split()) if claim else "",
            path,
        )


def _evidence(row: dict[str, Any]) -> str:
    """One piece of evidence: how, where, how far off, and what else is said."""
    from theory.report import outcome, stored_evidence

    evidence = stored_evidence(row)
    error = "infinite" if math.isinf(evidence.error) else f"{evidence.error:.2g}"
    said = f"{evidence.method} ({outcome(evidence)}), {evidence.domain}: {error}, accepted {evidence.accepted:.2g}"
    return f"{said}; {evidence.detail}" if evidence.detail else said


def paper_tables() -> Iterator[Entry]:
    """The paper's LLM tables, held against each other."""
    from llm_bridge.paper.check import check_paper
    from llm_bridge.paper.numbers import PAPER, read_paper

    for claim in check_paper(read_paper()):
        measured = (claim.measured,)
        yield Entry("the paper's tables", claim.statement, claim.where, claim.verdict, measured, data=PAPER / "raw.csv")


def _called(verdict: Verdict | None) -> str:
    return verdict or UNJUDGED


def _judged(area: str, claims: Iterable[Claim], seeds: int, data: Path) -> Iterator[Entry]:
    """Claims of one table, without their verdicts where its seeds are too few."""
    for claim in claims:
        verdict = UNJUDGED if no_verdict(seeds) else claim.verdict
        yield Entry(area, claim.statement, claim.where, verdict, (claim.measured,), data=data)


READERS: dict[str, Callable[[Path], Iterator[Entry]]] = {
    "sweeps": sweep,
    "shifts": shift,
    "sequences": sequences,
    "phases": phase,
    "finite_groups": finite_group,
    "calibrations": calibration,
    "llm_repeats": llm_repeats,
    "theory": theory,
}
"""What a folder's entries are, by the field of `Found` that it is in."""


def found_entries(found: Found) -> Iterator[Entry]:
    """Every claim that the results under one root allow to be judged, and the checks of the paper's own tables."""
    for name, read in READERS.items():
        for folder in getattr(found, name):
            yield from read(folder)
    yield from paper_tables()
