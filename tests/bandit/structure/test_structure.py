"""The maps of the structure of correctness: outcomes on tables made here, what is planned, and a miniature."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from bandit.sequences.config import SequenceConfig
from bandit.shift.config import ShiftConfig
from bandit.structure import config as settings
from bandit.structure.config import MAPS, PRESETS, Cell, StructureConfig
from bandit.structure.report import judge, page, rows
from bandit.structure.run import planned_runs
from bandit.structure.score import reverse_kls, summarize
from cokl.regularizers.reverse_kl import ReverseKL
from cokl.support.errors import InputError
from cokl_cli.commands.bandit import command_of
from cokl_cli.experiments import experiments
from tests.bandit.shift.test_whole import CONFIG as PRECISE

LEADS = {"wrong-0": (-30.0, 0.5), "wrong-0.1": (-1.0, 0.5), "wrong-0.2": (12.0, 0.5), "wrong-0.3": (-4.0, 3.0)}
"""CoKL's retention less replay's at every coefficient, and by how much neighbouring seeds differ in it."""
CONFIG = StructureConfig(cells=tuple(LEADS), betas=(0.1, 1.0, 10.0))
FRONTIER = {0.1: (40.0, 98.0), 1.0: (70.0, 92.0), 10.0: (90.0, 80.0)}
"""Replay's retention and adaptation."""


