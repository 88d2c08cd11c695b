"""Write what pages have from elsewhere: `python docs/make_tables.py`.

ASSUMPTIONS.md, what the paper leaves open, is from the source. The tables of llm_bridge/FINDINGS.md, each between a
comment with its name and one that ends it, are from SmolLM2's scores, those of llm_bridge/open_questions/FINDINGS.md
from its runs. In figures/rendered, smollm2_seeds is of SmolLM2's scores and open_questions_tradeoff of those runs.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

import pandas as pd

from cokl import methods
from cokl.support.statistics import mean_and_half_width, plain_markdown_table, with_spread
from figures.matplotlib_renderer import render
from figures.style import save
from llm_bridge.open_questions import analysis, figures
from llm_bridge.report.figures import ends_by_seed

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cokl", "bandit", "llm_bridge", "theory", "cokl_cli")
HEAD = """# What the paper leaves open

Each row is a configuration field. Made from the code: `python docs/make_tables.py`.

| field | default | what it decides | what changes with it |
|---|---|---|---|"""
SCORES = ROOT / "llm_bridge" / "experiment" / "smollm2" / "SCORES.csv"
NAMES = {
    "base": "before small talk",
    "grpo": "no regularizer",
    "correct_forward_kl": "replay, 0.003",
    "cokl": "CoKL, 0.01",
    "forward_kl": "forward KL, 0.01",
    "reverse_kl": "reverse KL, 0.01",
}
OPEN_QUESTIONS = ROOT / "llm_bridge" / "open_questions"
FIRST_PLAN, SELECTION = 100, 101
"""The seeds on which the open questions' coefficients and level were chosen, by the first plan and by the second."""
SEEDS_OF_RUNS = {"first run": range(30, 35), "second run": range(40, 45)}
PROMPTS = 6
"""Of a step, in the plan."""
PLANNED = {"cokl": 0.01, "correct_forward_kl": 0.01, "reverse_kl": 0.01}
"""The plan's methods and their coefficients."""
FIGURE_SEEDS = (30, 31)
"""Of the plan's seeds, those on which the methods of the figure ran with further coefficients."""
FIGURE_METHODS = ("none", "entropy", "reverse_kl", "forward_kl", "correct_forward_kl", "cokl")
"""In the order of the figure's table."""
ABLATED = range(30, 33)
"""Seeds on which the open questions' ablations are to run, beside the plan's."""
ABLATIONS = {
    "ablation": [
        *((name, 0.01, PROMPTS) for name in ("cokl", "cokl_without_term1", "correct_forward_kl", "cokl_floor")),
        ("none", 0.0, PROMPTS),
    ],
    "prompts": [("cokl", 0.01, prompts) for prompts in (2, 4, PROMPTS, 8, 16)],
    "coefficients": [("cokl", beta, PROMPTS) for beta in (0.01, 0.03, 0.1)],
}  # fmt: skip
"""A table each: method, coefficient and prompts of a step."""
OTHER_LEVELS = {"different_lower": analysis.LEVEL - 0.05, "different_higher": analysis.LEVEL + 0.05}
"""Levels of secondary measures."""
MEASURES = {
    "different": "different right answers of 64",
    **{number: f"the same at {level:.0%}" for number, level in OTHER_LEVELS.items()},
    "different_held_out": "the same, held-out questions",
    "new_reward": "mean new reward, %",
}
COLUMNS = {
    "known": "known sums right, %",
    "unknown": "unknown sums right, %",
    "chat_val": "small talk's reward, %",
    "distinct": "different right answers to a known sum, of 8",
    "right_of_64": "right of 64",
    "different_of_64": "different right ones of 64",
    "cached_kl": "KL among cached right answers",
    "cached_log_prob": "change of their total log-probability",
    "stricter_before": "before these 12 steps",
    "stricter": "after them",
}


def page() -> str:
    """A row for each field that is declared with `assumption`, then what modules' docstrings state."""
    sources = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources}
    rows = [row for module in modules.values() for row in _fields(module)]
    fixed = [
        f"- `{'.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')}`: {_one_line(words)}"
        for path, module in modules.items()
        for paragraph in (ast.get_docstring(module) or "").split("\n\n")
        for opening, _, words in [paragraph.partition(":")]
        if opening == "Assumption beyond the paper"
    ]
    return "\n".join([HEAD, *rows, "", "Fixed in the code, not configurable:", "", *fixed]) + "\n"


