"""The task-shift lab as one of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bandit.engine.two_tasks.config import BaseModelConfig, TwoTaskConfig
from bandit.shift.config import PRESETS, ShiftConfig
from cokl.support.experiment import Execution, Experiment, GalleryPicture, register
from cokl.support.files import json_rows, read_parquet, read_result
from cokl.support.verdicts import Claim


@register
class Shift(Experiment):
    """Reinforcement learning on one task, then on another with each method."""

    name, title, area = "shift", "Task shift, in miniature", "task shift"
    command, order = "cokl bandit shift", 20
    summary = "Train on one task, then on another with each method; write shift.parquet, tables and figures. Resumes."
    presets = PRESETS
    tables = ("shift.parquet",)
    assumed_configs = (BaseModelConfig, TwoTaskConfig, ShiftConfig)
    assumed_modules = ("bandit.shift.tasks", "bandit.shift.verifier", "bandit.shift.score")
    gallery = (
        *(
            GalleryPicture(f"shift_{kind}_{mode}", f"Task shift, {mode}: {title}", counterpart)
            for kind, title, counterpart in (
                ("tradeoff", "retention against adaptation", ""),
                ("beta", "the coefficient", "the coefficient's effect and the search over it, in miniature"),
                ("dynamics", "training dynamics", "the training dynamics, in miniature"),
                ("decomposition", "what drifts", ""),
            )
            for mode in ("exact", "sampled")
        ),
        GalleryPicture("shift_kl_batch", "Task shift: the KL batch", "the KL batch's effect, in miniature"),
    )

    def train(self, config: ShiftConfig, execution: Execution) -> Any:
        from bandit.shift.report import require_scores
        from bandit.shift.run import shift

        require_scores(config.methods, config.selection_seeds)
        return shift(config, execution)

    def outcome(self, config: ShiftConfig, folder: Path) -> dict[str, Any]:
        """Where everything is, the normalized scores, and every claim with its verdict."""
        from bandit.shift.claims import judge
        from bandit.shift.report import tables
        from bandit.shift.score import score

        table = read_parquet(folder / "shift.parquet")
        claims = [{"statement": claim.statement, "verdict": claim.verdict} for claim in judge(score(table))]
        scores = json_rows(tables(table)["table1_normalized"])
        return {"folder": folder, "page": folder / "results.md", "scores": scores, "claims": claims}

    def claims(self, folder: Path) -> Sequence[Claim]:
        """What the paper claims of language models."""
        from bandit.shift.claims import judge
        from bandit.shift.run import COLUMNS
        from bandit.shift.score import score, without_diverged_runs

        return judge(score(without_diverged_runs(read_result(folder / "shift.parquet", COLUMNS))))

    def paper_claims(self) -> Sequence[tuple[str, str]]:
        from bandit.shift.claims import PAPER_CLAIMS

        return [claim[:2] for claim in PAPER_CLAIMS.values()]
