"""What the findings and README print of the open questions, computed from RUNS.csv."""

import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[3]
RUNS = pd.read_csv(ROOT / "llm_bridge" / "open_questions" / "RUNS.csv")
LABELS = {"before training": "base", "plain RL": "none", "CoKL, 0.03": "cokl"}


def mean(method: str, step: int, held_out: bool, number: str) -> float:
    chosen = RUNS[(RUNS["method"] == method) & (RUNS["step"] == step) & (RUNS["held_out"] == held_out)]
    assert len(chosen) == (8 if held_out else 24)
    return float(chosen[number].mean())


def test_every_cell_of_the_findings_table_is_the_runs():
    text = (ROOT / "llm_bridge" / "open_questions" / "FINDINGS.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == ["before training", *["plain RL"] * 2, *["CoKL, 0.03"] * 2]
    for name, step, *cells in rows:
        method = LABELS[name]
        expected = [
            f"{100 * mean(method, int(step), False, 'right'):.1f}",
            f"{mean(method, int(step), False, 'different'):.1f}",
            "-" if method == "base" else f"{mean(method, int(step), False, 'different_of_32'):.1f}",
            "0" if method == "base" else f"{mean(method, int(step), False, 'cached_kl'):.2f}",
            f"{100 * mean(method, int(step), True, 'right'):.1f}",
            f"{mean(method, int(step), True, 'different'):.1f}",
        ]
        assert cells == expected, (name, step)


def test_the_readmes_sentence_on_the_demo_is_the_runs():
    text = (ROOT / "README.md").read_text("utf-8")
    (said,) = re.findall(
        r"from\s+(\d+) % right with (\d+\.\d) different.*?(\d+) % with (\d+\.\d).*?(\d+) % with (\d+\.\d)",
        text,
        re.DOTALL,
    )
    expected = [
        number
        for method, step in (("base", 0), ("none", 16), ("cokl", 16))
        for number in (
            f"{100 * mean(method, step, False, 'right'):.0f}",
            f"{mean(method, step, False, 'different'):.1f}",
        )
    ]
    assert list(said) == expected
