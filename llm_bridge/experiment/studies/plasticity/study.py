"""Two stages with each method: starting model, prompts and cached responses of a seed, its runs, and their scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.files import read_parquet
from llm_bridge.data.rows import write_rows
from llm_bridge.experiment.studies.answers import answers, measures
from llm_bridge.experiment.studies.plasticity.config import GRID, START, PlasticityConfig
from llm_bridge.experiment.studies.plasticity.report import chosen, render
from llm_bridge.experiment.studies.reward import STAGES
from llm_bridge.experiment.studies.study import Run, Study


class Plasticity(Study):
    """Stage 1 with every method, then plain GRPO on a stricter task."""

    config: PlasticityConfig
    render = staticmethod(render)

    def own_settings(self) -> dict[str, Any]:
        """Prompts and steps."""
        first, second = self.config.steps
        return {"buffer_prompts": self.config.prompts, "math_steps": first, "chat_steps": second}

    def make_start(self, seed: int, folder: Path) -> None:
        """FOLDER/{pairs, pairs_smaller_first}.parquet too: the buffer's prompts under each stage's data source."""
        super().make_start(seed, folder)
        rows: list[Any] = read_parquet(folder / "math_train.parquet").head(self.config.prompts).to_dict("records")
        for stage in STAGES:
            write_rows([row | {"data_source": stage} for row in rows], folder / f"{stage}.parquet")

    def runs(self, seed: int, rows: pd.DataFrame) -> list[Run]:
        """Stage 1 with every method and coefficient, or both stages with the chosen ones."""
        if self.roles[seed] == "selection":
            return [Run(1, method, beta) for method, grid in GRID.items() for beta in grid]
        return reported_runs(chosen(rows))

    def steps(self, run: Run) -> int:
        """Of its stage."""
        return self.config.steps[run.stage - 1]

    def continued(self, run: Run) -> Run | None:
        """Stage 2 starts where the method's stage 1 ended."""
        return None if run.stage == 1 or run.method == START else replace(run, stage=1)

    def options(self, run: Run, start: Path) -> dict[str, Any]:
        """The prompts of its stage, and in stage 1 the method."""
        data = str(start / f"{STAGES[run.stage - 1]}.parquet")
        options: dict[str, Any] = {
            "data.train_files": data,
            "data.val_files": data,
            "actor_rollout_ref.actor.entropy_coeff": run.beta * (run.method == "entropy" and run.stage == 1),
        }
        if run.stage == 1 and run.method not in ("grpo", "entropy"):
            cokl = {"method": run.method, "beta": run.beta, "prompts": "training", "length": "token-mean", "seed": 0}
            if run.method != "reverse_kl":
                buffer = str(start / "buffer.parquet")
                cokl |= {"buffer": buffer, "cached_per_prompt": self.config.cached_per_prompt}
            options["cokl"] = cokl
        return options

    def score(self, run: Run, model: Path, start: Path) -> Iterable[dict[str, Any]]:
        """Of the training prompts and of as many others."""
        for name, file in (("training", "math_train"), ("held out", "math_val")):
            rows = read_parquet(start / f"{file}.parquet").head(self.config.prompts)
            yield {"set": name, **measures(answers(model, rows))}


def reported_runs(chosen: dict[str, float]) -> list[Run]:
    """Both stages of each method with its coefficient, and stage 2 from the starting model."""
    return [Run(2, START), *(Run(stage, method, beta) for method, beta in chosen.items() for stage in (1, 2))]
