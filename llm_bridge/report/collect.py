"""An experiment's results from VeRL's logs: the tables that the report is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import read_json
from llm_bridge.experiment.config import EVALUATION_SETS, MATH_SETS, PAPER_METHODS, LLMConfig
from llm_bridge.report.results import BASE, Results


def collect(config: LLMConfig, root: Path) -> Results:
    """Everything that the experiment in `root` has measured so far.

    Scores are those of the last training step's evaluation, or of a separate evaluation where there is one.
    Raises InputError if not even the math stage is done.
    """
    model = config.name.replace("qwen", "Qwen").replace("b", "B") if config.model else config.name
    base_scores = final_scores(config, root, BASE)
    if not base_scores:
        raise InputError(f"nothing to report in {root}: the math stage is not done; run cokl llm run first")
    scores = [{"model": model, "method": BASE, "beta": 0.0, "kl_prompts": 0, "main": 1, **base_scores}]
    dynamics, zero_correct, costs = [], [], []
    for described in sorted((root / "chat").glob("*/run.json"), key=_as_in_the_paper):
        run = read_json(described, dict)
        name = described.parent.name
        steps = read_metrics(described.parent / "metrics")
        final = final_scores(config, root, name)
        identity = {"model": model, **{key: run[key] for key in ("method", "beta", "kl_prompts")}}
        if final:
            scores.append({**identity, "main": int(run["main"]), **final})
        evaluated = {0: base_scores, **{step: _evaluation(config, row) for step, row in steps.items()}}
        dynamics += [
            {**identity, "step": step, "math_val": row["math_val"], "chat_val": row["chat_val"]}
            for step, row in sorted(evaluated.items())
            if row
        ]
        if run["main"] and steps:
            rows = config.chat_batch * config.group_size
            costs.append({"model": model, "method": run["method"], **_first_step(steps.get(1, {}), rows)})
            rates = [row["cokl/zero_correct"] for row in steps.values() if "cokl/zero_correct" in row]
            if rates:
                counted = {
                    "groups": len(rates) * run["kl_prompts"],
                    "zero_correct_groups": sum(rates) * run["kl_prompts"],
                }
                zero_correct.append({"model": model, "method": run["method"], **counted})
    measured: dict[str, Any] = {"dynamics": dynamics, "zero_correct": zero_correct, "costs": costs}
    tables: dict[str, Any] = {name: pd.DataFrame(rows) for name, rows in measured.items() if rows}
    return Results(pd.DataFrame(scores), **tables)


def _as_in_the_paper(described: Path) -> tuple[int, str]:
    """A run's place in tables: methods as the paper lists them, then others."""
    name = described.parent.name
    return (PAPER_METHODS.index(name) if name in PAPER_METHODS else len(PAPER_METHODS), name)


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


def _first_step(metrics: dict[str, Any], rl_rows: int) -> dict[str, float]:
    """Seconds of the first step, and the mean length of its responses in both streams; NaN if it was not logged."""
    added = metrics.get("cokl/kl_rows", 0)
    tokens = rl_rows * metrics.get("response_length/mean", float("nan"))
    tokens += added * metrics.get("cokl/response_length", 0)
    seconds = metrics.get("timing_s/step", float("nan"))
    return {"first_step_seconds": seconds, "mean_length": tokens / (rl_rows + added)}


def final_scores(config: LLMConfig, root: Path, name: str) -> dict[str, float]:
    """average@n on all sets of "base" or of a chat run, by its folder's name; empty while it has none."""
    separate = read_metrics(root / "evaluation" / name / "metrics")
    if separate and (root / "evaluation" / name / "done").is_file():
        return _evaluation(config, separate[max(separate)])
    trained, last = ("math", config.math_steps) if name == BASE else (f"chat/{name}", config.chat_steps)
    return _evaluation(config, read_metrics(root / trained / "metrics").get(last, {}))


def _evaluation(config: LLMConfig, metrics: dict[str, Any]) -> dict[str, float]:
    """The evaluation among a step's metrics, empty if there is none.

    Mathematics in percent correct; chat as its mean reward, times 100 where it is the tiny experiment's, in [0, 1].
    """
    found = {key.split("/")[1]: value for key, value in metrics.items() if key.startswith("val/")}
    if not found:
        return {}
    percent = MATH_SETS if config.reward_model else EVALUATION_SETS
    return {name: found[name] * (100 if name in percent else 1) for name in EVALUATION_SETS}
