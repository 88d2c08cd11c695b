"""What the findings and README print of the open questions, computed from RUNS.csv."""

import itertools
import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from llm_bridge.open_questions import analysis

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "llm_bridge" / "open_questions" / "FINDINGS.md").read_text("utf-8")
EVERY = pd.read_csv(ROOT / "llm_bridge" / "open_questions" / "RUNS.csv")
ALL = EVERY[EVERY["prompts"].isin([6]) | EVERY["prompts"].isna()]  # the base has no steps
RUNS = ALL[ALL["seed"] == 0]
LABELS = {"before training": "base", "plain RL": "none", "CoKL, 0.03": "cokl"}


def mean(method: str, step: int, held_out: bool, number: str) -> float:
    chosen = RUNS[(RUNS["method"] == method) & (RUNS["step"] == step) & (RUNS["held_out"] == held_out)]
    assert len(chosen) == (8 if held_out else 24)
    return float(chosen[number].mean())


def test_every_cell_of_the_findings_table_is_the_runs():
    of_the_demo = PAGE.partition("### The demo's run")[2].partition("## Through VeRL")[0]
    rows = [line.strip("| ").split(" | ") for line in of_the_demo.splitlines() if line.startswith("| ")][1:]
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
        r"from\s+(\d+) % right with (\d+\.\d) different.*?(\d+) % right with (\d+\.\d).*?(\d+) % right with (\d+\.\d)"
        r".*?(\d+) % right with (\d+\.\d)",
        text,
        re.DOTALL,
    )
    expected = [
        number
        for method, step in (("base", 0), ("none", 16), ("cokl", 16), ("none", 8))
        for number in (
            f"{100 * mean(method, step, False, 'right'):.0f}",
            f"{mean(method, step, False, 'different'):.1f}",
        )
    ]
    assert list(said) == expected


def ends(seed: int, step: int) -> pd.DataFrame:
    """Correctness and different right answers at the ends of a seed's runs, by method and coefficient."""
    last = ALL[(ALL["seed"] == seed) & (ALL["step"] == step) & ~ALL["held_out"]]
    return last.groupby(["method", "beta"])[["right", "different"]].mean()


def at_the_level(method: Any, beta: Any, seed: int = 100, level: float = 0.75) -> Any:
    """Different right answers where a run first passes the level, by the straight lines between measurements."""
    rows = ALL[(ALL["seed"] == seed) & ~ALL["held_out"]]
    base = rows[rows["step"] == 0][["right", "different"]].mean()
    of_run = rows[(rows["method"] == method) & (rows["beta"] == beta)].groupby("step")[["right", "different"]].mean()
    for one, other in itertools.pairwise([base, *(row for _, row in of_run.sort_index().iterrows())]):
        if one["right"] < level <= other["right"]:
            share = (level - one["right"]) / (other["right"] - one["right"])
            return one["different"] + share * (other["different"] - one["different"])
    return math.nan


def test_what_is_said_of_seed_100_is_its_runs():
    found = ends(100, 16)
    high = found[found["right"] > 0.8]["different"].sort_values(ascending=False)
    assert list(high.index[:2]) == [("cokl", 0.03), ("cokl", 0.01)]
    said = [f"{value:.1f}" for value in (*high.iloc[:3], high["none", 0.0])]
    assert re.findall(r"answers\*\*, (\S+) and (\S+)\. The next has (\S+), and plain RL has (\S+)\.\n", PAGE) == [
        tuple(said)
    ]
    chosen = {"forward_kl": 0.01, "reverse_kl": 0.01, "cokl": 0.03, "correct_forward_kl": 0.03}
    values = [f"{at_the_level(name, beta):.1f}" for name, beta in chosen.items()]
    told = r"forward KL has (\S+) and reverse KL (\S+), CoKL and replay have (\S+)\. The two"
    assert re.findall(told, PAGE) == [tuple(values[:3])]
    assert values[2] == values[3]
    right = [f"{100 * found['right'][name, 0.1]:.0f}" for name in chosen]
    told = r"forward KL ends at (\d+) % and reverse KL at (\d+) %, CoKL at (\d+) % and replay at (\d+) %"
    assert re.findall(told, PAGE) == [tuple(right)]
    for beta in (0.001, 0.003):
        assert at_the_level("entropy", beta) < at_the_level("none", 0.0)


