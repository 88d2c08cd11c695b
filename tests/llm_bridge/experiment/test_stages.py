"""Stages: what is done, what is refused, how a job's end is told; with real processes in place of VeRL's."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from cokl.support.errors import InputError
from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.experiment import config as configurations
from llm_bridge.experiment import stages
from llm_bridge.experiment.jobs import Job, chat_job, math_job
from llm_bridge.experiment.process import alone, run
from llm_bridge.experiment.stages import Experiment, driver_version
from llm_bridge.report.collect import collect
from llm_bridge.report.results import read_results, save_results
from llm_bridge.report.tables import result_tables

SMALL = configurations.PRESETS["smollm2"]


@pytest.fixture(autouse=True)
def own_lock(tmp_path_factory, monkeypatch):
    """No other test's VeRL run on this machine is in the way."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def ran(tmp_path: Path, code: str) -> None:
    run([sys.executable, "-u", "-c", code], dict(os.environ), tmp_path / "log.txt")


def test_a_job_that_succeeds_leaves_its_log(tmp_path):
    ran(tmp_path, "print('hello')")
    assert "hello" in (tmp_path / "log.txt").read_text()


def test_a_job_that_fails_is_told_in_one_line(tmp_path):
    code = "print('ValueError: of an earlier time'); raise RuntimeError('the queue is empty')"
    with pytest.raises(InputError, match="RuntimeError: the queue is empty; the whole log is") as raised:
        ran(tmp_path, code)
    assert "\n" not in str(raised.value)


def test_only_the_last_attempts_log_is_told(tmp_path):
    with pytest.raises(InputError):
        ran(tmp_path, "raise RuntimeError('first')")
    with pytest.raises(InputError, match="second"):
        ran(tmp_path, "raise RuntimeError('second')")


