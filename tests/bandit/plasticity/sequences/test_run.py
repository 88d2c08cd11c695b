"""Whole results of the miniature: the table, resuming, processes, the page, the figures and the claims."""

import dataclasses
from pathlib import Path

import pytest

from bandit.plasticity.experiment import Plasticity, PlasticitySequences
from bandit.plasticity.plan import planned
from bandit.plasticity.run import plasticity
from bandit.plasticity.score import NEW, START, match, read_plasticity
from bandit.plasticity.sequences.config import SequencePlasticityConfig
from bandit.plasticity.sequences.train import Sequences
from cokl.support.errors import InputError
from cokl.support.experiment import Execution
from tests.bandit.plasticity.sequences.conftest import TINY

SMALL = dataclasses.replace(TINY, methods=("none", "cokl"), cached=(2,), seeds=1, new_steps=2, evaluated_steps=(0, 2))


def trained(config: SequencePlasticityConfig, folder: Path, jobs: int = 1) -> bytes:
    plasticity(config, Execution(out=folder, jobs=jobs), progress=False, space=Sequences)
    return (folder / "plasticity.parquet").read_bytes()


def test_every_policy_meets_the_first_change_and_those_of_the_match_all(tiny_folder):
    table, config = read_plasticity(tiny_folder, SequencePlasticityConfig)
    assert dataclasses.asdict(TINY) == {**dataclasses.asdict(config), "dtype": "float64"}
    assert not table.duplicated(["seed", *START, *NEW, "step"]).any()
    matched = set(match(table, config)[START].itertuples(index=False, name=None))
    for seed, role in config.roles.items():
        for start in planned(config, seed):
            rows = table[(table["seed"] == seed) & (table[START] == list(start.identity)).all(axis=1)]
            everything = role == "report" and (start.method.regularizer is None or start.identity in matched)
            assert set(rows["change"]) == set(config.changes if everything else config.changes[:1])
            assert set(rows["role"]) == {role}


def test_results_do_not_depend_on_processes_and_are_resumed(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert trained(SMALL, one) == trained(SMALL, two, jobs=2)
    chunks = sorted((two / "runs").glob("*.parquet"))
    before = [chunk.stat().st_mtime_ns for chunk in chunks[1:]]
    chunks[0].unlink()
    (two / "plasticity.parquet").unlink()
    assert trained(SMALL, two) == (one / "plasticity.parquet").read_bytes()
    assert [chunk.stat().st_mtime_ns for chunk in chunks[1:]] == before


def test_page_tables_figures_and_section_hold_what_was_measured(tiny_folder, tmp_path):
    table, config = read_plasticity(tiny_folder, SequencePlasticityConfig)
    experiment = PlasticitySequences()
    assert experiment.holds(tiny_folder)
    assert not Plasticity().holds(tiny_folder)
    shown = experiment.report(table, config, tmp_path)
    page = (tmp_path / "results.md").read_text()
    assert "CoKL learns a narrowed reward better than" in shown
    assert "plasticity_sequences_curves.png" in shown
    assert page.startswith("# Plasticity with answers of many tokens")
    claims = experiment.claims(tiny_folder)
    assert [claim.verdict for claim in claims] == [None] * 7
    assert "sampled: distinct_at_64 of CoKL" in claims[5].measured
    assert "sampled: conditional_entropy of CoKL minus Correct-only forward KL" in claims[6].evidence[0]
    pictures = experiment.figures(table, config, tmp_path)
    assert set(pictures) == {"plasticity_sequences_tradeoff", "plasticity_sequences_curves"}
    section = experiment.section(tiny_folder)
    assert set(section.plots) == {f"tiny-sequences-{name}" for name in ("plasticity", "narrowed-1", "moved-2")}
    # The primary cache's rows are in the first table, the other's in one of their own.
    assert (
        "different correct answers of 64" in (page.split("by cached responses")[0]).split("by change of the reward")[1]
    )
    assert {line.split(",")[1] for line in (tmp_path / "cached.csv").read_text().splitlines()[1:]} == {"4"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"changes": ("narrowed-2",)}, "changes: expected narrowed-M"),
        ({"changes": ("moved-3",)}, "changes: expected narrowed-M"),
        ({"changes": ("preferred",)}, "changes: expected narrowed-M"),
        ({"evaluated_steps": (0, 4)}, "evaluated_steps: expected increasing steps from 0 to new_steps, 5"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **changes)
