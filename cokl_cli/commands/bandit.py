"""Commands of `cokl bandit`. Light: heavy imports are inside `run`.

Annotations are evaluated here, since the parser reads those of subclasses in other modules.
"""

import dataclasses
import textwrap
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro
from tyro.extras import SubcommandApp

from bandit.calibration.config import CALIBRATION_PRESETS, CalibrationConfig
from bandit.finite_group.config import PRESETS as FINITE_GROUP_PRESETS
from bandit.finite_group.config import FiniteGroupConfig
from bandit.robustness.config import ROBUSTNESS_PRESETS, RobustnessConfig
from bandit.sequences.config import SEQUENCE_PRESETS, SequenceConfig
from bandit.shift.config import SHIFT_PRESETS, ShiftConfig
from bandit.sweep.config import PRESETS, SweepConfig
from cokl.support.errors import InputError
from cokl.support.options import Coefficients, Names, separated
from cokl_cli.output import Output, records
from cokl_cli.presets import preset_among

if TYPE_CHECKING:
    from bandit.phase.config import Diagram

_Numbers = Annotated[tuple[float, ...], separated(float, "VALUE")]


@dataclass(frozen=True)
class LabOptions(Output):
    """What every command that trains takes."""

    preset: Literal["paper", "quick"] = "paper"
    """Where all other defaults come from: the paper's settings, or a smaller experiment that ends within a minute."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to save in and to resume from; runs/NAME-PRESET if not given, runs/PRESET for the sweep."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes on a CPU; one per core if not given."""
    backend: Literal["loky", "ray"] = "loky"
    """Processes of this machine, or a Ray cluster: the one RAY_ADDRESS names, or else one started here."""
    keep_going: bool = False
    """Go on with results that other code than this has left in the folder, which otherwise is refused."""

    folder_prefix: ClassVar[str] = ""

    @property
    def folder(self) -> Path:
        """Where results go."""
        return self.out or Path("runs") / f"{self.folder_prefix}{self.preset}"


@dataclass(frozen=True)
class SweepOptions(LabOptions):
    """What the commands that sweep take."""

    config: Annotated[SweepConfig, tyro.conf.arg(name="experiment")] = PRESETS["paper"]


@dataclass(frozen=True)
class Sweep(SweepOptions):
    """Train every method, coefficient and seed; write the tidy table sweep.parquet. Goes on where it was stopped."""

    csv: bool = False
    """Write sweep.csv too."""

    def run(self) -> int:
        """Train what is missing and say where the table is."""
        from bandit.sweep.run import run_sweep
        from cokl.support.files import write_atomically

        table = run_sweep(self.config, self.folder, self.jobs, self.backend, keep_going=self.keep_going)
        print(f"{len(table)} rows: {self.folder / 'sweep.parquet'}")
        if self.csv:
            path = self.folder / "sweep.csv"
            write_atomically(path, lambda temporary: table.to_csv(temporary, index=False))
            print(f"and as text: {path}")
        return 0

    def found(self) -> dict[str, Any]:
        """The table's place, and means over seeds at the last step."""
        from bandit.sweep.score import final_rows, read_sweep

        final = final_rows(read_sweep(self.folder)).drop(columns=["seed", "step"])
        means = final.groupby(["method", "beta"], sort=False).mean().reset_index()
        return {"table": self.folder / "sweep.parquet", "final": records(means)}


def finished_sweep() -> Path:
    """What is read where nothing else is asked for: runs/paper, or runs/quick where only that sweep is finished."""
    paper, quick = Path("runs/paper"), Path("runs/quick")
    only_quick = (quick / "sweep.parquet").is_file() and not (paper / "sweep.parquet").is_file()
    return quick if only_quick else paper


