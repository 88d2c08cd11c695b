"""A verdict that rests on an assumption is found, and no assumption of the sweep is forgotten."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from bandit.config import EnvironmentConfig, TrainingConfig
from bandit.lab import Analysis
from bandit.sweep.config import PRESETS
from bandit.sweep.robustness import ALTERNATIVES, BASE, RobustnessConfig, analyse, compare, train
from cokl.support.assumptions import assumptions_of
from cokl.support.errors import InputError
from cokl.support.results import Execution
from tests.bandit.conftest import TINY
from tests.bandit.same import page_and_screen


def table(cokl_coverage: float, seeds: int = 5, k: int = 64) -> pd.DataFrame:
    """A sweep in which entropy covers 0.4 and is as correct as CoKL, with a little noise over seeds."""
    rows = []
    for seed in range(seeds):
        jitter = 1e-4 * np.sin(seed + 1)
        for method, coverage, kl in (("none", 0.05, 5.0), ("entropy", 0.4, 2.0), ("cokl", cokl_coverage, 0.5)):
            for step in (0, 100):
                beta = 0.0 if method == "none" else 0.1
                metrics = {f"coverage_at_{k}": coverage, f"coverage_at_{k}_correct": coverage, "conditional_kl": kl}
                measured = {name: value * (1 + jitter * (method == "cokl")) for name, value in metrics.items()}
                correctness = 0.97 if method == "none" else 0.96 + jitter
                rows.append({"seed": seed, "method": method, "beta": beta, "step": step, "p_correct": correctness})
                rows[-1] |= measured
    return pd.DataFrame(rows)


def analysed(**alternatives: pd.DataFrame) -> Analysis:
    compared = compare({BASE: table(0.6, alternatives["scale"]["seed"].nunique()), **alternatives})
    return analyse({"robustness": compared}, RobustnessConfig(PRESETS["quick"]))


def test_a_fragile_verdict_is_found_and_only_that():
    found = analysed(scale=table(0.3), **{"coverage_draws-8": table(0.6, k=8)})
    compared = found.tables["robustness"]
    fallen = compared[~compared["stands"]]
    assert set(fallen["alternative"]) == {"scale"}
    assert len(fallen) == 4
    assert all("coverage" in claim for claim in fallen["claim"])
    assert set(fallen["verdict"]) == {"not held"}
    claims = {claim.statement.partition(": ")[2]: claim for claim in found.claims}
    assert list(claims) == list(dict.fromkeys(compared["claim"]))
    assert list(claims) != sorted(claims)  # so that their order is the sweep's
    for statement, claim in claims.items():
        falls = statement in set(fallen["claim"])
        assert claim.verdict == ("not held" if falls else "held")
        stands = "the base's verdict, held, stands in 1 of 1 alternatives"
        assert claim.measured == (stands.replace("1 of", "0 of") + "; not held with scale" if falls else stands)
    page, screen = page_and_screen(found)
    assert "| not held | CoKL 0.300" in " ".join(page.split())
    assert screen.startswith("Depends: The verdicts stand: 4 of 8 do; CoKL covers -0.100 ± 0.000")
    assert "held 0 of 1 scale" in " ".join(screen.split())


def test_a_verdict_that_falls_with_other_draws_alone_stands_and_is_told_apart():
    found = analysed(scale=table(0.6), **{"coverage_draws-8": table(0.3, k=8)})
    assert {claim.verdict for claim in found.claims} == {"held"}
    apart = "the base's verdict, held, stands in 1 of 1 alternatives; not held with coverage_draws-8"
    assert [claim.measured for claim in found.claims].count(apart) == 4
    assert page_and_screen(found)[1].startswith("Held: The verdicts stand: 8 of 8 do")


def test_below_four_seeds_nothing_stands_or_falls():
    found = analysed(scale=table(0.3, seeds=2))
    assert found.tables["robustness"]["stands"].isna().all()
    assert not found.tables["robustness"]["verdict"].any()
    for said in page_and_screen(found):
        assert "2 reported seeds are too few" in said
        assert "stands in" not in said


def test_every_assumption_of_the_sweep_is_varied():
    declared = {field.name for config in (TrainingConfig, EnvironmentConfig) for field in assumptions_of(config)}
    assert declared == set(ALTERNATIVES)


@pytest.mark.parametrize("fields", [("colour",), ()])
def test_an_unknown_field_is_refused(fields):
    with pytest.raises(InputError, match="fields: expected"):
        RobustnessConfig(PRESETS["quick"], fields=fields)


def test_an_alternative_changes_one_assumption_and_trains_the_coefficients_next_to_the_match(tmp_path):
    sweep = dataclasses.replace(TINY, methods=("none", "entropy", "cokl"), betas=(0.3, 0.01, 0.1), seeds=2)
    train(RobustnessConfig(sweep, 0, ("coverage_draws", "balanced_clusters")), Execution(out=tmp_path, jobs=1))
    sweeps = {path.parent.name: pd.read_parquet(path) for path in tmp_path.glob("*/sweep.parquet")}
    assert set(sweeps) == {BASE, "coverage_draws-8", "coverage_draws-256", "balanced_clusters-True"}
    base = sweeps[BASE][sweeps[BASE]["step"] == sweep.steps]
    distance = (base.groupby(["method", "beta"])["p_correct"].mean() - 0.96).abs()
    matched = {method: {distance[method].idxmin()} for method in ("entropy", "cokl")}
    for name in set(sweeps) - {BASE}:
        trained = sweeps[name].groupby("method")["beta"].agg(set).to_dict()
        assert trained == {"reference": {0.0}, "none": {0.0}, **matched}
    for name, same in (("coverage_draws-8", True), ("balanced_clusters-True", False)):
        both = sweeps[name].merge(sweeps[BASE], on=["seed", "method", "beta", "step"])
        assert np.allclose(both["p_correct_x"], both["p_correct_y"], rtol=0, atol=1e-5) == same
    assert "coverage_at_8" in sweeps["coverage_draws-8"]
