"""The search for the paper's pattern, in the task shift and in sequences, as two of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from bandit.calibration.config import PRESETS, SEQUENCE_CELLS, CalibrationConfig
from cokl.support.experiment import Experiment, register
from cokl.support.files import json_rows, read_json, read_result
from cokl.support.options import from_json
from cokl.support.verdicts import Claim, withheld


@register
class Calibration(Experiment):
    """With how much of term 2 the paper's rows appear, and what that term is worth."""

    name, title, area = "calibration", "Search for the paper's table rows", "calibration"
    command, order = "cokl bandit calibration", 60
    summary = "Search the task-shift lab for the paper's pattern: how much of term 2, and does it pay? Resumes."
    presets = PRESETS
    tables = ("calibration.parquet",)
    assumed_modules: ClassVar[tuple[str, ...]] = ("bandit.calibration.config",)
    of_sequences: ClassVar[bool] = False

    def outcome(self, config: CalibrationConfig, folder: Path) -> dict[str, Any]:
        """Where the page is, and every setting and share."""
        import pandas as pd

        return {"page": folder / "results.md", "settings": json_rows(pd.read_csv(folder / "settings.csv"))}

    def holds(self, folder: Path) -> bool:
        """Of two labs' searches, which leave the same files, each its own."""
        cells = read_json(folder / "config.json", dict)["cells"]
        return (cells[0] in SEQUENCE_CELLS) == self.of_sequences

    def claims(self, folder: Path) -> Sequence[Claim]:
        """The paper's rows with all of term 2, and that term's worth."""
        from bandit.calibration.report import judge
        from bandit.calibration.run import lab_of
        from bandit.calibration.score import summarize

        config = from_json(CalibrationConfig, read_json(folder / "config.json", dict))
        rows = read_result(folder / "calibration.parquet", (*lab_of(config).columns, "cell"))
        return withheld(judge(summarize(rows, config)), config.seeds)


@register
class SequenceCalibration(Calibration):
    """The same search with answers of many tokens, which the same command runs."""

    name = "sequence_calibration"
    title = "Search for the paper's table rows with answers of many tokens"
    command = (
        "cokl bandit calibration --cells tokens-1,tokens-3,tokens-6,tokens-12,tokens-24,tokens-6-mean,tokens-24-mean "
        "--shares 0.1,1 --betas 0.1,0.3,1,3 --steps 200"
    )
    order, summary, pools_folders, of_sequences = 61, "", True, True
    assumed_modules = ()
