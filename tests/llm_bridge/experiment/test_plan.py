"""What is planned of a run, before VeRL is asked: searches, coefficients, and what workers are told."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from cokl.support.errors import InputError
from cokl_cli.commands import llm
from cokl_cli.commands.llm import RunStages
from llm_bridge.experiment import config as configurations
from llm_bridge.experiment.config import PAPER_METHODS
from llm_bridge.experiment.jobs import buffer_job, chat_job, command_line, environment, math_job, trained
from llm_bridge.experiment.minutes import told
from llm_bridge.experiment.stages import Experiment
from llm_bridge.experiment.workloads import WORKLOADS, Pace, Prompts, StartModel, Workload


def test_the_presets_of_short_answers_keep_the_equations_sum():
    sums = {name for name, preset in configurations.PRESETS.items() if preset.length == "token-sum"}
    assert sums == {"smollm2", "open-questions"}


def test_a_search_is_planned_after_the_methods():
    runs = RunStages(
        methods=("grpo", "cokl", "reverse_kl"), settings=configurations.PRESETS["qwen3-0.6b"], search_betas=(0.1, 1)
    )
    assert runs.chat_runs() == [
        ("grpo", None), ("cokl", None), ("reverse_kl", None), ("cokl", 0.1), ("reverse_kl", 0.1), ("reverse_kl", 1)
    ]  # fmt: skip


def test_a_job_has_the_name_of_its_method_whatever_it_was_called(tmp_path):
    from cokl_cli.app import _parse

    asked = _parse(["llm", "run", "--methods", "grpo,Replay", "CoKL + floor"])
    assert isinstance(asked, RunStages)
    assert asked.methods == ("grpo", "correct_forward_kl", "cokl_floor")
    config = configurations.PRESETS["smollm2"]
    jobs = [chat_job(config, tmp_path, tmp_path, name) for name in ("replay", "correct_forward_kl")]
    assert jobs[0] == jobs[1]
    assert config.beta("replay") == 0.003


def test_a_search_over_what_cannot_be_trained_is_refused():
    with pytest.raises(InputError, match="search_betas"):
        RunStages(search_betas=(-1.0,)).chat_runs()


def test_workers_of_a_running_cluster_get_what_a_job_sets(monkeypatch, tmp_path):
    config = configurations.PRESETS["qwen3-0.6b"]
    metrics = tmp_path / "metrics.jsonl"
    for name in ("HF_HOME", "HF_TOKEN", "NCCL_IB_HCA", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "the user's")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert "RAY_JOB_CONFIG_JSON_ENV_VAR" not in environment(config, metrics)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    member = environment(config, metrics)
    given = json.loads(member["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]["env_vars"]
    assert {given[name] for name in ("HF_HOME", "HF_TOKEN", "NCCL_IB_HCA", "WANDB_API_KEY")} == {"the user's"}
    assert given["VERL_FILE_LOGGER_PATH"] == str(metrics)
    assert given["VERL_USE_EXTERNAL_MODULES"] == "llm_bridge.plugin"
    assert given["PYTHONPATH"].split(":")[0] == str(Path(__file__).parents[3])
    assert "HOME" not in given
    # No secret is among the arguments or in VeRL's configuration, which it prints.
    assert not any("the user's" in argument for argument in command_line(math_job(config, tmp_path, "model").overrides))


def test_an_odd_number_of_groups_is_refused():
    with pytest.raises(InputError, match="kl_groups: expected an even number"):
        dataclasses.replace(configurations.PRESETS["smollm2"], kl_groups=7)


def test_coefficients_of_the_families():
    config = configurations.PRESETS["qwen3-0.6b"]
    assert {method: config.beta(method) for method in PAPER_METHODS} == {
        "grpo": 1.0,
        "forward_kl": 1.0,
        "correct_forward_kl": 1.0,
        "cokl": 1.0,
        "cokl_without_term1": 1.0,
        "cokl_floor": 1.0,
        "reverse_kl": 1e-3,
        "correct_reverse_kl": 1e-3,
    }


def test_smollm2_trains_each_method_at_its_own_choice():
    config = configurations.PRESETS["smollm2"]
    chosen = {method: config.beta(method) for method in ("correct_forward_kl", "cokl", "cokl_floor")}
    assert chosen == {"correct_forward_kl": 0.003, "cokl": 0.01, "cokl_floor": 0.01}
    assert dataclasses.replace(config, name="second").beta("cokl") == 0.01


def test_a_run_lists_what_is_left_of_it_with_its_minutes(tmp_path):
    config = configurations.PRESETS["smollm2"]
    planned = [buffer_job(config, tmp_path, tmp_path), chat_job(config, tmp_path, tmp_path, "cokl")]
    pace = config.workload.prompts.pace
    assert pace is not None
    lines = told(planned, config, pace).splitlines()
    assert lines[1] == "  buffer: 256 responses, about 2 minutes"  # 1:54 and 1:55 were measured
    assert lines[2] == "  chat/cokl: 24 steps of 64 rows, about 23 minutes"
    assert lines[3].startswith("  in all about 25 minutes on ")
    (tmp_path / "buffer.parquet").touch()
    left = told(planned, config, pace).splitlines()
    assert left[1] == lines[2]
    assert left[2].startswith("  in all about 23 minutes on ")


@pytest.mark.parametrize(
    ("until", "listed", "done"),
    [
        ("math", ["math"], ["math"]),
        ("buffer", ["math", "buffer"], ["buffer"]),
        (
            "chat",
            ["math", "buffer", "chat/grpo", "chat/cokl"],
            ["grpo", "tables, not shown", "cokl", "tables", "picture"],
        ),
    ],
)
def test_a_run_lists_and_does_what_it_is_asked_for_and_shows_the_last_tables(
    tmp_path, monkeypatch, capsys, until, listed, done
):
    """What trains and reports only notes that it was called."""
    order: list[str] = []

    def plan(experiment, runs):
        jobs = [math_job(experiment.config, tmp_path, "model"), buffer_job(experiment.config, tmp_path, tmp_path)]
        jobs += [chat_job(experiment.config, tmp_path, tmp_path, *run) for run in runs]
        return [(job, None) for job in jobs]

    monkeypatch.setattr(Experiment, "check", plan)
    monkeypatch.setattr(Experiment, "train_math", lambda experiment: order.append("math"))
    monkeypatch.setattr(Experiment, "fill_buffer", lambda experiment: order.append("buffer"))
    monkeypatch.setattr(Experiment, "train_chat", lambda experiment, method, beta: order.append(method))
    tables = {True: "tables, not shown", False: "tables"}
    monkeypatch.setattr(llm, "_report", lambda config, root, quiet: order.append(tables[quiet]))
    monkeypatch.setattr(llm, "_draw", lambda folder: order.append("picture"))
    asked = RunStages(out=tmp_path / "run", methods=("grpo", "cokl"), until=until)
    assert asked.run() == 0
    assert order == done
    assert re.findall(r"^  (\S+): ", capsys.readouterr().out, re.MULTILINE) == listed


@pytest.mark.parametrize(("interval", "minutes"), [(100, 17), (6, 19)])
def test_the_minutes_of_the_math_stage_have_all_its_evaluations(tmp_path, interval, minutes):
    """By hand, in seconds: 80 to start and 576 for 12 steps of 64 rows; 125 for each evaluation, of 8 answers to half
    of 132 candidates and to 32 lines; then, started again, 80, and 169 for 8 answers to each candidate. With one
    evaluation 1,030, with two 1,156.
    """
    config = dataclasses.replace(configurations.PRESETS["smollm2"], eval_interval=interval)
    pace = config.workload.prompts.pace
    assert pace is not None
    line = told([math_job(config, tmp_path, "model")], config, pace).splitlines()[1]
    assert line == f"  math: 12 steps of 64 rows, about {minutes} minutes"


def test_a_workloads_entry_says_what_its_jobs_have(tmp_path, monkeypatch):
    """Its starting model's name and settings, and which of its sets is there once its strata are."""
    pace = Pace(1, 1, 1, evaluated=1, candidates=1)
    prompts = Prompts("a:b", {"easy": "Easy", "hard": "Hard"}, "a:c", pace=pace)
    entry = Workload(start=StartModel("Tiny-1M", "a", ("tiny",)), prompts=prompts)
    monkeypatch.setitem(WORKLOADS, "tiny", entry)
    preset = dataclasses.replace(configurations.PRESETS["smollm2"], name="tiny", math_sets=("easy",))
    asked = math_job(preset, tmp_path, "model")
    assert "+experiment/settings=[job,training,cpu,tiny]" in asked.overrides
    assert f"+llm.val_files=['{tmp_path}/data/candidates.parquet']" in asked.overrides
    assert told([asked], preset, pace).startswith("Tiny-1M:\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "easy.parquet").touch()
    assert math_job(preset, tmp_path, "model") == asked
    (tmp_path / "data" / "hard.parquet").touch()
    evaluated = math_job(preset, tmp_path, "model").overrides
    assert f"+llm.val_files=['{tmp_path}/data/easy.parquet','{tmp_path}/data/chat_val.parquet']" in evaluated


@pytest.mark.parametrize("name", ["chat_val", "distinct", "share", "model", "beta", "main", "math_avg", "overall"])
def test_a_set_has_no_name_that_its_column_would_be_lost_under(name):
    with pytest.raises(
        InputError,
        match="math_sets: expected none of chat_val, distinct, share, model, method, beta, main, math_avg, overall",
    ):
        dataclasses.replace(configurations.PRESETS["smollm2"], math_sets=("known", name))


def test_the_buffers_prompts_are_from_what_the_workload_has():
    files = {name: preset.workload.buffer_file for name, preset in configurations.PRESETS.items()}
    assert files.pop("smollm2") == "buffer_prompts"  # what its strata leave
    assert files.pop("open-questions") == "chat_train"  # since it has no math stage
    assert {*files.values()} == {"math_train"}


def test_a_trained_model_is_where_its_job_leaves_it():
    config, root = configurations.PRESETS["smollm2"], Path("/r")
    assert trained(config, root, "base").model == math_job(config, root, "model").model
    assert trained(config, root, "cokl-beta-0.1").model == chat_job(config, root, Path("/ref"), "cokl", 0.1).model
    assert [trained(config, root, name).steps for name in ("base", "cokl-beta-0.1")] == [12, 24]