def _fields(module: ast.Module) -> Iterator[str]:
    """Rows of the fields `name: type = assumption(default, "effect")`, which their docstrings follow."""
    for owner in (node for node in ast.walk(module) if isinstance(node, ast.ClassDef)):
        for field, after in pairwise(owner.body):
            match field, after:
                case (
                    ast.AnnAssign(
                        target=ast.Name(id=name),
                        value=ast.Call(func=ast.Name(id="assumption"), args=[default, ast.Constant(value=effect)]),
                    ),
                    ast.Expr(value=ast.Constant(value=decided)),
                ):
                    shown = ast.unparse(default).strip("'")
                    cells = [f"`{owner.name}.{name}`", f"`{shown}`", _one_line(decided), effect]
                    yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def with_tables(text: str, tables: dict[str, str]) -> str:
    """A page with its named tables made anew. Raises KeyError for a name that there is no table of."""
    place = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return place.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", text)


def smollm2_tables() -> dict[str, str]:
    """SmolLM2's tables by their names."""
    runs = pd.read_csv(SCORES)
    six, seed_6 = runs.query("main == 1"), runs.query("seed == 6")
    chosen_on = runs.query("seed == 100 and beta > 0").assign(both=lambda rows: rows["known"] + rows["chat_val"])
    grid = chosen_on.pivot(index=["reference", "method"], columns="beta", values="both")
    rows = [
        [NAMES[method].partition(",")[0], base, *(with_spread(both, math.nan, 1) for both in row)]
        for (base, method), row in zip(grid.index, grid.to_numpy(), strict=True)
    ]
    return {
        "six-seeds": _scores(six, list(NAMES), list(COLUMNS)[:4], lambda v, _: with_spread(*mean_and_half_width(v), 1)),
        "selection": plain_markdown_table(["", "base", *(f"{beta:g}" for beta in grid.columns)], rows),
        "seed-6": _scores(seed_6, [name for name in NAMES if name in set(seed_6["method"])], list(COLUMNS)[:6], _each),
        "cached": _scores(
            six[six["seed"].isin([3, 4, 5])], list(NAMES)[1:], ["known", "cached_kl", "cached_log_prob"], _each
        ),
        "stricter": _scores(
            six[six["seed"].isin([4, 5])].iloc[::-1], list(NAMES)[:4], ["stricter_before", "stricter"], _each
        ),
        "batches": _batches(runs.query("seed in (1, 2) and reference == 2")),
    }


def _batches(runs: pd.DataFrame) -> str:
    """A row for each run from a seed's base, with the groups of responses that it regularizes in a step."""
    rows = [
        [
            f"{run['seed']}",
            NAMES[run["method"]].partition(",")[0],
            _coefficient(run["beta"]),
            with_spread(run["kl_groups"], math.nan, 0),
            *(with_spread(run[column], math.nan, 1) for column in list(COLUMNS)[:3]),
            with_spread(100 * run["zero_correct"], math.nan, 1),
        ]
        for _, run in runs.sort_values(["seed", "known"], ascending=[True, False]).iterrows()
    ]
    head = [
        "seed",
        "",
        "coefficient",
        "groups a step",
        *list(COLUMNS.values())[:3],
        "groups without a right fresh answer, %",
    ]
    return plain_markdown_table(head, rows)


def open_questions_tables() -> dict[str, str]:
    """The open questions' tables by their names."""
    runs = pd.read_csv(OPEN_QUESTIONS / "RUNS.csv")
    selected = {seed: analysis.means(runs[runs["seed"] == seed]) for seed in (FIRST_PLAN, SELECTION)}
    return {
        "first-plan": _selection(selected[FIRST_PLAN], 0.75),
        "selection": _selection(selected[SELECTION], analysis.LEVEL),
        **_compared(runs),
        "figure": _all_coefficients(of_figure(runs)),
        "verl": _beside_the_loop(pd.read_csv(OPEN_QUESTIONS / "VERL.csv"), runs),
        **{name: table for name, rows in ABLATIONS.items() if (table := _ablation(runs, rows))},
    }


def _selection(paths: pd.DataFrame, level: float) -> str:
    """A row for each run of a selection seed."""
    there = analysis.matched(paths, level).set_index(["method", "beta"])["different"]
    measured = [step for step in paths["step"].unique() if step]
    rows, forms = [], {"right": ".1%", "different": ".1f"}
    for (name, beta), path in paths.groupby(["method", "beta"], sort=False):
        ends = path.set_index("step")
        cells = [f"{ends[number][step]:{form}}" for step in measured for number, form in forms.items()]
        rows.append([_open_label(name), _coefficient(beta), *cells, with_spread(there[name, beta], math.nan, 1)])
    steps = [f"{what}, step {step}" for step in measured for what in ("right", "different of 64")]
    return plain_markdown_table(["", "coefficient", *steps, f"different at {level:.0%} right"], rows)


