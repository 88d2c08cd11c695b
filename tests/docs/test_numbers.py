"""The READMEs' numbers are the logbook's, and the logbook is what its record says."""

import json
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from bandit.shift.score import label
from cokl_cli.report import logbook
from tests.bandit.finite_group.test_committed import slope
from tests.oracles.scores import written

README, PAGE, RECORD = (Path(name).read_text(encoding="utf-8") for name in ("README.md", logbook.PAGE, logbook.RECORD))

_MEASURED = re.compile(r"-?\d+\.\d+(?: ± \d+\.\d+)?|(?<=@)\d+|-?\d+ ± \d+")
_NO_RESULTS = re.compile(r"```.*?```|\]\([^)]*\)|Python 3\.\d+(?: to 3\.\d+)?|Apache-2\.0", re.DOTALL)


def unsupported(readme: str, page: str) -> list[str]:
    """Decimal numbers of a README, code, links and versions left out, that the logbook's page does not have.

    Target correctness and coefficients count as well; a mean's spread has to stand beside it there too.
    """
    known = {number for line in page.splitlines() for number in _MEASURED.findall(line)}
    known |= {number.split(" ± ")[0] for number in known}
    return [number for number in _MEASURED.findall(_NO_RESULTS.sub("", readme)) if number not in known]


