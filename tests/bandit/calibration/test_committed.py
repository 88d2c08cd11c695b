"""What the pages and FINDINGS say of the search, recomputed from the committed row of every run and seed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from scipy import stats

from tests.oracles import scores
from tests.oracles.scores import half_width, mean, select, written

LAB = Path("bandit/calibration")
WHOLE = (
    Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("\n## With which share of term 2")[1].split("\n## ")[0]
)
FINDINGS = " ".join(WHOLE.split("\n### ")[0].split())
REPLAY, WITHOUT_TERM_1 = "correct_forward_kl", "cokl_without_term1"
MEASURES = ("retention", "prior_pass_at_k", "conditional_kl")


class Row(NamedTuple):
    """Of one setting and share, a number per seed of each measurement; none where there is no score."""

    lost: list[float]
    base: float
    without_term1: list[float]
    kept: list[float]
    adapted: list[float]
    gains: tuple[list[float], ...]


def minus(ours: list[scores.Row], theirs: list[scores.Row], column: str) -> list[float]:
    return [one[column] - other[column] for one, other in zip(ours, theirs, strict=True)]


def measured(runs: pd.DataFrame, shares: list[float]) -> Iterator[Row]:
    same = {"mode": "sampled", "kl_prompts": 0, "step": 0}
    rows = scores.scored(runs.sort_values("seed", kind="stable").assign(**same).to_dict("records"))  # type: ignore[arg-type]
    ends = {name: select(rows, role="report", method=name) for name in ("base", "none")}
    base = mean([row["prior_correct"] for row in ends["base"]])
    lost = [100 * value / base for value in minus(ends["base"], ends["none"], "prior_correct")]
    moves = (minus(ends["base"], ends["none"], "prior_correct"), minus(ends["none"], ends["base"], "new_correct"))
    if min(mean(values) - half_width(values) for values in moves) <= 0.05:  # too little to divide by
        yield from [Row(lost, base, [], [], [], ())] * len(shares)
        return
    alike = scores.at_equal_adaptation(rows, MEASURES)
    for share in shares:
        name = "cokl" if share == 1 else f"{share:g}cokl+{1 - share:g}{REPLAY}"
        ours, replay = (select(rows, role="report", method=one, beta=1.0) for one in (name, REPLAY))
        alone = select(rows, role="report", method=WITHOUT_TERM_1, beta=share)
        ours_alike, replay_alike = (select(alike, method=one) for one in (name, REPLAY))
        gains = tuple(minus(ours_alike, replay_alike, one) for one in MEASURES if ours_alike and replay_alike)
        without = [row["retention"] for row in alone]
        yield Row(lost, base, without, minus(ours, replay, "retention"), minus(ours, replay, "adaptation"), gains)


def within(values: list[float], tolerance: float) -> bool | None:
    """None where the interval crosses the tolerance."""
    if abs(mean(values)) + half_width(values) <= tolerance:
        return True
    return False if abs(mean(values)) - half_width(values) > tolerance else None


def pattern(row: Row) -> str:
    if not row.kept:
        return "undecided"
    near = (within(row.without_term1, 10), within(row.kept, 5))
    return "no" if False in near else "undecided" if None in near else "yes"


def keeps_more(rows: list[Row]) -> list[str]:
    """Holm's correction at 5 % over the rows that have a gain."""
    p_values = {
        number: float(stats.ttest_1samp(row.gains[0], 0).pvalue) for number, row in enumerate(rows) if row.gains
    }
    words = ["undecided" if row.gains else "" for row in rows]
    for rank, number in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[number] > 0.05 / (len(p_values) - rank):
            break
        words[number] = "held" if mean(rows[number].gains[0]) > 0 else "not held"
    return words