COMPARED = ["cokl", "correct_forward_kl", "reverse_kl", "forward_kl"]


def test_the_level_and_the_best_of_the_others_are_those_that_the_rule_chooses():
    """The highest multiple of five points that all four pass by five; the wider of the two KLs there."""
    rows = ALL[(ALL["seed"] == 101) & ~ALL["held_out"] & (ALL["step"] > 0)]
    highest = rows.groupby(["method", "step"])["right"].mean().groupby("method").max()[COMPARED]
    passed = [percent for percent in range(5, 96, 5) if (highest >= percent / 100 + 0.05).all()]
    words = " ".join(PAGE.split())
    (told,) = re.findall(r"\*\*It came out as (\d+) % right and (.*? KL)\*\*: replay ends at (\S+) %", words)
    assert told == (str(passed[-1]), "reverse KL", f"{100 * highest.min():.1f}")
    assert highest.idxmin() == "correct_forward_kl"
    level = passed[-1] / 100
    assert level == analysis.LEVEL
    there = {name: at_the_level(name, 0.01, 101, level) for name in COMPARED}
    assert there["reverse_kl"] > there["forward_kl"]
    (said,) = re.findall(r"forward KL has (\S+) different right answers at the level, reverse KL (\S+)\. The", words)
    assert said == (f"{there['forward_kl']:.1f}", f"{there['reverse_kl']:.1f}")


def test_what_is_said_of_seed_101_is_its_runs():
    there = [at_the_level(name, 0.01, 101, 0.8) for name in COMPARED] + [at_the_level("none", 0.0, 101, 0.8)]
    told = (
        r"CoKL has (\S+) different right answers of 64\*\*, "
        r"replay (\S+), reverse KL (\S+), forward KL (\S+), and plain RL (\S+)\.\n"
    )
    assert re.findall(told, PAGE) == [tuple(f"{value:.1f}" for value in there)]
    end = ends(101, 24)
    told = r"right\*\*: (\S+) and (\S+) different ones, at (\d+) and (\d+) % right\. Reverse KL has (\S+) at (\d+) %\."
    right, different = ([end[name][method, 0.01] for method in COMPARED[:3]] for name in ("right", "different"))
    expected = [*map("{:.1f}".format, different[:2]), *(f"{100 * value:.0f}" for value in right[:2])]
    assert re.findall(told, PAGE) == [(*expected, f"{different[2]:.1f}", f"{100 * right[2]:.0f}")]
    assert end["different"].nlargest(2).index.tolist() == [("correct_forward_kl", 0.01), ("cokl", 0.01)]
    assert end["right"].nsmallest(2).index.tolist() == [("correct_forward_kl", 0.01), ("cokl", 0.01)]


def mean_and_half_width(values: np.ndarray) -> tuple[float, float]:
    half = stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
    return float(values.mean()), float(half)


