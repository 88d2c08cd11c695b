"""The command `cokl figures`. Heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass

from cokl_cli.commands.bandit import SweepFigures


@dataclass(frozen=True)
class Figures(SweepFigures):
    """Draw the paper's figures of the controlled experiment from a finished sweep, as PDF and PNG."""

    prefix = "figure"

    def run(self) -> int:
        """Draw every figure and print where it is."""
        from bandit.sweep.figures import dynamics, schematic, tradeoff
        from bandit.sweep.score import read_sweep
        from figures import style

        table = read_sweep(self.results)
        drawn = {
            "figure1_constraint_scopes": schematic.draw(),
            "figure2_tradeoff": tradeoff.draw(table),
            "figure3_dynamics": dynamics.draw(table),
        }
        print(style.save_all(drawn, self.folder))
        return 0
