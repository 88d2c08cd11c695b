"""Repeated runs with a method above the base, a set that was not logged, and p-values between Holm's bound and 5 %."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cokl.support.statistics import mean_and_half_width
from cokl_cli.report.logbook import records
from cokl_cli.report.logbook import render as page_of
from llm_bridge.report.repeats import leads, measured, over_runs, parts, render
from llm_bridge.report.results import Results

SETS = ("one", "two")
SCORES = {
    "base": (90.0, 70.0, 20.0),
    "grpo": (50.0, 30.0, 60.0),
    "cokl": (94.0, 86.0, 30.0),
    "correct_forward_kl": (70.0, 50.0, 50.0),
}
"""The sets and chat. CoKL's math is 90, above the base's 80; GRPO's is 40, which is half."""


def one_run() -> Results:
    rows = [
        {"model": "m", "method": name, "beta": 0, "kl_prompts": 0, "main": 1, "one": a, "two": b, "chat_val": chat}
        for name, (a, b, chat) in SCORES.items()
    ]
    answers = [
        {"model": "m", "method": name, "one_pass_at_n": 96.0, "two_pass_at_n": math.nan if name == "cokl" else 88.0,
         "one_majority": 81.0, "two_majority": 75.0}
        for name in reversed(SCORES)
    ]  # fmt: skip
    return Results(pd.DataFrame(rows), repeated=pd.DataFrame(answers), math_columns=SETS)


def test_a_method_above_the_base_and_a_set_without_numbers():
    table = measured({"a": one_run(), "b": one_run()})
    rows = table[table["run"] == "a"].set_index("method")
    assert rows["kept"].to_dict() == pytest.approx(
        {"base": 100, "grpo": 50, "cokl": 112.5, "correct_forward_kl": 75}
    )  # of the base's 80, whatever is higher
    assert rows["retention"].to_dict() == pytest.approx(
        {"base": 100, "grpo": 0, "cokl": (110 + 140) / 2, "correct_forward_kl": 50}
    )
    assert rows["adaptation"].to_dict() == pytest.approx({"base": 0, "grpo": 100, "cokl": 25, "correct_forward_kl": 75})
    assert rows["overall"].to_dict() == pytest.approx({"base": 50, "grpo": 50, "cokl": 75, "correct_forward_kl": 62.5})
    assert rows["majority"].tolist() == pytest.approx([78.0] * 4)
    assert np.isnan(rows["pass_at_n"]["cokl"])  # not the mean of the sets that there are
    assert rows["pass_at_n"].drop("cokl").tolist() == pytest.approx([92.0] * 3)
    text = render(table)
    assert "GRPO w/o KL lost 50 to 50% of the base's Math Avg." in text
    ours = next(line for line in text.splitlines() if line.startswith("| cokl "))
    assert [cell.strip() for cell in ours.strip("|").split("|")] == [
        "cokl", "90.0 ± 0.0", "30.0 ± 0.0", "112.5 ± 0.0", "125.0 ± 0.0", "25.0 ± 0.0", "75.0 ± 0.0", "", "78.0 ± 0.0",
    ]  # fmt: skip


RATIOS = {"correct_forward_kl": 1.05, "forward_kl": -1.3, "reverse_kl": 2.4, "entropy": -0.8, "cokl_floor": 5.0}
"""CoKL's mean lead in Overall over the half-width of its interval. Five runs: 1.05 is p = 0.043, 1.3 p = 0.023 and 2.4
p = 0.003. Holm asks for 0.05 / 4 of reverse KL, which it has, and then for 0.05 / 3 of forward KL, which it has not."""