def test_what_is_said_of_the_planned_runs_is_what_they_show_by_the_rule():
    planned = [range(30, 35), range(40, 45)]
    there = {
        name: np.array([[at_the_level(name, 0.01, seed, 0.8) for seed in seeds] for seeds in planned])
        for name in COMPARED[:3]
    }
    assert all(np.isfinite(values).all() for values in there.values())  # all runs reach the level
    words = " ".join(PAGE.split())
    told = (
        r"On all ten seeds, at 80 % right, CoKL has (\S+) different right answers of 64, "
        r"replay (\S+) and reverse KL (\S+)\."
    )
    assert re.findall(told, words) == [tuple(f"{values.mean():.1f}" for values in there.values())]
    apart, claimed = [], []
    for name in COMPARED[1:3]:
        values = there["cokl"] - there[name]
        half = mean_and_half_width(values.ravel())[1]
        apart += [f"{values.mean():.2f}", f"{half:.2f}"]
        first, second = values.mean(axis=1)
        claimed.append(first * second > 0 and abs(values.mean()) > half)
    differences = r"CoKL minus replay is (\S+) ± (\S+), CoKL minus reverse KL (\S+) ± (\S+);"
    assert re.findall(differences, words) == [tuple(apart)]
    headline = "**CoKL was told apart neither from replay nor from reverse KL, in two runs of five seeds each.**"
    assert (headline in words) == (not any(claimed))
    replay = (there["cokl"] - there["correct_forward_kl"]).tolist()
    alone = [mean_and_half_width(np.array(of_run)) for of_run in replay]
    told = r"the second run alone has (\S+) ± (\S+), the first (\S+) ± (\S+)\."
    assert re.findall(told, words) == [tuple(f"{value:.2f}" for run in reversed(alone) for value in run)]
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    (row,) = re.findall(r"\| mean new reward, %: CoKL minus Replay \|.*\| (.*?) \|\n", PAGE)
    assert f"mean reward after CoKL minus that after replay is {row} points" in readme
    told = r"CoKL minus reverse KL is (\S+) ± (\S+) different correct answers of 64, CoKL minus replay (\S+) ± (\S+) \|"
    assert re.findall(told, readme) == [tuple(apart[2:] + apart[:2])]


def test_what_is_said_of_plain_rl_on_the_planned_seeds_is_its_runs():
    seeds = [*range(30, 35), *range(40, 45)]

    def minus_plain_rl(name: str, level: float = 0.8) -> np.ndarray:
        return np.array(
            [at_the_level(name, 0.01, seed, level) - at_the_level("none", 0.0, seed, level) for seed in seeds]
        )

    def told(values: np.ndarray) -> str:
        return "{:.2f} ± {:.2f}".format(*mean_and_half_width(values))

    cokl, replay, reverse = (minus_plain_rl(name) for name in COMPARED[:3])
    words, readme = (" ".join(text.split()) for text in (PAGE, (ROOT / "README.md").read_text("utf-8")))
    plain = np.mean([at_the_level("none", 0.0, seed, 0.8) for seed in seeds])
    assert (
        f"At 80 % right it has {plain:.1f}: CoKL minus plain RL is {told(cokl)}, reverse KL {told(reverse)}, " in words
    )
    assert (
        f"replay {told(replay)}. CoKL's is {told(cokl[:5])} in the first run and {told(cokl[5:])} in the second"
        in words
    )
    lower, higher = (minus_plain_rl("cokl", level) for level in (0.75, 0.85))
    left = higher[np.isfinite(higher)]
    assert (len(left), np.isfinite(lower).all()) == (9, True)
    assert f"second, {told(lower)} at 75 % and {told(left)} at 85 %, where nine seeds are left." in words
    assert all(values.mean() > mean_and_half_width(values)[1] for values in (cokl, replay, reverse))  # "All three"
    assert f"CoKL minus plain RL is {told(cokl)} different answers, over the same ten seeds" in readme


