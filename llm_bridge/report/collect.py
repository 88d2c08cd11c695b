"""An experiment's results from VeRL's logs: the tables that the report is made of."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import read_json
from llm_bridge.experiment.config import BASE, PAPER_METHODS, LLMConfig
from llm_bridge.experiment.logged import evaluation, final_scores, read_metrics
from llm_bridge.experiment.workloads import DISTINCT, SHARE
from llm_bridge.report.results import Results


def collect(config: LLMConfig, root: Path) -> Results:
    """Everything that the experiment in `root` has measured so far.

    Scores are of the evaluation after the last training step. Raises InputError if not even the math stage is done.
    """
    model = Path(config.model).name if config.model else config.name
    base_scores = final_scores(config, root, BASE)
    if not base_scores:
        first = "the math stage" if config.workload.math_stage else "the first evaluation"
        raise InputError(f"nothing to report in {root}: {first} is not done; run cokl llm run first")
    tables: dict[str, list[dict[str, Any]]] = {field.name: [] for field in fields(Results)}
    tables["scores"].append({"model": model, "method": BASE, "beta": 0.0, "main": 1, **base_scores})
    for described in sorted((root / "chat").glob("*/run.json"), key=_as_in_the_paper):
        run = read_json(described, {"method": str, "beta": float | int, "main": bool})
        name = described.parent.name
        steps = read_metrics(described.parent / "metrics")
        final = final_scores(config, root, name)
        method = {"model": model, "method": run["method"]}
        share = pd.Series([row.get("cokl/gradient_share") for row in steps.values()], dtype=float).mean() * 100
        if final:
            tables["scores"].append({**method, "beta": run["beta"], "main": int(run["main"]), **final, SHARE: share})
        if not run["main"]:
            continue
        evaluated = {0: base_scores, **{step: evaluation(config, row) for step, row in steps.items()}}
        tables["dynamics"] += [
            {**method, "step": step, "math_val": row[config.math_sets[0]]}
            | {name: row[name] for name in config.workload.chat_sets}
            | ({DISTINCT: row[DISTINCT]} if config.workload.counts_answers else {})
            for step, row in sorted(evaluated.items())
            if row
        ]
        rates = [row["cokl/zero_correct"] for row in steps.values() if "cokl/zero_correct" in row]
        if rates:
            counted = {"groups": len(rates) * run["kl_prompts"], "zero_correct_groups": sum(rates) * run["kl_prompts"]}
            tables["zero_correct"].append({**method, **counted})
    return Results(**{name: pd.DataFrame(rows) for name, rows in tables.items()})


def _as_in_the_paper(described: Path) -> tuple[int, str]:
    """A run's place in tables: methods as the paper lists them, then others."""
    name = described.parent.name
    return (PAPER_METHODS.index(name) if name in PAPER_METHODS else len(PAPER_METHODS), name)
