"""The sequence lab as one of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bandit.sequences.config import PRESETS, SequenceConfig, SequenceWorld
from cokl.support.experiment import Execution, Experiment, register
from cokl.support.files import read_result
from cokl.support.verdicts import Claim, verdict_on


@register
class Sequences(Experiment):
    """The task shift with answers of many tokens."""

    name, title, area = "sequences", "Task shift with answers of many tokens", "sequences"
    command, order = "cokl bandit sequences", 30
    summary = "The task shift with answers of many tokens, exactly and in samples: tables, who forgets what. Resumes."
    presets = PRESETS
    tables = ("sequences.parquet",)
    pools_folders = True
    assumed_configs = (SequenceWorld, SequenceConfig)

    def train(self, config: SequenceConfig, execution: Execution) -> Any:
        from bandit.sequences.run import sequences
        from bandit.shift.report import require_scores

        require_scores(config.methods, config.selection_seeds)
        return sequences(config, execution)

    def outcome(self, config: SequenceConfig, folder: Path) -> dict[str, Any]:
        """Where everything is."""
        return {"table": folder / "sequences.parquet", "page": folder / "results.md"}

    def claims(self, folder: Path) -> Sequence[Claim]:
        """The one primary comparison."""
        from bandit.engine.tables import reported_seeds
        from bandit.sequences.report import primary
        from bandit.sequences.run import SEQUENCES
        from bandit.sequences.score import PRIMARY, primary_lead
        from bandit.shift.score import label

        table = read_result(folder / "sequences.parquet", SEQUENCES.columns)
        lead, seeds = primary_lead(table), reported_seeds(table)
        return [
            Claim(
                f"At equal adaptation CoKL keeps more of the prior task's accuracy than {label(PRIMARY[2])}",
                "beyond the paper, whose main table has retention both ways",
                primary(table),
                verdict_on(*lead, seeds) if lead else None,
            )
        ]