def test_where_verls_runs_lie_among_the_loops_seeds():
    verl = pd.read_csv(ROOT / "llm_bridge/open_questions/VERL.csv").query("step > 0")
    trained = ALL[~ALL["held_out"] & (ALL["prompts"] == 6)]
    outside = []
    for run in verl.to_dict("records"):
        same = trained
        for name in ("method", "beta", "step"):
            same = same[same[name] == run[name]]
        for number in ("right", "different", "train_reward"):
            seeds = [rows[number].mean() for _, rows in same.groupby("seed")]
            if not min(seeds) <= run[number] <= max(seeds):
                outside.append((run["method"], run["step"], number))
            row = f"{100 * run['right']:.1f} ({100 * min(seeds):.1f} to {100 * max(seeds):.1f})"
            assert number != "right" or row in PAGE
    assert outside == [
        ("none", 8, "different"),
        ("none", 16, "train_reward"),
        ("none", 24, "right"),
        ("cokl", 8, "right"),
    ]
    words = " ".join(PAGE.split())
    assert "one of CoKL's nine lies outside the range of the loop's seeds, and three of plain RL's nine.**" in words
    shown = verl.set_index(["method", "step"])["right"]
    assert f"in {100 * shown['cokl', 8]:.1f} % of replies" in words
    assert f"at the end it is right in {100 * shown['none', 24]:.1f} %" in words
    different = verl.set_index(["method", "step"])["different"]
    assert f"At step 8 it has {different['none', 8]:.1f} different right answers, more than any" in words
    assert trained.query("method == 'none' and step == 24")["seed"].nunique() == 11
    assert "The loop has plain RL to the end on eleven seeds, VeRL on one." in words


def test_how_right_cokl_ends_at_another_coefficient():
    ended = [
        rows["right"].mean()
        for (_, _), rows in ALL[(ALL["method"] == "cokl") & (ALL["beta"] == 0.03) & ~ALL["held_out"]].groupby(
            ["seed", "prompts"]
        )
        for rows in [rows[rows["step"] == rows["step"].max()]]
    ]
    page = (ROOT / "docs/how-to/beta.md").read_text("utf-8")
    assert len(ended) == 9
    assert f"At 0.03, on nine seeds, CoKL ended at {100 * min(ended):.0f} to {100 * max(ended):.0f}% right" in page


def test_the_tables_are_made_from_the_runs():
    make = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))
    tables = make["open_questions_tables"]()
    assert make["with_tables"](PAGE, tables) == PAGE
    assert len(tables) == PAGE.count("<!-- table ")
    assert f"| CoKL | 0.03 | 76.6% | 8.9 | {100 * ends(100, 16)['right']['cokl', 0.03]:.1f}% |" in tables["first-plan"]
    assert f"| {at_the_level('cokl', 0.01, 101, 0.8):.1f} |" in tables["selection"].splitlines()[2]


def test_what_is_said_of_the_ablation_is_its_runs():
    last = ALL[ALL["seed"].between(30, 32) & (ALL["step"] == 24) & ~ALL["held_out"]]
    ended: Any = last.groupby(["method", "beta", "seed"])[["right", "different"]].mean()

    def told(method: str, beta: float) -> str:
        right, different = (mean_and_half_width(ended.loc[method, beta][name].to_numpy()) for name in ended)
        return f"{100 * right[0]:.1f} ± {100 * right[1]:.1f} %@{different[0]:.1f} ± {different[1]:.1f}"

    words = " ".join(PAGE.split())
    assert (
        f"ends where plain RL ends: {told('cokl_without_term1', 0.01).replace('@', ' right with ')} different" in words
    )
    assert f"plain RL {told('none', 0.0).replace('@', ' with ')}. With it" in words
    pulled = [ended.loc[name, 0.01].mean() for name in ("cokl", "correct_forward_kl")]
    assert [round(float(end["right"]), 1) for end in pulled] == [0.9, 0.9]
    assert round(float(np.mean([end["different"] for end in pulled])), 1) == 7.8


NUMBERS = (("right", 100), ("different", 1))


