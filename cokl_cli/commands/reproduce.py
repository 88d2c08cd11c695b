"""The command `cokl reproduce`: everything that needs no VeRL, in one go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from bandit.sweep.config import PRESETS
from cokl.support.errors import InputError
from cokl_cli.commands.bandit import Report, Sweep, SweepOptions
from cokl_cli.commands.figures import Figures
from cokl_cli.commands.report import HtmlReport
from cokl_cli.commands.theory import Check, TheoryFigures
from cokl_cli.presets import preset_among


@dataclass(frozen=True)
class Reproduce(SweepOptions):
    """The controlled experiment and the theory: all runs, all figures, and a verdict on each claim of the paper.

    The quick preset also checks the theory quickly.
    """

    def run(self) -> int:
        """Sweep, draw, check, judge; what is already trained is not trained again. It ends on one screen."""
        from theory.report import summary, to_text

        Sweep(self.preset, self.out, self.jobs, self.backend, self.keep_going, self.config).run()
        Figures(self.folder).run()
        TheoryFigures(self.folder).run()
        effort: Literal["full", "quick"] = "quick" if self.preset == "quick" else "full"
        theory = Check(out=self.folder / "theory", effort=effort).checked()
        failed = [result for result in theory if not result.holds]
        if failed:
            print(to_text(failed))
        Report(self.folder).run()
        print(f"theory: {summary(theory)}; {self.folder / 'theory' / 'claims.md'}")
        print(f"figures: {self.folder / 'figures'}; every number: {self.folder / 'sweep.parquet'}")
        try:
            HtmlReport(self.folder).run()
        except InputError as error:  # the numbers are there; what is missing is the plotting library
            print(f"no report.html: {error}")
        return 1 if failed else 0

    def found(self) -> dict[str, Any]:
        """The verdicts on the experiment's claims and the table of the theory's."""
        return {**Report(self.folder).found(), "theory": Check(out=self.folder / "theory").found()}


def reproduce(arguments: list[str]) -> partial[Reproduce]:
    """The command, with the defaults of the preset named in `arguments`."""
    preset = preset_among(arguments, PRESETS, "paper")
    return partial(Reproduce, preset=preset, config=PRESETS[preset])
