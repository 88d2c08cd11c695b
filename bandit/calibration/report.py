"""The search for the paper's pattern as a page, and its answer in a few sentences."""

from __future__ import annotations

import pandas as pd

from bandit.calibration.score import NEAR_GRPO, NEAR_REPLAY
from cokl.support.statistics import markdown_table, with_spread
from cokl.support.verdicts import no_verdict

_COLUMNS = {
    "without_term1": "w/o term 1: retention",
    "kept": "CoKL - replay at beta 1: retention",
    "adapted": "adaptation",
    "gain": "at equal adaptation: retention",
    "pass_gain": "pass@k",
    "kl_gain": "conditional KL",
}


def answer(found: pd.DataFrame, seeds: int) -> str:
    """Where the paper's pattern appears, and whether more of term 2 improves the frontier anywhere."""
    if refused := no_verdict(seeds):
        return refused
    known = found.dropna(subset=["kept"])
    pattern = known[(known["near_grpo"] == True) & (known["near_replay"] == True)]  # noqa: E712  None is neither
    shares = sorted(pattern["share"].unique())
    measured = known.dropna(subset=["gain"])
    counts = measured["better"].value_counts()
    said = [
        f"The paper's pattern (w/o term 1 within {NEAR_GRPO:g} points of GRPO's retention, CoKL within {NEAR_REPLAY:g} "
        f"of replay's, intervals and all) appears in {len(pattern)} of {len(known)} settings and shares"
        + (f", with shares of {', '.join(f'{share:g}' for share in shares)}." if shares else "."),
    ]
    if len(measured):
        best = measured.loc[measured["gain"].idxmax()]
        said.append(
            f"At equal adaptation term 2 keeps more than replay in {counts.get('held', 0)} of {len(measured)}, less in "
            f"{counts.get('not held', 0)} (5% over all, Holm); the largest gain is "
            f"{with_spread(best['gain'], best['gain_half_width'], 1)} points ({best['cell']}, share {best['share']:g})."
        )
    return " ".join(said)


def render(found: pd.DataFrame, seeds: int) -> str:
    """The page: the answer, and a row per setting and share."""
    shown = pd.DataFrame(
        {
            "setting": found["cell"],
            "base correctness": found["base_correct"].map("{:.2f}".format),
            "GRPO loses, %": _intervals(found, "lost", 0),
            "share of term 2": found["share"].map("{:g}".format),
            **{title: _intervals(found, name, 1 if name in ("without_term1", "kept", "adapted", "gain") else 3)
               for name, title in _COLUMNS.items()},
            "pattern": [_pattern(*pair) for pair in zip(found["near_grpo"], found["near_replay"], strict=True)],
            "keeps more": found["better"].where(found["gain"].notna(), ""),
        }
    )  # fmt: skip
    return (
        f"# How much of term 2 the paper's rows look like\n\n{answer(found, seeds)}\n\n"
        "In samples, means with 95% t-intervals over the reported seeds, uncorrected but for the last column. A share "
        "s of the second term is s CoKL + (1 - s) replay, and log Z at the coefficient s without term 1. Retention and "
        "adaptation are in points, pass@k is a probability, conditional KL in nats, less is better.\n\n"
        f"{markdown_table(shown)}"
    )


def _pattern(near_grpo: bool | None, near_replay: bool | None) -> str:
    if near_grpo is False or near_replay is False:
        return "no"
    return "yes" if near_grpo and near_replay else "undecided"


def _intervals(found: pd.DataFrame, name: str, digits: int) -> list[str]:
    pairs = zip(found[name], found[f"{name}_half_width"], strict=True)
    return ["" if pd.isna(mean) else with_spread(mean, half_width, digits) for mean, half_width in pairs]
