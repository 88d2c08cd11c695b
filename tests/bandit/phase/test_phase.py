"""A phase diagram's cells against loops; winners turn with the data; a tiny diagram is trained, resumed, and drawn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bandit.config import EnvironmentConfig
from bandit.phase import figures as picture
from bandit.phase.config import EXPERIMENTS, KNOBS, PRESETS, Diagram, diagram
from bandit.phase.report import page, tally, write
from bandit.phase.run import run
from bandit.phase.score import EXPLANATIONS, UNDECIDED, explain, is_meaningful, summarize_cell
from bandit.shift.claims import VARIANTS
from bandit.shift.config import ShiftConfig
from cokl import regularizers
from cokl.support.errors import InputError
from cokl.support.experiment import Execution
from tests.bandit.shift.tables import BASE, NONE, POINTS, SEEDS, shift_table
from tests.bandit.shift.test_report import last_value, naive_scores


@pytest.mark.parametrize("points", [POINTS, {**POINTS, "cokl": POINTS["reverse_kl"], "reverse_kl": POINTS["cokl"]}])
def test_a_cell_against_loops(points: dict):
    table = shift_table(points, jitter=0.02, batches=(16,))
    cell = summarize_cell(table)
    best = {}
    for method, betas in points.items():
        chosen = {beta: sum(naive_scores(table, "selection", method, beta)) / 2 for beta in betas}
        best[method] = max(chosen.items(), key=lambda item: item[1])
    reported = {method: sum(naive_scores(table, "report", method, beta)) / 2 for method, (beta, _) in best.items()}
    first, second = sorted(best, key=lambda method: -best[method][1])[:2]
    assert (cell["winner"], cell["runner_up"]) == (first, second)
    assert cell["lead"] == pytest.approx(reported[first] - reported[second])
    rival = max((name for name in best if not name.startswith("cokl")), key=lambda name: best[name][1])
    assert cell["rival"] == rival
    assert cell["cokl_lead"] == pytest.approx(reported["cokl"] - reported[rival])
    for name in ("prior_pass_at_k", "conditional_kl"):
        ours, theirs = (
            [last_value(table, seed, method, best[method][0], name) for seed in SEEDS["report"]]
            for method in ("cokl", rival)
        )
        lead = np.subtract(ours, theirs)
        half_width = stats.t.ppf(0.975, len(lead) - 1) * np.std(lead, ddof=1) / np.sqrt(len(lead))
        assert (cell[f"{name}_lead"], cell[f"{name}_lead_half_width"]) == pytest.approx((lead.mean(), half_width))
    drifts = [
        [last_value(table, seed, "none", 0.0, name) for name in ("correct_drift", "mass_drift")]
        for seed in SEEDS["report"]
    ]
    assert cell["correct_share"] == pytest.approx(np.mean([a / (a + b) for a, b in drifts]))
    lost = [
        last_value(table, seed, "base", 0.0, "prior_correct") - last_value(table, seed, "none", 0.0, "prior_correct")
        for seed in SEEDS["report"]
    ]
    half_width = stats.t.ppf(0.975, len(lost) - 1) * np.std(lost, ddof=1) / np.sqrt(len(lost))
    assert (cell["forgotten"], cell["forgotten_half_width"]) == pytest.approx((np.mean(lost), half_width))


def test_the_winner_turns_with_the_data():
    points = {**POINTS, "cokl_floor": POINTS["cokl_without_term1"]}
    cell = summarize_cell(shift_table(points))
    assert cell["winner"] == "cokl"
    assert cell["cokl_lead"] > cell["cokl_lead_half_width"]
    points |= {"cokl": POINTS["reverse_kl"], "reverse_kl": POINTS["cokl"]}
    cell = summarize_cell(shift_table(points))
    assert (cell["winner"], cell["rival"]) == ("reverse_kl", "reverse_kl")
    assert cell["cokl_lead"] < -cell["cokl_lead_half_width"]


def test_the_rival_is_chosen_without_the_reported_seeds():
    table = shift_table(batches=(16,))
    spoilt = table.copy()
    praised = (spoilt["role"] == "report") & (spoilt["method"] == "reverse_kl")
    spoilt.loc[praised & (spoilt["step"] > 0), "prior_correct"] += 0.3
    for name in ("winner", "runner_up", "rival"):
        assert summarize_cell(spoilt)[name] == summarize_cell(table)[name]


def test_a_lead_that_luck_on_the_selection_seeds_made_shows_on_the_reported_ones():
    """Reverse KL is best on the selection seeds only: it is named the winner, and its lead is negative."""
    table = shift_table(batches=(16,))
    praised = (table["role"] == "selection") & (table["method"] == "reverse_kl") & (table["step"] > 0)
    table.loc[praised, "prior_correct"] += 0.3
    cell = summarize_cell(table)
    assert cell["winner"] == "reverse_kl"
    assert cell["lead"] < -cell["lead_half_width"] < 0


def test_cells_are_counted_after_the_correction_for_their_number():
    """Two cells beyond doubt, one whose own interval excludes zero and that sixteen cells leave open."""
    leads = [-9.0, 9.0, -1.05, *[0.1] * 13]
    cells = pd.DataFrame({"cokl_lead": leads, "cokl_lead_half_width": [1.0] * 16, "seeds": 5})
    assert "of 16 cells where GRPO forgets CoKL is ahead of its best rival in 1, behind in 1, undecided in 14" in (
        tally(cells).replace("Of", "of")
    )
    assert "behind in 1" in tally(cells.iloc[[2]])
    assert tally(cells.assign(seeds=3)).startswith("No verdicts: 3 reported seeds")


def test_the_screen_has_the_smallest_and_the_largest_lead_and_each_cells_own(tmp_path):
    """Intervals of 1 over five seeds decide every lead here; one cell has none."""
    cells = pd.DataFrame(
        {
            "x": [40, 40, 200, 200], "y": [2, 8, 2, 8], "seeds": 5, "rival": ["forward_kl", "reverse_kl", "", "cokl"],
            "cokl_lead": [3.0, -2.0, np.nan, 9.0], "cokl_lead_half_width": [1.0, 1.0, np.nan, 1.0],
            "forgotten": [0.1, 0.2, 0.3, 0.4], "forgotten_half_width": 0.01,
        }
    )  # fmt: skip
    told = write({"reference_correctness-correct_modes": cells}, PRESETS["quick"], tmp_path)
    answer = "Depends: CoKL leads its rival: ahead in 2 of 3 cells, behind in 1, by -2.0 ± 1.0 to 9.0 ± 1.0."
    assert told.startswith(answer)
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "reference_correctness=40, correct_modes=8 0.20 ± 0.01 -2.0 ± 1.0 Reverse KL" in lines
    assert "reference_correctness=200, correct_modes=2 0.30 ± 0.01 no scores" in lines


@pytest.mark.parametrize("end", [(BASE[0], NONE[1]), (NONE[0], BASE[1])])
def test_a_cell_without_forgetting_or_learning_has_no_winner(end: tuple[float, float]):
    cell = summarize_cell(shift_table({**POINTS, "none": {0.0: (*end, 0.1, 0.1)}}, jitter=0.05))
    assert cell["winner"] == ""
    assert np.isnan(cell["cokl_lead"])
    cells = pd.DataFrame([{"x": 0.3, "y": 2, **cell}])
    diagram = dataclasses.replace(PRESETS["paper"].diagrams()[1], x_values=(0.3,), y_values=(2,))
    assert UNDECIDED in page(diagram, cells)
    picture.render(picture.maps(cells, diagram.x, diagram.y, diagram.experiment.mode))


@pytest.mark.parametrize(
    ("mean", "half_width", "enough"), [(0.09, 0.03, True), (0.09, 0.05, False), (0.04, 0.0, False), (-0.5, 0.1, False)]
)
def test_enough_is_forgotten_and_learned_beyond_the_interval(mean, half_width, enough):
    """Either can be too little; 0.05 has to lie below the interval."""
    other = (0.5, 0.1)
    assert is_meaningful((mean, half_width), other) == is_meaningful(other, (mean, half_width)) == enough


def test_the_explanation_is_spearmans():
    rng = np.random.default_rng(0)
    cells = pd.DataFrame({name: rng.random(9) for name in (*EXPLANATIONS, "cokl_lead")})
    cells["correct_share"] = np.exp(5 * cells["cokl_lead"])
    cells.loc[9] = np.nan
    found = explain(cells).set_index("quantity")["spearman"]
    assert found["correct_share"] == pytest.approx(1)
    ranks = cells.dropna().rank()
    assert found["mass_drift"] == pytest.approx(np.corrcoef(ranks["mass_drift"], ranks["cokl_lead"])[0, 1])


def test_every_knob_changes_the_experiment_and_only_listed_ones_are_taken():
    for name, knob in KNOBS.items():
        for preset in ("paper", "quick"):
            configs = [knob.apply(EXPERIMENTS[preset], value) for value in getattr(knob, preset)]
            assert len(set(configs)) == len(configs) > 1, name
    experiment = EXPERIMENTS["quick"]
    with pytest.raises(InputError, match="not in the list; known: reference_correctness"):
        diagram("reference_correctness", "height", "exact", experiment, "quick")
    with pytest.raises(InputError, match="two different ones"):
        diagram("width", "width", "exact", experiment, "quick")
    with pytest.raises(InputError, match="none among them"):
        diagram("width", "buffer_size", "exact", dataclasses.replace(experiment, methods=("cokl",)), "quick")
    with pytest.raises(InputError, match="finite numbers, got nan"):
        diagram("width", "buffer_size", "exact", experiment, "quick", (float("nan"),)).cells()


TINY = ShiftConfig(
    mode="exact",
    methods=("none", "cokl", "correct_forward_kl"),
    betas=(0.1, 1.0),
    seeds=2,
    selection_seeds=1,
    steps=6,
    eval_interval=6,
    batch_size=8,
    buffer_size=16,
    kl_sweep_methods=(),
    hidden=(8,),
    pretrain_steps=10,
    pretrain_batch_size=16,
    prior_steps=4,
    environment=EnvironmentConfig(
        clusters=3, input_dim=4, actions=12, correct_actions=3, correct_mass=0.3, train_inputs=64, test_inputs=16
    ),
)


def test_a_tiny_diagram_is_trained_resumed_and_drawn(tmp_path):
    diagram = Diagram("cluster_overlap", "correct_modes", (0.2, 0.8), (2, 3), TINY)
    first = run([diagram], Execution(out=tmp_path, jobs=1), progress=False)[diagram.name]
    assert list(zip(first["x"], first["y"], strict=True)) == [(0.2, 2), (0.2, 3), (0.8, 2), (0.8, 3)]
    rows = pd.read_parquet(tmp_path / diagram.name / "phase.parquet")
    for cell in first.to_dict("records"):
        of_cell = rows[(rows["x"] == cell["x"]) & (rows["y"] == cell["y"])]
        base = of_cell[(of_cell["method"] == "base") & (of_cell["role"] == "report")]
        assert cell["base_correct"] == pytest.approx(base["prior_correct"].mean())
        assert set(of_cell["role"]) == {"report", "selection"}
    runs = sorted((tmp_path / diagram.name).rglob("*.parquet"))
    runs[0].unlink()
    kept = {path: path.stat().st_mtime_ns for path in runs[1:] if path.name != "phase.parquet"}
    again = run([diagram], Execution(out=tmp_path, jobs=1), progress=False)[diagram.name]
    pd.testing.assert_frame_equal(first, again)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert "of 4 cells" in (tmp_path / f"{diagram.name}.md").read_text()
    picture.render(picture.maps(first, diagram.x, diagram.y, diagram.experiment.mode))
    with pytest.raises(InputError, match="another configuration"):
        run([dataclasses.replace(diagram, x_values=(0.2,))], Execution(out=tmp_path, jobs=1), progress=False)


def test_a_new_regularizer_takes_part(tmp_path):
    """A file's worth of code, its numbers those of the built-in twin, and a rival of CoKL's whatever its name."""

    @regularizers.register
    class Twin(regularizers.Regularizer):
        name, label = "cokl_like_forward_kl", "Twin"
        value = regularizers.get("forward_kl").value

    try:
        command = dataclasses.replace(
            PRESETS["quick"], methods=("none", "forward_kl", "cokl_like_forward_kl", "cokl"), steps=5
        )
        assert command.diagrams()[0].experiment.methods == command.methods
        experiment = dataclasses.replace(TINY, methods=command.methods)
        diagram = Diagram("cluster_overlap", "correct_modes", (0.2,), (2, 3), experiment)
        cells = run([diagram], Execution(out=tmp_path, jobs=1), progress=False)[diagram.name]
        rows = pd.read_parquet(tmp_path / diagram.name / "phase.parquet").drop(columns="zero_correct_rate")
        ours, twin = (rows[rows["method"] == name].drop(columns="method") for name in command.methods[1:3])
        pd.testing.assert_frame_equal(
            ours.reset_index(drop=True), twin.reset_index(drop=True), rtol=1e-4, atol=1e-6, check_exact=False
        )
        picture.render(picture.maps(cells, diagram.x, diagram.y, diagram.experiment.mode))
        assert "cokl_like_forward_kl" not in VARIANTS
    finally:
        del regularizers._registry["cokl_like_forward_kl"]