@dataclass(frozen=True)
class Report(Output):
    """Judge each claim of the paper on a finished sweep; print the verdicts and write them as Markdown."""

    results: Path = field(default_factory=finished_sweep)
    """Folder of a finished sweep: runs/paper, or runs/quick where only that one is."""

    def run(self) -> int:
        """Print the verdicts and write RESULTS/claims.md."""
        from bandit.sweep.report import render_markdown, render_screen
        from bandit.sweep.score import read_sweep
        from cokl.support.files import write_text

        table = read_sweep(self.results)
        path = self.results / "claims.md"
        write_text(render_markdown(table), path)
        print(render_screen(table))
        print(f"written to {path}")
        return 0

    def found(self) -> dict[str, Any]:
        """Every claim with its verdict."""
        from bandit.sweep.claims import judge
        from bandit.sweep.score import read_sweep

        claims = [dataclasses.asdict(claim) for claim in judge(read_sweep(self.results))]
        return {"page": self.results / "claims.md", "claims": claims}


@dataclass(frozen=True)
class Robustness(LabOptions):
    """Vary each assumption of the sweep, one at a time, and say of each verdict whether it stands. Resumes."""

    folder_prefix = "robustness-"
    config: Annotated[RobustnessConfig, tyro.conf.arg(name="experiment")] = ROBUSTNESS_PRESETS["paper"]

    def run(self) -> int:
        """Train what is missing, write results.md and robustness.csv, and print what stands."""
        from bandit.robustness.report import compare, render_markdown, render_screen
        from bandit.robustness.run import robustness
        from bandit.shift.report import csv_text
        from cokl.support.files import write_text

        tables = robustness(self.config, self.folder, self.jobs, self.backend, keep_going=self.keep_going)
        compared, seeds = compare(tables), self.config.sweep.seeds
        write_text(csv_text(compared), self.folder / "robustness.csv")
        write_text(render_markdown(compared, seeds), self.folder / "results.md")
        print(render_screen(compared, seeds))
        print(f"\nwritten to {self.folder / 'results.md'}")
        return 0

    def found(self) -> dict[str, Any]:
        """Where the page is, and every claim under every alternative."""
        import pandas as pd

        rows = pd.read_csv(self.folder / "robustness.csv")
        return {"page": self.folder / "results.md", "claims": records(rows)}


@dataclass(frozen=True)
class Shift(LabOptions):
    """Train on one task, then on another with each method; write shift.parquet, tables and figures. Resumes."""

    folder_prefix = "shift-"
    config: Annotated[ShiftConfig, tyro.conf.arg(name="experiment")] = SHIFT_PRESETS["paper"]

    def run(self) -> int:
        """Train what is missing, write the results, draw, and say what was found and where it is."""
        from bandit.shift.report import require_scores, summary, write
        from bandit.shift.run import shift
        from figures import shift as figures
        from figures import style

        require_scores(self.config.methods, self.config.selection_seeds)
        table = shift(self.config, self.folder, self.jobs, self.backend, keep_going=self.keep_going)
        write(table, self.folder)
        print(summary(table))
        print(f"{len(table)} rows: {self.folder / 'shift.parquet'}; tables and verdicts: {self.folder / 'results.md'}")
        style.save_all(figures.draw_all(table), self.folder / "figures")
        return 0

    def found(self) -> dict[str, Any]:
        """Where everything is, the normalized scores, and every claim with its verdict."""
        from bandit.shift.claims import judge
        from bandit.shift.report import tables
        from bandit.shift.score import score
        from cokl.support.files import read_parquet

        table = read_parquet(self.folder / "shift.parquet")
        claims = [{"statement": claim.statement, "verdict": claim.verdict} for claim in judge(score(table))]
        scores = records(tables(table)["table1_normalized"])
        return {"folder": self.folder, "page": self.folder / "results.md", "scores": scores, "claims": claims}