def rows(text: str) -> list[list[str]]:
    """Table rows, without emphasis."""
    lines = [line.replace("**", "").strip("| ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split(" | ")] for line in lines]


def missing_rows(readme: str, experiment: str) -> list[tuple[str, ...]]:
    """Rows of a README's table of an experiment that are none of the record's; the table is as long as the record's."""
    table = json.loads(RECORD)[experiment]["table"]
    recorded = list(zip(*table.values(), strict=True))
    shown = [tuple(row) for row in rows(readme) if len(row) == len(table) and "±" in row[-1]]
    assert len(shown) == len(recorded)
    return list((Counter(shown) - Counter(recorded)).elements())


def test_every_number_of_the_readme_is_in_the_logbook():
    assert unsupported(README, PAGE + EQUAL_PROMPTS + PAPERS_LEADS) == []
    assert missing_rows(README, "sweep") == []
    assert len(README.splitlines()) <= 110


def of_five(values: pd.Series, digits: int = 3) -> str:
    assert len(values) == 5
    return written(values.tolist(), digits)


SHIFT = Path("bandit/shift")
_INTERVAL = re.compile(r"\d+\.\d+ ± \d+\.\d+")


EQUAL_PROMPTS = (
    Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("These compare 8 prompts an update with 16.")[1]
)
EQUAL_PROMPTS = EQUAL_PROMPTS.split("*The score is the correctness mass*")[0]
"""Of the section on beta = 1; has a test of its own."""
_PRINTED = pd.read_csv("llm_bridge/paper/normalized.csv").pivot(index="model", columns="method", values="overall")
PAPERS_LEADS = "".join(f"\n{lead:.2f}" for lead in _PRINTED["cokl"] - _PRINTED["correct_forward_kl"])
"""CoKL minus replay in the paper's normalized Overall, a model a line."""


def of_the_task_shift(findings: str) -> str:
    """The part of bandit/FINDINGS.md whose numbers are all in bandit/shift/RESULTS.md."""
    return findings.split("## A baseline for CoKL", maxsplit=1)[0]


def test_every_interval_of_the_task_shifts_findings_is_in_its_results():
    findings = of_the_task_shift(Path("bandit/FINDINGS.md").read_text(encoding="utf-8"))
    pages = "".join((SHIFT / name).read_text(encoding="utf-8") for name in ("RESULTS.md", "RESULTS-again.md"))
    known = set(_INTERVAL.findall(pages))
    found = _INTERVAL.findall(findings.replace(EQUAL_PROMPTS, ""))
    assert len(found) > 90
    assert [interval for interval in found if interval not in known] == []


def test_the_task_shifts_second_run_has_the_same_verdicts_and_its_numbers_are_of_its_seeds():
    verdicts = [
        re.findall(r"^### (.*): (held|not held|undecided|depends)$", (SHIFT / name).read_text(encoding="utf-8"), re.M)
        for name in ("RESULTS.md", "RESULTS-again.md")
    ]
    assert verdicts[0] == verdicts[1]
    assert len(verdicts[0]) == 17
    seeds = pd.read_csv(SHIFT / "RESULTS-again.csv")
    assert sorted(seeds["seed"].unique()) == [500, 501, 502, 503, 504]

    def minus(rival: str, beta: float, score: str) -> str:
        runs = seeds[(seeds["mode"] == "sampled")].set_index(["method", "beta", "kl_prompts", "seed"])[score]
        return of_five(runs["cokl", 1.0, 8] - runs[rival, beta, 16], 1)

    section = " ".join(of_the_task_shift(Path("bandit/FINDINGS.md").read_text(encoding="utf-8")).split())
    replay = [minus("correct_forward_kl", 1.0, score) for score in ("overall", "retention")]
    assert f"CoKL minus replay is there {replay[0]} points of Overall and {replay[1]} of retention" in section
    assert f"CoKL minus full reverse KL {minus('reverse_kl', 0.001, 'overall')} points of Overall" in section


def at_equal_prompts(seeds: pd.DataFrame, mode: str, prompts: int, score: str) -> str:
    """CoKL minus replay at beta 1."""
    runs = seeds[(seeds["mode"] == mode) & (seeds["beta"] == 1) & (seeds["kl_prompts"] == prompts)]
    paired = runs.pivot(index="seed", columns="method", values=score)
    return of_five(paired["cokl"] - paired["correct_forward_kl"], 1)


def replays_gain(seeds: pd.DataFrame, score: str) -> str:
    """By 16 prompts an update instead of 8, in samples at beta 1."""
    runs = seeds[(seeds["mode"] == "sampled") & (seeds["beta"] == 1) & (seeds["method"] == "correct_forward_kl")]
    by_prompts = runs.pivot(index="seed", columns="kl_prompts", values=score)
    return of_five(by_prompts[16] - by_prompts[8], 1)


def test_the_comparison_at_equal_prompts_is_of_the_committed_seeds():
    first, again = (pd.read_csv(SHIFT / name) for name in ("RESULTS.csv", "RESULTS-again.csv"))
    section = " ".join(EQUAL_PROMPTS.split())
    shown = {row[0]: row[1:] for row in rows(EQUAL_PROMPTS) if row[0] in {"8", "16", "32", "64"}}
    assert len(shown) == 4
    for prompts, cells in shown.items():
        assert cells == [
            " ".join(
                brackets.format(at_equal_prompts(run, "sampled", int(prompts), score))
                for run, brackets in ((first, "{}"), (again, "({})"))
            )
            for score in ("retention", "adaptation", "overall")
        ]
    for number in (8, 16):
        one, other = (at_equal_prompts(run, "exact", number, "adaptation") for run in (first, again))
        assert f"{one} ({other}) with {number}" in section
    gained = replays_gain(first, "adaptation")
    assert f"gains replay {gained} ({replays_gain(again, 'adaptation')}) points" in section
    questions = " ".join(Path("docs/questions.md").read_text(encoding="utf-8").split())
    assert f"Replay's changes by {replays_gain(first, 'retention')}, and its adaptation by {gained}" in questions


def test_every_interval_of_the_questions_page_is_in_a_committed_result():
    questions = " ".join(Path("docs/questions.md").read_text(encoding="utf-8").split())
    known = set(_INTERVAL.findall((SHIFT / "RESULTS.md").read_text(encoding="utf-8") + PAGE))
    shown = _INTERVAL.findall(questions)
    known.add(written(slope("cokl", mu=4), 3))
    first = pd.read_csv(SHIFT / "RESULTS.csv")
    known |= {replays_gain(first, score).removeprefix("-") for score in ("retention", "adaptation")}
    assert [interval for interval in shown if interval not in known] == []
    assert len(shown) == 7


def test_the_task_shifts_table_is_of_the_committed_seeds():
    """Means and intervals computed here from each seed's scores, row by row."""
    seeds = pd.read_csv(SHIFT / "RESULTS.csv")
    table = [row for row in rows(of_the_task_shift(Path("bandit/FINDINGS.md").read_text(encoding="utf-8")))]
    shown = {row[0]: row[1:] for row in table if len(row) == 7 and "±" in row[-1]}
    assert len(shown) == 9
    for name, cells in shown.items():
        method = next(key for key in seeds["method"].unique() if label(key) == name)
        expected = []
        for mode in ("sampled", "exact"):
            runs = seeds[(seeds["method"] == method) & (seeds["mode"] == mode) & (seeds["beta"] == 1)]
            runs = runs[runs["kl_prompts"] == (8 if name.startswith("CoKL") and "term" not in name else 16)]
            for score in ("retention", "adaptation", "overall"):
                expected.append(of_five(runs[score], 1))
        assert cells == expected


PLASTICITY = Path("bandit/plasticity")


def of_plasticity() -> str:
    """The part of bandit/FINDINGS.md whose numbers are in the plasticity lab's RESULTS.md and RESULTS-again.md."""
    return Path("bandit/FINDINGS.md").read_text(encoding="utf-8").split("\n## Plasticity\n")[1].split("\n## ")[0]


def test_every_interval_of_plasticitys_findings_is_in_its_results():
    pages = "".join((PLASTICITY / name).read_text(encoding="utf-8") for name in ("RESULTS.md", "RESULTS-again.md"))
    # The finer grid of the entropy bonus has a test of its own.
    finer = r"A finer grid of coefficients.*?lower it falls off|Entropy on the finer grid.*?(?=\nWhat this does)"
    text = re.sub(finer, "", of_plasticity(), flags=re.DOTALL)
    # Compared with the finer grid, and at equal coefficients: a test of their own.
    text = re.sub(
        r"At equal coefficients.*?In plasticity|CoKL is ahead of entropy.*?there\.", "", text, flags=re.DOTALL
    )
    known, shown = set(_INTERVAL.findall(pages)), _INTERVAL.findall(text)
    assert len(shown) > 60
    assert [interval for interval in shown if interval not in known] == []


@pytest.mark.parametrize(("first_seed", "opens", "closes"), [(0, "", ""), (5, "(", ")")])
def test_plasticitys_primaries_are_of_the_committed_seeds(first_seed, opens, closes):
    """Differences and means computed here from each seed's plasticity; the second run's are in brackets."""
    section, runs = " ".join(of_plasticity().split()), pd.read_csv(PLASTICITY / "RESULTS.csv")
    runs = runs[runs["seed"].between(first_seed, first_seed + 4)]
    runs = runs[runs["phase"] != "sampled"]

    def of(method: str, change: str) -> pd.Series:
        kept = (runs["method"] == method) & (runs["change"] == change) & (runs["mode"] == "sampled")
        return runs[kept].set_index("seed")["plasticity"]

    for rival, change in (("entropy", "narrowed-2"), ("correct_forward_kl", "narrowed-2"), ("entropy", "moved-2")):
        assert f"{opens}{of_five(of('cokl', change) - of(rival, change))}{closes}" in section
    if first_seed == 0:
        shown = [row for row in rows(of_plasticity()) if len(row) == 8 and "±" in row[-1]]
        assert {row[0] for row in shown} == set(runs["change"])
        for name, *cells in shown:
            methods = ("cokl", "correct_forward_kl", "entropy", "reverse_kl", "forward_kl", "none", "reference")
            assert cells == [of_five(of(method, name)) for method in methods]


def test_cokl_and_replay_are_equally_plastic_where_findings_say_so():
    """The 90% interval of the difference lies within 0.02 of zero, by seeds of either run."""
    assert "equal within 0.02" in of_plasticity()
    runs = pd.read_csv(PLASTICITY / "RESULTS.csv")
    runs = runs[(runs["change"] == "narrowed-2") & (runs["mode"] == "sampled")]
    equal = {}
    for phase, cached in (("exact", 0), ("sampled", 8), ("sampled", 64)):
        kept = runs[(runs["phase"] == phase) & (runs["cached"] == cached)]
        plasticity = kept.pivot(index="seed", columns="method", values="plasticity")
        difference = plasticity["cokl"] - plasticity["correct_forward_kl"]
        for first in (0, 5):
            five = difference.loc[first : first + 4]
            half = stats.t.ppf(0.95, 4) * stats.sem(five)
            equal[phase, cached, first] = abs(five.mean()) + half < 0.02
    assert equal == {(phase, cached, first): cached != 64 for phase, cached, first in equal}
    assert len(equal) == 6


@pytest.mark.parametrize("number", ["is -9.9", "is 1.53", "0.971 ±", "0.162", "0.086 ±", "5.75 ± 0.13", "@64"])
def test_a_number_that_is_changed_is_found(number):
    assert number in README
    changed = README.replace(number, re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 5) % 10), number))
    assert unsupported(changed, PAGE + EQUAL_PROMPTS + PAPERS_LEADS) + missing_rows(changed, "sweep")