def test_what_is_said_of_the_questions_a_step_is_their_runs():
    there = EVERY[EVERY["seed"].between(30, 32) & EVERY["method"].eq("cokl") & EVERY["beta"].eq(0.01)]
    there = there[~there["held_out"]].groupby(["prompts", "seed", "step"])[["right", "different"]].mean()
    ended: Any = there.xs(24, level="step")
    assert ended.groupby("prompts").size().to_dict() == {2: 3, 4: 3, 6: 3, 8: 3, 16: 3}
    (few_right, few), (many_right, many) = (
        [mean_and_half_width(scale * ended.loc[prompts][name].to_numpy()) for name, scale in NUMBERS]
        for prompts in (2, 16)
    )
    words = " ".join(PAGE.split())
    told = "CoKL ends at {:.1f} ± {:.1f} % right, with 16 at {:.1f} ± {:.1f} %.**".format(*few_right, *many_right)
    assert f"**With 2 questions a step {told}" in words
    told = "It has {:.1f} ± {:.1f} and {:.1f} ± {:.1f} different right answers there".format(*few, *many)
    assert told in words
    assert (there["right"].groupby(["prompts", "seed"]).max() < 0.8).groupby("prompts").sum().to_dict() == {
        2: 1, 4: 0, 6: 0, 8: 0, 16: 0,
    }  # fmt: skip


def test_an_ablations_cells_are_means_over_seeds_at_the_end_and_at_the_level():
    """Two questions, steps 0, 8 and 24: by hand. The second method never reaches the level on one seed."""
    make = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))
    rows = []
    for number, seed in enumerate(make["ABLATED"]):
        base = {"seed": seed, "method": "base", "beta": 0.0, "step": 0, "held_out": False, "right": 0.2, "different": 6}
        rows += [base, base | {"held_out": True, "different": 50}]
        for method, beta, end in (("cokl", 0.01, 0.9), ("none", 0.0, (0.7, 0.81, 0.9)[number])):
            run = base | {"method": method, "beta": beta, "prompts": 6, "step_seconds": 7.0 + number}
            rows += [run | {"step": 8, "right": 0.6, "different": 9, "train_zero_correct": 0.3}]
            rows += [run | {"step": 24, "right": end, "different": 4 + number, "train_zero_correct": 0.1 * number}]
            rows += [
                run | {"step": 24, "held_out": True, "right": 0.0, "different": 99, "train_zero_correct": 0.1 * number}
            ]
    runs = pd.DataFrame(rows).assign(different_of_32=1.0, entropy=1.0, cached_kl=1.0)
    cokl, plain = (
        line.strip("| ").split(" | ")
        for line in make["_ablation"](runs, [("cokl", 0.01, 6), ("none", 0.0, 6)]).splitlines()[2:]
    )
    t = stats.t.ppf(0.975, 2) / math.sqrt(3)
    assert cokl[:3] == ["CoKL", "0.01", "6"]
    assert cokl[3] == "90.0 ± 0.0"
    assert cokl[4] == f"5.0 ± {t:.1f}"
    at_level = [9 + (4 + number - 9) * 2 / 3 for number in range(3)]
    assert cokl[5] == f"{np.mean(at_level):.1f} ± {t * np.std(at_level, ddof=1):.1f}"
    assert cokl[6] == f"20.0 ± {100 * t * 0.05:.1f}"  # of 15, 20 and 25 %
    assert cokl[7] == "8.0"
    assert plain[:3] == ["plain RL", "-", "6"]
    assert plain[5].endswith(", 2 seeds")
    assert make["_ablation"](runs, [("cokl", 0.01, 6), ("cokl", 0.03, 6)]) == ""


