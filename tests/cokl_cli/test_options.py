"""Every option of every lab at two values: what another value changes, and that it changes nothing else.

A lab is trained at its smallest with and without the option, as a command line gives it. Of the rows that both tables
have, every run of some must differ, and all others must be the same: to the last bit, unless runs come or go. An option
without a line here fails, as does a random stream that draws the same for two seeds.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import json
import pkgutil
import re
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bandit
from bandit.config import EnvironmentConfig
from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.two_tasks.tasks import ShiftStream
from bandit.finite_group.config import FiniteGroupConfig
from bandit.labs import LABS
from bandit.plasticity.config import PlasticityConfig
from bandit.plasticity.train import PlasticityStream
from bandit.sequences.config import SequenceConfig
from bandit.shift.config import ShiftConfig
from bandit.sweep.config import SweepConfig
from bandit.sweep.robustness import RobustnessConfig
from cokl.support.errors import InputError
from cokl.support.results import Execution
from cokl_cli.app import _parse
from cokl_cli.commands.bandit import LabCommand
from cokl_cli.commands.card import Card
from cokl_cli.commands.logbook import Logbook
from cokl_cli.commands.report import HtmlReport
from cokl_cli.commands.reproduce import Reproduce
from tests.bandit.sweep.tables import GOOD, sweep_table
from tests.cokl_cli.test_card import registry, written

__all__ = ["registry"]

WORLD = EnvironmentConfig(
    clusters=2, input_dim=3, actions=6, correct_actions=2, train_inputs=24, test_inputs=9, correct_mass=0.4
)
SHARED: dict[str, Any] = {"hidden": (4,), "pretrain_steps": 6, "max_gradient_norm": 0.3, "environment": WORLD}
TRAINED: dict[str, Any] = {**SHARED, "steps": 4, "eval_interval": 2, "batch_size": 5, "learning_rate": 0.05}
SAMPLED: dict[str, Any] = {"seeds": 1, "selection_seeds": 1, "group_size": 3, "reference_group_size": 2, "kl_groups": 4}
BASE: dict[str, Any] = {
    "sweep": SweepConfig(methods=("none", "forward_kl", "cokl"), betas=(0.1, 0.4), seeds=2, **TRAINED),
    "shift": ShiftConfig(
        methods=("none", "forward_kl", "cokl"), betas=(1.0,), buffer_size=8, kl_sweep=(2, 5),
        kl_sweep_methods=("cokl",), pretrain_batch_size=6, prior_steps=3, **TRAINED, **SAMPLED,
    ),
    "plasticity": PlasticityConfig(
        methods=("none", "reverse_kl"), betas=(0.01, 1.0, 100.0), seeds=1, selection_seeds=1, matched_correctness=0.001,
        changes=("narrowed-1", "moved-1"), new_steps=3, evaluated_steps=(0, 3), evaluated_inputs=5, prompts=4,
        group_size=3, **TRAINED,
    ),
    "sequences": SequenceConfig(
        methods=("none", "correct_forward_kl", "cokl"), betas=(0.3,), length=3, symbols=3, forbidden=1, clusters=2,
        input_dim=3, train_inputs=12, test_inputs=5, buffer_size=8, pretrain_batch_size=6, prior_steps=3,
        **{name: value for name, value in TRAINED.items() if name != "environment"}, **SAMPLED,
    ),
    "finite-group": FiniteGroupConfig(
        methods=("none", "cokl"), betas=(0.3,), seeds=2, group_sizes=(8,), optimizer_steps=(1, 2), **TRAINED,
    ),
}  # fmt: skip
IDENTITY = ["seed", "role", "mode", "method", "beta", "kl_prompts", "groups", "group_size", "optimizer_steps", "change",
            "step"]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Other:
    """Another value of an option, and what it changes.

    typed: the value, and whatever else it needs. must: the rows of which every run differs, a query, "" for none. may:
    rows that need not be the same. columns: where they differ, everywhere if empty. rows: whether the tables have other
    rows. refused: what the message says if the lab cannot have that value.
    """

    typed: str
    must: str = ""
    may: str = ""
    columns: str = ""
    rows: bool = False
    refused: str = ""


ALL, TRAINED_ROWS = "step >= 0", "step > 0 and method not in ('reference', 'base')"


def everything(typed: str) -> Other:
    """All numbers change: those of the reference too."""
    return Other(typed, ALL)


def other_rows(typed: str) -> Other:
    """Other runs or steps; the same numbers of those that stay."""
    return Other(typed, rows=True)


NOTHING = Other
ENVIRONMENT = {
    "clusters": everything("3"),
    "input_dim": everything("4"),
    "noise": everything("0.5"),
    "actions": everything("7"),
    "correct_actions": everything("3"),
    "correct_mass": everything("0.6"),
    "concentration": everything("5"),
    "zipf_exponents": everything("0 1"),
    "train_inputs": everything("30"),
    "test_inputs": everything("8"),
    "center_scale": everything("0.5"),
    "balanced_clusters": everything(""),
    "shared_environment": Other("", "seed > 0"),
}
NETWORK = {
    "hidden": everything("5"),
    "pretrain_steps": everything("7"),
    "max_gradient_norm": everything("0.1"),
    "adam_betas": everything("0.5 0.6"),
    "adam_epsilon": everything("0.01"),
    "init_scale": everything("0.5"),
    "batch_size": everything("6"),
}
SINGLE = {
    **NETWORK,
    **ENVIRONMENT,
    "methods": other_rows("none,entropy,cokl"),
    "betas": other_rows("0.1,0.2"),
    "seeds": other_rows("1"),
    "steps": other_rows("5"),
    "eval_interval": other_rows("3"),
    "learning_rate": Other("0.02", TRAINED_ROWS),
    "dtype": everything("float64"),
    "device": NOTHING("cpu"),
    "coverage_draws": Other("9", ALL, columns="coverage"),
    "pretrain_learning_rate": everything("0.03"),
    "minibatch": everything("epochs"),
}
TWO_TASKS = {
    **NETWORK,
    "seeds": other_rows("2"),
    "first_seed": other_rows("7"),
    "selection_seeds": other_rows("2"),
    "steps": other_rows("5"),
    "eval_interval": other_rows("3"),
    "pretrain_batch_size": everything("7"),
    "prior_steps": everything("2"),
    "learning_rate": everything("0.02"),
    "new_learning_rate": Other("0.2", TRAINED_ROWS),
    "group_size": everything("4"),
    "kl_groups": other_rows("8"),
}
OTHERS: dict[str, dict[str, Other]] = {
    "sweep": SINGLE,
    "shift": {
        **TWO_TASKS,
        **ENVIRONMENT,
        "shared_environment": Other("", refused="environment.shared_environment: expected False"),
        "mode": other_rows("exact"),
        "methods": other_rows("none,reverse_kl,cokl"),
        "betas": other_rows("1,2"),
        "reference_group_size": Other("3", "step > 0 and mode == 'sampled' and kl_prompts > 0", may="method == 'cokl'"),
        "pass_draws": Other("3", ALL, columns="prior_pass_at_k"),
        "buffer_size": everything("7"),
        "kl_sweep": other_rows("2,6"),
        "kl_sweep_methods": other_rows("forward_kl"),
        "success_of_wrong": everything("0.4"),
        "dtype": everything("float64"),
    },
    "plasticity": {
        **SINGLE,
        "methods": other_rows("none,reverse_kl,entropy"),
        "betas": other_rows("0.01,1,50"),
        "seeds": other_rows("2"),
        "first_seed": other_rows("7"),
        "selection_seeds": other_rows("2"),
        "steps": Other("5", "method != 'reference'"),
        "eval_interval": NOTHING("1"),  # phase 1 is evaluated at its end alone
        "learning_rate": Other("0.02", "step > 0 or method != 'reference'"),
        "matched_correctness": other_rows("0.999"),
        "changes": other_rows("narrowed-1,repaired"),
        "new_steps": other_rows("4 --evaluated-steps 0,3,4"),
        "evaluated_steps": other_rows("0,2,3"),
        "prompts": Other("5", "step > 0"),
        "group_size": Other("4", "step > 0 and mode == 'sampled'"),
        "evaluated_inputs": Other("6", ALL, columns="reward|below_half"),
    },
    "sequences": {
        **TWO_TASKS,
        "mode": Other("exact", refused="--mode: expected one of sampled, got 'exact'"),
        "methods": other_rows("none,reverse_kl,cokl"),
        "betas": other_rows("0.3,0.4"),
        "reference_group_size": Other("3", "step > 0 and kl_prompts > 0"),
        "pass_draws": NOTHING("3"),  # pass@k is not measured here
        "buffer_size": Other("7", "step > 0 and kl_prompts > 0"),
        "kl_prompts": other_rows("3"),
        "length": everything("4"),
        "symbols": everything("4"),
        "states": everything("3"),
        "forbidden": everything("2"),
        "concentration": everything("2"),
        "clusters": everything("3"),
        "input_dim": everything("4"),
        "noise": everything("0.3"),
        "train_inputs": everything("13"),
        "test_inputs": everything("4"),
        "deciding": everything("1"),
    },
    "finite-group": {
        **SINGLE,
        "betas": other_rows("0.3,0.2"),
        "methods": other_rows("none,cokl,reverse_kl"),
        "group_sizes": other_rows("8,2"),
        "optimizer_steps": other_rows("1,3"),
        "reference_groups": other_rows("fresh"),
        "epsilon_is": Other("0.001", "step > 1 and method == 'cokl' and groups != 'exact' and optimizer_steps > 1"),
    },
}
ELSEWHERE = {
    "robustness": {
        "sweep": "the sweep's own options, which it hands on",
        "neighbours": "tests/bandit/sweep/test_robustness.py",
        "fields": "tests/bandit/sweep/test_robustness.py",
    },
    "every lab": {
        "out": "below",
        "jobs": "below",
        "backend": "below",
        "preset": "tests/cokl_cli/test_config_file.py",
        "config_file": "tests/cokl_cli/test_config_file.py",
    },
    "reproduce": {
        "out": "below",
        "jobs": "below",
        "backend": "below",
        "preset": "tests/cokl_cli/test_app.py",
        "config_file": "tests/cokl_cli/test_config_file.py",
        "config": "the sweep's own options, which it hands on",
    },
    "card": {"file": "tests/cokl_cli/test_card.py", "out": "below", "jobs": "below"},
    "report": {"results": "below", "out": "below"},
    "logbook": dict.fromkeys(("results", "out", "replace"), "tests/cokl_cli/test_logbook.py"),
}
"""Options that are looked at in another place."""


def options(config: Any) -> set[str]:
    """Names of a configuration's options, those of its environment among them."""
    return {field.name for field in dataclasses.fields(config)} - {"environment"} | (
        {field.name for field in dataclasses.fields(EnvironmentConfig)} if hasattr(config, "environment") else set()
    )


