"""The command `cokl figures`. Heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cokl_cli.commands.bandit import finished_sweep
from cokl_cli.output import Output


@dataclass(frozen=True)
class Figures(Output):
    """Draw the paper's figures of the controlled experiment from a finished sweep, as PDF and PNG."""

    results: Path = field(default_factory=finished_sweep)
    """Folder of a finished sweep: runs/paper, or runs/quick where only that one is."""
    out: Path | None = None
    """Folder for the figures (default: RESULTS/figures)."""

    def run(self) -> int:
        """Draw every figure and say where it is."""
        from bandit.sweep.figures import dynamics, schematic, tradeoff
        from bandit.sweep.score import read_sweep
        from figures import style

        table = read_sweep(self.results)
        folder = self.out or self.results / "figures"
        drawn = {
            "figure1_constraint_scopes": schematic.draw(),
            "figure2_tradeoff": tradeoff.draw(table),
            "figure3_dynamics": dynamics.draw(table),
        }
        style.save_all(drawn, folder)
        return 0

    def outcome(self) -> dict[str, Any]:
        """The figures' files."""
        folder = self.out or self.results / "figures"
        return {"figures": sorted(str(path) for path in folder.glob("figure*.p*"))}
