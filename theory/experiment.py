"""The check of the theory's claims as one of the experiments. `cokl theory check` makes its results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cokl.support.experiment import NOT_RECORDED, Experiment, register
from cokl.support.files import read_json
from cokl.support.verdicts import Claim, Verdict


@register
class Theory(Experiment):
    """Every claim of the theory, the paper's and those beyond it."""

    name, title, area = "theory", "Theory", "theory"
    command, order = "cokl theory check", 200
    summary = "Every claim of the paper checked, and what certifies each."
    tables = ("claims.json",)
    measured_as = "evidence"

    def area_of(self, folder: Path) -> str:
        """The same for every folder."""
        return self.area

    def claims(self, folder: Path) -> Sequence[Claim]:
        """The claims as they were checked, a line of evidence for each way in which that was done."""
        import theory.claims  # noqa: F401  registers them
        from theory.claim import registered_claims
        from theory.report import in_words, stored_evidence

        known = registered_claims()
        judged = []
        for row in read_json(folder / self.tables[0], list):
            claim = known.get(row["claim"])
            first, *others = (in_words(stored_evidence(evidence)) for evidence in row["evidence"])
            derivation = claim.derivation if claim else ""
            statement = f"{row['claim']}: {row['statement']}"
            verdict: Verdict = "held" if row["holds"] else "not held"
            judged.append(Claim(statement, row["source"], first, verdict, tuple(others), derivation))
        return judged

    def brief(self, measured: Sequence[str]) -> str:
        """The kinds of evidence, a proof first; of a proof of a part, which part."""
        from theory.report import kinds_of_evidence

        return kinds_of_evidence(measured)

    def record(self, folders: Sequence[Path]) -> dict[str, Any]:
        """Scope and time of the check."""
        rows = read_json(folders[0] / self.tables[0], list)
        scope = f"{len(rows)} statements, of the paper and beyond it"
        seconds = round(sum(row["seconds"] for row in rows), 1)
        return {"command": self.command, "scope": scope, **NOT_RECORDED, "seconds": seconds}