def test_each_cell_of_the_figures_table_is_where_a_run_ends():
    made = PAGE.partition("<!-- table figure -->")[2].partition("<!-- end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in made.splitlines() if line.startswith("| ")][1:]
    names = {"plain RL": "none", "Entropy": "entropy", "Reverse KL": "reverse_kl", "Forward KL": "forward_kl"}
    names |= {"Replay": "correct_forward_kl", "CoKL": "cokl"}
    both = set(ends(30, 24).index) & set(ends(31, 24).index)
    assert len(rows) == sum(method in names.values() for method, _ in both)
    for name, beta, *cells in rows:
        run: Any = (names[name], 0.0 if beta == "-" else float(beta))
        expected = []
        for seed in (30, 31):
            end, there = ends(seed, 24).loc[run], at_the_level(run[0], run[1], seed, 0.8)
            at_level = "-" if math.isnan(there) else f"{there:.1f}"
            expected += [f"{100 * end['right']:.1f}%", f"{end['different']:.1f}", at_level]
        assert cells == expected, (name, beta)


def test_what_is_said_of_all_coefficients_is_their_runs():
    last = ALL[ALL["seed"].isin([30, 31]) & (ALL["step"] == 24) & ~ALL["held_out"]]
    ended: Any = last.groupby(["method", "beta", "seed"])[["right", "different", "cached_kl"]].mean()
    words = " ".join(PAGE.partition("### All coefficients, on two seeds")[2].partition("\n### ")[0].split())

    def both(method: str, beta: float, number: str = "different", scale: int = 1) -> str:
        return "{:.1f} and {:.1f}".format(*scale * ended.loc[method, beta][number])

    plain = f"answers of all that still answer**, {both('none', 0.0)}, at {both('none', 0.0, 'right', 100)} % right."
    assert plain in words
    answering = ended[ended["right"] > 0.02]["different"]
    assert len(ended) - len(answering) == 2  # the entropy bonus at 0.01
    assert ended["different"]["none"].max() < answering.drop("none").min()
    names = {"reverse KL has": "reverse_kl", "; replay": "correct_forward_kl", "; CoKL": "cokl"}
    for name, method in names.items():
        assert f"{name} {both(method, 0.01)}, at {both(method, 0.01, 'right', 100)} %" in words
    assert f"at 0.01**: {both('forward_kl', 0.01)}, at {both('forward_kl', 0.01, 'right', 100)} %." in words
    level = [at_the_level(name, 0.01, seed, 0.8) for name in ("forward_kl", "cokl") for seed in (30, 31)]
    assert "At 80 % right it has {:.1f} and {:.1f}, CoKL {:.1f} and {:.1f}.".format(*level) in words
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert "and had {:.1f} and {:.1f}, CoKL {:.1f} and {:.1f}.".format(*level) in readme
    assert at_the_level("forward_kl", 0.01, 101, 0.8) < at_the_level("cokl", 0.01, 101, 0.8)
    mean_end = ended.groupby(["method", "beta"]).mean()
    assert (
        mean_end["different"]["forward_kl", 0.01] > mean_end["different"][["cokl", "correct_forward_kl"]][:, 0.01].max()
    )
    drifting = ("cokl", 0.01), ("correct_forward_kl", 0.01), ("forward_kl", 0.01), ("reverse_kl", 0.01), ("none", 0.0)
    told = (
        "{:.1f}, {:.1f} and {:.1f} nats among the cached right replies, in the mean of both seeds, against {:.1f}, and"
    )
    drift = [mean_end["cached_kl"][run] for run in drifting]
    assert f"{told.format(*drift)} {drift[-1]:.1f} with plain RL." in words
    assert f"breaks the model**: {both('entropy', 0.01, 'right', 100)} % right. At 0.003 it has" in words
    assert f"{both('entropy', 0.003)} different right answers, at {both('entropy', 0.003, 'right', 100)} %." in words


def test_how_many_runs_of_the_pilot_reach_the_level():
    rows = ALL[ALL["seed"].isin([10, 11, 12, 13]) & ~ALL["held_out"] & (ALL["step"] > 0)]
    best = rows.groupby(["method", "seed", "step"])["right"].mean().groupby(["method", "seed"]).max()
    passed = (best >= 0.75).groupby("method").sum()
    assert best.groupby("method").size().to_dict() == {"cokl": 4, "correct_forward_kl": 4, "forward_kl": 4}
    told = r"Of seeds 10 to 13 CoKL passes 75 % on (\d), replay on (\d) and forward KL on (\d)\."
    said = re.findall(told, " ".join(PAGE.split()))
    assert said == [tuple(str(passed[name]) for name in ("cokl", "correct_forward_kl", "forward_kl"))]
