"""Commands of `cokl theory`. Heavy imports are inside `run`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro
from tyro.extras import SubcommandApp

from cokl.support.options import from_json, require_types
from cokl_cli.output import Output
from cokl_cli.presets import FromFile, changed, stored_settings, value_after


@dataclass(frozen=True)
class Check(FromFile, Output):
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
            import theory.claims  # noqa: F401  registers them
            from theory.claim import registered_claims

            for claim in registered_claims().values():
                print(f"{claim.name}\n    {claim.statement}\n    {claim.source}")
            return 0
        from theory.report import check_and_save, to_text

        results = check_and_save(self.only, self.effort, self.out)
        print(f"evidence of every claim: {self.out / 'claims.md'}")
        print(to_text(results, every_evidence=bool(self.only)))
        return 0 if all(result.holds for result in results) else 1

    def outcome(self) -> Any:
        """The table of claims as in claims.json, or with --list their names, statements and sources."""
        if self.list:
            from theory.claim import registered_claims

            claims = registered_claims().values()
            return [{"claim": claim.name, "statement": claim.statement, "source": claim.source} for claim in claims]
        return json.loads((self.out / "claims.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Optimum(Output):
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

    def outcome(self) -> dict[str, Any]:
        """The optimum and its certificate."""
        from theory.optima import population_optimum

        return asdict(population_optimum(self.method, self.q, self.beta, self.digits, self.correct_fraction))

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
    """The commands; the check with the defaults of the file named in `arguments`."""
    path = value_after("--config", arguments)
    stored = changed({"only": (), "effort": "full"}, stored_settings(path), path) if path else {}
    check = from_json(Check, stored)
    require_types(check, "")
    commands = SubcommandApp()
    commands.command(name="check")(partial(Check, only=check.only, effort=check.effort) if stored else Check)
    commands.command(name="optimum")(Optimum)
    return commands