def table(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def expected(runs: pd.DataFrame, shares: list[float]) -> tuple[list[list[str]], dict[tuple[str, float], Row]]:
    """The page's lines, and the rows by setting and share."""
    cells = list(dict.fromkeys(runs["cell"]))
    found = {
        (cell, share): row
        for cell in cells
        for share, row in zip(shares, measured(runs[runs["cell"] == cell], shares), strict=True)
    }
    lines = []
    for (cell, share), row, more in zip(found, found.values(), keeps_more(list(found.values())), strict=True):
        digits = zip(
            (row.without_term1, row.kept, row.adapted, *(row.gains or ([],) * 3)), (1, 1, 1, 1, 3, 3), strict=True
        )
        shown = [written(values, places) if values else "" for values, places in digits]
        lines.append([cell, f"{row.base:.2f}", written(row.lost, 0), f"{share:g}", *shown, pattern(row), more])
    return lines, found


SHARES = [0.01, 0.03, 0.1, 0.3, 1.0]
PAGES = ("RESULTS", "RESULTS-again")
FOUND = {page: expected(pd.read_csv(LAB / f"{page}.csv"), SHARES) for page in PAGES}
ROWS = FOUND["RESULTS"][1]


@pytest.mark.parametrize("page", PAGES)
def test_the_lines_of_a_page_are_of_the_committed_seeds(page):
    assert table((LAB / f"{page}.md").read_text(encoding="utf-8")) == FOUND[page][0]


def test_the_sentences_of_the_findings_are_of_the_committed_seeds():
    known = {key: row for key, row in ROWS.items() if row.kept}
    whole = {cell: row for (cell, share), row in known.items() if share == 1}
    parts = {key: row for key, row in known.items() if key[1] < 1}
    shown = [key for key, row in parts.items() if pattern(row) == "yes"]
    undecided = [key for key, row in parts.items() if pattern(row) == "undecided"]
    assert len(whole) == 12
    assert [pattern(row) for row in whole.values()].count("yes") == 0
    (left,) = [cell for cell, row in whole.items() if pattern(row) == "undecided"]
    behind = sorted((row.kept for cell, row in whole.items() if cell != left), key=mean)
    most, *_, least = [[-value for value in values] for values in behind]
    gains = [row.gains for row in known.values() if row.gains]
    more = keeps_more(list(ROWS.values()))
    best = [max((values[number] for values in gains), key=mean) for number in (0, 1)]
    better = sorted((values[2] for values in gains if mean(values[2]) + half_width(values[2]) < 0), key=mean)
    adapted = sorted(mean(ROWS[key].adapted) for key in shown)
    losses = sorted(mean(row.lost) for row in ROWS.values())
    assert more.count("held") == 0
    assert sorted(share for _, share in shown)[7:] == [0.03, 0.3, 0.3]
    assert len(better) == 2
    for sentence in (
        f"GRPO loses {losses[0]:.0f} to {losses[-1]:.0f}% of the reference's correctness",
        "appear in none of the 12 settings with something to forget; one is undecided",
        f"is {written(least, 1)} to {written(most, 0)} points of retention behind replay",
        f"(a buffer of 64 prompts, 38 passes: {written(whole[left].kept, 1)})",
        f"in {len(shown)} of the {len(parts)} rows with a smaller share, eight of them at 0.01 or 0.03, two at 0.3",
        f"{len(undecided)} are undecided",
        f"is {adapted[0]:.1f} to {adapted[-1]:.1f} points in those ten",
        f"no row of {len(gains)} retains more than replay, and {more.count('not held')} retain less",
        f"The largest lead over replay is {written(best[0], 1)} points",
        f"({written(better[0], 3)} and {written(better[1], 3)} nats)",
        f"at most {written(best[1], 3)}",
    ):
        assert sentence in FINDINGS
    assert left == "buffer-64"


def test_the_second_runs_sentences_are_of_its_seeds():
    rows = FOUND["RESULTS-again"][1]
    known = {key: row for key, row in rows.items() if row.kept}
    whole = [pattern(row) for (_, share), row in known.items() if share == 1]
    parts = [pattern(row) for (_, share), row in known.items() if share < 1]
    gains = [row.gains[0] for row in known.values() if row.gains]
    more = keeps_more(list(rows.values()))
    assert (whole.count("yes"), whole.count("undecided"), more.count("held")) == (0, 1, 0)
    for sentence in (
        f"in none of {len(whole)} settings, one of them undecided, and with a smaller share in {parts.count('yes')} of "
        f"{len(parts)} rows",
        f"no row of {len(gains)} retains more than replay, and {more.count('not held')} retain less; "
        f"the largest lead is {written(max(gains, key=mean), 1)} points",
    ):
        assert sentence in FINDINGS


MANY_TOKENS = {
    str(run): expected(rows, [0.1, 1.0]) for run, rows in pd.read_csv(LAB / "SEQUENCES.csv").groupby("run", sort=False)
}


def test_the_lines_with_many_tokens_are_of_the_committed_seeds():
    _, *parts = (LAB / "SEQUENCES.md").read_text(encoding="utf-8").split("\n## ")
    assert [table(part) for part in parts] == [lines for lines, _ in MANY_TOKENS.values()]
    assert list(MANY_TOKENS) == ["first", "again"]


def test_the_sentences_on_many_tokens_are_of_the_committed_seeds():
    found: dict[str, list[object]] = {}
    for _, rows in MANY_TOKENS.values():
        known = {key: row for key, row in rows.items() if row.kept}
        whole = [row for (_, share), row in known.items() if share == 1]
        parts = [row for (_, share), row in known.items() if share < 1]
        without = sorted(-mean(row.without_term1) for row in parts)
        behind = sorted(-mean(row.kept) for row in whole)
        gains = [row.gains for row in known.values() if row.gains]
        more = keeps_more(list(rows.values()))
        assert [pattern(row) for row in (*whole, *parts)].count("yes") == more.count("held") == 0
        for name, value in (
            ("settings", len(whole)),
            ("undecided", [pattern(row) for row in whole].count("undecided")),
            ("parts undecided", [pattern(row) for row in parts].count("undecided")),
            ("without", f"{without[0]:.0f} to {without[-1]:.0f}"),
            ("behind", f"{behind[0]:.0f} to {behind[-1]:.0f}"),
            ("below", sum(mean(row.kept) + half_width(row.kept) < 0 for row in whole)),
            ("rows", len(gains)),
            ("less", more.count("not held")),
            *(
                (f"best {number}", written(max((values[number] for values in gains), key=mean), (1, 3)[number]))
                for number in (0, 1)
            ),
        ):
            found.setdefault(name, []).append(value)
    one = {name: f"{first} ({again})" for name, (first, again) in found.items()}
    section = " ".join(WHOLE.split("\n### ")[1].split())
    lost = {key: [written(rows[key].lost, 0) for _, rows in MANY_TOKENS.values()] for key in MANY_TOKENS["first"][1]}
    many, twelve = lost["tokens-24", 1.0], lost["tokens-12", 1.0]
    assert f"{many[0]} % of the base's correctness in one run and {many[1]} % in the other" in section
    assert f"With 12 it loses {twelve[1]} % in the second run" in section
    for sentence in (
        f"in none of {one['settings']} settings where GRPO is seen to forget",
        f"with all of term 2, {one['undecided']} are undecided, with a tenth of it {one['parts undecided']}",
        f"below GRPO's by {one['without']} points in the mean already with a tenth",
        f"behind replay by {one['behind']} points of retention, with intervals below zero in {one['below']} of them",
        f"more in 0 of {one['rows']} rows, less in {one['less']}",
        f"the most {one['best 0']} points, and {one['best 1']} in pass@8",
    ):
        assert sentence in section


def test_every_interval_of_the_findings_is_in_a_committed_page():
    interval = re.compile(r"-?\d+\.\d+ ± \d+\.\d+")
    pages = "".join(
        (LAB / name).read_text(encoding="utf-8") for name in ("RESULTS.md", "RESULTS-again.md", "SEQUENCES.md")
    )
    known = {one.removeprefix("-") for one in interval.findall(pages)}
    assert [one for one in interval.findall(WHOLE) if one.removeprefix("-") not in known] == []
