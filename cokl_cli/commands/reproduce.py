"""The command `cokl reproduce`: everything that needs no VeRL, in one go.

Annotations are evaluated here, for the parser.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path  # noqa: F401  the parser reads the annotations of a partial's base classes here
from typing import Annotated, Literal

import tyro

from bandit.sweep.config import PRESETS, REPLAY, SweepConfig
from cokl.names import canonical
from cokl.support.verdicts import screen
from cokl_cli.commands.bandit import LabOptions, command_of
from cokl_cli.commands.report import HtmlReport
from cokl_cli.presets import preset_among, settings_among
from cokl_cli.report.results import sources


@dataclass(frozen=True, kw_only=True)
class Reproduce(LabOptions):
    """The controlled experiment and the theory: all runs, all figures, and a verdict on each claim of the paper.

    Replay, which the paper's figures lack, is trained beside the methods: it is in figures and table, and in no
    verdict. The quick preset also checks the theory quickly.
    """

    config: Annotated[SweepConfig, tyro.conf.arg(name="experiment")] = PRESETS["paper"]

    def run(self) -> int:
        """Sweep, draw, check, judge; what is already trained is not trained again. It ends on one screen."""
        from bandit.sweep.figures import schematic
        from figures import style
        from theory.report import check_and_save, summary, to_text

        command = partial(command_of("sweep"), jobs=self.jobs, backend=self.backend)
        sweep = command(config=self.config, out=self.folder)
        tables = sweep.train()
        if (replay := canonical(REPLAY)) not in self.config.methods:
            beside = replace(self.config, methods=(replay,))
            command(config=beside, out=self.folder / REPLAY).train()
        sweep.show(tables)
        style.save_all({"figure1_constraint_scopes": schematic()}, self.folder / "figures")
        effort: Literal["full", "quick"] = "quick" if self.preset == "quick" else "full"
        theory = check_and_save((), effort, self.folder / "theory")
        failed = [result for result in theory if not result.holds]
        if failed:
            print(to_text(failed))
        print(f"\n{screen(sources()['sweep'].claims(self.folder), width=80)}\n")
        print(f"theory: {summary(theory)}; {self.folder / 'theory' / 'claims.md'}")
        print(f"figures: {self.folder / 'figures'}; every number: {self.folder / 'sweep.parquet'}")
        HtmlReport(self.folder).run()
        return 1 if failed else 0


def reproduce(arguments: list[str]) -> partial[Reproduce]:
    """The command, with the defaults of the preset and of the file named in `arguments`."""
    preset = preset_among(arguments, PRESETS, "paper")
    return partial(Reproduce, preset=preset, config=settings_among(arguments, PRESETS[preset]))
