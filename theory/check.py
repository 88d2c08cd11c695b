"""Checking the theory's claims and saving what came out; a check that is interrupted resumes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import pandas as pd
import torch

import theory.claims  # noqa: F401  registers them
from cokl.support.code import code_of
from cokl.support.errors import InputError
from cokl.support.files import write_text
from cokl.support.pieces import Origin
from cokl.support.progress import progress
from cokl.support.results_folder import digest, record_environment
from theory.claim import QUICK, Effort, Evidence, registered_claims
from theory.formulas import Formulas
from theory.proofs.machine_checked import BUILD, INSTALL, coq_is_installed, evidence, prove
from theory.report import Checked, check_claims, to_json, to_markdown


def check_and_save(only: Sequence[str], effort: Literal["full", "quick"], out: Path) -> list[Checked]:
    """Check claims and write OUT/claims.json, claims.md and config.json.

    only: names of claims, several in one text separated by commas; all if empty. Until the tables are written,
    OUT/pieces keeps what is checked, from which the same code resumes. Raises InputError for an unknown claim.
    """
    torch.set_num_threads(1)  # the tensors are small; threads would only wait for each other
    claims = registered_claims()
    asked = [name for text in only for name in text.split(",") if name]
    unknown = [name for name in asked if name not in claims]
    if unknown:
        raise InputError(f"only: unknown claim {unknown[0]!r}; `cokl theory check --list` names them")
    chosen = [claim for name, claim in claims.items() if not asked or name in asked]
    code = digest(code_of("theory.claims", ()))
    origin, pieces = Origin(out, effort, code), out / "pieces" / f"{effort}-{code}"
    failures = prove([claim.name for claim in chosen], BUILD)
    results: list[Checked] = []
    with progress(len(chosen), "claims", "claim") as bar:
        for claim in chosen:
            piece = pieces / f"{claim.name}.parquet"
            rows = origin.load(piece, claim.name)
            if rows is None:
                (checked,) = check_claims([claim], Formulas(), QUICK if effort == "quick" else Effort())
                rows = pd.DataFrame(map(asdict, checked.evidence)).assign(seconds=checked.seconds)
                origin.save(rows, piece, claim.name)
            seconds = float(rows.pop("seconds").iloc[0])
            found = [Evidence(*row) for row in rows.itertuples(index=False, name=None)]
            results.append(Checked(claim, found + evidence(claim.name, BUILD, failures), seconds))
            bar.update()
    record_environment(out / "environment.json", "cpu", code)
    config = {"effort": effort, "only": [claim.name for claim in chosen]}
    for path, text in (
        (out / "claims.json", to_json(results)),
        (out / "claims.md", to_markdown(results)),
        (out / "config.json", json.dumps(config, indent=1) + "\n"),
    ):
        write_text(text, path)
    for claim in chosen:
        (pieces / f"{claim.name}.parquet").unlink()
    with contextlib.suppress(OSError):  # what a check of other claims has left there stays
        pieces.rmdir()
        pieces.parent.rmdir()
    if not coq_is_installed():
        print(f"{INSTALL}: no proof was compiled", file=sys.stderr)
    return results