def _compared(runs: pd.DataFrame) -> dict[str, str]:
    """Each method's numbers in each run of seeds that is whole, and CoKL's minus those of the others."""
    seeds = {name: list(of_run) for name, of_run in SEEDS_OF_RUNS.items() if {*of_run} <= {*runs["seed"]}}
    if not seeds:
        return {}
    everyone = [*chain(*seeds.values())]
    if len(seeds) > 1:
        seeds["all seeds"] = everyone
    of_plan = runs["method"].map(PLANNED).eq(runs["beta"]) & runs["prompts"].eq(PROMPTS) | runs["method"].eq("base")
    compared = runs[runs["seed"].isin(everyone) & of_plan]
    keys, paths = ["seed", "method", "beta"], analysis.means(compared)
    afterwards = compared.dropna(subset=["new_reward"]).drop_duplicates(keys)
    table = analysis.matched(paths, analysis.LEVEL)
    for number, level in OTHER_LEVELS.items():
        elsewhere = analysis.matched(paths, level)[[*keys, "different"]].rename(columns={"different": number})
        table = table.merge(elsewhere, on=keys)
    after = afterwards[keys].assign(new_reward=100 * afterwards["new_reward"])
    table = table.merge(after, on=keys, how="left")
    coefficients = table.drop_duplicates("method").set_index("method")["beta"]
    rivals = [name for name in coefficients.index if name != "cokl"]
    parts = [table[table["seed"].isin(of_run)] for of_run in seeds.values()]
    scores, differences = [], []
    for number, title in MEASURES.items():
        for name in coefficients.index:
            left = [part[part["method"] == name][number].dropna() for part in parts]
            cells = [
                _of_seeds(*mean_and_half_width(values), len(values), of_run)
                for values, of_run in zip(left, seeds.values(), strict=True)
            ]
            scores.append([_open_label(name), _coefficient(coefficients[name]), title, *cells])
        for rival in rivals:
            found = [analysis.difference(part, rival, number) for part in parts]
            cells = [_of_seeds(*one, of_run) for one, of_run in zip(found, seeds.values(), strict=True)]
            differences.append([f"{title}: CoKL minus {_open_label(rival)}", *cells])
    return {
        "compared": plain_markdown_table(["", "coefficient", "", *seeds], scores),
        "differences": plain_markdown_table(["", *seeds], differences),
    }


def of_figure(runs: pd.DataFrame) -> pd.DataFrame:
    """The paths of the figure's runs: each method with the coefficients that all of `FIGURE_SEEDS` had."""
    asked = runs["prompts"].eq(PROMPTS) & runs["method"].isin(FIGURE_METHODS) | runs["method"].eq("base")
    there = runs[asked & runs["seed"].isin(FIGURE_SEEDS)]
    seeds = there.groupby(["method", "beta"])["seed"].transform("nunique")
    return analysis.means(there[seeds.eq(len(FIGURE_SEEDS))])


def _all_coefficients(paths: pd.DataFrame) -> str:
    """A row for each method and coefficient, with each seed's end and its value at the level."""
    rows = []
    for method in FIGURE_METHODS:
        for beta, of_both in paths[paths["method"] == method].groupby("beta"):
            cells = []
            for _, path in of_both.groupby("seed"):
                end, at_level = path.iloc[-1], analysis.at(path, analysis.LEVEL, "different")
                cells += [f"{end['right']:.1%}", f"{end['different']:.1f}", with_spread(at_level, math.nan, 1)]
            rows.append([_open_label(method), _coefficient(beta), *cells])
    each = ("right", "different of 64", f"the same at {analysis.LEVEL:.0%} right")
    head = [f"{what}, seed {seed}" for seed in FIGURE_SEEDS for what in each]
    return plain_markdown_table(["", "coefficient", *head], rows)


