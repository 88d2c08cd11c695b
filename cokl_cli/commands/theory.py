"""Commands of `cokl theory`. Heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from json import dumps
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
    json: bool = False
    """Print the claims as JSON, as claims.json has them, and nothing else."""

    def run(self) -> int:
        if self.list:
            from theory.claims import registered_claims

            claims = registered_claims().values()
            if self.json:
                told = [{"claim": claim.name, "statement": claim.statement, "source": claim.source} for claim in claims]
                print(dumps(told, indent=1))
                return 0
            for claim in claims:
                print(f"{claim.name}\n    {claim.statement}\n    {claim.source}")
            return 0
        from theory.report import check_and_save, to_json, to_text

        results = check_and_save(self.only, self.effort, self.out)
        if self.json:
            print(to_json(results))
        else:
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
    """Significant digits, 1 to 50."""
    correct_fraction: str | None = None
    """Correct actions over all actions, in (0, 1); for entropy."""
    json: bool = False
    """Print one JSON object and nothing else; its numbers are texts, so that no digit is lost."""

    def run(self) -> int:
        from theory.optima import population_optimum

        optimum = population_optimum(self.method, self.q, self.beta, self.digits, self.correct_fraction)
        if self.json:
            print(dumps(asdict(optimum), indent=1))
            return 0
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
