"""What checkpoints take and what is left of them, on a real model's folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cokl.support.errors import InputError
from llm_bridge.experiment import disk
from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.dry_run import TINY, parameters
from llm_bridge.experiment.jobs import Job, chat_job, math_job
from llm_bridge.experiment.stages import Experiment
from llm_bridge.tiny.model import make_model
from llm_bridge.tiny.tokenizer import make_tokenizer


@pytest.fixture
def job(tmp_path) -> Job:
    """A chat run that is done, with VeRL's last two checkpoints."""
    return finished(chat_job(PRESETS["tiny"], tmp_path, tmp_path, "grpo"))


def finished(job: Job) -> Job:
    for step in (job.steps - 10, job.steps):
        folder = job.folder / "checkpoints" / f"global_step_{step}"
        (folder / "actor").mkdir(parents=True)
        (folder / "data.pt").write_bytes(b"data")
        (folder / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"shard")
    tokenizer = make_tokenizer()
    make_model(tokenizer).save_pretrained(job.model)
    tokenizer.save_pretrained(job.model)
    (job.folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(job.steps))
    return job


def left(job: Job) -> set[str]:
    folder = job.folder / "checkpoints"
    return {str(path.relative_to(folder)) for path in folder.rglob("*.pt")} | {
        str(path.relative_to(folder)) for path in folder.rglob("*.safetensors")
    }


@pytest.mark.parametrize(("name", "size"), [("qwen3-0.6b", 9.5), ("qwen3-1.7b", 27.5), ("qwen3-4b", 64)])
def test_a_checkpoint_has_weights_moments_and_a_copy(name, size):
    assert disk.CHECKPOINT * (parameters(PRESETS[name]) or 0) / 1e9 == pytest.approx(size, rel=0.01)


def test_parameters_are_counted_in_a_folder(job):
    assert parameters(PRESETS["tiny"]) == TINY
    counted = sum(weight.numel() for weight in make_model(make_tokenizer()).parameters())
    config = dataclasses.replace(PRESETS["tiny"], model=str(job.model))
    assert parameters(config) == counted == TINY
    assert parameters(dataclasses.replace(config, model="not/here")) is None


def test_a_disk_without_room_is_one_line_before_any_work(tmp_path):
    jobs = [chat_job(PRESETS["tiny"], tmp_path, tmp_path, method) for method in ("grpo", "cokl")]
    disk.require_room(tmp_path / "not" / "yet", jobs, 1e3, "all")
    with pytest.raises(InputError, match=r"GB free and the checkpoints of this command need up to 36000000.0 GB"):
        disk.require_room(tmp_path, jobs, 1e15, "model")


def test_what_is_done_or_there_needs_no_more_room(tmp_path, job):
    other = chat_job(PRESETS["tiny"], tmp_path, tmp_path, "cokl")
    assert disk.bytes_needed([job], TINY, "all") == 0
    assert disk.bytes_needed([job, other], TINY, "all") == 34 * TINY
    (other.folder / "checkpoints" / "global_step_10").mkdir(parents=True)
    (other.folder / "checkpoints" / "global_step_10" / "data.pt").write_bytes(bytes(1000))
    assert disk.bytes_needed([job, other], TINY, "all") == 34 * TINY - 1000


def test_the_exported_model_is_the_final_one_in_bfloat16(job, tmp_path):
    disk.export(job, tmp_path / "models" / "grpo")
    original = AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "models" / "grpo", dtype="auto")
    for name, weight in original.state_dict().items():
        assert torch.equal(exported.state_dict()[name], weight.to(torch.bfloat16))
    assert AutoTokenizer.from_pretrained(tmp_path / "models" / "grpo").chat_template == make_tokenizer().chat_template
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["grpo"]


def test_what_is_left_of_a_run_is_an_option(tmp_path, job):
    last = f"global_step_{job.steps}"
    everything = left(job)
    assert len(everything) == 5
    disk.prune(job, "all")
    assert left(job) == everything
    disk.prune(job, "checkpoint")
    assert left(job) == {name for name in everything if name.startswith(last)}
    disk.prune(job, "model")
    assert left(job) == set()
    assert job.done
    math = finished(math_job(PRESETS["tiny"], tmp_path, tmp_path))
    disk.prune(math, "model")
    assert left(math) == {f"global_step_{math.steps}/actor/huggingface/model.safetensors"}


def test_a_pruned_run_is_evaluated_from_its_exported_model(tmp_path, job, monkeypatch):
    experiment = Experiment(PRESETS["tiny"], tmp_path)
    disk.export(job, experiment.exported("grpo"))
    disk.prune(job, "model")
    started = []
    monkeypatch.setattr(Experiment, "run", lambda self, job: started.append(job))
    experiment.evaluate("grpo")
    assert f"actor_rollout_ref.model.path='{experiment.exported('grpo')}'" in started[0].overrides


def test_a_model_is_pushed_once_and_a_refusal_is_one_line(tmp_path, job, monkeypatch):
    calls: list[tuple] = []

    class Hub:
        def create_repo(self, repository, private, exist_ok):
            calls.append((repository, private, exist_ok))

        def upload_folder(self, folder_path, repo_id):
            if len(calls) == 1:
                raise OSError("401: no token")
            calls.append((folder_path, repo_id))

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("llm_bridge.experiment.stages.final_scores", lambda *arguments: {"math500": 1.0})
    experiment = Experiment(PRESETS["tiny"], tmp_path, push="me")
    with pytest.raises(InputError, match=r"cannot push .*grpo to me/.*-grpo \(401: no token\)") as told:
        experiment._train(job, "grpo")
    assert "\n" not in str(told.value)
    for _ in range(2):
        experiment._train(job, "grpo")
    repository = f"me/{tmp_path.name}-grpo"
    assert calls == [(repository, True, True)] * 2 + [(Path(tmp_path) / "models" / "grpo", repository)]
