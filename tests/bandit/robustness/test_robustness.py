"""A verdict that rests on an assumption is found, and no assumption of the sweep is forgotten."""

import dataclasses
import json
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bandit.robustness import config as settings
from bandit.robustness.experiment import Robustness
from bandit.robustness.report import compare, on_screen, page
from bandit.robustness.run import BASE, near_the_match, robustness

from bandit.config import EnvironmentConfig, TrainingConfig
from bandit.sweep.config import PRESETS
from cokl.support.assumptions import assumptions_of
from cokl.support.errors import InputError
from cokl.support.results import Execution
from cokl.support.statistics import csv_text
from cokl_cli.commands import bandit as commands


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


def test_a_fragile_verdict_is_found_and_only_that(tmp_path):
    compared = compare({BASE: table(0.6), "init_scale-2.0": table(0.3), "coverage_draws-8": table(0.6, k=8)})
    fallen = compared[~compared["stands"]]
    assert set(fallen["alternative"]) == {"init_scale-2.0"}
    assert len(fallen) == 4
    assert all("coverage" in claim for claim in fallen["claim"])
    assert set(fallen["verdict"]) == {"not held"}
    text = page(compared, 5)
    assert text.count("the base's verdict, held, stands in 0 of 1 alternatives; not held with init_scale-2.0") == 4
    assert text.count("the base's verdict, held, stands in 1 of 1 alternatives") == 4
    assert "| not held | CoKL 0.300" in " ".join(text.split())
    (tmp_path / "robustness.csv").write_text(csv_text(compared))
    shown = unescape(Robustness().section(tmp_path).body)
    assert shown.startswith("<p>Each of 2 alternatives ")
    assert shown.count("the base's verdict, held, stands in 0 of 1 alternatives; not held with init_scale-2.0") == 4
    shown = on_screen(compared, [], 5, tmp_path)
    assert shown.startswith("Depends: The verdicts stand: 4 of 8 do.")
    assert "held 0 of 1 init_scale-2.0" in " ".join(shown.split())
    claims = list(dict.fromkeys(compared["claim"]))
    assert claims != sorted(claims)  # so that their order is the sweep's
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == claims


def test_the_logbook_says_of_each_verdict_whether_it_stands(tmp_path):
    tables = {BASE: table(0.6), "init_scale-2.0": table(0.3)}
    compare(tables).to_csv(tmp_path / "robustness.csv", index=False)
    claims = Robustness().claims(tmp_path)
    assert [claim.verdict for claim in claims].count("not held") == 4
    assert [claim.verdict for claim in claims].count("held") == 4
    by_statement = {claim.statement.partition(": ")[2]: claim.measured for claim in claims}
    assert list(by_statement) == list(dict.fromkeys(compare(tables)["claim"]))
    coverage = next(text for claim, text in by_statement.items() if "coverage@64 is higher" in claim)
    assert coverage == "the base's verdict, held, stands in 0 of 1 alternatives; not held with init_scale-2.0"
    compare({name: table(0.6, seeds=2) for name in tables}).to_csv(tmp_path / "robustness.csv", index=False)
    assert {claim.verdict for claim in Robustness().claims(tmp_path)} == {None}


def test_a_verdict_that_falls_with_other_draws_alone_stands_and_is_told_apart(tmp_path):
    compared = compare({BASE: table(0.6), "init_scale-2.0": table(0.6), "coverage_draws-8": table(0.3, k=8)})
    compared.to_csv(tmp_path / "robustness.csv", index=False)
    claims = Robustness().claims(tmp_path)
    assert {claim.verdict for claim in claims} == {"held"}
    apart = "the base's verdict, held, stands in 1 of 1 alternatives; not held with coverage_draws-8"
    apart += ", which is another measurement"
    assert [claim.measured for claim in claims].count(apart) == 4
    assert on_screen(compared, [], 5, tmp_path).startswith("Held: The verdicts stand: 8 of 8 do.")


def test_the_committed_comparison_is_the_committed_pages():
    folder = Path("bandit/robustness")
    compared = pd.read_csv(folder / "robustness.csv", dtype={"stands": "boolean"})
    assert page(compared, 5) == (folder / "RESULTS.md").read_text(encoding="utf-8")


