"""The checks of the paper's numbers: what holds, what does not, and that each notices a changed number."""

import random
import shutil
import subprocess
import sys
from functools import cache

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cokl.support.errors import InputError
from cokl.support.verdicts import Claim
from cokl_cli.app import main
from llm_bridge.paper.check import HALF_UNIT, check_paper, normalized_interval, truncated
from llm_bridge.paper.numbers import PAPER, paper_tables, read_paper
from llm_bridge.report.tables import to_screen

NOT_HELD = {
    "Every olympiad score is a rounded share of 5392 responses, ties either way",
    "The more GRPO w/o KL forgets, the larger CoKL's advantage in normalized Overall",
    "All regularized methods converge at Qwen3-4B: their raw Overall spreads least there",
    "All regularized methods converge at Qwen3-4B: their normalized Overall spreads least there",
    "The less GRPO w/o KL forgets, the closer CoKL's normalized Overall to correct-only replay's",
    "Raw and normalized Math Avg. put the regularized methods in the same order",
    "Raw and normalized Overall put the regularized methods in the same order",
}
M06, M17, M4 = "Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B"


@cache
def checks() -> dict[str, Claim]:
    return {claim.statement: claim for claim in check_paper(read_paper())}


def changed(folder, *changes: tuple) -> dict[str, Claim]:
    """The checks after changes (file, {column: value that names the row}, column, new value)."""
    shutil.copytree(PAPER, folder, dirs_exist_ok=True)
    for file, where, column, value in changes:
        path = folder / f"{file}.csv"
        table = pd.read_csv(path, dtype=str)
        rows = pd.concat([table[name] == wanted for name, wanted in where.items()], axis=1).all(axis=1)
        assert rows.sum() == 1, where
        assert table.loc[rows, column].item() != str(value)
        table.loc[rows, column] = str(value)
        table.to_csv(path, index=False)
    return {claim.statement: claim for claim in check_paper(read_paper(folder))}


def test_exactly_the_known_findings_do_not_hold():
    assert {claim for claim, check in checks().items() if check.verdict == "not held"} == NOT_HELD
    total = len(check_paper(read_paper()))
    assert len(checks()) == total
    assert f"{total - len(NOT_HELD)} of {total} checks hold" in (PAPER / "FINDINGS.md").read_text()


def test_findings_name_their_cells():
    found = checks()
    olympiad = found["Every olympiad score is a rounded share of 5392 responses, ties either way"].measured
    assert "Reverse KL, olympiad: 26.92 printed, neighbours are 1451/5392 = 26.9102 and 26.9288" in olympiad
    assert (
        "Correct-only forward KL, olympiad: 35.21 printed, neighbours are 1898/5392 = 35.2003 and 35.2188" in olympiad
    )
    assert olympiad.count("the latter if cut off") == 2
    assert olympiad.endswith("cutting off instead of rounding would change 8 of the other 19")
    converge = found["All regularized methods converge at Qwen3-4B: their normalized Overall spreads least there"]
    assert converge.measured.startswith("Reverse KL has -130.93")
    assert "all: Qwen3-0.6B 18.72, Qwen3-1.7B 34.50, Qwen3-4B 205.83" in converge.measured


