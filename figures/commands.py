"""Commands that draw: `cokl figures` and `cokl reproduce`. Light: heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bandit.commands import FiniteGroup, Report, Sweep, SweepOptions
from theory.commands import Check


@dataclass(frozen=True)
class Figures:
    """Draw the paper's figures of the controlled experiment from a finished sweep, as PDF and PNG."""

    results: Path = Path("runs/paper")
    """Folder of a finished sweep."""
    out: Path | None = None
    """Folder for the figures (default: RESULTS/figures)."""

    def run(self) -> int:
        """Draw every figure and say where it is."""
        from bandit.store import read_sweep
        from figures import dynamics, schematic, style, tradeoff

        table = read_sweep(self.results)
        folder = self.out or self.results / "figures"
        drawn = {
            "figure1_constraint_scopes": schematic.draw(),
            "figure2_tradeoff": tradeoff.draw(table),
            "figure3_dynamics": dynamics.draw(table),
        }
        style.save_all(drawn, folder)
        return 0


@dataclass(frozen=True)
class TheoryFigures:
    """Draw theory against practice and the off-policy bias, from a finished sweep, as PDF and PNG."""

    results: Path = Path("runs/paper")
    """Folder of a finished sweep, whose networks are compared with the population optima."""
    out: Path | None = None
    """Folder for the figures (default: RESULTS/figures)."""

    def run(self) -> int:
        """Draw both figures and say where they are."""
        from bandit.store import read_sweep
        from figures import off_policy_bias, optima, style

        table = read_sweep(self.results)
        folder = self.out or self.results / "figures"
        drawn = {
            "theory_optima": optima.draw(table, *optima.reference_masses(self.results)),
            "theory_off_policy_bias": off_policy_bias.draw(),
        }
        style.save_all(drawn, folder)
        return 0


@dataclass(frozen=True)
class DrawnFiniteGroup(FiniteGroup):
    """The finite-group lab: sampled surrogates for several G beside the exact objective, and the recovery measured."""

    def run(self) -> int:
        """Train what is missing, write tables and figures, and print the summary."""
        from bandit.finite_group.results import read_results
        from figures import finite_group, style

        super().run()
        metrics, recovery = read_results(self.folder)
        drawn = {"finite_group_metrics": finite_group.draw_metrics(metrics)}
        if len(recovery):
            drawn["finite_group_recovery"] = finite_group.draw_recovery(recovery)
        style.save_all(drawn, self.folder / "figures")
        return 0


@dataclass(frozen=True)
class Reproduce(SweepOptions):
    """The controlled experiment and the theory: all runs, all figures, and a verdict on each claim of the paper."""

    def run(self) -> int:
        """Sweep, draw, check, judge; what is already trained is not trained again."""
        sweep = Sweep(self.preset, self.out, self.jobs, self.backend, self.config)
        figures = (Figures(self.folder), TheoryFigures(self.folder))
        check = Check(out=self.folder / "theory")
        return max(command.run() for command in (sweep, *figures, check, Report(self.folder)))