def test_no_option_is_left_out():
    assert [*LABS] == ["sweep", "robustness", *(name for name in BASE if name != "sweep")]
    for name, config in BASE.items():
        assert options(config) == set(OTHERS[name]), name
    assert options(RobustnessConfig) == set(ELSEWHERE["robustness"])
    commands = {"every lab": LabCommand, "reproduce": Reproduce, "card": Card, "report": HtmlReport, "logbook": Logbook}
    for name, command in commands.items():
        assert {field.name for field in dataclasses.fields(command)} == set(ELSEWHERE[name]), name


def asked(lab: str, *flags: str) -> Any:
    """The configuration that a command line gives, beside what BASE says."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "base.json"
        path.write_text(json.dumps(BASE[lab].as_dict()))
        command: Any = _parse(["bandit", lab, "--config", str(path), *flags])
        return command.config


def trained(lab: str, config: Any) -> pd.DataFrame:
    """The lab's table; coverages without their number of draws in their name."""
    (table,) = LABS[lab].train(config, Execution(jobs=1)).values()
    return table.rename(columns=lambda name: re.sub(r"_at_\d+", "", name))


@functools.cache
def base(lab: str) -> pd.DataFrame:
    return trained(lab, asked(lab))


@pytest.mark.parametrize(("lab", "option"), [(lab, option) for lab in OTHERS for option in OTHERS[lab]])
def test_another_value_changes_what_it_should_and_nothing_else(lab, option):
    other = OTHERS[lab][option]
    flags = [f"--{option.replace('_', '-')}", *other.typed.split()]
    if other.refused:
        with pytest.raises(InputError, match=re.escape(other.refused)):
            asked(lab, *flags)
        return
    config, before = asked(lab, *flags), base(lab)
    assert config != asked(lab)
    after = trained(lab, config)
    names = [name for name in IDENTITY if name in before]
    assert (set(before[names].itertuples(index=False)) != set(after[names].itertuples(index=False))) == other.rows
    both = before.merge(after, on=names, suffixes=("", " after"))
    metrics = [str(name) for name in before if name not in names and name != "passes"]  # which the configuration gives
    rounding = 1e-5 if other.rows else 0  # of single precision, where a stack has more runs or fewer
    differs = pd.DataFrame(
        {name: ~np.isclose(both[name], both[f"{name} after"], 0, rounding, equal_nan=True) for name in metrics}
    )
    changed = differs.any(axis=1)
    must: Any = both.eval(other.must) if other.must else pd.Series(False, both.index)
    may: Any = both.eval(other.may) if other.may else pd.Series(False, both.index)
    assert len(both)
    assert both[changed & ~must & ~may].empty, "other rows differ too"
    runs = [both[name] for name in names if name != "step"]
    of_runs = changed[must].groupby([run[must] for run in runs], dropna=False).any()
    assert must.any() == bool(other.must)
    assert of_runs.all(), f"the same with both values: {of_runs.index[~of_runs].tolist()}"
    if other.columns:
        assert {name for name in metrics if differs[name].any()} <= {n for n in metrics if re.search(other.columns, n)}