def test_truncation_against_all_numbers_of_correct_responses():
    """The naive way: print every count's percentage, cut off as text."""
    for responses in (5392, 4000):
        texts = set()
        for correct in range(responses + 1):
            whole, part = divmod(10_000 * correct // responses, 100)
            texts.add(f"{whole}.{part:02d}")
        for column in ("olympiad", "math500"):
            for score in pd.read_csv(PAPER / "raw.csv", dtype=str)[column]:
                assert truncated(float(score), responses) == (score in texts)


def row(model: str, method: str) -> dict[str, str]:
    return {"model": model, "method": method}


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("Every normalized cell and", ("normalized", row(M4, "cokl"), "math500", 43.75)),
        ("Every normalized cell and", ("normalized", row(M06, "base"), "math500", 100.01)),
        ("Every normalized cell and", ("raw", row(M17, "grpo"), "chat_val", 37.47)),
        ("Averages of the raw table", ("raw", row(M06, "cokl"), "math_avg", 36.44)),
        ("Averages of the raw table", ("raw", row(M4, "grpo"), "overall", 52.57)),
        ("Averages of the normalized table", ("normalized", row(M17, "cokl"), "math_avg", 75.13)),
        ("Averages of the ablation table", ("ablation", row(M17, "cokl_without_term1"), "overall", 52.36)),
        ("Averages of the floor table", ("floor", row(M4, "cokl_floor"), "chat_val", 100.29)),
        ("Every math500 score", ("raw", row(M06, "cokl"), "math500", 64.59)),
        ("Best and second-best marks of the raw", ("raw", row(M17, "forward_kl"), "math_val", 41.58)),
        ("Best and second-best marks of the norm", ("normalized", row(M06, "grpo"), "chat_val", 94.64)),
        ("Best and second-best marks of the abl", ("ablation", row(M17, "cokl_without_term1"), "chat_val", 98.43)),
        ("Best and second-best marks of the floor", ("floor", row(M17, "cokl_floor"), "math_avg", 75.10)),
        ("Best and second-best marks of the raw",
         ("marks", {"table": "raw", **row(M4, "cokl"), "column": "chat_val"}, "mark", "second")),
        ("CoKL's Overall is higher than the strongest",
         ("quotes", {"quote": "gain_over_strongest_baseline", "model": M06}, "value", 2.36)),
        ("CoKL's Overall is higher than", ("normalized", row(M06, "correct_forward_kl"), "overall", 84.11)),
        ("CoKL has the highest normalized Overall", ("normalized", row(M4, "forward_kl"), "overall", 74.91)),
        ("CoKL has the highest raw Overall", ("raw", row(M4, "forward_kl"), "overall", 56.75)),
        ("The more GRPO w/o KL forgets, the larger CoKL's advantage in raw",
         ("raw", row(M17, "cokl"), "overall", 46.82)),
        ("The less GRPO w/o KL forgets, the closer CoKL's raw", ("raw", row(M4, "cokl"), "overall", 55.70)),
        ("The chat reward agrees", ("quotes", {"quote": "reward_agreement_percent_low"}, "value", 49.9)),
        ("The chat reward agrees", ("quotes", {"quote": "reward_correlation"}, "value", 0.532)),
        ("GRPO w/o KL loses the quoted share",
         ("quotes", {"quote": "math_drop_of_grpo_percent", "model": M17}, "value", 40.3)),
        ("The forward-KL variants retain more", ("normalized", row(M06, "reverse_kl"), "math_avg", 70.93)),
        ("CoKL's rows of the ablation table", ("ablation", row(M17, "cokl"), "chat_val", 101.46)),
        ("CoKL's rows of the floor table", ("floor", row(M4, "cokl"), "math_avg", 45.78)),
        ("w/o term 2 is correct-only", ("ablation", row(M17, "cokl_without_term2"), "math_avg", 73.29)),
        ("w/o term 1 loses the math", ("ablation", row(M17, "cokl_without_term1"), "math_avg", 73.29)),
        ("w/o term 1 loses the math", ("ablation", row(M17, "cokl_without_term2"), "chat_val", 101.45)),
        ("The floor restricts adaptation", ("floor", row(M06, "cokl_floor"), "chat_val", 100.53)),
        ("The floor reduces the Overall", ("floor", row(M17, "cokl_floor"), "overall", 88.28)),
        ("Groups with and without", ("zero_correct", {"model": M17}, "at_least_one", 87.31)),
        ("The quoted rates of zero-correct", ("zero_correct", {"model": M4}, "zero_correct", 3.18)),
        ("Most groups use both terms", ("zero_correct", {"model": M17}, "zero_correct", 16.09)),
        ("Most groups use both terms", ("zero_correct", {"model": M06}, "zero_correct", 50.1)),
        ("CoKL's first step takes at most 10%", ("cost", {"method": "cokl"}, "first_step_seconds", 346)),
        ("Steps with math data", ("cost", {"method": "reverse_kl"}, "mean_length", 929)),
    ],
)  # fmt: skip
def test_every_check_that_holds_notices_a_changed_number(tmp_path, claim, change):
    (before,) = (check for name, check in checks().items() if name.startswith(claim))
    (after,) = (check for name, check in changed(tmp_path, change).items() if name.startswith(claim))
    assert before.verdict == "held"
    assert after.verdict == "not held"


def test_the_gain_in_retention_of_the_floor_would_be_noticed(tmp_path):
    better = [("floor", row(model, "cokl_floor"), "math_avg", 99) for model in (M06, M17, M4)]
    assert changed(tmp_path, *better)["The floor gives no consistent gain in retention"].verdict == "not held"


