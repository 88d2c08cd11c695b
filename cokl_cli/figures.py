"""Commands that draw: `cokl figures`, `cokl reproduce`, the labs with their figures. Light: heavy imports in `run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from cokl.support.options import Names
from cokl_cli import llm as llm_commands
from cokl_cli.bandit import FiniteGroup, Phase, Report, Shift, Sweep, SweepOptions
from cokl_cli.theory import Check


@dataclass(frozen=True)
class Figures:
    """Draw the paper's figures of the controlled experiment from a finished sweep, as PDF and PNG."""

    results: Path = Path("runs/paper")
    """Folder of a finished sweep."""
    out: Path | None = None
    """Folder for the figures (default: RESULTS/figures)."""

    def run(self) -> int:
        """Draw every figure and say where it is."""
        from bandit.sweep.score import read_sweep
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
        from bandit.sweep.score import read_sweep
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
class LLMTables:
    """The LLM experiment's tables and figures from its results; the paper's own tables if no results are given."""

    results: tyro.conf.Positional[Path | None] = None
    """Folder with scores.csv and, where measured, dynamics.csv, zero_correct.csv and costs.csv."""
    math_columns: Names = ("math_val", "math500", "olympiad")
    """Columns of scores.csv that hold math scores."""
    out: Path | None = None
    """Folder for the files (default: RESULTS/report; the paper's tables are written only if it is given)."""

    def run(self) -> int:
        """Print the tables, write them, and draw."""
        from llm_bridge.report.tables import to_screen, write_tables

        if self.results is None:
            from llm_bridge.paper.numbers import paper_tables, read_paper

            tables, figures, folder = paper_tables(read_paper()), {}, self.out
        else:
            from figures import llm
            from llm_bridge.report.result_tables import result_tables
            from llm_bridge.report.results import read_results

            results = read_results(self.results, self.math_columns)
            tables, figures, folder = result_tables(results), llm.draw(results), self.out or self.results / "report"
        print("\n".join(map(to_screen, tables)))
        if folder is not None:
            from figures import style

            write_tables(tables, folder)
            print(f"tables: {folder}/tables.txt, .md, .tex and a CSV file each")
            style.save_all(figures, folder)
        return 0


@dataclass(frozen=True)
class DrawnFiniteGroup(FiniteGroup):
    """The finite-group lab: sampled surrogates for several G beside the exact objective, and the recovery measured."""

    def run(self) -> int:
        """Train what is missing, write tables and figures, and print the summary."""
        from bandit.finite_group.score import read_results
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


@dataclass(frozen=True)
class LLMRun(llm_commands.Run):
    """Everything: data, math stage, buffer, chat stage with each method, report. Goes on where it was stopped."""

    def run(self) -> int:
        """Run what is missing, then draw."""
        code = super().run()
        return code if self.dry_run else _draw_llm(self.folder)


@dataclass(frozen=True)
class LLMReport(llm_commands.Report):
    """Tables and figures of whatever the experiment has finished: screen, Markdown, LaTeX, CSV, PDF and PNG."""

    def run(self) -> int:
        """Collect VeRL's logs, write the tables, and draw."""
        super().run()
        return _draw_llm(self.folder)


def _draw_llm(folder: Path) -> int:
    """Draw what the experiment in `folder` has measured."""
    from figures import llm, style
    from llm_bridge.report.results import read_results

    style.save_all(llm.draw(read_results(folder / "results")), folder / "report")
    return 0


@dataclass(frozen=True)
class DrawnShift(Shift):
    """Train on one task, then on another with each method; tables, verdicts on the paper's claims, figures. Resumes."""

    def run(self) -> int:
        """Run the lab, then draw its figures into FOLDER/figures."""
        from cokl.support.files import read_parquet
        from figures import shift, style

        code = super().run()
        style.save_all(shift.draw_all(read_parquet(self.folder / "shift.parquet")), self.folder / "figures")
        return code


@dataclass(frozen=True)
class DrawnPhase(Phase):
    """Over two knobs of the task-shift lab, which method wins Overall, by how much, and why, as maps. Resumes."""

    def run(self) -> int:
        """Run every diagram, then draw it into FOLDER/figures."""
        from bandit.phase.score import summarize
        from cokl.support.files import read_parquet
        from figures import phase, style

        code = super().run()
        for diagram in self.diagrams():
            cells = summarize(read_parquet(self.folder / diagram.name / "phase.parquet"))
            style.save_all({f"phase_{diagram.name}": phase.draw(diagram, cells)}, self.folder / "figures")
        return code