def test_an_interrupt_ends_a_job_with_its_children(tmp_path):
    """Ctrl-C reaches the parent alone: a job has a session of its own."""
    child = f"import time, os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    job = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); import time; time.sleep(600)"
    parent = (
        "import os, sys; from pathlib import Path; from llm_bridge.experiment.process import run; "
        f"run([sys.executable, '-c', {job!r}], dict(os.environ), Path({str(tmp_path / 'log.txt')!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.DEVNULL)
    pid = tmp_path / "pid"
    while not (pid.is_file() and pid.read_text()):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.wait()
    state = Path(f"/proc/{pid.read_text()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"  # ended, perhaps not yet reaped


def test_two_experiments_on_one_machine_are_refused():
    with alone(), pytest.raises(InputError, match="another experiment is running VeRL on"), alone():
        pass
    with alone():
        pass


def test_a_folder_of_another_experiment_is_refused(tmp_path):
    Experiment(SMALL, tmp_path, ("data.shuffle=False",)).open()
    Experiment(SMALL, tmp_path, ("data.shuffle=False",)).open()
    with pytest.raises(InputError, match="chat_steps: 24 there, 9 asked for"):
        Experiment(dataclasses.replace(SMALL, chat_steps=9), tmp_path, ("data.shuffle=False",)).open()
    with pytest.raises(InputError, match="overrides"):
        Experiment(SMALL, tmp_path).open()


def test_a_finished_job_is_not_started_again(tmp_path, monkeypatch):
    job = math_job(SMALL, tmp_path, "model")
    (job.folder / "checkpoints").mkdir(parents=True)
    (job.folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(SMALL.math_steps))
    monkeypatch.setattr(stages, "run", lambda *arguments: pytest.fail("started"))
    Experiment(SMALL, tmp_path).run(job)


@pytest.mark.parametrize(
    ("name", "changes", "made"),
    [
        ("smollm2", {}, ["room", "weights", "data and starting model", "sums", "model"]),
        ("smollm2", {"own_data": "mine"}, ["room", "weights", "starting model", "model"]),
        ("open-questions", {}, ["room", "weights", "data and starting model", "questions", "model"]),
        ("qwen3-0.6b", {}, ["data", "the paper's"]),
        ("qwen3-0.6b", {"own_data": "mine"}, []),
    ],
)
def test_what_is_prepared_in_which_order_and_once(name, changes, made, tmp_path, monkeypatch):
    order: list[str] = []

    def makes(what: str, name: str = "") -> Callable[..., None]:
        def make(folder: Path, *arguments: object, **options: object) -> None:
            order.append(what)
            assert folder in (tmp_path, tmp_path / "data", Path("gguf"))
            prompts = what in ("sums", "questions", "the paper's")
            assert options == ({"seed": 7, "data_dir": Path("copies")} if prompts else {})
            if name:
                (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "data" / name).touch()

        return make

    def find() -> Path:
        order.append("weights")
        return Path("gguf")

    monkeypatch.setattr(stages, "_say", order.append)
    monkeypatch.setattr("llm_bridge.smollm2_weights.require_room", makes("room"))
    monkeypatch.setattr("llm_bridge.smollm2_weights.find_weights", find)
    monkeypatch.setattr("llm_bridge.smollm2_weights.convert", makes("model", "model/tokenizer_config.json"))
    monkeypatch.setattr("llm_bridge.experiment.smollm2.tasks.write_sets", makes("sums"))
    monkeypatch.setattr("llm_bridge.experiment.open_questions.write_sets", makes("questions"))
    monkeypatch.setattr("llm_bridge.data.prepare.prepare", makes("the paper's", "done"))
    config = dataclasses.replace(configurations.PRESETS[name], seed=7, **changes)
    experiment = Experiment(config, tmp_path, data_dir=Path("copies"))
    experiment.prepare()
    assert order == made
    experiment.prepare()
    assert order == made


@pytest.fixture
def measured() -> dict[str, float]:
    """What VeRL's next evaluation on the strata says."""
    return evaluation(0.5, 0.5)


@pytest.fixture
def math_stage(tmp_path, monkeypatch, measured) -> Callable[[], list[str]]:
    """Run SmolLM2's math stage with jobs that leave what VeRL leaves; returns what was started, on which sets.

    Of the eight candidates the base knows the first four.
    """
    (tmp_path / "data" / "model").mkdir(parents=True)
    (tmp_path / "data" / "model" / "tokenizer_config.json").write_text("{}")
    rows = [math_row("candidates", index, "sum", f"1 + {index}?", "2") for index in range(8)]
    write_rows(rows, tmp_path / "data" / "candidates.parquet")
    started: list[str] = []

    def verl(command: list[str], environment: dict[str, str], log: Path) -> None:
        sets = next(option for option in command if option.startswith("+llm.val_files="))
        names = ", ".join(re.findall(r"(\w+)\.parquet", sets))
        started.append(("evaluate " if "trainer.val_only=True" in command else "train, then evaluate ") + names)
        if "candidates" in sets:
            draws = [{"prompt": f"candidates/{index}", "score": float(index < 4)} for index in range(8)]
            (log.parent / "candidates").mkdir(exist_ok=True)
            (log.parent / "candidates" / "12.jsonl").write_text("".join(json.dumps(draw) + "\n" for draw in draws))
        if not (log.parent / "checkpoints").exists():
            checkpoint(math_job(SMALL, tmp_path, "model"), 12)
        assert list(log.parent.glob("checkpoints/global_step_12/actor/model_world_size_*"))  # what VeRL resumes from
        line = {"step": 12, "data": {} if "candidates" in sets else measured}
        Path(environment["VERL_FILE_LOGGER_PATH"]).write_text(json.dumps(line))

    def train() -> list[str]:
        started.clear()
        Experiment(SMALL, tmp_path).train_math()
        return started

    monkeypatch.setattr(stages, "run", verl)
    return train


@pytest.mark.parametrize("removed", ["", "checkpoints"])
def test_the_base_is_evaluated_on_the_strata_that_its_own_draws_form(tmp_path, math_stage, measured, removed):
    assert math_stage() == ["train, then evaluate candidates", "evaluate known, unknown, chat_val"]
    assert collect(SMALL, tmp_path).scores["known"].tolist() == [50]
    assert not math_stage()
    shutil.rmtree(tmp_path / "math" / removed)  # to train it anew
    measured.update(evaluation(0.75, 0.5))
    (tmp_path / "data" / "known.parquet").write_text("another model's")
    assert len(math_stage()) == 2
    assert collect(SMALL, tmp_path).scores["known"].tolist() == [75]
    assert len(pd.read_parquet(tmp_path / "data" / "known.parquet")) == 2


@pytest.mark.parametrize("written", [None, '{"prompt": "candi'])
def test_what_a_run_that_died_in_an_evaluation_lacks_is_evaluated(tmp_path, math_stage, written):
    checkpoint(math_job(SMALL, tmp_path, "model"), 12)
    if written:
        (tmp_path / "math" / "candidates").mkdir()
        (tmp_path / "math" / "candidates" / "12.jsonl").write_text(written)
    assert math_stage() == ["evaluate candidates", "evaluate known, unknown, chat_val"]


def test_a_model_without_scores_keeps_its_checkpoint(tmp_path, math_stage, measured):
    """As without VeRL's file among its loggers."""
    measured.clear()
    with pytest.raises(InputError, match=r"math: no scores in .*metrics; trainer.logger needs file"):
        math_stage()
    measured.update(evaluation(0.5, 0.5))
    assert math_stage() == ["evaluate known, unknown, chat_val"]


@pytest.mark.parametrize(("there", "asked"), [("10.0.0.1:6379", "10.0.0.1:6379"), ("ray://a:1", "a:1")])
def test_a_clusters_lock_holds_for_all_its_names_and_for_no_other_cluster(monkeypatch, there, asked):
    monkeypatch.setenv("RAY_ADDRESS", there)
    with alone():
        monkeypatch.setenv("RAY_ADDRESS", asked)
        with pytest.raises(InputError, match=f"on {asked}.*mix their rows"), alone():
            pass
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
        with alone():
            pass


def checkpoint(job, step: int, ranks: int = 1) -> Path:
    """The files of VeRL's checkpoint that matter here, the last one to be complete."""
    actor = job.folder / "checkpoints" / f"global_step_{step}" / "actor"
    actor.mkdir(parents=True)
    for rank in range(ranks):
        (actor / f"model_world_size_{ranks}_rank_{rank}.pt").touch()
    (actor.parents[1] / "latest_checkpointed_iteration.txt").write_text(str(step))
    return actor


def test_of_a_finished_run_the_model_alone_is_left(tmp_path, monkeypatch):
    job = chat_job(SMALL, tmp_path, tmp_path, "grpo")
    for step in (SMALL.chat_steps - 8, SMALL.chat_steps):
        actor = checkpoint(job, step)
        (actor / "huggingface").mkdir()
        (actor / "huggingface" / "model.safetensors").write_text("weights")
        (actor.parent / "data.pt").touch()
    write_metrics(job.folder / "metrics", [{SMALL.chat_steps: evaluation(0.5, 0.5)}])
    Experiment(SMALL, tmp_path)._train(job, "grpo")
    left = [path for path in (job.folder / "checkpoints").rglob("*") if path.is_file()]
    assert {path.name for path in left} == {"latest_checkpointed_iteration.txt", "model.safetensors"}
    assert (job.model / "model.safetensors").is_file()
    assert job.done


def test_a_job_that_ends_before_its_last_step_is_told(tmp_path, monkeypatch):
    job = math_job(SMALL, tmp_path, "model")
    checkpoint(job, 8)
    monkeypatch.setattr(stages, "run", lambda *arguments: None)
    with pytest.raises(InputError, match="math ended at step 8 of 12"):
        Experiment(SMALL, tmp_path).run(job)


def test_a_chat_run_from_another_math_model_is_not_resumed(tmp_path, monkeypatch):
    trained: list[Job] = []
    monkeypatch.setattr(Experiment, "train_math", lambda self: None)
    monkeypatch.setattr(Experiment, "_train", lambda self, job, name: trained.append(job))
    experiment = Experiment(SMALL, tmp_path)
    experiment.reference.mkdir(parents=True)
    (experiment.reference / "model.safetensors").write_text("first")
    experiment.train_chat("grpo")
    experiment.train_chat("grpo")
    (experiment.reference / "model.safetensors").write_text("second")
    with pytest.raises(InputError, match=r"chat/grpo holds another run \(reference: "):
        experiment.train_chat("grpo")
    assert len(trained) == 2


def test_the_buffers_prompts_are_drawn_by_the_runs_seed(tmp_path):
    """Some of the training prompts, each once; all of them where the buffer may have more."""
    rows = [math_row("math_train", index, "sum", f"{index} + 1?", str(index + 1)) for index in range(8)]
    write_rows(rows, tmp_path / "own" / "math_train.parquet")
    config = dataclasses.replace(SMALL, model="mine", own_data=str(tmp_path / "own"), buffer_prompts=3)

    def drawn(**changes) -> list[int]:
        experiment = Experiment(dataclasses.replace(config, **changes), tmp_path / "out")
        experiment._draw_buffer_prompts()
        found = pd.read_parquet(tmp_path / "out" / "buffer" / "prompts.parquet")
        return [info["index"] for info in found["extra_info"]]

    first, again, other = drawn(seed=0), drawn(seed=0), drawn(seed=1)
    assert first == again
    assert len({*first}) == len({*other}) == 3
    assert {*first} != {*other}
    assert sorted(drawn(buffer_prompts=100)) == list(range(8))


def test_models_come_from_the_commits_they_are_pinned_to(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    asked = []

    def snapshot_download(name, revision, allow_patterns):
        asked.append((name, revision))
        return str(tmp_path / name)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    config = configurations.PRESETS["qwen3-0.6b"]
    fetched = Experiment(config, tmp_path).fetched()
    assert asked == [(name, configurations.REVISIONS[name]) for name in (config.model, config.reward_model)]
    assert fetched.reward_model == str(tmp_path / config.reward_model)
    Experiment(dataclasses.replace(config, model="some/model", reward_model=""), tmp_path).fetched()
    assert asked[2:] == [("some/model", None)]


def test_prompts_and_a_reward_function_of_ones_own_that_have_changed_are_another_experiment(tmp_path):
    reward, own = tmp_path / "my_reward.py", tmp_path / "own"
    reward.write_text("def score(**told):\n    return 1.0\n")
    for name in ("math_train", "chat_train", "sums", "chat_val"):
        write_rows([math_row(name, 0, "", f"{name}?", "1")], own / f"{name}.parquet")
    config = dataclasses.replace(SMALL, own_data=str(own), math_sets=("sums",), reward_function=f"{reward}:score")
    Experiment(config, tmp_path / "out").open()
    Experiment(config, tmp_path / "out").open()
    for path in (reward, own / "sums.parquet"):
        before = path.read_bytes()
        path.write_bytes(before + b"#")
        with pytest.raises(InputError, match=rf"code\.{path.name}\.{path.stem}: \w+ there, \w+ asked for"):
            Experiment(config, tmp_path / "out").open()
        path.write_bytes(before)
    Experiment(SMALL, tmp_path / "plain").open()
    assert "code" not in json.loads((tmp_path / "plain" / "config.json").read_text())


def test_ones_own_data_are_checked_and_used(tmp_path):
    own = tmp_path / "own"
    names = ("math_train", "chat_train", "sums", "chat_val")
    for name in names:
        write_rows([math_row(name, 0, "x", "1 + 1?", "2")], own / f"{name}.parquet")
    config = dataclasses.replace(SMALL, own_data=str(own), math_sets=("sums",), model=str(tmp_path))
    Experiment(config, tmp_path / "out").check_prompts()
    overrides = math_job(config, tmp_path / "out", "model").overrides
    assert f"+llm.train_files='{own}/math_train.parquet'" in overrides
    assert f"+llm.val_files=['{own}/sums.parquet','{own}/chat_val.parquet']" in overrides
    write_rows([math_row("other", 0, "x", "1 + 1?", "2")], own / "sums.parquet")
    with pytest.raises(InputError, match=r"sums.parquet: expected the data source 'sums' in every row, got other"):
        Experiment(config, tmp_path / "out").check([("grpo", None)])
    with pytest.raises(InputError, match="expected some of math_val, math500, olympiad; prompts of your own"):
        Experiment(dataclasses.replace(config, own_data=""), tmp_path / "out").check([("grpo", None)])
    (own / "sums.parquet").unlink()
    with pytest.raises(InputError, match=r"sums.parquet is missing; expected math_train, chat_train, sums, chat_val"):
        Experiment(config, tmp_path / "out").check(())


def test_a_reward_function_of_ones_own_is_tried_before_anything_starts(tmp_path):
    """On the first prompt of each set, answered with its ground truth."""
    pytest.importorskip("verl")
    for name in ("math_train", "chat_train", "sums", "chat_val"):
        write_rows([math_row(name, 0, "x", "1 + 1?", "2")], tmp_path / "own" / f"{name}.parquet")
    code = "def right(**told):\n    return 1.0\n\n\ndef failing(**told):\n    raise KeyError(told['data_source'])\n"
    (tmp_path / "rewards.py").write_text(code)
    config = dataclasses.replace(SMALL, own_data=str(tmp_path / "own"), math_sets=("sums",), model=str(tmp_path))

    def experiment(function: str) -> Experiment:
        return Experiment(dataclasses.replace(config, reward_function=f"{tmp_path}/{function}"), tmp_path / "out")

    experiment("rewards.py:right")._check_function()
    with pytest.raises(InputError, match="expected a finite number, or a dictionary with one at 'score', got KeyError"):
        experiment("rewards.py:failing")._check_function()
    with pytest.raises(InputError, match=r"rewards.py:absent': .*rewards.py has right, failing, no absent"):
        experiment("rewards.py:absent").check(())


def test_ones_own_evaluation_sets_are_reported(tmp_path):
    config = dataclasses.replace(SMALL, math_steps=2, own_data="mine", math_sets=("sums", "products"))
    write_metrics(tmp_path / "math" / "metrics", [{2: {"val/sums/mean@8": 0.5, "val/products/mean@8": 0.25,
                                                       "val/chat_val/mean@8": 0.1}}])  # fmt: skip
    results = collect(config, tmp_path)
    save_results(results, tmp_path / "results")
    again = read_results(tmp_path / "results")
    assert again.math_columns == ("sums", "products")
    assert result_tables(again)[0].frame[["sums", "products", "math_avg"]].to_numpy().tolist() == [[50, 25, 37.5]]


def test_a_gpu_configuration_without_a_gpu_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="trains on GPUs, and there is none here"):
        Experiment(configurations.PRESETS["qwen3-0.6b"], tmp_path).require_device()
    Experiment(SMALL, tmp_path).require_device()


@pytest.mark.parametrize(
    ("knows", "built", "said"),
    [
        ((12, 8), "13.0", "a driver older than PyTorch: it knows CUDA 12.8, and PyTorch is built for 13.0"),
        ((13, 0), None, "built for CPUs, and there is a GPU's driver here: run make llm-gpu"),
        ((13, 0), "13.0", "trains on GPUs, and there is none here"),
        (None, "13.0", "trains on GPUs, and there is none here"),
    ],
)
def test_a_gpu_that_pytorch_cannot_use_is_told_with_its_cause(tmp_path, monkeypatch, knows, built, said):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", built)
    monkeypatch.setattr("llm_bridge.experiment.stages.driver_version", lambda: knows)
    with pytest.raises(InputError, match=said):
        Experiment(configurations.PRESETS["qwen3-0.6b"], tmp_path).require_device()


def test_the_drivers_version_is_what_its_library_says(tmp_path, monkeypatch):
    """A library of that name, compiled here, in the place of the driver's."""
    source = tmp_path / "driver.c"
    source.write_text("int cuDriverGetVersion(int *version) { *version = 12080; return 0; }")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    load = ctypes.CDLL
    monkeypatch.setattr("ctypes.CDLL", lambda name: load(str(library) if name == library.name else name))
    assert driver_version() == (12, 8)


def write_metrics(folder: Path, attempts: list[dict[int, dict]]) -> None:
    folder.mkdir(parents=True)
    for number, steps in enumerate(attempts):
        lines = [json.dumps({"step": step, "data": data}) for step, data in steps.items()]
        (folder / f"{number:03d}.jsonl").write_text("\n".join(lines) + '\n{"step": 9, "da')


def evaluation(math: float, chat: float) -> dict[str, float]:
    return {"val/known/mean@8": math, "val/unknown/mean@8": math, "val/chat_val/mean@8": chat}