def table(leads: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Ends of all runs on five reported seeds and two that choose. GRPO's drift is half mass drift."""
    rows = []
    for cell, (lead, apart) in leads.items():
        for seed in (*range(5), 1000, 1001):
            scores = {
                ("base", 0.0): (100.0, 0.0),
                ("none", 0.0): (0.0, 100.0),
                ("cokl_without_term1", 1.0): (3.0, 99.0),
            }
            scores |= {("correct_forward_kl", beta): ends for beta, ends in FRONTIER.items()}
            luck = apart * (seed % 5 - 2) if seed < 1000 else 0.0
            scores |= {("cokl", beta): (kept + lead + luck, adapted) for beta, (kept, adapted) in FRONTIER.items()}
            rows += [
                {
                    "cell": cell, "seed": seed, "role": "report" if seed < 1000 else "selection", "mode": "sampled",
                    "method": method, "beta": beta, "kl_prompts": 0, "step": 0 if method == "base" else 300,
                    "prior_correct": 0.2 + 0.006 * retention, "new_correct": 0.2 + 0.006 * adaptation,
                    "prior_pass_at_k": 0.9, "conditional_kl": 0.1, "mass_drift": 0.3, "correct_drift": 0.1,
                    "incorrect_drift": 0.2, "zero_correct_rate": 0.1,
                }
                for (method, beta), (retention, adaptation) in scores.items()
            ]  # fmt: skip
    return pd.DataFrame(rows)


def test_outcomes_are_those_of_two_one_sided_tests_over_the_map():
    found = summarize(table(LEADS), CONFIG).set_index("cell")
    assert found["kept"].to_dict() == pytest.approx({cell: lead for cell, (lead, _) in LEADS.items()})
    assert found["gain"].to_dict() == pytest.approx({cell: lead for cell, (lead, _) in LEADS.items()})
    expected = {"wrong-0": "behind", "wrong-0.1": "equal", "wrong-0.2": "ahead", "wrong-0.3": "undecided"}
    assert found["outcome"].to_dict() == expected
    assert found["matched_outcome"].to_dict() == expected
    assert found["mass_share"].tolist() == pytest.approx([0.5] * 4)
    assert found["without_term1"].tolist() == pytest.approx([3.0] * 4)
    assert found["base_correct"].tolist() == pytest.approx([0.8] * 4)


def test_a_row_of_the_page_tells_the_outcome_at_1_from_that_at_equal_adaptation():
    summary = summarize(table(LEADS), CONFIG).assign(gain=7.0, gain_half_width=1.0, matched_outcome="undecided")
    shown = rows(summary).set_index("setting").loc["wrong-0"]
    assert shown.iloc[1:].to_dict() == {
        "GRPO loses, %": "75 ± 0",
        "mass share": "0.50 ± 0.00",
        "w/o term 1: retention": "3.0 ± 0.0",
        "CoKL - replay at beta 1: retention": "-30.0 ± 1.0",
        "adaptation": "0.0 ± 0.0",
        "predicted": "behind",
        "outcome": "behind",
        "at equal adaptation: retention": "7.0 ± 1.0",
        "outcome there": "undecided",
    }


def test_holms_correction_is_over_the_map():
    """A lead that alone would be equal is undecided beside three that are, too."""
    narrow = dict.fromkeys(LEADS, (-2.9, 0.95))
    alone = summarize(table({"wrong-0": narrow["wrong-0"]}), replace(CONFIG, cells=("wrong-0",)))
    assert alone["outcome"].tolist() == ["equal"]
    assert set(summarize(table(narrow), CONFIG)["outcome"]) == {"undecided"}


@pytest.mark.parametrize(
    ("cells", "equal", "predicted"),
    [
        (["wrong-0"], "not held", "held"),
        (["wrong-0", "wrong-0.1"], "held", "not held"),
        (["wrong-0", "wrong-0.3"], "undecided", "undecided"),
        (["wrong-0", "wrong-0.2"], "not held", "not held"),
    ],
)
def test_claims_follow_from_the_outcomes(cells, equal, predicted):
    """Every one of these settings was predicted to be behind."""
    leads = {cell: LEADS[cell] for cell in cells}
    claims = judge(summarize(table(leads), replace(CONFIG, cells=tuple(cells))))
    assert [claim.verdict for claim in claims] == [equal, predicted]


def test_the_nearest_setting_is_that_whose_lead_is_smallest_on_either_side():
    """Seeds half a point apart have an interval of 0.98, 2.776 / 5^(1/2) of their deviation of 0.79."""
    for cells, nearest in ((list(LEADS), "-1.0 ± 1.0 points (wrong-0.1)"), (["wrong-0", "wrong-0.2"], "12.0 ± 1.0")):
        leads = {cell: LEADS[cell] for cell in cells}
        equal, _ = judge(summarize(table(leads), replace(CONFIG, cells=tuple(cells))))
        assert f"; closest to 0: {nearest}" in equal.measured


def test_nothing_is_said_where_nothing_is_forgotten():
    rows = table({"wrong-0": LEADS["wrong-0"]}).assign(prior_correct=0.8)
    summary = summarize(rows, replace(CONFIG, cells=("wrong-0",)))
    assert summary["outcome"].tolist() == [""]
    assert [claim.verdict for claim in judge(summary)] == ["undecided", "undecided"]


@pytest.mark.parametrize("name", MAPS)
def test_every_setting_has_its_lab_and_a_prediction_wherever_cokl_is_trained(name):
    config = StructureConfig(map=name)
    for cell, (_, prediction) in config.chosen.items():
        experiment = config.experiment(cell)
        assert isinstance(experiment, SequenceConfig if name == "tokens" else ShiftConfig)
        assert ("cokl" in experiment.methods) == (prediction != "")
        assert (experiment.mode, experiment.group_size, experiment.seeds) == ("sampled", 8, 5)


def test_knobs_set_what_their_names_say():
    success, tokens, reference = (StructureConfig(map=name) for name in ("success", "tokens", "reference"))
    plain = success.experiment("wrong-0")
    assert isinstance(plain, ShiftConfig)
    assert success.experiment("wrong-0.2-right-0.8") == replace(plain, success_of_wrong=0.2, success_of_right=0.8)
    four = tokens.experiment("4-of-12")
    assert isinstance(four, SequenceConfig)
    assert (four.deciding, four.length) == (4, 12)
    middle = reference.experiment("middle")
    assert reference.experiment("middle-k3") == replace(
        middle, methods=("none", "reverse_kl"), regularizer_options=("reverse_kl.estimator=k3",)
    )


def test_each_method_has_its_coefficients_and_without_term_1_has_cokls_prompts():
    config = replace(StructureConfig(map="reference"), betas=(0.3, 1.0), seeds=1)
    runs: dict[str, set[tuple[float, int]]] = {}
    for run in planned_runs(config, "middle"):
        runs.setdefault(run.method.name, set()).add((run.beta, run.kl_prompts))
    assert runs == {
        "none": {(0.0, 0)},
        "correct_forward_kl": {(0.3, 16), (1.0, 16)},
        "cokl": {(0.3, 8), (1.0, 8)},
        "cokl_without_term1": {(1.0, 8)},
        "reverse_kl": {(0.001, 16), (0.01, 16), (1.0, 16)},
    }
    (regularizer,) = {run.method.regularizer for run in planned_runs(config, "middle-k1") if run.beta}
    assert regularizer == ReverseKL("k1")


def test_a_setting_of_another_map_is_refused():
    with pytest.raises(InputError, match=r"cells: expected some of wrong-0, .* got 1-of-12"):
        StructureConfig(cells=("1-of-12",))
    with pytest.raises(InputError, match="cells: expected one that trains CoKL among them, got middle-k1"):
        StructureConfig(map="reference", cells=("middle-k1",))
    with pytest.raises(InputError, match="betas: expected 1 among them"):
        StructureConfig(betas=(0.1,))


def test_a_miniature_is_trained_kept_and_read_again(tmp_path, monkeypatch):
    """Two settings, one of them with the reverse KL alone; its numbers are those of the table."""
    sizes = {
        name: getattr(PRECISE, name)
        for name in ("batch_size", "group_size", "buffer_size", "hidden", "pretrain_steps", "prior_steps",
                     "pretrain_batch_size", "learning_rate", "new_learning_rate", "dtype", "environment")
    }  # fmt: skip
    small = {
        name: Cell({**MAPS["reference"].cells[name].changes, **sizes}, MAPS["reference"].cells[name].prediction)
        for name in ("middle", "middle-k3")
    }
    monkeypatch.setitem(settings.MAPS, "reference", MAPS["reference"]._replace(cells=small))
    config = StructureConfig("reference", betas=(0.5, 1.0), seeds=2, selection_seeds=1, steps=3)
    command = command_of("structure")(config=config, out=tmp_path, jobs=1, csv=True)
    command.run()
    made = pd.read_parquet(tmp_path / "structure.parquet")
    assert set(made[made["cell"] == "middle-k3"]["method"]) == {"base", "none", "reverse_kl"}
    assert len(made) == 3 * (1 + 1 + 2 + 2 + 1 + 3) + 3 * (1 + 1 + 3)
    assert len(pd.read_csv(tmp_path / "structure.csv")) == len(made)
    assert len(command.outcome()["settings"]) == len(summarize(made, config))
    reverse = pd.read_csv(tmp_path / "reverse_kl.csv")
    assert reverse[["cell", "beta"]].to_numpy().tolist() == reverse_kls(made)[["cell", "beta"]].to_numpy().tolist()
    assert "# The structure of correctness: reference" in page(made, config)
    experiment = experiments()["structure"]
    assert [claim.verdict for claim in experiment.claims(tmp_path)] == [None, None]
    assert experiment.section(tmp_path).kind == "structure"


def test_the_quick_preset_is_small():
    assert sum(len(list(planned_runs(PRESETS["quick"], cell))) for cell in PRESETS["quick"].chosen) == 80


def test_the_mass_share_is_of_the_reported_seeds():
    rows = table({"wrong-0": LEADS["wrong-0"]})
    rows.loc[rows["role"] == "selection", "mass_drift"] = 9.0
    found = summarize(rows, replace(CONFIG, cells=("wrong-0",)))
    assert found["mass_share"].tolist() == pytest.approx([0.5])


def test_predictions_are_of_the_retention_at_the_papers_coefficient():
    row = {"cell": "one", "prediction": "behind", "kept": -9.0, "kept_half_width": 1.0}
    for at_1, matched, verdict in (("behind", "ahead", "held"), ("ahead", "behind", "not held")):
        summary = pd.DataFrame([row | {"outcome": at_1, "matched_outcome": matched}])
        assert judge(summary)[1].verdict == verdict
