"""What a plasticity table says: the match on phase-1 correctness, and each run's plasticity.

The table has a row per policy, change, mode and evaluated step of phase 2: seed, role, phase, method, cached, beta,
change, mode, step, reward, below_half; and what phase 1 reached: p_correct, coverage_at_K, coverage_at_K_correct,
conditional_kl.

Assumption beyond the paper: plasticity is the mean over phase 2's steps of the expected new reward on the test inputs,
by the trapezoidal rule. Methods are compared where phase 1 reached the matched correctness: between the two
neighbouring coefficients whose means over the selection seeds enclose it, interpolated with the same weights in every
seed; at the nearest coefficient where none enclose it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bandit.engine.divergence import divergence_note, without_diverged
from bandit.engine.tables import coverage_column
from bandit.plasticity.config import PlasticityConfig
from cokl.support.errors import InputError
from cokl.support.files import read_json, read_result
from cokl.support.options import from_json
from cokl.support.statistics import mean_and_half_width

GROUP = ["phase", "method", "cached"]
"""What is matched: the coefficients of one of these are interpolated."""
START = [*GROUP, "beta"]
NEW = ["change", "mode"]
COLUMNS = ("seed", "role", *START, *NEW, "step", "reward", "below_half", "p_correct", "conditional_kl")

OTHERS = ("entropy", "forward_kl", "reverse_kl", "jensen_shannon")
"""The paper's other regularizers of the controlled experiment."""
REPLAY = "correct_forward_kl"


def read_plasticity(folder: Path) -> tuple[pd.DataFrame, PlasticityConfig]:
    """The table of a finished lab, and its configuration. Raises InputError if there is none."""
    path = folder / "plasticity.parquet"
    if not path.is_file():
        raise InputError(f"no finished plasticity lab in {folder}; `cokl bandit plasticity` makes one")
    return read_result(path, COLUMNS), from_json(PlasticityConfig, read_json(folder / "config.json", dict))


without_diverged_runs = partial(without_diverged, metric="reward", run=START)
"""The table without the coefficients of which some seed diverged."""


def diverged_note(table: pd.DataFrame) -> str:
    """What is to be said of diverged runs wherever the table is summarised; "" if there are none."""
    ends = table.drop_duplicates(["seed", *START])
    return divergence_note(ends, "reward", START)


def match(table: pd.DataFrame, config: PlasticityConfig) -> pd.DataFrame:
    """A row per coefficient that the match takes, with its weight: START, weight, and reached, where its group is.

    Chosen on the selection seeds. The reference and unregularized RL have no coefficient to choose.
    """
    selection = without_diverged_runs(table).query("role == 'selection'").drop_duplicates(["seed", *START])
    lines = []
    for group, rows in selection.groupby(GROUP, sort=False):
        target = config.sampled_matched_correctness if group[0] == "sampled" else config.matched_correctness
        means = rows.groupby("beta")["p_correct"].mean()
        betas, reached = means.index.to_numpy(), means.to_numpy()
        crossing = np.flatnonzero((reached[:-1] - target) * (reached[1:] - target) <= 0)
        weights = {betas[np.abs(reached - target).argmin()]: 1.0}
        if len(crossing) and reached[crossing[0]] != reached[crossing[0] + 1]:
            left = int(crossing[0])
            share = (target - reached[left]) / (reached[left + 1] - reached[left])
            weights = {betas[left]: 1 - share, betas[left + 1]: share}
        at = sum(weight * means[beta] for beta, weight in weights.items())
        lines += [(*group, beta, weight, at) for beta, weight in weights.items()]
    return pd.DataFrame(lines, columns=[*START, "weight", "reached"])


def runs(table: pd.DataFrame) -> pd.DataFrame:
    """A row per run of phase 2: its plasticity, the reward at its start and end, and the share below one half then.

    A chain's is its changes', each a row.
    """
    table = without_diverged_runs(table)
    by = ["seed", *START, *NEW]
    curves = table.pivot(index=by, columns="step", values="reward")
    steps = curves.columns.to_numpy()
    ends = table[table["step"] == steps[-1]].reset_index(drop=True)
    reward = curves.reindex(pd.MultiIndex.from_frame(ends[by])).to_numpy()
    return (
        ends.drop(columns="step")
        .rename(columns={"reward": "end", "below_half": "never"})
        .assign(
            plasticity=np.trapezoid(reward, steps) / steps[-1],
            start=reward[:, 0],
            to_half=[_steps_to_half(steps, curve) for curve in reward],
        )
    )


def _steps_to_half(steps: np.ndarray, reward: np.ndarray) -> float:
    """The first step with a mean reward of one half, between evaluations; the last step if there is none."""
    above = np.flatnonzero(reward >= 0.5)
    if not len(above):
        return float(steps[-1])
    first = above[0]
    return float(
        steps[0] if first == 0 else np.interp(0.5, reward[first - 1 : first + 1], steps[first - 1 : first + 1])
    )


def at_match(scored: pd.DataFrame, chosen: pd.DataFrame, columns: list[str], role: str = "report") -> pd.DataFrame:
    """`columns` of every group at the match, a row per seed and whatever else tells rows apart (change, mode, step)."""
    rows = chosen.merge(scored[scored["role"] == role], on=START)
    by = ["seed", *GROUP, *(name for name in (*NEW, "step") if name in scored)]
    rows[columns] = rows[columns].mul(rows["weight"], axis=0)
    return rows.groupby(by, sort=False)[columns].sum().reset_index()


def per_seed(
    matched: pd.DataFrame, method: str, change: str, mode: str, phase: str = "exact", cached: int = 0
) -> pd.Series:
    """Plasticity by seed of one method at the match; empty where the table has none."""
    wanted = {"phase": phase, "method": method, "cached": cached, "change": change, "mode": mode}
    kept = np.logical_and.reduce([matched[name] == value for name, value in wanted.items()])
    return matched[kept].set_index("seed")["plasticity"]


def best_rival(scored: pd.DataFrame, chosen: pd.DataFrame, change: str, phase: str = "exact") -> str:
    """Of the paper's other regularizers the one with the highest sampled plasticity at the match, by selection.

    phase: how phase 1 trained it; a method with several caches counts with their mean. "" where the table has none.
    """
    selection = at_match(scored, chosen, ["plasticity"], "selection")
    rows = selection[(selection["phase"] == phase) & (selection["change"] == change) & (selection["mode"] == "sampled")]
    means = rows[rows["method"].isin(OTHERS)].groupby("method")["plasticity"].mean()
    return str(means.idxmax()) if len(means) else ""


def ranking(scored: pd.DataFrame, change: str) -> pd.DataFrame:
    """Spearman's rank correlation of the sampled plasticity with what phase 1 reached, over all exact policies of a
    reported seed, as mean and half-interval over seeds.
    """
    rows = scored[(scored["role"] == "report") & (scored["phase"] == "exact") & (scored["mode"] == "sampled")]
    rows = rows[rows["change"] == change]
    coverage = coverage_column(scored)
    lines = []
    for name in ("p_correct", coverage, f"{coverage}_correct", "conditional_kl"):
        by_seed = pd.Series(
            [run[name].rank().corr(run["plasticity"].rank()) for _, run in rows.groupby("seed")], dtype=float
        )
        mean, half_width = mean_and_half_width(by_seed)
        lines.append({"predictor": name, "rank_correlation": mean, "rank_correlation_half_width": half_width})
    return pd.DataFrame(lines)
