"""The whole controlled experiment as one plain loop, and what is reported of it, as loops over rows of its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tests.oracles import scores
from tests.oracles.single_task import SingleTask


def table(config: Any, kept: Any = None) -> pd.DataFrame:
    """A row per evaluated step of every run, by seed, method as configured after the reference, coefficient and step.

    kept: says of a method and a coefficient whether it is trained; all are by default.
    """
    lines = []
    for seed in range(config.seeds):
        task = SingleTask(config, seed)
        base = {"seed": seed, "method": "reference", "beta": 0.0, "step": 0}
        lines.append(base | task.metrics(task.reference))
        for method in config.methods:
            for beta in [0.0] if method == "none" else sorted(config.betas):
                if kept is not None and not kept(method, beta):
                    continue
                for done, network in task.train_exactly(method, beta):
                    if task.is_evaluated(done):
                        run = {"seed": seed, "method": method, "beta": beta, "step": done}
                        lines.append(run | task.metrics(network))
    return pd.DataFrame(lines)


def final(rows: Sequence[scores.Row]) -> list[scores.Row]:
    """Each trained run's last step."""
    last = max(row["step"] for row in rows)
    return [row for row in rows if row["step"] == last and row["method"] != "reference"]


def matched(rows: Sequence[scores.Row]) -> dict[str, float]:
    """Each regularized method's coefficient whose mean correctness over seeds ends nearest to 0.96."""
    nearest: dict[str, tuple[float, float]] = {}
    for (method, beta), runs in scores.grouped(final(rows), ("method", "beta")).items():
        away = abs(scores.mean([run["p_correct"] for run in runs]) - 0.96)
        if method != "none" and (method not in nearest or away < nearest[method][0]):
            nearest[method] = away, beta
    return {method: beta for method, (_, beta) in nearest.items()}


def matched_table(rows: Sequence[scores.Row], labels: dict[str, str], digits: int) -> list[dict[str, str]]:
    """Mean ± half a 95 % interval over seeds of every metric, without a regularizer and at each method's match."""
    at = {"none": 0.0, **matched(rows)}
    lines = []
    for (method, beta), runs in scores.grouped(final(rows), ("method", "beta")).items():
        if at[method] != beta:
            continue
        line = {"method": labels[method], "beta": f"{beta:g}"}
        for name in runs[0].keys() - {"seed", "method", "beta", "step"}:
            values = [run[name] for run in runs]
            line[name] = f"{scores.mean(values):.{digits}f} ± {scores.half_width(values):.{digits}f}"
        lines.append(line)
    return lines
