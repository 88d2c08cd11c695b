"""A verdict that rests on an assumption is found, and no assumption of the sweep is forgotten."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

from bandit.config import EnvironmentConfig, TrainingConfig
from bandit.sweep.analysis import Scored, judge
from bandit.sweep.config import PRESETS as SWEEPS
from bandit.sweep.robustness import ALTERNATIVES, BASE, PRESETS, RobustnessConfig, _near_the_match, analyse, compare
from cokl.support.errors import InputError
from tests.bandit.same import page_and_screen

QUICK = PRESETS["quick"]


def table(cokl_coverage: float, seeds: int = 5, k: int = 64) -> pd.DataFrame:
    """A sweep in which entropy covers 0.4 and is as correct as CoKL, with a little noise over seeds."""
    rows = []
    for seed in range(seeds):
        jitter = 1e-4 * np.sin(seed + 1)
        for method, coverage, kl in (("none", 0.05, 5.0), ("entropy", 0.4, 2.0), ("cokl", cokl_coverage, 0.5)):
            metrics = {f"coverage_at_{k}": coverage, f"coverage_at_{k}_correct": coverage, "conditional_kl": kl}
            measured = {name: value * (1 + jitter * (method == "cokl")) for name, value in metrics.items()}
            measured["p_correct"] = 0.97 if method == "none" else 0.96 + jitter
            measured |= {"seed": seed, "method": method, "beta": 0.1 * (method != "none")}
            rows += [{**measured, "step": step} for step in (0, 100)]
    return pd.DataFrame(rows)


def compared(scale: float, draws: float, seeds: int = 5) -> pd.DataFrame:
    """By CoKL's coverage with another initialisation, and with eight draws; the base's is 0.6."""
    others = {"init_scale-2.0": table(scale, seeds), "coverage_draws-8": table(draws, seeds, k=8)}
    return compare({BASE: table(0.6, seeds), **others})


def shown(rows: pd.DataFrame) -> tuple[str, str]:
    """The lab's page and screen."""
    return page_and_screen(analyse({"robustness": rows}, QUICK))


def test_a_fragile_verdict_is_found_and_only_that():
    rows = compared(scale=0.3, draws=0.6)
    fallen = rows[~rows["stands"]]
    assert fallen[["alternative", "verdict"]].to_numpy().tolist() == [["init_scale-2.0", "not held"]] * 4
    of_coverage = ["frontier, coverage_at_64", "match, coverage_at_64", "match, coverage_at_64_correct",
                   "training, coverage_at_64"]  # fmt: skip
    assert fallen["name"].tolist() == of_coverage
    page, screen = shown(rows)
    assert page.count("the base's verdict, held, stands in 0 of 1 alternatives; not held with init_scale-2.0") == 4
    assert page.count("the base's verdict, held, stands in 1 of 1 alternatives") == 4
    assert re.search(r"init_scale-2.0 +4 of 8 +-0.100 ± 0.000", screen)
    assert screen.startswith("4 of 8 verdicts stand; CoKL's lead in coverage is -0.100 ± 0.000 to 0.200 ± 0.000.")
    judged = analyse({"robustness": rows}, QUICK).claims
    expected = [
        (base.name, f"Under every alternative assumption the same verdict: {base.statement}",
         "not held" if base.name in of_coverage else "held")
        for base in judge(Scored.of(table(0.6)))
    ]  # fmt: skip
    assert [(claim.name, claim.statement, claim.verdict) for claim in judged] == expected


def test_claims_are_told_apart_by_name_whatever_their_words():
    rows = compared(scale=0.3, draws=0.6).assign(claim="S", where="W")
    judged = analyse({"robustness": rows}, QUICK).claims
    assert [claim.name for claim in judged] == [claim.name for claim in judge(Scored.of(table(0.6)))]


def test_an_alternative_without_a_match_has_no_lead():
    rows = compared(scale=0.6, draws=0.3)
    rows.loc[rows["alternative"] == "init_scale-2.0", ["lead", "lead_half_width"]] = float("nan")
    said = " ".join(shown(rows)[1].split())
    assert "lead in coverage is 0.200 ± 0.000 to 0.200 ± 0.000, and has none to compare under init_scale-2.0." in said
    assert "CoKL has no lead in coverage to compare." in shown(rows.assign(lead=float("nan")))[1]


def test_a_verdict_that_falls_with_other_draws_alone_stands_and_is_told_apart():
    rows = compared(scale=0.6, draws=0.3)
    claims = analyse({"robustness": rows}, QUICK).claims
    assert {claim.verdict for claim in claims} == {"held"}
    apart = "the base's verdict, held, stands in 1 of 1 alternatives; not held with coverage_draws-8"
    assert [claim.primary.text for claim in claims].count(f"{apart}, which is another measurement") == 4
    lead = "0.200 ± 0.000"  # with eight draws it is -0.1, which is no lead at another assumption
    assert shown(rows)[1].startswith(f"8 of 8 verdicts stand; CoKL's lead in coverage is {lead} to {lead}.")
    assert "0 of 0 verdicts stand" in shown(rows[rows["alternative"] != "init_scale-2.0"])[1]


def test_below_four_seeds_nothing_stands_or_falls():
    rows = compared(scale=0.3, draws=0.6, seeds=2)
    assert (set(rows["verdict"]), rows["stands"].notna().any()) == ({""}, False)
    for said in shown(rows):
        assert "No verdicts: 2 reported seeds" in said
        assert "stands in" not in said
    assert "higher by -0.100" in shown(rows)[0]


def test_every_assumption_of_the_sweep_is_varied_and_quick_varies_these():
    fields = [field for config in (TrainingConfig, EnvironmentConfig) for field in dataclasses.fields(config)]
    declared = {field.name for field in fields if "effect" in field.metadata}
    assert declared == set(ALTERNATIVES)
    quick = dict(zip(QUICK.fields, [(8, 256), (0.5, 2.0), (0.75, 1.5)], strict=True))
    assert quick == {name: ALTERNATIVES[name] for name in ("coverage_draws", "init_scale", "center_scale")}
    assert (QUICK.neighbours, QUICK.sweep.methods, QUICK.sweep.betas) == (0, ("none", "entropy", "cokl"), (0.1, 0.3))


def test_the_coefficients_next_to_the_match_are_kept():
    rows = [
        {"seed": 0, "method": method, "beta": beta, "step": 1, "p_correct": 0.96 - abs(beta - best), "x": 0}
        for method, best in (("cokl", 0.1), ("entropy", 0.3), ("forward_kl", 0.01)) for beta in (0.01, 0.03, 0.1, 0.3)
    ]  # fmt: skip
    config = RobustnessConfig(dataclasses.replace(SWEEPS["quick"], betas=(0.3, 0.01, 0.1, 0.03)))
    near = {"cokl": (0.03, 0.1, 0.3), "entropy": (0.1, 0.3), "forward_kl": (0.01, 0.03)}
    assert _near_the_match(pd.DataFrame(rows), config) == near


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="fields: expected"):
        RobustnessConfig(SWEEPS["quick"], fields=("colour",))
    with pytest.raises(InputError, match="methods: expected cokl and another regularizer"):
        RobustnessConfig(dataclasses.replace(SWEEPS["quick"], methods=("none", "cokl")))