def test_a_verdict_that_no_alternative_shares_is_called_by_its_own_name():
    compared = compare({BASE: table(0.6), "init_scale-2.0": table(0.3)})
    assert (
        page(compared, 5).count(
            "\nthe base's verdict, held, stands in 0 of 1 alternatives; not held with init_scale-2.0"
        )
        == 4
    )


def test_below_four_seeds_nothing_stands_or_falls(tmp_path):
    compared = compare({BASE: table(0.6, seeds=2), "init_scale-2.0": table(0.3, seeds=2)})
    assert compared["stands"].isna().all()
    assert not compared["verdict"].any()
    for said in (on_screen(compared, [], 2, tmp_path), page(compared, 2)):
        assert "No verdicts: 2 reported seeds" in said
        assert "stands in" not in said
    assert "higher by -0.100" in page(compared, 2)


def test_every_assumption_of_the_sweep_is_varied():
    declared = {field.name for config in (TrainingConfig, EnvironmentConfig) for field in assumptions_of(config)}
    assert declared == set(settings.ALTERNATIVES)


def test_each_alternative_changes_one_assumption():
    whole = settings.RobustnessConfig(PRESETS["paper"])
    default = flat(PRESETS["paper"].as_dict())
    for name, alternative in whole.alternatives().items():
        changed = {field for field, value in flat(alternative.as_dict()).items() if value != default[field]}
        assert changed == {name.split("-")[0]}, name


def flat(values: dict) -> dict:
    return {**{k: v for k, v in values.items() if not isinstance(v, dict)}, **values["environment"]}


def test_the_coefficients_next_to_the_match_are_kept():
    rows = [
        {"seed": 0, "method": method, "beta": beta, "step": 1, "p_correct": 0.96 - abs(beta - best), "x": 0}
        for method, best in (("cokl", 0.1), ("entropy", 0.3))
        for beta in (0.01, 0.03, 0.1, 0.3)
    ]
    near = near_the_match(pd.DataFrame(rows), (0.3, 0.01, 0.1, 0.03), 1)
    assert near == {"cokl": (0.03, 0.1, 0.3), "entropy": (0.1, 0.3)}


@pytest.mark.parametrize("fields", [("colour",), ()])
def test_an_unknown_field_is_refused(fields):
    with pytest.raises(InputError, match="fields: expected"):
        settings.RobustnessConfig(PRESETS["quick"], fields=fields)


def test_one_field_is_enough():
    assert set(settings.RobustnessConfig(PRESETS["quick"], fields=("minibatch",)).alternatives()) == {
        "minibatch-epochs"
    }


def test_it_trains_resumes_and_writes(tmp_path, capsys):
    environment = dataclasses.replace(PRESETS["quick"].environment, train_inputs=64, test_inputs=32, clusters=4)
    few = {"methods": ("none", "entropy", "cokl"), "betas": (0.01, 0.1, 0.3), "seeds": 2, "steps": 3}
    small: dict[str, Any] = {
        **few,
        "eval_interval": 3,
        "pretrain_steps": 3,
        "batch_size": 16,
        "environment": environment,
    }
    config = settings.RobustnessConfig(
        dataclasses.replace(PRESETS["quick"], **small), neighbours=0, fields=("coverage_draws", "balanced_clusters")
    )
    command = commands.command_of("robustness")(config=config, out=tmp_path, jobs=1)
    assert command.run() == 0
    said = capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
        BASE,
        "coverage_draws-8",
        "coverage_draws-256",
        "balanced_clusters-True",
    }
    tables = robustness(config, Execution(out=tmp_path, jobs=1), progress=False)
    chosen = json.loads((tmp_path / "coverage_draws-8" / "config.json").read_text())["coefficients"]
    assert {method: set(betas) for method, betas in chosen.items()} == {
        method: set(rows["beta"])
        for method, rows in tables[BASE].groupby("method")
        if method not in ("reference", "none")
    }
    assert "coverage_at_8" in tables["coverage_draws-8"]
    runs = tables["balanced_clusters-True"].groupby("method")["beta"].unique()
    assert all(len(betas) == 1 for betas in runs)
    assert not tables["balanced_clusters-True"]["p_correct"].equals(tables[BASE]["p_correct"])
    before = (tmp_path / "results.md").read_bytes()
    assert command.run() == 0
    assert capsys.readouterr().out == said
    assert (tmp_path / "results.md").read_bytes() == before