def test_findings_go_away_with_the_numbers_that_cause_them(tmp_path):
    repaired = changed(
        tmp_path,
        ("raw", row(M17, "reverse_kl"), "olympiad", 26.93),
        ("raw", row(M17, "correct_forward_kl"), "olympiad", 35.22),
        ("normalized", row(M06, "cokl"), "overall", 86.53),
        ("normalized", row(M4, "reverse_kl"), "overall", 73.30),
        ("normalized", row(M4, "correct_reverse_kl"), "overall", 73.29),
        ("normalized", row(M4, "correct_forward_kl"), "overall", 73.51),
        ("normalized", row(M4, "correct_reverse_kl"), "math_avg", 3.96),
        ("normalized", row(M4, "forward_kl"), "math_avg", 45.78),
        ("raw", row(M4, "reverse_kl"), "overall", 49.96),
    )
    left = {claim for claim in NOT_HELD if repaired[claim].verdict == "not held"}
    assert left == {"Raw and normalized Overall put the regularized methods in the same order"}
    order = changed(tmp_path / "same", ("normalized", row(M4, "correct_forward_kl"), "overall", 73.51))
    assert order["Raw and normalized Overall put the regularized methods in the same order"].verdict == "held"


@given(st.lists(st.integers(-10_000, 10_000), min_size=3, max_size=3), st.randoms(use_true_random=False))
def test_intervals_hold_whatever_was_rounded(hundredths, rng: random.Random):
    score, zero, hundred = (value / 100 for value in hundredths)
    interval = normalized_interval(score, zero, hundred)
    for _ in range(20):
        s, z, h = (value + rng.uniform(-HALF_UNIT, HALF_UNIT) for value in (score, zero, hundred))
        if h != z:
            value = 100 * (s - z) / (h - z)
            assert interval.low - 1e-6 * abs(interval.low) <= value <= interval.high + 1e-6 * abs(interval.high)


def test_an_interval_is_no_wider_than_its_corners():
    low, high = normalized_interval(15, 10, 20)
    assert low == pytest.approx(100 * (14.995 - 10.005) / (20.005 - 10.005))
    assert high == pytest.approx(100 * (15.005 - 9.995) / (19.995 - 9.995))


def test_tables_of_the_paper_are_rendered():
    screens = "\n".join(map(to_screen, paper_tables(read_paper())))
    for number in ("55.43*", "86.47*", "75.79*", "16.08", "2,155", "-684.64"):
        assert number in screens


def test_a_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match=r"no file .*raw\.csv"):
        read_paper(tmp_path)


def test_commands(capsys, tmp_path):
    for arguments, says in ((["check-paper"], f"{len(checks()) - len(NOT_HELD)} of {len(checks())} held"),
                            (["tables", "--out", str(tmp_path)], "Batch-level correctness floor")):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(["llm", *arguments])
        assert ended.value.code == 0
        assert says in capsys.readouterr().out
    assert r"\textbf{86.47}" in (tmp_path / "tables.tex").read_text()


def test_representable_scores_are_found_by_trying_every_count(tmp_path):
    shutil.copytree(PAPER, tmp_path, dirs_exist_ok=True)
    scores = pd.read_csv(tmp_path / "raw.csv")
    printed = [round(20 + 3.37 * i + 0.01 * i, 2) for i in range(len(scores))]
    scores.assign(math500=printed, olympiad=printed).to_csv(tmp_path / "raw.csv", index=False)
    found = {check.statement.split()[1]: check.measured for check in check_paper(read_paper(tmp_path))
             if "rounded share" in check.statement}  # fmt: skip
    for column, responses in (("math500", 4000), ("olympiad", 5392)):
        possible = [
            any(abs(100 * k / responses - value) < 0.005 + 1e-9 for k in range(responses + 1)) for value in printed
        ]
        assert 0 < sum(possible) < len(printed)
        assert f"{sum(possible)} of {len(printed)} scores" in found[column]
        for value, fits in zip(printed, possible, strict=True):
            assert (f"{value:.2f} printed" in found[column]) != fits


def test_a_further_evaluation_set_leaves_the_papers_columns_alone():
    program = (
        "from llm_bridge.experiment import config\n"
        "config.MATH_SETS += ('aime',)\n"
        "from llm_bridge.paper.check import check_paper\n"
        "from llm_bridge.paper.numbers import paper_tables, read_paper\n"
        "print(len(check_paper(read_paper())), len(paper_tables(read_paper())))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(len(checks())), "6"]
