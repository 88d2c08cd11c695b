"""The chat stage with each method beside a buffer of mathematics: what a seed starts from, its runs, their scores."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cokl import methods
from cokl.support.files import read_parquet
from llm_bridge.experiment.config import BASE, MATH_SETS
from llm_bridge.experiment.jobs import kl_prompts
from llm_bridge.experiment.studies.answers import answers, measures, sample
from llm_bridge.experiment.studies.strength.config import AGAIN, BASELINE, GRID, RIGHT, VARIANTS, StrengthConfig
from llm_bridge.experiment.studies.strength.report import chosen, render
from llm_bridge.experiment.studies.study import Run, Study
from llm_bridge.tiny.chat_reward import chat_reward

BASE_RUN = Run(0, BASE)


class Strength(Study):
    """One stage of chat from the starting model, which is the reference."""

    config: StrengthConfig
    render = staticmethod(render)
    right = RIGHT

    def own_settings(self) -> dict[str, Any]:
        """Of the chat stage, its buffer and its score."""
        config = self.config
        return {
            "buffer_prompts": config.buffer_prompts,
            "kl_groups": config.kl_groups,
            "chat_steps": config.steps,
            "eval_samples": config.chat_samples,
        }

    def runs(self, seed: int, rows: pd.DataFrame) -> list[Run]:
        """Every coefficient, or each method with the chosen one; CoKL's variants have CoKL's."""
        role = self.roles[seed]
        if role == "selection":
            return [BASE_RUN, *(Run(1, method, beta) for method, grid in GRID.items() for beta in grid)]
        best = chosen(rows)
        best |= dict.fromkeys(VARIANTS, best["cokl"])
        return [BASE_RUN, *(Run(1, method, best[method]) for method in (AGAIN if role == "again" else best))]

    def steps(self, run: Run) -> int:
        """Of the chat stage."""
        return self.config.steps

    def options(self, run: Run, start: Path) -> dict[str, Any]:
        """Chat prompts, and the method on mathematics drawn from the buffer."""
        data = str(start / "chat_train.parquet")
        options: dict[str, Any] = {"data.train_files": data, "data.val_files": data}
        name, changed = ("cokl", ["cokl.baseline=True"]) if run.method == BASELINE else (run.method, [])
        if methods.get(name).streams():
            options["cokl"] = {
                "method": name,
                "options": changed,
                "beta": run.beta,
                "buffer": str(start / "buffer.parquet"),
                "kl_prompts": kl_prompts(self.settings(0), name),
                "length": "token-mean",
                "seed": 0,
            }
        return options

    def score(self, run: Run, model: Path, start: Path) -> Iterable[dict[str, Any]]:
        """Accuracy and different correct answers of each math set, exactly; the mean chat reward in `accuracy`."""
        for name in MATH_SETS:
            measured = measures(answers(model, read_parquet(start / f"{name}.parquet")))
            yield {"set": name, "accuracy": measured["accuracy"], "distinct": measured["distinct"]}
        prompts = [list(prompt) for prompt in read_parquet(start / "chat_val.parquet")["prompt"]]
        drawn = sample(model, prompts, self.config.chat_samples, self.config.max_response_length, seed=0)
        replies = zip(drawn["prompt"], drawn["response"], strict=True)
        rewards = [chat_reward(prompts[number][-1]["content"], reply) for number, reply in replies]
        yield {"set": "chat_val", "accuracy": float(np.mean(rewards)), "distinct": np.nan}