def _beside_the_loop(verl: pd.DataFrame, runs: pd.DataFrame) -> str:
    """VeRL's numbers on the training questions, each with the least and the most of the loop's seeds."""
    numbers = {
        "right, %": ("right", 100),
        "different right answers of 64": ("different", 1),
        "mean reward of the eight steps before, %": ("train_reward", 100),
    }
    trained, rows = runs[~runs["held_out"] & runs["prompts"].eq(PROMPTS)], []
    for _, of_verl in verl[verl["step"] > 0].iterrows():
        same = trained
        for name in ("method", "beta", "step"):
            same = same[same[name].eq(of_verl[name])]
        seeds = same.groupby("seed")[[name for name, _ in numbers.values()]].mean()
        cells = [
            "{:.1f} ({:.1f} to {:.1f})".format(
                *(factor * x for x in (of_verl[name], seeds[name].min(), seeds[name].max()))
            )
            for name, factor in numbers.values()
        ]
        rows.append([_open_label(of_verl["method"]), str(of_verl["step"]), *cells, str(len(seeds))])
    return plain_markdown_table(["", "step", *numbers, "seeds of the loop"], rows)


def _ablation(runs: pd.DataFrame, asked: Sequence[tuple[str, float, int]]) -> str:
    """A row for each method, coefficient and number of prompts, means over `ABLATED`; empty until all have run."""
    there, rows = runs[runs["seed"].isin(ABLATED)], []
    for method, beta, prompts in asked:
        of_run = there[there["method"].eq(method) & there["beta"].eq(beta) & there["prompts"].eq(prompts)]
        if {*of_run["seed"]} != {*ABLATED}:
            return ""
        paths = analysis.means(pd.concat([there[there["method"] == "base"], of_run]))
        ends = paths[paths["step"] == paths["step"].max()]
        at_level = analysis.matched(paths, analysis.LEVEL)["different"].dropna()
        steps = of_run.drop_duplicates(["seed", "step"])
        zero_correct = 100 * steps.groupby("seed")["train_zero_correct"].mean()
        cells = [
            with_spread(*mean_and_half_width(100 * ends["right"]), 1),
            with_spread(*mean_and_half_width(ends["different"]), 1),
            _of_seeds(*mean_and_half_width(at_level), len(at_level), ABLATED) if len(at_level) else "-",
            with_spread(*mean_and_half_width(zero_correct), 1),
            f"{steps.groupby('seed')['step_seconds'].last().mean():.1f}",
        ]
        rows.append([_open_label(method), _coefficient(beta), str(prompts), *cells])
    head = ["right at the end, %", "different right answers of 64", f"the same at {analysis.LEVEL:.0%} right"]
    head += ["groups without a right answer, %", "CPU seconds a step"]
    return plain_markdown_table(["", "coefficient", "prompts a step", *head], rows)


def _of_seeds(mean: float, half_width: float, left: int, of_run: Sequence[int]) -> str:
    """A cell, with the number of seeds where some have no value."""
    return with_spread(mean, half_width, 1) + ("" if left == len(of_run) else f", {left} seeds")


def _open_label(name: object) -> str:
    return "plain RL" if name == "none" else methods.label(str(name))


def _coefficient(beta: object) -> str:
    return f"{beta:g}" if beta else "-"


def _scores(
    runs: pd.DataFrame, methods: Sequence[str], columns: Sequence[str], cell: Callable[[pd.Series, str], str]
) -> str:
    """A row per method, a cell per column of scores."""
    rows = [
        [NAMES[name], *(cell(runs.loc[runs["method"] == name, column], column) for column in columns)]
        for name in methods
    ]
    return plain_markdown_table(["", *(COLUMNS[column] for column in columns)], rows)


def _each(values: pd.Series, column: str) -> str:
    """Each seed's score, in the rows' order."""
    form = {"cached_kl": "{:.2f}", "cached_log_prob": "{:+.1f}"}.get(column, "{:.1f}")
    return ", ".join("none" if pd.isna(value) else form.format(value) for value in values)


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    (ROOT / "ASSUMPTIONS.md").write_text(page(), encoding="utf-8")
    findings = ROOT / "llm_bridge" / "FINDINGS.md"
    findings.write_text(with_tables(findings.read_text(encoding="utf-8"), smollm2_tables()), encoding="utf-8")
    findings = OPEN_QUESTIONS / "FINDINGS.md"
    findings.write_text(with_tables(findings.read_text(encoding="utf-8"), open_questions_tables()), encoding="utf-8")
    ends = render(ends_by_seed(pd.read_csv(SCORES).query("main == 1")))
    save(ends, ROOT / "figures" / "rendered", "smollm2_seeds")
    tradeoff = render(figures.tradeoff(of_figure(pd.read_csv(OPEN_QUESTIONS / "RUNS.csv"))))
    save(tradeoff, ROOT / "figures" / "rendered", "open_questions_tradeoff")