@dataclass(frozen=True)
class Sequences(LabOptions):
    """The task shift with answers of many tokens, exactly and in samples: tables, and who forgets what. Resumes."""

    folder_prefix = "sequences-"
    config: Annotated[SequenceConfig, tyro.conf.arg(name="experiment")] = SEQUENCE_PRESETS["paper"]

    def run(self) -> int:
        """Train what is missing, write the results, and say what was found and where it is."""
        from bandit.sequences.report import summary, write
        from bandit.sequences.run import sequences
        from bandit.shift.report import require_scores

        require_scores(self.config.methods, self.config.selection_seeds)
        table = sequences(self.config, self.folder, self.jobs, self.backend, keep_going=self.keep_going)
        write(table, self.config, self.folder)
        print(summary(table, self.config))
        print(f"\n{len(table)} rows: {self.folder / 'sequences.parquet'}; tables: {self.folder / 'results.md'}")
        return 0

    def found(self) -> dict[str, Any]:
        """Where everything is."""
        return {"table": self.folder / "sequences.parquet", "page": self.folder / "results.md"}


@dataclass(frozen=True)
class Phase(LabOptions):
    """Over two knobs of the task-shift lab, which method wins Overall, by how much, and why. Resumes."""

    folder_prefix = "phase-"
    knobs: Names = ()
    """Two of reference_correctness, correct_modes, cluster_overlap, correct_overlap, group_size, width, buffer_size and
    correct_mass; the first two in expectations and cluster_overlap with group_size in samples if not given."""
    mode: Literal["exact", "sampled"] = "exact"
    """For knobs of your own: expectations over the action space, or sampled groups of responses."""
    x_values: _Numbers = ()
    """Values of the first knob; the preset's if not given."""
    y_values: _Numbers = ()
    """Values of the second knob; the preset's if not given."""
    methods: Names = ()
    """What competes, none (GRPO w/o KL) among it; the preset's if not given."""
    betas: Coefficients = ()
    """Coefficients of every method; the preset's if not given."""
    seeds: int | None = None
    """Reported seeds of a cell; the preset's if not given."""
    steps: int | None = None
    """Optimizer steps on the new task; the preset's if not given."""

    def diagrams(self) -> "list[Diagram]":
        """What is asked for. Raises InputError for knobs that are not in the list."""
        from bandit.phase.config import EXPERIMENTS, default_diagrams, diagram

        asked = {"methods": self.methods, "betas": self.betas, "seeds": self.seeds, "steps": self.steps}
        changes: dict[str, Any] = {name: value for name, value in asked.items() if value not in ((), None)}
        if self.steps is not None:
            changes["eval_interval"] = self.steps
        experiment = dataclasses.replace(EXPERIMENTS[self.preset], **changes)
        if len(self.knobs) == 2:
            return [diagram(*self.knobs, self.mode, experiment, self.preset, self.x_values, self.y_values)]
        if self.knobs or self.x_values or self.y_values:
            raise InputError(
                f"knobs: expected two names, got {','.join(self.knobs) or 'none'}; values need their knobs"
            )
        return default_diagrams(experiment, self.preset)

    def run(self) -> int:
        """Train what is missing, write and draw every diagram, and say what was found and where it is."""
        from bandit.phase.run import run
        from figures import phase, style

        diagrams = self.diagrams()
        found = run(diagrams, self.folder, self.jobs, self.backend, keep_going=self.keep_going)
        for diagram, cells in zip(diagrams, found.values(), strict=True):
            page = self.folder / f"{diagram.name}.md"
            print(page.read_text(encoding="utf-8"))
            print(f"written to {page}\n")
            style.save_all({f"phase_{diagram.name}": phase.draw(diagram, cells)}, self.folder / "figures")
        return 0

    def found(self) -> dict[str, Any]:
        """Where each diagram's page and table are."""
        names = [diagram.name for diagram in self.diagrams()]
        return {name: {"page": self.folder / f"{name}.md", "table": self.folder / name} for name in names}


