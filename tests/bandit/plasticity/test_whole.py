"""The whole plasticity lab in miniature against `tests.oracles.plasticity_lab`: its table, its reports, its claims."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest

from bandit.config import EnvironmentConfig
from bandit.lab import write
from bandit.plasticity.analysis import Scored, analyse, judge
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.train import match, plasticity
from cokl.support.results import Execution
from tests.bandit.same import assert_same
from tests.oracles import plasticity_lab as oracle
from tests.oracles.scores import written

CONFIG = PlasticityConfig(
    methods=("none", "entropy", "reverse_kl", "cokl", "correct_forward_kl"),
    betas=(3.0, 0.05),
    seeds=2,
    first_seed=4,
    selection_seeds=2,
    steps=4,
    batch_size=4,
    pretrain_steps=9,
    hidden=(5, 4),
    matched_correctness=0.8,
    changes=("narrowed-2", "repaired", "preferred", "moved-2"),
    new_steps=3,
    evaluated_steps=(0, 1, 3),
    evaluated_inputs=6,
    prompts=3,
    group_size=3,
    learning_rate=0.1,
    max_gradient_norm=0.5,
    coverage_draws=3,
    dtype="float64",
    environment=EnvironmentConfig(
        clusters=2, input_dim=3, actions=7, correct_actions=4, train_inputs=11, test_inputs=8, correct_mass=0.4
    ),
)
KEYS = ["seed", "method", "beta", "change", "mode", "step"]


@pytest.fixture(scope="module")
def lab() -> pd.DataFrame:
    """What the lab trains."""
    return plasticity(CONFIG, Execution(jobs=1), progress=False)


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    """What the plain loop does."""
    return oracle.table(CONFIG)


def ordered(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Sorted by what tells rows apart."""
    assert not frame.duplicated(keys).any()
    return frame.sort_values(keys, ignore_index=True)


def test_every_row_of_the_labs_table_is_the_plain_loops(lab, expected):
    assert_same(ordered(lab, KEYS), ordered(expected, KEYS))


def test_every_table_of_the_report_is_the_plain_loops(lab, expected, tmp_path):
    write(analyse({"plasticity": lab}, CONFIG), "Plasticity", tmp_path)
    for name, rows in oracle.final_tables(expected.to_dict("records"), CONFIG).items():
        wanted, written = pd.DataFrame(rows), pd.read_csv(tmp_path / f"{name}.csv")
        keys = [key for key in KEYS if key in wanted and key in written]
        to = 5.1e-4 if name == "match" else 1e-6  # as the files round
        assert_same(ordered(written, keys), ordered(wanted, keys), to, relative=5e-6)


def test_every_measurement_of_the_claims_is_the_plain_loops(lab, expected):
    found = oracle.differences(expected.to_dict("records"), CONFIG)
    names = ("rival", "replay", "conditioning", "reference")
    claims = judge(Scored.of(lab, CONFIG))
    assert len(claims) == 5
    for name, claim in zip(names, claims, strict=False):
        moved = [key for key in found if key[0] == name and key[1].startswith("moved")]
        assert shown(claim) == {
            where(key): written(found[key], 3) for key in found if key[0] == name and key not in moved
        }
    assert shown(claims[-1]) == {
        where(key): written(found[key], 3) for key in found if key[0] == "rival" and key[1].startswith("moved")
    }


def where(key: tuple[str, str, str]) -> str:
    """How the claims name it."""
    return f"{key[1]}, {key[2]}"


def shown(claim) -> dict[str, str]:
    """What a claim says, by where it was measured."""
    lines = {}
    for one in (claim.primary, *claim.secondary):
        found = re.fullmatch(r"(.*?): plasticity of .* (-?\d.* ± \S+) mean reward", one.text)
        assert found
        place, value = found.groups()
        lines[place] = value
    return lines


def test_the_miniature_has_what_a_wrong_lab_would_get_wrong(lab):
    """A match between coefficients, and one that the target misses; clusters on both sides; a step to one half within
    the curve.
    """
    weights = match(lab, CONFIG)["weight"]
    assert ((weights > 0.05) & (weights < 0.95)).sum() >= 4
    assert (weights == 1).any()
    for number in (4, 5, 1000, 1001):
        seed = oracle.Seed(CONFIG, number)
        assert {*seed.world.clusters["train"]} == {*seed.world.clusters["test"][:6]} == {0, 1}
    steps = [row["to_half"] for row in oracle.runs(lab.sort_values(KEYS).to_dict("records"))]
    assert sum(0 < step < 3 for step in steps) > 3
    assert {0.0, 3.0} <= {*steps}


def test_so_is_a_lab_with_other_options():
    """Other regularizers; the primary change is not the first; epochs of phase 1, balanced clusters."""
    other = replace(
        CONFIG,
        methods=("none", "jensen_shannon", "correct_reverse_kl"),
        betas=(0.3,),
        seeds=1,
        selection_seeds=1,
        changes=("moved-1", "narrowed-2", "narrowed-3"),
        minibatch="epochs",
        pretrain_learning_rate=0.03,
        environment=replace(CONFIG.environment, balanced_clusters=True),
    )
    made = plasticity(other, Execution(jobs=1), progress=False)
    assert_same(ordered(made, KEYS), ordered(oracle.table(other), KEYS))
