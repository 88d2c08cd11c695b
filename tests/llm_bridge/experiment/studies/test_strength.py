"""The strength study's reward, scores, rule for coefficients, verdicts and runs; no VeRL is started."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cokl import methods
from cokl.regularizers.cokl import CoKL
from cokl.support.errors import InputError
from llm_bridge.experiment.config import BASE, MATH_SETS
from llm_bridge.experiment.studies.reward import compute_score
from llm_bridge.experiment.studies.strength.config import (
    ABLATION,
    AGAIN,
    BASELINE,
    GRID,
    MARGIN,
    VARIANTS,
    StrengthConfig,
)
from llm_bridge.experiment.studies.strength.report import chosen, claims, per_seed, render, shown
from llm_bridge.experiment.studies.strength.study import BASE_RUN, Strength
from llm_bridge.experiment.studies.study import RUNS, STEPS, Run
from tests.oracles.scores import written

CONFIG = StrengthConfig()
LOW, *_, HIGH = GRID["cokl"]


def rows(seed: int, role: str, method: str, beta: float, math: tuple[float, ...], chat: float) -> list[dict]:
    """Of one run: accuracies in percent, a tenth of which counts different answers."""
    known = {"seed": seed, "role": role, "stage": int(method != BASE), "method": method, "beta": beta}
    scored = dict(zip((*MATH_SETS, "chat_val"), (*math, chat), strict=True))
    return [known | {"set": name, "accuracy": value / 100, "distinct": value / 10} for name, value in scored.items()]


def selection(changed: dict[tuple[str, float], tuple[float, float]]) -> pd.DataFrame:
    """Of two seeds whose mean Math Avg and chat score is (40, 80) unless `changed`."""
    lines = []
    for seed, sign in zip(CONFIG.selection_seeds, (-1, 1), strict=True):
        for method, grid in GRID.items():
            for beta in grid:
                math, chat = changed.get((method, beta), (40.0, 80.0))
                lines += rows(
                    seed, "selection", method, beta, (math + sign - 6, math + sign, math + sign + 6), chat - sign
                )
    return pd.DataFrame(lines)


def test_the_coefficient_keeps_most_among_those_that_adapt_as_much():
    changed = {
        ("cokl", LOW): (45.0, 80.0),
        ("cokl", HIGH): (50.0, 80 - MARGIN + 0.1),
        ("reverse_kl", HIGH): (60.0, 50.0),
    }
    best = chosen(selection(changed))
    assert best["cokl"] == HIGH
    assert best["reverse_kl"] != HIGH
    assert chosen(selection(changed | {("cokl", HIGH): (50.0, 80 - MARGIN - 0.1)}))["cokl"] == LOW
    drowned = {("cokl", beta): (90.0, 50.0) for beta in GRID["cokl"]}
    assert chosen(selection(drowned))["cokl"] == LOW
    with pytest.raises(InputError, match="selection seeds lack runs of cokl"):
        chosen(selection({}).query("method != 'cokl' or beta != @HIGH"))


def test_the_page_shows_both_scores_of_each_coefficient_and_which_is_chosen(tmp_path):
    changed = {("cokl", LOW): (45.0, 81.0), ("cokl", HIGH): (50.0, 79.0)}
    selection(changed).to_csv(tmp_path / RUNS, index=False)
    (line,) = [line for line in render(tmp_path).splitlines() if line.startswith("| CoKL ")]
    assert "Math Avg / chat score" in render(tmp_path)
    assert f"{LOW:g}: 45.0 / 81.0, " in line
    assert f"**{HIGH:g}: 50.0 / 79.0**" in line


def report(root, leads: list[float]) -> None:
    """Rows of whole reports: CoKL's Math Avg is replay's plus its lead by seed, in points; shares by method."""
    lines, steps = [], []
    reports = (("reported", CONFIG.reported_seeds, (*GRID, *VARIANTS)), ("again", CONFIG.again_seeds, AGAIN))
    for role, seeds, names in reports:
        for seed, lead in zip(seeds, leads, strict=True):
            lines += rows(seed, role, BASE, 0.0, (45.0, 45.0, 45.0), 50.0)
            for method in names:
                level = 30.0 + lead * (method == "cokl")
                beta = 0.0 if method == "grpo" else 0.2
                lines += rows(seed, role, method, beta, (level - 3, level, level + 3), 80.0)
                share = np.nan if method == "grpo" else 0.25
                known = {"seed": seed, "role": role, "stage": 1, "method": method, "beta": beta, "accuracy": 0.5}
                steps += [known | {"step": step, "gradient_share": share + step - 1.5} for step in (1, 2)]
    pd.DataFrame(lines).to_csv(root / RUNS, index=False)
    pd.DataFrame(steps).to_csv(root / STEPS, index=False)


def test_the_primary_verdict_is_on_the_paired_difference_in_raw_math_avg_twice(tmp_path):
    report(tmp_path, [-4.0, -5.0, -6.0, -5.0, -5.0])
    first, *others, again, plain_again, changed_again = claims(tmp_path)
    assert first.statement == again.statement
    assert others[0].statement == plain_again.statement
    changed = others.pop()
    assert changed.statement == changed_again.statement
    assert changed.verdict == "held"
    assert "Math Avg of CoKL with a baseline minus CoKL: 5.0 ± 0.9 points" in changed.measured
    assert (first.verdict, again.verdict) == ("not held", "not held")
    assert "Math Avg of CoKL minus Correct-only forward KL: -5.0 ± 0.9 points" in first.measured
    assert len(others) == 4
    table = shown(per_seed(tmp_path, "reported"), "reported").set_index("Method")
    assert list(table.loc["CoKL", ["Coefficient", "Gradient share", "Chat"]]) == ["0.2", "0.25", "80.0 ± 0.0"]
    assert table.loc["Base", "Math Avg"] == "45.0 ± 0.0"
    assert table.loc["CoKL", "Different correct answers of 64"] == "2.5 ± 0.1"
    assert list(table.index) == [
        "Base", "GRPO alone", "Reverse KL", "Forward KL", "Correct-only forward KL", "CoKL", "CoKL w/o term 1",
        "CoKL with a baseline"
    ]  # fmt: skip


def test_neither_report_has_a_part_in_the_choice_or_in_its_table(tmp_path):
    """Theirs would be another coefficient, whose Math Avg is 90 there and 40 on the selection seeds."""
    report(tmp_path, [60.0] * 5)
    alone = selection({("cokl", LOW): (45.0, 81.0)})
    everything = pd.concat([alone, pd.read_csv(tmp_path / RUNS)], ignore_index=True)
    assert chosen(everything) == chosen(alone)
    assert chosen(everything)["cokl"] == LOW
    everything.to_csv(tmp_path / RUNS, index=False)
    line = next(line for line in render(tmp_path).splitlines() if line.startswith("| CoKL "))
    assert f"**{LOW:g}: 45.0 / 81.0**" in line
    assert "0.2: 40.0 / 80.0" in line


def test_seeds_of_ones_own_are_a_whole_study(tmp_path):
    report(tmp_path, [1.0, 1.0, 2.0, 1.0, 1.0])
    published = claims(tmp_path)
    for name in (RUNS, STEPS):
        table = pd.read_csv(tmp_path / name)
        table.assign(seed=table["seed"] + 1000).to_csv(tmp_path / name, index=False)
    assert claims(tmp_path) == published
    assert "Not complete" not in render(tmp_path)


def test_a_seed_without_all_its_runs_counts_for_nothing(tmp_path):
    report(tmp_path, [1.0, 1.0, 2.0, 1.0, 1.0])
    table = pd.read_csv(tmp_path / RUNS)
    last = CONFIG.reported_seeds[-1]
    table[(table["seed"] != last) | (table["method"] != ABLATION)].to_csv(tmp_path / RUNS, index=False)
    assert [claim.statement for claim in claims(tmp_path)] == [
        "Each at its best coefficient, CoKL ends with a higher Math Avg than Correct-only forward KL",
        "Each at its best coefficient, CoKL ends with a higher Math Avg than GRPO alone",
        "With a baseline in term 2 CoKL ends with a higher Math Avg",
    ]
    page = render(tmp_path)
    assert "Not complete: 4 of 5 seeds" in page
    assert page.count("Not complete") == 1
    assert "Mean over 4 seeds" in page


def test_the_second_report_has_fewer_methods_and_variants_have_cokls_coefficient():
    study = Strength(CONFIG)
    table = selection({("cokl", HIGH): (50.0, 80.0)})
    reported = study.runs(CONFIG.reported_seeds[0], table)
    assert reported[0] == BASE_RUN
    assert {Run(1, variant, HIGH) for variant in VARIANTS} < set(reported)
    assert len(reported) == 3 + len(GRID)
    assert [run.method for run in study.runs(CONFIG.again_seeds[0], table)] == [BASE, *AGAIN]
    assert len(study.runs(CONFIG.selection_seeds[0], table)) == 2 + 4 * len(GRID["cokl"])


def test_a_step_has_a_quarter_of_its_groups_from_the_buffer(tmp_path):
    study = Strength(CONFIG)
    streams = {"cokl": 2, "correct_forward_kl": 1, "reverse_kl": 1, ABLATION: 1, BASELINE: 2}
    for method, number in streams.items():
        prompts = study.options(Run(1, method, 0.2), tmp_path)["cokl"]["kl_prompts"]
        assert number * prompts * 4 == CONFIG.batch
    assert "cokl" not in study.options(Run(1, "grpo"), tmp_path)
    chosen = {name: study.options(Run(1, name, 0.2), tmp_path)["cokl"] for name in ("cokl", BASELINE)}
    assert {name for name in chosen["cokl"] if chosen["cokl"][name] != chosen[BASELINE][name]} == {"options"}
    assert methods.get("cokl", chosen["cokl"]["options"]).regularizer == methods.get("cokl").regularizer
    assert methods.get("cokl", chosen[BASELINE]["options"]).regularizer == CoKL(baseline=True)


def test_the_base_is_pretrained_with_the_studys_share_of_right_demonstrations(tmp_path, monkeypatch):
    make = pytest.importorskip("llm_bridge.tiny.make", reason="transformers make the model")

    def stop(*given):
        raise InterruptedError(given)

    monkeypatch.setattr(make, "make_tiny", stop)
    with pytest.raises(InterruptedError) as stopped:
        Strength(CONFIG).make_start(210, tmp_path)
    assert stopped.value.args == ((tmp_path, 3000, 210, 0.6),)


def test_both_tasks_have_one_reward_function():
    chat = {"conversation": [{"role": "user", "content": "Hi! What do you think of two dull birds?"}]}
    assert compute_score("chat_train", "I think 20 birds are warm and calm !", "", chat)["score"] == 1.0
    assert compute_score("chat_train", "I think 20 cats are warm and calm !", "", chat)["score"] == pytest.approx(2 / 3)
    math: dict[str, list[dict[str, str]]] = {"conversation": []}
    assert compute_score("olympiad", "\\boxed{ 3 + 9 }", "12", math)["score"] == 1.0
    assert compute_score("olympiad", "\\boxed{ 3 + 8 }", "12", math)["score"] == 0.0


COMMITTED = Path("llm_bridge/tiny/strength")


def test_the_committed_rows_are_the_selection_and_both_reports():
    """Every run that they must hold, at the coefficient that the rule gives, here without the study's code."""
    runs, steps = (pd.read_csv(COMMITTED / name) for name in (RUNS, STEPS))
    math = runs[runs["set"].isin(MATH_SETS)].groupby(["role", "method", "beta"])["accuracy"].mean()
    chat = runs[runs["set"] == "chat_val"].groupby(["role", "method", "beta"])["accuracy"].mean()
    expected = {(seed, BASE, 0.0) for seed in (*CONFIG.selection_seeds, *CONFIG.reported_seeds, *CONFIG.again_seeds)}
    for method, grid in GRID.items():
        expected |= {(seed, method, beta) for seed in CONFIG.selection_seeds for beta in grid}
        good = [b for b in grid if chat["selection", method, b] >= chat["selection", "grpo", 0] - MARGIN / 100]
        best = sorted(good, key=lambda b: math["selection", method, b])[-1]
        own = (method, *VARIANTS) if method == "cokl" else (method,)
        expected |= {(seed, name, best) for seed in CONFIG.reported_seeds for name in own}
        expected |= {(seed, name, best) for seed in CONFIG.again_seeds for name in own if name in AGAIN}
    keys = runs[["seed", "method", "beta"]].drop_duplicates()
    assert set(keys.itertuples(index=False, name=None)) == expected
    assert len(runs) == 4 * len(expected)
    trained = {key for key in expected if key[1] != BASE}
    assert steps.groupby(["seed", "method", "beta"]).size().to_dict() == dict.fromkeys(trained, CONFIG.steps)
    shares = steps.groupby("method")["gradient_share"]
    assert {name for name, share in shares if share.notna().all()} == {name for _, name, _ in trained} - {"grpo"}
    bases = runs[(runs["method"] == BASE) & runs["set"].isin(MATH_SETS)]
    assert bases.groupby("role")["accuracy"].mean().between(0.4, 0.6).all()
    reported = bases[bases["role"] == "reported"]
    shown = written((100 * reported.groupby("seed")["accuracy"].mean()).tolist(), 1)
    assert f"the reported ones {shown} %" in " ".join(Path("llm_bridge/README.md").read_text("utf-8").split())
    assert render(COMMITTED) == (COMMITTED / "results.md").read_text("utf-8")
