"""Commands of `cokl bandit`: one for each experiment with presets. Heavy imports are inside `run`.

Annotations are evaluated here, since the parser reads those of subclasses in other modules.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from tyro.extras import SubcommandApp

from cokl.support.experiment import Execution, Experiment
from cokl.support.files import read_parquet, write_atomically, write_text
from cokl_cli.commands.card import Card
from cokl_cli.experiments import experiments
from cokl_cli.output import Output
from cokl_cli.presets import FromFile, preset_among, settings_among


@dataclass(frozen=True, kw_only=True)
class LabOptions(FromFile, Execution, Output):
    """What every command that trains takes."""

    preset: Literal["paper", "quick"] = "paper"
    """Where all other defaults come from: the paper's settings, a smaller experiment that ends within a minute (quick),
    or another setting of the lab."""

    folder_prefix: ClassVar[str] = ""

    @property
    def folder(self) -> Path:
        """Where results go."""
        name = self.config_file.stem if self.config_file else self.preset
        return self.out or Path("runs") / f"{self.folder_prefix}{name}"


@dataclass(frozen=True, kw_only=True)
class Lab(LabOptions):
    """A command that trains, reports and draws one experiment."""

    csv: bool = False
    """Write every table as CSV too."""

    experiment: ClassVar[Experiment]
    config: ClassVar[Any]

    def run(self) -> int:
        """Train what is missing, write the results and print the outcome; the pictures that it names are drawn last."""
        trained = self.experiment.train(self.config, dataclasses.replace(self, out=self.folder))
        screen = self.experiment.report(trained, self.config, self.folder)
        for name in [one for one in self.experiment.tables if self.csv and one.endswith(".parquet")]:
            here = self.folder / name
            for path in [here] if here.is_file() else sorted(self.folder.glob(f"*/{name}")):  # a folder for each map
                write_atomically(path.with_suffix(".csv"), partial(read_parquet(path).to_csv, index=False))
                print(f"and as text: {path.with_suffix('.csv')}")
        print(screen)
        if pictures := self.experiment.figures(trained, self.config, self.folder):
            from figures import style

            style.save_all(dict(pictures), self.folder / "figures")
        return 0

    def outcome(self) -> Any:
        """What the experiment gives to a program."""
        return self.experiment.outcome(self.config, self.folder)


def command_of(name: str, preset: str = "paper", default: Any = None) -> Callable[..., Lab]:
    """The command of an experiment: its options are the configuration's fields beside those of every lab.

    default: the configuration, if it is not the preset's. A class with its defaults and no `partial` of one, for which
    the parser would load a type checker.
    """
    experiment = experiments()[name]
    default = default or experiment.presets[preset]
    config = (Annotated[type(default), tyro.conf.arg(name="experiment")], field(default=default))
    return dataclasses.make_dataclass(
        type(experiment).__name__,
        [("preset", Literal[tuple(experiment.presets)], field(default=preset)), ("config", *config)],
        bases=(Lab,),
        namespace={
            "__doc__": experiment.summary,
            "experiment": experiment,
            "folder_prefix": experiment.folder_prefix,
        },
        frozen=True,
        kw_only=True,
    )


def finished_sweep() -> Path:
    """The default of `--results`: runs/paper, or runs/quick where only that sweep is finished."""
    paper, quick = Path("runs/paper"), Path("runs/quick")
    only_quick = (quick / "sweep.parquet").is_file() and not (paper / "sweep.parquet").is_file()
    return quick if only_quick else paper


@dataclass(frozen=True)
class SweepFigures(Output):
    """A command that draws from a finished sweep."""

    results: Path = field(default_factory=finished_sweep)
    """Folder of a finished sweep: runs/paper, or runs/quick where only that one is."""
    out: Path | None = None
    """Folder for the figures (default: RESULTS/figures)."""

    prefix: ClassVar[str]

    @property
    def folder(self) -> Path:
        """Where the figures go."""
        return self.out or self.results / "figures"

    def outcome(self) -> dict[str, Any]:
        """The figures' files."""
        return {"figures": sorted(str(path) for path in self.folder.glob(f"{self.prefix}*.p*"))}


@dataclass(frozen=True)
class Verdicts(Output):
    """Judge each claim of the paper on a finished sweep; print the verdicts and write them as Markdown."""

    results: Path = field(default_factory=finished_sweep)
    """Folder of a finished sweep: runs/paper, or runs/quick where only that one is."""

    def run(self) -> int:
        """Print the verdicts and write RESULTS/claims.md."""
        from bandit.sweep.report import page, screen
        from bandit.sweep.score import read_sweep

        table = read_sweep(self.results)
        path = self.results / "claims.md"
        write_text(page(table), path)
        print(screen(table))
        print(f"written to {path}")
        return 0

    def outcome(self) -> dict[str, Any]:
        """Every claim with its verdict."""
        from bandit.sweep.claims import judge
        from bandit.sweep.score import read_sweep

        claims = [dataclasses.asdict(claim) for claim in judge(read_sweep(self.results))]
        return {"page": self.results / "claims.md", "claims": claims}


def laboratory(arguments: list[str]) -> SubcommandApp:
    """The commands, with the defaults of the preset and of the file named in `arguments`."""
    commands = SubcommandApp()
    for name, experiment in experiments().items():
        if experiment.summary and experiment.presets:
            called = name.replace("_", "-")
            preset = preset_among(arguments, experiment.presets, "paper")
            chosen = experiment.presets[preset]
            if called in arguments[:2]:  # only its own file is the command's
                chosen = settings_among(arguments, chosen, experiment.settings)
            commands.command(name=called)(command_of(name, preset, chosen))
    commands.command(name="verdicts")(Verdicts)
    commands.command(name="card")(Card)
    return commands
