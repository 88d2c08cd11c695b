"""The plasticity experiment's reward, rule for coefficients and verdicts; no VeRL is started."""

from __future__ import annotations

import pandas as pd
import pytest

from cokl.support.errors import InputError
from llm_bridge.experiment.studies.plasticity.config import GRID, MARGIN, START, PlasticityConfig
from llm_bridge.experiment.studies.plasticity.report import chosen, claims, per_seed, render, shown
from llm_bridge.experiment.studies.plasticity.study import Plasticity, reported_runs
from llm_bridge.experiment.studies.reward import STAGES, compute_score
from llm_bridge.experiment.studies.study import RUNS, STEPS, Run, scored_runs

SEEDS = PlasticityConfig().reported_seeds


@pytest.mark.parametrize(
    ("response", "broad", "strict"),
    [
        ("\\boxed{ 3 + 9 }", 1, 1),
        ("\\boxed{ 9 + 3 }", 1, 0),
        ("\\boxed{ 6 + 6 }", 1, 0),
        ("\\boxed{ 3 + 8 }", 0, 0),
        ("\\boxed{ 3 + 9 } more", 0, 0),
        ("3 + 9", 0, 0),
    ],
)
def test_the_second_stage_accepts_the_smaller_number_first(response, broad, strict):
    assert [compute_score(stage, response, "12", {})["score"] for stage in STAGES] == [broad, strict]


def test_before_anything_is_trained_there_is_nothing_to_collect(tmp_path):
    Plasticity(PlasticityConfig()).collect(SEEDS[0], reported_runs({"grpo": 0.0}), tmp_path / "seed", tmp_path)
    assert scored_runs(tmp_path, SEEDS[0]) == set()


def selection(accuracy: dict[tuple[str, float], float]) -> pd.DataFrame:
    """Rows of two seeds whose mean is `accuracy`, in points; 90 for what is not named."""
    lines = [
        {"seed": seed, "stage": 1, "method": method, "beta": beta, "role": "selection", "set": "training",
         "accuracy": (accuracy.get((method, beta), 90.0) + sign) / 100}
        for method, grid in GRID.items() for beta in grid for seed, sign in ((100, -1), (101, 1))
    ]  # fmt: skip
    return pd.DataFrame(lines)


def test_the_largest_coefficient_at_equal_accuracy_is_chosen():
    low, middle, high = GRID["cokl"]
    least = 90 - MARGIN
    assert chosen(selection({}))["cokl"] == high
    assert chosen(selection({("cokl", high): least - 0.1}))["cokl"] == middle
    assert chosen(selection({("cokl", beta): least - 5 for beta in GRID["cokl"]}))["cokl"] == low
    with pytest.raises(InputError, match="selection seeds lack runs of cokl"):
        chosen(selection({}).query("method != 'cokl' or beta != @high"))


def test_neither_reported_seeds_nor_other_prompts_have_a_part_in_the_choice_or_in_its_table(tmp_path):
    """Rows of reported seeds, and of other prompts, under which the largest coefficient would be too weak."""
    low, middle, high = GRID["cokl"]
    alone = selection({})
    kept = {"seed": 100, "stage": 1, "method": "cokl", "beta": high, "role": "selection", "set": "training"}
    others = [{**kept, "role": "reported", "seed": SEEDS[0], "accuracy": 0.1}]
    others += [{**kept, "set": "test", "accuracy": 0.1}]
    everything = pd.concat([alone, pd.DataFrame(others)], ignore_index=True)
    assert chosen(everything) == chosen(alone)
    assert chosen(everything)["cokl"] == high
    everything.to_csv(tmp_path / RUNS, index=False)
    (line,) = [line for line in render(tmp_path).splitlines() if line.startswith("| CoKL ")]
    assert f"{low:g}: 90.0, {middle:g}: 90.0, **{high:g}: 90.0**" in line


