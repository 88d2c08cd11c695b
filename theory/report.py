"""The claims table: checking claims one by one, and the table as text, Markdown and JSON."""

from __future__ import annotations

import json
import math
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from cokl.support import verdicts
from cokl.support.errors import InputError, did_you_mean
from cokl.support.files import read_json, write_text
from cokl.support.results import describe_environment, progress_bar, require_own, today
from cokl.support.verdicts import Claim, Verdict
from theory.claim import QUICK, Effort, Evidence, Statement
from theory.proofs import machine_checked
from theory.proofs.machine_checked import BUILD, METHOD

WIDTH = 80
"""Columns of a terminal."""


@dataclass(frozen=True)
class Checked:
    """A claim with the evidence that its check returned, and how long that took."""

    claim: Statement
    evidence: list[Evidence]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether all of its evidence does."""
        return all(evidence.holds for evidence in self.evidence)


def check_claims(claims: Iterable[Statement], effort: Effort) -> Iterator[Checked]:
    """Check each claim in turn. A check that raises an arithmetic error or an assertion, or that
    measures nothing, has not shown its claim."""
    for claim in claims:
        start = time.perf_counter()
        try:
            evidence = claim.check(effort)
        except (ArithmeticError, AssertionError, ValueError, TypeError) as error:
            evidence = [Evidence("none", "", math.inf, 0, f"{type(error).__name__}: {error}")]
        if not evidence:
            evidence = [Evidence("none", "", math.inf, 0, "the check measured nothing")]
        yield Checked(claim, evidence, time.perf_counter() - start)


_EVIDENCE = {
    "method": str,
    "domain": str,
    "accepted": float | int,
    "detail": str,
    "part": str,
    "error": float | int | None,
}
_STORED = {"claim": str, "statement": str, "source": str, "origin": str, "holds": bool, "evidence": [_EVIDENCE, ...]}


def stored_evidence(row: dict[str, Any]) -> Evidence:
    """The evidence that `to_json` wrote."""
    fields = {name: row[name] for name in ("method", "domain", "accepted", "detail", "part")}
    return Evidence(**fields, error=math.inf if row["error"] is None else row["error"])


def claims_of(folder: Path) -> list[Claim]:
    """The claims of a finished check, a line of evidence for each way in which it was done. Raises InputError."""
    from theory.claims import registered_claims

    known = registered_claims()
    claims = []
    for row in read_json(folder / "claims.json", [_STORED]):
        claim = known.get(row["claim"])
        first, *others = (shown(stored_evidence(evidence)) for evidence in row["evidence"])
        derivation = claim.derivation if claim else ""
        statement = f"{row['claim']}: {row['statement']}"
        verdict: Verdict = "held" if row["holds"] else "not held"
        made = (row["claim"], statement, row["origin"], row["source"])
        claims.append(Claim(*made, first, verdict, tuple(others), derivation))
    return claims


def outcome(judged: Checked | Evidence) -> str:
    """How the tables call a claim or one piece of its evidence."""
    return "held" if judged.holds else "not held"


def shown(evidence: Evidence) -> verdicts.Evidence:
    """One piece of evidence in words: how it was obtained, and what it found where."""
    if evidence.method == METHOD and evidence.holds:
        return verdicts.Evidence(METHOD, f"{evidence.domain}, by {evidence.detail}", evidence.part)
    error = "infinite" if math.isinf(evidence.error) else f"{evidence.error:.2g}"
    found = f"largest error {error}, of {evidence.accepted:.2g} accepted"
    if evidence.holds and not evidence.accepted:
        found = "no exception"
    kind = evidence.method if evidence.holds else f"not held by {evidence.method}"
    more = "".join(f"; {said}" for said in (evidence.detail, evidence.part) if said)
    return verdicts.Evidence(kind, f"{evidence.domain}, {found}{more}")


def in_brief(pieces: Sequence[verdicts.Evidence]) -> str:
    """The kinds of evidence that a claim has, each once and proofs first.

    A proof of the whole statement makes those of its parts superfluous.
    """
    whole = {piece.kind for piece in pieces if not piece.part}
    told = [piece for piece in pieces if not (piece.part and piece.kind in whole)]
    return ", ".join(dict.fromkeys(piece.shown_kind for piece in sorted(told, key=lambda piece: piece.kind != METHOD)))


def summary(results: list[Checked]) -> str:
    """One line: claims, how many hold, evidence, boxes and time."""
    held = sum(result.holds for result in results)
    pieces = sum(len(result.evidence) for result in results)
    seconds = sum(result.seconds for result in results)
    return f"{held} of {len(results)} claims hold ({pieces} pieces of evidence, {seconds:.0f} s)"


def to_text(results: list[Checked], every_evidence: bool = False) -> str:
    """A line per claim within 100 columns: verdict, what it is in short, and kinds of evidence; the summary last.

    Under those not held, or with `every_evidence` under all, what is claimed and a sentence for each piece of evidence.
    """
    lines = []
    for result in results:
        pieces = [shown(evidence) for evidence in result.evidence]
        line = f"{in_short(result.claim)}: {in_brief(pieces)}"
        lines.append(f"{outcome(result):10}{textwrap.shorten(line, 90, placeholder=' ...')}")
        if every_evidence or not result.holds:
            lines += _indented(f"{result.claim.statement} ({result.claim.source})", 10)
            for piece in pieces:
                lines += _indented(piece.line, 12)
    return "\n".join([*lines, summary(results)])


_AS_WRITTEN = {
    "kl": "KL", "cokl": "CoKL", "bernoulli": "Bernoulli", "jensen": "Jensen", "shannon": "Shannon", "term1": "term 1",
}  # fmt: skip


def in_short(claim: Statement) -> str:
    """Where the paper has a claim, and its name in words: "Theorem 2, forward KL optimum"."""
    words = " ".join(_AS_WRITTEN.get(word, word) for word in claim.name.split("-"))
    return f"{claim.place}, {words}"


def _indented(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * columns, subsequent_indent=" " * columns)


def to_markdown(results: list[Checked]) -> str:
    """A Markdown document: each claim with its source and verdict, and a line for each piece of evidence."""
    lines = ["# Claims", "", f"{summary(results)}. Made by `cokl theory check`."]
    for result in results:
        claim = result.claim
        lines += ["", f"**{claim.name}** ({claim.source}), {outcome(result)}: {claim.statement}", ""]
        lines += [f"- {shown(evidence).line}" for evidence in result.evidence]
    return "\n".join(lines) + "\n"


def to_json(results: list[Checked]) -> str:
    """The table as JSON: a list of claims with their evidence; an infinite error is null."""
    return json.dumps(
        [
            {
                "claim": result.claim.name,
                "statement": result.claim.statement,
                "source": result.claim.source,
                "origin": result.claim.origin,
                "holds": result.holds,
                "seconds": round(result.seconds, 3),
                "evidence": [
                    {
                        **asdict(evidence),
                        "error": evidence.error if math.isfinite(evidence.error) else None,
                        "outcome": outcome(evidence),
                    }
                    for evidence in result.evidence
                ],
            }
            for result in results
        ],
        indent=1,
    )


def check_and_save(only: Sequence[str], effort: Literal["full", "quick"], out: Path) -> list[Checked]:
    """Check claims and write claims.json, claims.md and config.json to the results folder `out`.

    only: names of claims, several in one text separated by commas; all if empty. Raises InputError for an unknown
    claim, and for a folder that holds other things.
    """
    from theory.claims import registered_claims

    torch.set_num_threads(1)  # the tensors are small; threads would only wait for each other
    claims = registered_claims()
    asked = [name for text in only for name in text.split(",") if name]
    unknown = [name for name in asked if name not in claims]
    if unknown:
        near = did_you_mean(unknown[0], claims)
        raise InputError(f"only: unknown claim {unknown[0]!r}{near}; `cokl theory check --list` names them")
    chosen = [claim for name, claim in claims.items() if not asked or name in asked]
    require_own(out, ("claims.json",))
    failures = machine_checked.prove([claim.name for claim in chosen], BUILD)
    results: list[Checked] = []
    with progress_bar(len(chosen), "claims") as bar:
        for checked in check_claims(chosen, QUICK if effort == "quick" else Effort()):
            proofs = machine_checked.evidence(checked.claim.name, BUILD, failures)
            results.append(replace(checked, evidence=checked.evidence + proofs))
            bar.update()
    config = {"effort": effort, "only": [claim.name for claim in chosen]}
    environment = [
        {**describe_environment("cpu"), "seconds": round(sum(one.seconds for one in results), 1), "ended": today()}
    ]
    for path, text in (
        (out / "claims.json", to_json(results)),
        (out / "claims.md", to_markdown(results)),
        (out / "config.json", json.dumps(config, indent=1) + "\n"),
        (out / "environment.json", json.dumps(environment, indent=2) + "\n"),
    ):
        write_text(text, path)
    if not machine_checked.coq_is_installed():
        print(f"{machine_checked.INSTALL}: no proof was compiled", file=sys.stderr)
    return results
