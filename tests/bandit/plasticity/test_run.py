"""Whole results of the miniature: the table, resuming, processes, the page, and the figures."""

import dataclasses

import pandas as pd
import pytest
from bandit.plasticity.experiment import Plasticity

from bandit.plasticity.analysis import COLUMNS, NEW, START, match, read_plasticity
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.train import planned, plasticity
from cokl.support.errors import InputError
from cokl.support.results import Execution
from tests.bandit.plasticity.conftest import TINY

SMALL = dataclasses.replace(
    TINY,
    methods=("none", "cokl"),
    sampled_methods=("cokl",),
    cached=(2,),
    seeds=1,
    changes=("narrowed-2", "moved-2"),
    new_steps=4,
    evaluated_steps=(0, 4),
)


def test_every_policy_meets_the_first_change_and_those_of_the_match_all(tiny_folder):
    table, config = read_plasticity(tiny_folder, PlasticityConfig)
    assert config == dataclasses.replace(TINY, device="cpu")
    assert list(table.columns[: len(COLUMNS) - 2]) == list(COLUMNS[:-2])
    assert not table.duplicated(["seed", *START, *NEW, "step"]).any()
    matched = match(table, config).query("phase == 'exact'").groupby("method")["beta"].agg(set)
    assert any(matched[method] < set(TINY.betas) for method in ("reverse_kl", "cokl"))
    for seed, role in config.roles.items():
        for start in planned(config, seed):
            rows = table[(table["seed"] == seed) & (table[START] == list(start.identity)).all(axis=1)]
            assert set(rows["role"]) == {role}
            near = start.phase == "exact" and start.beta in matched[start.method.name]
            everything = role == "report" and (start.phase == "reference" or near)
            changes = {"narrowed-2"} | ({"repaired", "repaired-reference", "preferred", "moved-2", "chain-2", "chain-1"}
                                        if everything else set())  # fmt: skip
            assert set(rows["change"]) == changes
            assert set(rows["mode"]) == ({"sampled"} if start.phase == "sampled" else {"sampled", "exact"})
            assert sorted(rows["step"].unique()) == list(config.evaluated_steps)


def test_results_do_not_depend_on_processes_and_are_resumed(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    plasticity(SMALL, Execution(out=one, jobs=1), progress=False)
    plasticity(SMALL, Execution(out=two, jobs=2), progress=False)
    assert (one / "plasticity.parquet").read_bytes() == (two / "plasticity.parquet").read_bytes()
    chunks = sorted((two / "runs").glob("*.parquet"))
    before = [chunk.stat().st_mtime_ns for chunk in chunks[1:]]
    chunks[0].unlink()
    (two / "plasticity.parquet").unlink()
    plasticity(SMALL, Execution(out=two, jobs=1), progress=False)
    assert [chunk.stat().st_mtime_ns for chunk in chunks[1:]] == before
    assert (one / "plasticity.parquet").read_bytes() == (two / "plasticity.parquet").read_bytes()


def test_a_run_that_diverges_is_left_out_and_spoils_no_other(tmp_path, capsys):
    broken = dataclasses.replace(SMALL, betas=(0.3, 1e300), sampled_methods=(), dtype="float32")
    table = plasticity(broken, Execution(out=tmp_path, jobs=1), progress=False)
    assert "cokl at beta 1e+300" in capsys.readouterr().err
    assert set(table.loc[table["reward"].isna(), "beta"]) == {1e300}
    assert set(match(table, broken)["beta"]) == {0.0, 0.3}


def test_page_tables_figures_and_section_hold_what_was_measured(tiny_folder, tmp_path):
    table, config = read_plasticity(tiny_folder, PlasticityConfig)
    experiment = Plasticity()
    shown = experiment.report(table, config, tmp_path)
    page = (tmp_path / "results.md").read_text()
    assert "primary: narrowed-2, sampled: plasticity of CoKL minus Reverse KL" in page
    assert shown.startswith("No verdict: CoKL learns a narrowed reward better than Reverse KL: plasticity by ")
    assert "No verdicts: 2 reported seeds are too few" in page
    assert "moved-2" in page
    claims = experiment.claims(tiny_folder)
    assert len(claims) == 5
    assert {claim.verdict for claim in claims} == {None}
    assert "narrowed-2, phase 1 sampled with 4 cached: plasticity of CoKL minus Correct" in "".join(claims[1].evidence)
    pictures = experiment.figures(table, config, tmp_path)
    assert set(pictures) == {"plasticity_tradeoff", "plasticity_curves", "plasticity_schematic"}
    assert all(picture.caption for picture in pictures.values())
    section = experiment.section(tiny_folder)
    assert set(section.plots) == {"tiny-plasticity", "tiny-narrowed-2", "tiny-moved-2"}
    cached = pd.read_csv(tmp_path / "cached.csv")
    assert set(zip(cached["method"], cached["cached"], strict=True)) == {
        ("none", 0), ("reverse_kl", 0), ("cokl", 2), ("cokl", 4), ("correct_forward_kl", 2), ("correct_forward_kl", 4)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"changes": ("narrowed-4",)}, "changes: expected narrowed-M"),
        ({"changes": ("chain",)}, "changes: expected narrowed-M"),
        ({"changes": ("narrowed-2", "narrowed-2")}, "changes: expected different"),
        ({"evaluated_steps": (0, 4)}, "evaluated_steps: expected increasing steps from 0 to new_steps, 12"),
        ({"first_seed": 999}, "seeds: expected at most 1000"),
        ({"sampled_betas": ()}, "sampled_betas"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **changes)