def write_rows(root, leads: dict[str, list[float]], seeds=SEEDS) -> None:
    """Made-up rows: stage 2 is around 50 % for CoKL, and for the others that minus their lead by seed, in points."""
    runs, steps = [], []
    best = {method: grid[0] for method, grid in GRID.items()}
    for place, seed in enumerate(seeds):
        for run in reported_runs(best):
            known = {"seed": seed, "role": "reported", "stage": run.stage, "method": run.method, "beta": run.beta}
            ends = {"accuracy": 0.9, "distinct": 5.0} if run.stage == 1 else {"accuracy": 0.7, "distinct": 6.0}
            runs.append(known | ends | {"set": "training", "accepted": 0.4, "entropy": 1.0})
            level = 0.5 - leads.get(run.method, [0.0] * len(SEEDS))[place] / 100
            steps += [
                known | {"step": step, "accuracy": level + slope, "gradient_share": run.stage / 10}
                for step, slope in enumerate((-0.1, 0.1, *[0.0] * 8, 0.06, 0.06), start=1)
            ]
    pd.DataFrame(runs).to_csv(root / RUNS, index=False)
    pd.DataFrame(steps).to_csv(root / STEPS, index=False)


def test_verdicts_are_on_the_paired_differences_over_stage_2(tmp_path):
    write_rows(tmp_path, {"reverse_kl": [4, 5, 6, 5, 5], "correct_forward_kl": [-3, 4, 0, -5, 2]})
    reverse, replay = claims(tmp_path)
    assert (reverse.verdict, replay.verdict) == ("held", "undecided")
    assert "5.0 ± 0.9" in reverse.measured
    assert "-0.4 ± " in replay.measured
    table = per_seed(tmp_path)
    assert set(table["method"]) == {START, *GRID}
    mine = table[(table["method"] == "reverse_kl") & (table["seed"] == SEEDS[0])].iloc[0]
    expected = {"share": 0.1, "accuracy": 90, "distinct": 5, "first": 36, "early": 46, "mean": 47, "end": 40}
    assert mine[list(expected)].to_dict() == pytest.approx(expected)
    assert shown(table).set_index("Stage 1").loc["Reverse KL"].iloc[1:].to_dict() == {
        "Gradient share": "0.10",
        "Accuracy after stage 1": "90.0 ± 0.0",
        "Different correct answers of 64": "5.0 ± 0.0",
        "Stage 2: step 1": "35.0 ± 0.9",
        "steps 1 to 10": "45.0 ± 0.9",
        "all steps": "46.0 ± 0.9",
        "at the end": "40.0 ± 0.0",
    }


def test_five_seeds_of_ones_own_are_a_whole_study(tmp_path):
    write_rows(tmp_path, {"reverse_kl": [5, 5, 6, 5, 5]}, [seed + 1000 for seed in SEEDS])
    assert "Not complete" not in render(tmp_path)
    assert claims(tmp_path)[0].verdict == "held"


def test_a_folder_with_rows_of_other_seeds_is_refused_before_anything_is_trained(tmp_path):
    write_rows(tmp_path, {}, [130])
    with pytest.raises(InputError, match=r"rows of seed 130, reported, .* choose another --out"):
        Plasticity(PlasticityConfig()).run(tmp_path, SEEDS, keep_going=False)
    write_rows(tmp_path, {}, PlasticityConfig().selection_seeds[:1])
    with pytest.raises(InputError, match="rows of seed 100, reported"):
        Plasticity(PlasticityConfig()).run(tmp_path, SEEDS, keep_going=False)
    assert not (tmp_path / "config.json").exists()


def test_there_is_no_verdict_while_a_reported_seed_is_missing(tmp_path):
    write_rows(tmp_path, {"reverse_kl": [5, 5, 6, 5]}, SEEDS[:4])
    assert {claim.verdict for claim in claims(tmp_path)} == {None}
    page = render(tmp_path)
    assert "4 of 5" in page


def test_runs_with_rows_are_known(tmp_path):
    write_rows(tmp_path, {}, SEEDS[:1])
    assert scored_runs(tmp_path, SEEDS[0]) == set(reported_runs({method: grid[0] for method, grid in GRID.items()}))
    assert scored_runs(tmp_path, SEEDS[1]) == set()


def test_stage_2_follows_stage_1_of_the_same_method():
    runs = reported_runs({"grpo": 0.0, "cokl": 0.3})
    both = [Run(stage, method, beta) for method, beta in (("grpo", 0.0), ("cokl", 0.3)) for stage in (1, 2)]
    assert runs == [Run(2, START), *both]
