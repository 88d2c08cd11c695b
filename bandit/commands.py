"""Commands of `cokl bandit`. Light: heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bandit.config import PRESETS, SweepConfig
from bandit.finite_group.config import PRESETS as FINITE_GROUP_PRESETS
from bandit.finite_group.config import FiniteGroupConfig


@dataclass(frozen=True)
class SweepOptions:
    """What every command that sweeps takes."""

    preset: Literal["paper", "quick"] = "paper"
    """Where all other defaults come from: the paper's settings, or a smaller experiment that ends within a minute."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to save in and to resume from; runs/PRESET if not given."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes on a CPU; one per core if not given."""
    backend: Literal["loky", "ray"] = "loky"
    """Processes of this machine, or a Ray cluster: the one RAY_ADDRESS names, or else one started here."""
    config: Annotated[SweepConfig, tyro.conf.arg(name="experiment")] = PRESETS["paper"]

    @property
    def folder(self) -> Path:
        """Where results go."""
        return self.out or Path("runs") / self.preset


@dataclass(frozen=True)
class Sweep(SweepOptions):
    """Train every method, coefficient and seed; write the tidy table sweep.parquet. Goes on where it was stopped."""

    csv: bool = False
    """Write sweep.csv too."""

    def run(self) -> int:
        """Train what is missing and say where the table is."""
        from bandit.runner import sweep
        from cokl.files import write_atomically

        table = sweep(self.config, self.folder, self.jobs, self.backend)
        print(f"{len(table)} rows: {self.folder / 'sweep.parquet'}")
        if self.csv:
            path = self.folder / "sweep.csv"
            write_atomically(path, lambda temporary: table.to_csv(temporary, index=False))
            print(f"and as text: {path}")
        return 0


@dataclass(frozen=True)
class Report:
    """Judge each claim of the paper on a finished sweep; print the verdicts and write them as Markdown."""

    results: Path = Path("runs/paper")
    """Folder of a finished sweep."""

    def run(self) -> int:
        """Print the verdicts and write RESULTS/claims.md."""
        from bandit.claims import render_markdown, render_screen
        from bandit.store import read_sweep
        from cokl.files import write_text

        table = read_sweep(self.results)
        path = self.results / "claims.md"
        write_text(render_markdown(table), path)
        print(render_screen(table))
        print(f"written to {path}")
        return 0


@dataclass(frozen=True)
class FiniteGroup(SweepOptions):
    """The finite-group lab: sampled surrogates for several G beside the exact objective, and the recovery measured."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to save in and to resume from; runs/finite-group-PRESET if not given."""
    config: Annotated[FiniteGroupConfig, tyro.conf.arg(name="experiment")] = FINITE_GROUP_PRESETS["paper"]

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"finite-group-{self.preset}"

    def run(self) -> int:
        """Train what is missing, write the tables and print the summary."""
        from bandit.finite_group.results import render_screen, write_tables
        from bandit.finite_group.runner import finite_group

        metrics, recovery = finite_group(self.config, self.folder, self.jobs, self.backend)
        print(render_screen(metrics, recovery))
        for path in (self.folder / "finite_group.parquet", self.folder / "recovery.parquet"):
            print(path)
        for path in write_tables(metrics, recovery, self.folder):
            print(path)
        return 0