def test_a_row_with_another_methods_number_is_found():
    assert missing_rows(README.replace("| 0.237 ± 0.013", "| 0.164 ± 0.006"), "sweep")


def test_the_page_is_what_the_record_says():
    assert logbook.render(json.loads(RECORD)) == PAGE


def test_the_finer_grid_of_the_entropy_bonus_is_of_the_committed_seeds():
    section, runs = of_plasticity(), pd.read_csv(PLASTICITY / "ENTROPY.csv")

    def both(table: pd.DataFrame, column: str) -> str:
        values = [table[table["seed"].between(first, first + 4)][column] for first in (0, 5)]
        assert all(len(one) == 5 for one in values)
        first, again = (of_five(one) for one in values)
        return f"{first} ({again})"

    def lead(other: str) -> str:
        matched = runs[runs["at"] == "0.94"].pivot(index="seed", columns="method", values="plasticity")
        return both((matched["cokl"] - matched[other]).rename("lead").reset_index(), "lead")

    shown = [row for row in rows(section) if re.fullmatch(r"(entropy|CoKL), 0\.\d+", row[0])]
    assert len(shown) == 5
    for name, *cells in shown:
        method, beta = name.lower().split(", ")
        at = runs[(runs["method"] == method) & (runs["at"] == "coefficient") & (runs["beta"] == float(beta))]
        assert cells == [both(at, column) for column in ("p_correct", "plasticity", "coverage_at_64")]
    text = " ".join(section.split())
    at = runs[runs["at"] == "coefficient"].pivot(index="seed", columns=["method", "beta"])

    def over_replay(column: str, beta: float, sign: int = 1) -> str:
        difference = sign * (at[column, "cokl", beta] - at[column, "correct_forward_kl", beta])
        return both(difference.rename("difference").reset_index(), "difference")

    assert f"covers {over_replay('coverage_at_64', 0.03)} of the" in text
    assert f"up to {over_replay('coverage_at_64', 0.5)} at 0.5" in text
    ends = " to ".join(over_replay("conditional_kl", beta, -1) for beta in (0.03, 0.5))
    assert f"conditional KL is lower by {ends} nats" in text
    sampled = pd.read_csv(PLASTICITY / "RESULTS.csv")
    sampled = sampled[(sampled["phase"] == "sampled") & (sampled["change"] == "narrowed-2")]
    sampled = sampled[(sampled["mode"] == "sampled") & sampled["cached"].isin([0, 8])]
    sampled = sampled.pivot(index="seed", columns="method", values="plasticity")
    after = both((sampled["cokl"] - sampled["entropy"]).rename("lead").reset_index(), "lead")
    assert f"CoKL is ahead of entropy by {after}. After the exact phase 1, on a finer grid" in text
    assert f"coefficients, it is {lead('entropy')} there" in text
    assert f"lead over entropy is {lead('entropy')}" in text
    assert f"CoKL minus replay, matched at 0.94, is {lead('correct_forward_kl')}" in text


def test_the_bridges_overhead_is_of_the_committed_rounds():
    """Medians, between the order statistics that hold the median with at least 95%."""
    updates = json.loads(Path("benchmarks/llm_overhead.json").read_text(encoding="utf-8"))["updates"]
    grpo = updates["GRPO"]["seconds"]
    edge = max(place for place in range(1, 16) if stats.binom.cdf(place - 1, 30, 0.5) <= 0.025)

    def shown(seconds: list[float], digits: int, unit: str = "", scale: float = 1.0) -> str:
        ratios = sorted(scale * one / base for one, base in zip(seconds, grpo, strict=True))
        low, high = ratios[edge - 1], ratios[-edge]
        return f"{(ratios[14] + ratios[15]) / 2:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"

    text = " ".join(Path("docs/performance.md").read_text(encoding="utf-8").split())
    assert f"takes {shown(updates['CoKL']['seconds'], 3)} of GRPO's CPU seconds" in text
    outside = {name: shown(updates[name]["outside_model"]["seconds"], 3, " %", 100) for name in updates}
    assert f"GRPO spends {outside['GRPO']} of its seconds and CoKL {outside['CoKL']} of GRPO's" in text