@functools.cache
def numbers_drawn(lab: str, seeds: int) -> dict[IntEnum, frozenset[int]]:
    """The seeds that each random stream is asked for in a lab of so many reported seeds."""
    asked_for: dict[IntEnum, set[int]] = collections.defaultdict(set)

    def recording(seed: int, stream: IntEnum) -> np.random.Generator:
        asked_for[stream].add(seed)
        return random_generator(seed, stream)

    with pytest.MonkeyPatch.context() as patch:
        for module in pkgutil.walk_packages(bandit.__path__, "bandit."):
            if hasattr(importlib.import_module(module.name), "random_generator"):
                patch.setattr(f"{module.name}.random_generator", recording)
        trained(lab, dataclasses.replace(BASE[lab], seeds=seeds))
    return {stream: frozenset(numbers) for stream, numbers in asked_for.items()}


@pytest.mark.parametrize("lab", BASE)
def test_every_stream_of_another_seed_draws_anew(lab):
    """With numbers that the seeds before did not have, whatever a lab makes of its seeds."""
    one, two = (numbers_drawn(lab, seeds) for seeds in (1, 2))
    assert [stream for stream, numbers in one.items() if not numbers < two[stream]] == []


def test_no_stream_is_left_out():
    drawn = set().union(*(numbers_drawn(lab, 1) for lab in BASE))
    assert drawn == {*RandomStream, *ShiftStream, *PlasticityStream}


