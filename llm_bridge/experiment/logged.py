"""What VeRL logged of a job: its metrics by step, and the evaluations among them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from llm_bridge.experiment.config import BASE, LLMConfig
from llm_bridge.experiment.jobs import trained
from llm_bridge.experiment.workloads import DISTINCT


def read_metrics(folder: Path) -> dict[int, dict[str, Any]]:
    """VeRL's metrics of each step; where a job was started again, those of the last attempt at a step."""
    steps: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the line that a killed job did not finish
            steps.setdefault(entry["step"], {}).update(entry["data"])
    return steps


def final_scores(config: LLMConfig, root: Path, name: str) -> dict[str, float]:
    """average@n on all sets of "base" or of a chat run, by its folder's name; empty while it has none.

    Without a math stage each chat run is evaluated before its first step, and the first one's are the base's.
    """
    if name == BASE and not config.workload.math_stage:
        logs = (read_metrics(metrics) for metrics in sorted((root / "chat").glob("*/metrics")))
        return next(filter(None, (evaluation(config, steps.get(0, {})) for steps in logs)), {})
    job = trained(config, root, name)
    return evaluation(config, read_metrics(job.folder / "metrics").get(job.steps, {}))


def evaluation(config: LLMConfig, metrics: dict[str, Any]) -> dict[str, float]:
    """The evaluation among a step's metrics, empty if there is none or not of all sets.

    Mathematics in percent correct; chat as its mean reward, times 100 where no reward model gives it. Where answers
    are counted also `distinct`: different right answers to a prompt of the first set.
    """
    scores = {key.split("/")[1]: value for key, value in metrics.items() if re.match("val/[^/]+/mean@", key)}
    if not scores.keys() >= set(config.evaluation_sets):
        return {}
    percent = config.math_sets if config.reward_model else config.evaluation_sets
    found = {name: scores[name] * (100 if name in percent else 1) for name in config.evaluation_sets}
    if config.workload.counts_answers:
        found[DISTINCT] = metrics.get(f"val/{config.math_sets[0]}/distinct@{config.eval_samples}", math.nan)
    return found