def unequal_runs() -> pd.DataFrame:
    """Overall of CoKL is 60; of a rival 60 minus its lead, with the same noise; all else is other numbers."""
    noise = pd.Series([0.0, 3.0, -1.0, 2.0, -4.0])
    half = mean_and_half_width(noise)[1]
    rows = []
    for run, shaken in enumerate(noise):
        leading = {"base": 10.0, "grpo": 0.5 * half + shaken, "cokl": 0.0}
        leading |= {name: ratio * half + shaken for name, ratio in RATIOS.items()}
        for place, (method, lead) in enumerate(leading.items()):
            rows.append(
                {
                    "run": f"runs/seed-{run}", "method": method, "math_avg": 50.0 + place, "chat_val": 7.0 * place,
                    "kept": 60.0 + run if method == "grpo" else 100.0 - 2 * place, "retention": 30.0 + 3 * place,
                    "adaptation": 90.0 - place, "overall": 60.0 - lead, "pass_at_n": 80.0, "majority": 70.0 - place,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def test_the_primary_rival_is_judged_alone_and_the_others_by_holm():
    found = leads(unequal_runs()).set_index("method")
    assert found["verdict"].to_dict() == {
        "grpo": "undecided",
        "correct_forward_kl": "held",
        "forward_kl": "undecided",
        "reverse_kl": "held",
        "entropy": "undecided",
    }
    half = stats.t.ppf(0.975, 4) * math.sqrt(30 / 4) / math.sqrt(5)
    assert found["overall"].to_dict() == pytest.approx(
        {"grpo": 0.5 * half, **{k: RATIOS[k] * half for k in found.index[1:]}}
    )
    assert found["overall_half_width"].tolist() == pytest.approx([half] * 5)
    assert found["retention"].tolist() == pytest.approx([3 * (2 - place) for place in (1, 3, 4, 5, 6)])
    assert over_runs(unequal_runs()).set_index("method").loc["grpo", "kept"] == pytest.approx(62)
    assert "GRPO w/o KL lost 36 to 40% of the base's Math Avg." in render(unequal_runs())


def test_each_part_of_cokl_is_judged_by_its_own_measure():
    renamed = {"entropy": "cokl_without_term1", "reverse_kl": "cokl_without_term2"}
    claims = parts(unequal_runs().replace({"method": renamed}))
    half = stats.t.ppf(0.975, 4) * math.sqrt(30 / 4) / math.sqrt(5)
    assert [claim.measured.partition("all runs: ")[2] for claim in claims] == [
        "Math Avg, % of base of CoKL minus CoKL w/o term 1: 8.0 ± 0.0 points",
        "Adaptation of CoKL minus CoKL w/o term 2: 3.0 ± 0.0 points",
        f"Overall of CoKL minus CoKL + floor: {5 * half:.1f} ± {half:.1f} points",
    ]
    lower = unequal_runs()
    lower["overall"] -= (lower["method"] == "cokl") * (5 * half + 1.5)
    assert [claim.verdict for claim in parts(lower)] == ["undecided"]  # CoKL is 1.5 below, and 1 counts as none
    lower["overall"] -= (lower["method"] == "cokl") * half
    assert [claim.verdict for claim in parts(lower)] == ["not held"]


def test_the_logbook_has_the_primary_comparison_first_and_each_verdict(tmp_path):
    unequal_runs().to_csv(tmp_path / "runs.csv", index=False)
    record = records([tmp_path])["llm_repeats"]
    assert (record["scope"], record["seconds"]) == ("5 runs, 7 methods", None)
    assert record["command"] == "cokl llm repeats " + " ".join(f"runs/seed-{run}" for run in range(5))
    half = stats.t.ppf(0.975, 4) * math.sqrt(30 / 4) / math.sqrt(5)
    shown = [(claim["statement"].rpartition("than ")[2], claim["verdict"]) for claim in record["claims"]]
    assert shown == [
        ("Correct-only forward KL", "held"),
        ("GRPO w/o KL", "undecided"),
        ("Forward KL", "undecided"),
        ("Reverse KL", "held"),
        ("Entropy", "undecided"),
        ("1 point", "held"),
    ]
    assert record["claims"][5]["measured"] == [
        f"primary: all runs: Overall of CoKL minus CoKL + floor: {5 * half:.1f} ± {half:.1f} points"
    ]
    assert record["claims"][2]["measured"] == [
        f"{-1.3 * half:.1f} ± {half:.1f} points over 5 runs; Holm over all but the primary"
    ]
    glance = next(
        line for line in page_of({"llm_repeats": record}).splitlines() if "| The tiny LLM at coefficient 1" in line
    )
    assert glance.endswith("| 5 runs, 7 methods |  | not recorded | 3 held, 3 undecided |")
