"""Commands of `cokl theory`. Heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from tyro.extras import SubcommandApp


@dataclass(frozen=True)
class Check:
    """Check every claim of the paper; a line for each and its evidence comes last. Exit code 1 if one fails."""

    list: bool = False
    """Print the claims with their sources and stop."""
    only: tuple[str, ...] = ()
    """Check these claims alone, separated by commas or spaces."""
    out: Path = Path("runs/theory")
    """Folder of claims.json, claims.md, and config.json, which says what was checked."""
    effort: Literal["full", "quick"] = "full"
    """Quick takes fewer samples, programs and boxes, for a first look."""

    def run(self) -> int:
        if self.list:
            from theory.claims import registered_claims

            for claim in registered_claims().values():
                print(f"{claim.name}\n    {claim.statement}\n    {claim.source}")
            return 0
        from theory.report import check_and_save, to_text

        results = check_and_save(self.only, self.effort, self.out)
        print(f"evidence of every claim: {self.out / 'claims.md'}")
        print(to_text(results, every_evidence=bool(self.only)))
        return 0 if all(result.holds for result in results) else 1


@dataclass(frozen=True)
class Optimum:
    """The best Z* of Z - beta D for a registered regularizer, among which policies, and what certifies it."""

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

    def run(self) -> int:
        from theory.optima import population_optimum

        optimum = population_optimum(self.method, self.q, self.beta, self.digits, self.correct_fraction)
        print(f"{optimum.method} at q = {optimum.q}, beta = {optimum.beta}")
        print(f"Z*      {optimum.mass}")
        print(f"1 - Z*  {optimum.gap}")
        print(f"Z* - q  {optimum.above_reference}")
        print(f"{'certified' if optimum.certified else 'not certified'}: {optimum.certificate}")
        return 0


def checks(arguments: list[str]) -> SubcommandApp:
    """The commands, whatever the arguments."""
    commands = SubcommandApp()
    commands.command(name="check")(Check)
    commands.command(name="optimum")(Optimum)
    return commands