class Computing(Exception):
    """Raised where processes would be started."""


@pytest.mark.parametrize("jobs", [2, 3])
@pytest.mark.parametrize("command", [*(f"bandit {name}" for name in LABS), "reproduce", "bandit card"])
def test_where_and_with_how_many_processes_reaches_whoever_computes(command, jobs, registry, monkeypatch, tmp_path):
    """A card has one backend."""

    def backend(execution: Execution) -> None:
        raise Computing(execution.jobs, execution.backend)

    monkeypatch.setattr("cokl.support.results._backend", backend)
    own = "card" in command
    kind = "ray" if jobs == 3 and not own else "loky"
    file = [str(written(f"own_{jobs}"))] if own else []
    flags = ["--jobs", str(jobs), "--out", str(tmp_path / f"to-{jobs}"), *([] if own else ["--backend", kind])]
    with pytest.raises(Computing) as asked_for:
        _parse([*command.split(), *file, *flags]).run()
    assert asked_for.value.args == (jobs, kind)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name[:2] != "__"] == [f"to-{jobs}"]


def test_a_page_is_of_the_results_it_is_asked_for_and_lies_where_it_is_asked_to(tmp_path):
    for seeds, out in ((4, None), (5, tmp_path / "page.html")):
        folder = tmp_path / f"of-{seeds}"
        folder.mkdir()
        sweep_table(GOOD, seeds).to_parquet(folder / "sweep.parquet")
        (folder / "config.json").write_text(json.dumps(BASE["sweep"].as_dict()))
        _parse(["report", "--results", str(folder), *(["--out", str(out)] if out else [])]).run()
        made = [path for path in tmp_path.rglob("*.html") if f"the mean over {seeds} seeds" in path.read_text("utf-8")]
        assert made == [out or folder / "report.html"]
