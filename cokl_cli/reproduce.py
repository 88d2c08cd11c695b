"""The command `cokl reproduce`: everything that needs no VeRL, in one go."""

from __future__ import annotations

from dataclasses import dataclass

from cokl_cli.bandit import Report, Sweep, SweepOptions
from cokl_cli.figures import Figures
from cokl_cli.theory import Check, TheoryFigures


@dataclass(frozen=True)
class Reproduce(SweepOptions):
    """The controlled experiment and the theory: all runs, all figures, and a verdict on each claim of the paper."""

    def run(self) -> int:
        """Sweep, draw, check, judge; what is already trained is not trained again."""
        sweep = Sweep(self.preset, self.out, self.jobs, self.backend, self.config)
        figures = (Figures(self.folder), TheoryFigures(self.folder))
        check = Check(out=self.folder / "theory")
        return max(command.run() for command in (sweep, *figures, check, Report(self.folder)))