@dataclass(frozen=True)
class Calibration(LabOptions):
    """Search the task-shift lab for the paper's pattern: how much of term 2, and does it pay? Resumes."""

    folder_prefix = "calibration-"
    config: Annotated[CalibrationConfig, tyro.conf.arg(name="experiment")] = CALIBRATION_PRESETS["paper"]

    def run(self) -> int:
        """Train what is missing, write results.md and calibration.csv, and print the answer."""
        from bandit.calibration.report import answer, render
        from bandit.calibration.run import calibration
        from bandit.calibration.score import summarize
        from bandit.shift.report import csv_text
        from cokl.support.files import write_text

        rows = calibration(self.config, self.folder, self.jobs, self.backend, keep_going=self.keep_going)
        found = summarize(rows, self.config)
        write_text(csv_text(found), self.folder / "calibration.csv")
        write_text(render(found, self.config.seeds), self.folder / "results.md")
        print(textwrap.fill(answer(found, self.config.seeds), 80))
        print(f"\nwritten to {self.folder / 'results.md'}")
        return 0

    def found(self) -> dict[str, Any]:
        """Where the page is, and every setting and share."""
        import pandas as pd

        return {
            "page": self.folder / "results.md",
            "settings": records(pd.read_csv(self.folder / "calibration.csv")),
        }


@dataclass(frozen=True)
class FiniteGroup(LabOptions):
    """The finite-group lab: sampled surrogates for several G beside the exact objective, and the recovery measured."""

    folder_prefix = "finite-group-"
    config: Annotated[FiniteGroupConfig, tyro.conf.arg(name="experiment")] = FINITE_GROUP_PRESETS["paper"]

    def run(self) -> int:
        """Train what is missing, write the tables, print the summary, and draw."""
        from bandit.finite_group.report import render_screen, write_tables
        from bandit.finite_group.run import finite_group
        from figures import finite_group as figures
        from figures import style

        metrics, recovery = finite_group(self.config, self.folder, self.jobs, self.backend, keep_going=self.keep_going)
        print(render_screen(metrics, recovery))
        for path in (self.folder / "finite_group.parquet", self.folder / "recovery.parquet"):
            print(path)
        for path in write_tables(metrics, recovery, self.folder):
            print(path)
        drawn = {"finite_group_metrics": figures.draw_metrics(metrics)}
        if len(recovery):
            drawn["finite_group_recovery"] = figures.draw_recovery(recovery)
        style.save_all(drawn, self.folder / "figures")
        return 0

    def found(self) -> dict[str, Any]:
        """Where both tables are, and the metrics at the last step, a row per seed."""
        from bandit.sweep.score import final_rows
        from cokl.support.files import read_parquet

        tables = {name: self.folder / f"{name}.parquet" for name in ("finite_group", "recovery")}
        return {**tables, "final": records(final_rows(read_parquet(tables["finite_group"])))}


def laboratory(arguments: list[str]) -> SubcommandApp:
    """The commands, with the defaults of the preset named in `arguments`."""
    preset = preset_among(arguments, PRESETS, "paper")
    commands = SubcommandApp()
    commands.command(name="sweep")(partial(Sweep, preset=preset, config=PRESETS[preset]))
    commands.command(name="report")(Report)
    commands.command(name="robustness")(partial(Robustness, preset=preset, config=ROBUSTNESS_PRESETS[preset]))
    commands.command(name="shift")(partial(Shift, preset=preset, config=SHIFT_PRESETS[preset]))
    commands.command(name="calibration")(partial(Calibration, preset=preset, config=CALIBRATION_PRESETS[preset]))
    commands.command(name="phase")(partial(Phase, preset=preset))
    commands.command(name="sequences")(partial(Sequences, preset=preset, config=SEQUENCE_PRESETS[preset]))
    commands.command(name="finite-group")(partial(FiniteGroup, preset=preset, config=FINITE_GROUP_PRESETS[preset]))
    return commands
