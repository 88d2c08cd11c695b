"""Predicted beside measured deficits, as tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bandit.interference.config import InterferenceConfig
from bandit.interference.run import COKL, REPLAY
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table, mean_and_half_width, spread_column, summarize, with_spread
from cokl.support.verdicts import ALPHA, Claim, Measurement, answered, conjunction

DEFICITS = ["measured", "from_cokl", "from_replay"]
TITLES = {
    "measured": "replay minus CoKL, measured",
    "from_cokl": "predicted from CoKL's run",
    "from_replay": "predicted from replay's run",
    "new_cokl": "push of the new task on logit Z in 100 steps, along CoKL's run",
    "new_replay": "along replay's",
    "negative": "measured steps with a push down",
    "learned": "new task: replay minus CoKL",
}


def deficits(table: pd.DataFrame) -> pd.DataFrame:
    """A row per setting and seed, at the last step, correctness as a probability.

    measured: replay minus CoKL on the prior task. from_cokl, from_replay: predicted from either run. new_cokl,
    new_replay: the new task's push on the mean logit Z, times 100 steps, averaged over the measured steps but the
    first, where Adam has just started. negative: the share of these steps in which it is negative, of both runs.
    learned: replay minus CoKL on the new task.
    """
    lines = []
    for (setting, seed), rows in table.groupby(["setting", "seed"], sort=False):
        runs = [rows[rows["method"] == method].sort_values("step") for method in (COKL, REPLAY)]
        cokl, replay = (run.iloc[-1] for run in runs)
        new_cokl, new_replay = (100 * run["new"].iloc[1:].mean() for run in runs)
        lines.append(
            {
                "setting": setting,
                "seed": seed,
                "measured": replay["correct"] - cokl["correct"],
                "from_cokl": cokl["predicted"] - cokl["correct"],
                "from_replay": replay["correct"] - replay["predicted"],
                "new_cokl": new_cokl,
                "new_replay": new_replay,
                "negative": (rows.loc[rows["step"] > rows["step"].min(), "new"] < 0).mean(),
                "learned": replay["learned"] - cokl["learned"],
            }
        )
    return pd.DataFrame(lines)


def explained(each_seed: pd.DataFrame) -> Claim:
    """Whether the prediction from CoKL's run misses the deficit by less than half of it, in every setting."""
    margin = each_seed["measured"] / 2 - (each_seed["from_cokl"] - each_seed["measured"]).abs()
    parts = {
        setting: Measurement.of(str(setting), "", rows, "probability")
        for setting, rows in margin.groupby(each_seed["setting"], sort=False)
    }
    leaning, p = conjunction(list(parts.values()))
    rows = each_seed[each_seed["setting"] == min(parts, key=lambda setting: parts[setting].mean)]
    predicted, measured = (with_spread(*mean_and_half_width(rows[name]), 3) for name in ("from_cokl", "measured"))
    statement = "Replay's push predicts CoKL's deficit to a half"
    return Claim(statement, "", f"{predicted} for {measured}", leaning if p <= ALPHA else "undecided")


def write(table: pd.DataFrame, config: InterferenceConfig, folder: Path) -> str:
    """Write deficits.csv, a row per seed, interference.csv, a row per step, and results.md; returns the screen's."""
    each_seed = deficits(table)
    means = summarize(each_seed, ["setting"], list(TITLES))
    shown = means[["setting"]].assign(**{title: spread_column(means, name, 3) for name, title in TITLES.items()})
    text = (
        f"CoKL and replay at beta {config.coefficient:g}, {config.seeds} seeds from {config.first_seed} on. "
        "Correctness is a mean over test prompts; after ± is half the width of a 95% t-interval over seeds."
    )
    write_text(csv_text(each_seed), folder / "deficits.csv")
    write_text(csv_text(table), folder / "interference.csv")
    write_text(f"# Drift under interference\n\n{text}\n\n{markdown_table(shown)}", folder / "results.md")
    return answered(
        explained(each_seed),
        config.seeds,
        [f"Above are the prediction and the deficit of the setting that is predicted worst. {text}"],
        shown[["setting", *(TITLES[name] for name in DEFICITS)]],
        folder / "figures" / "interference.png",
        folder / "results.md",
        "cokl bandit calibration --preset quick  (how much of term 2 to keep)",
    )
