"""The commands `cokl theory check` and `cokl theory optimum`. Light to import: what is heavy is imported when run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Check:
    """Check every claim of the paper three independent ways; the table comes last. Exit code 1 if a claim fails."""

    list: bool = False
    """Print the claims with their sources and stop."""
    only: tuple[str, ...] = ()
    """Check these claims alone, separated by commas or spaces."""
    json: Path | None = None
    """Write the table as JSON to this file as well."""
    out: Path = Path("runs/theory")
    """Folder of claims.json and claims.md."""

    def run(self) -> int:
        from theory.claim import registered_claims

        if self.list:
            import theory.claims

            for claim in registered_claims().values():
                print(f"{claim.name}\n    {claim.statement}\n    {claim.source}")
            return 0
        import torch
        from tqdm import tqdm

        import theory.claims  # noqa: F401  registers them
        from cokl.errors import InputError
        from cokl.files import write_text
        from theory.claim import Effort
        from theory.formulas import Formulas
        from theory.machine_checked import BUILD, INSTALL, coq_is_installed, evidence, prove
        from theory.report import Checked, check_claims, to_json, to_markdown, to_text

        torch.set_num_threads(1)  # the tensors are small; threads would only wait for each other
        claims = registered_claims()
        asked = [name for text in self.only for name in text.split(",") if name]
        unknown = [name for name in asked if name not in claims]
        if unknown:
            raise InputError(f"only: unknown claim {unknown[0]!r}; `cokl theory check --list` names them")
        chosen = [claim for name, claim in claims.items() if not asked or name in asked]
        failures = prove([claim.name for claim in chosen], BUILD)
        progress = tqdm(total=len(chosen), unit="claim")
        results: list[Checked] = []
        for claim in chosen:
            progress.set_description(f"{claim.name:<45.45}")
            results += [
                replace(checked, evidence=checked.evidence + evidence(claim.name, BUILD, failures))
                for checked in check_claims([claim], Formulas(), Effort())
            ]
            progress.update()
        progress.close()
        for path, text in (
            (self.out / "claims.json", to_json(results)),
            (self.out / "claims.md", to_markdown(results)),
            *([(self.json, to_json(results))] if self.json else []),
        ):
            write_text(text, path)
        if not coq_is_installed():
            print(f"{INSTALL}: no proof was compiled")
        print(to_text(results))
        return 0 if all(result.holds for result in results) else 1


@dataclass(frozen=True)
class Optimum:
    """The population optimum Z* of Z - beta D for a registered regularizer, and what certifies it."""

    method: tyro.conf.Positional[str]
    """Name of the regularizer, e.g. forward_kl."""
    q: str
    """Correctness of the reference, a decimal in (0, 1), taken exactly."""
    beta: str
    """Coefficient, a decimal > 0, taken exactly."""
    digits: int = 15
    """Significant digits."""
    correct_fraction: str | None = None
    """Correct actions over all actions, in (0, 1); for entropy."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""

    def run(self) -> int:
        import json

        from theory.optima import population_optimum

        optimum = population_optimum(self.method, self.q, self.beta, self.digits, self.correct_fraction)
        if self.json:
            print(json.dumps(optimum.as_dict(), indent=1))
            return 0
        print(f"{optimum.method} at q = {optimum.q}, beta = {optimum.beta}")
        print(f"Z*      {optimum.mass}")
        print(f"1 - Z*  {optimum.gap}")
        print(f"Z* - q  {optimum.above_reference}")
        print(f"{'certified' if optimum.certified else 'not certified'}: {optimum.certificate}")
        return 0
