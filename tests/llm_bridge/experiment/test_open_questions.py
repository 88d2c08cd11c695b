"""The preset open-questions: VeRL is asked for what the loop of `llm_bridge.open_questions` does; nothing trains."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("verl")
pytest.importorskip("gguf")

import torch
from omegaconf import DictConfig, OmegaConf
from transformers import AutoTokenizer

from cokl.support.errors import InputError
from llm_bridge.experiment.config import PRESETS, LLMConfig
from llm_bridge.experiment.jobs import buffer_job, chat_job, compose
from llm_bridge.experiment.open_questions import score, write_sets
from llm_bridge.experiment.stages import Experiment
from llm_bridge.open_questions.experiment import DRAWS, EVERY
from llm_bridge.open_questions.loop import Buffer, Settings, Training
from llm_bridge.open_questions.questions import Question
from llm_bridge.report.collect import collect
from llm_bridge.report.figures import dynamics
from llm_bridge.report.results import read_results, save_results
from llm_bridge.report.tables import result_tables
from llm_bridge.smollm2_weights import CHAT_TEMPLATE, find_weights
from tests.llm_bridge import toy

CONFIG = PRESETS["open-questions"]
LOOP = Settings("cokl", 0.01, seed=0, steps=24)
"""The run of the plan that the preset is to repeat."""
ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
SAME = {
    "method": ["cokl.method"],
    "beta": ["cokl.beta"],
    "seed": ["data.seed", "cokl.seed", f"{ROLLOUT}.seed"],
    "steps": ["trainer.total_training_steps"],
    "prompts": ["data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size"],
    "group": [f"{ROLLOUT}.n"],
    "cached": ["cokl.cached_per_prompt"],
    "length": ["data.max_response_length", f"{ROLLOUT}.response_length"],
    "learning_rate": [f"{ACTOR}.optim.lr"],
    "temperature": [f"{ROLLOUT}.temperature", f"{ROLLOUT}.val_kwargs.temperature"],
}
"""Where VeRL has each of the loop's settings."""
WITHOUT_EFFECT = {"micro_batch"}
"""Settings of the loop that change no gradient."""


@pytest.fixture(scope="module")
def chat() -> DictConfig:
    return compose(chat_job(CONFIG, Path("/r"), Path("/r/data/model"), "cokl"))


@pytest.fixture(scope="module")
def buffer() -> DictConfig:
    return compose(buffer_job(CONFIG, Path("/r"), Path("/r/data/model")))


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_sets(folder)
    return folder


@pytest.mark.parametrize("setting", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_of_the_loop_is_verls(chat, setting):
    if setting not in WITHOUT_EFFECT:
        assert [OmegaConf.select(chat, name) for name in SAME[setting]] == [getattr(LOOP, setting)] * len(SAME[setting])


def test_the_optimizer_is_the_loops(chat, monkeypatch):
    """As a step of the loop uses it, on the toy."""
    norms, clip = [], torch.nn.utils.clip_grad_norm_

    def recorded(parameters, norm: float) -> torch.Tensor:
        norms.append(norm)
        return clip(parameters, norm)

    monkeypatch.setattr("torch.nn.utils.clip_grad_norm_", recorded)
    tokenizer = toy.make_tokenizer()
    cached = Buffer(torch.full((1, 4, 2), tokenizer.eos_token_id), torch.ones(1, 4))
    settings = dataclasses.replace(LOOP, prompts=1, group=2, cached=2, length=2)
    question = Question("Split apples", "own", ("apples",))
    training = Training(toy.make_model(tokenizer), tokenizer, [question], cached, settings)
    training.step()
    used, optim = training.optimizer.param_groups[0], chat.actor_rollout_ref.actor.optim
    assert type(training.optimizer).__name__ == optim.optimizer
    assert (used["lr"], list(used["betas"]), used["weight_decay"]) == (optim.lr, optim.betas, optim.weight_decay)
    assert norms == [optim.clip_grad]
    assert (optim.lr_scheduler_type, optim.lr_warmup_steps_ratio) == ("constant", 0)


def test_the_loss_is_the_loops(chat):
    """GRPO's advantages, a mean over each answer's tokens, a sum of them in the regularizer, one step a batch."""
    expected = {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": True,
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
        f"{ACTOR}.ppo_epochs": 1,
        f"{ACTOR}.entropy_coeff": 0,
        f"{ACTOR}.use_kl_loss": False,
        "cokl.length": "token-sum",
        "cokl.prompts": "training",
        "cokl.kl_prompts": None,
        "data.shuffle": True,
        f"{ROLLOUT}.top_p": 1,
        f"{ROLLOUT}.top_k": -1,
    }
    assert {name: OmegaConf.select(chat, name) for name in expected} == expected


def test_buffer_and_measurements_are_the_loops(chat, buffer):
    assert buffer.actor_rollout_ref.rollout.n == DRAWS
    assert buffer.actor_rollout_ref.rollout.temperature == LOOP.temperature
    measured = chat.actor_rollout_ref.rollout.val_kwargs
    assert (measured.n, measured.do_sample, measured.top_p, measured.top_k) == (DRAWS, True, 1, -1)
    assert (chat.trainer.test_freq, chat.trainer.val_before_train) == (EVERY, True)


def test_plain_rl_is_the_same_run_without_a_regularizer(chat):
    """But for its names."""
    plain = compose(chat_job(CONFIG, Path("/r"), Path("/r/data/model"), "grpo"))
    assert "cokl" not in plain
    shared = [
        OmegaConf.masked_copy(one, [name for name in one if name not in ("cokl", "llm")]) for one in (chat, plain)
    ]
    with_cokl, without = map(OmegaConf.to_yaml, shared)
    for name in ("chat/cokl", "r-cokl"):
        with_cokl = with_cokl.replace(name, name.replace("cokl", "grpo"))
    assert with_cokl.replace("cokl_rewarded", "rewarded") == without


def test_the_stages_are_buffer_and_training(tmp_path):
    planned = [job for job, _ in Experiment(CONFIG, tmp_path).check([("grpo", None), ("cokl", None)])]
    assert [(job.name, job.rows) for job in planned] == [
        ("buffer", {"sampled": 24 * 64}),
        ("chat/grpo", {"RL": 48}),
        ("chat/cokl", {"RL": 48, "KL, reference": 48}),
    ]
    model = f"+llm.model='{tmp_path}/data/model'"
    assert all(model in job.overrides for job in planned)


@pytest.mark.parametrize(
    ("preset", "steps", "message"),
    [
        ("open-questions", 2, "math_steps: expected 0, since open-questions has no"),
        ("smollm2", 0, "a number > 0, got 0"),
    ],
)
def test_a_math_stage_is_there_or_it_is_not(preset, steps, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(PRESETS[preset], math_steps=steps)


def test_the_sets_are_the_trained_questions_and_those_held_out(sets):
    found = {name: pd.read_parquet(sets / f"{name}.parquet") for name in ("chat_train", "trained", "held_out")}
    asked = {name: [messages[0]["content"] for messages in rows["prompt"]] for name, rows in found.items()}
    assert {name: len(set(texts)) for name, texts in asked.items()} == {"chat_train": 24, "trained": 24, "held_out": 8}
    assert asked["trained"] == asked["chat_train"]
    assert not {*asked["trained"]} & {*asked["held_out"]}
    assert "Name a city in Japan." in asked["trained"]
    assert "Name a city in Italy." in asked["held_out"]
    assert {name: set(rows["data_source"]) for name, rows in found.items()} == {name: {name} for name in found}


def test_no_question_is_too_long_for_verl_to_keep(sets):
    gguf = find_weights()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.chat_template = CHAT_TEMPLATE
    prompts = [
        [*map(dict, prompt)] for name in CONFIG.sets for prompt in pd.read_parquet(sets / f"{name}.parquet")["prompt"]
    ]
    ids = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, return_dict=False)
    assert max(map(len, ids)) <= CONFIG.max_prompt_length


@pytest.mark.parametrize(
    ("reply", "answer"),
    [("Tokyo.", "Tokyo"), ("Osaka, Osaka", "Osaka"), ("Tokyo and Osaka", ""), ("Paris", ""), ("", "")],
)
def test_a_reply_is_rewarded_for_one_right_answer(reply, answer):
    told = score("trained", reply, "Name a city in Japan.", {"index": 0})
    assert told == {"score": float(bool(answer)), "answer": answer}


def test_the_buffer_is_of_all_training_prompts(sets, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "chat_train.parquet").write_bytes((sets / "chat_train.parquet").read_bytes())
    Experiment(CONFIG, tmp_path)._draw_buffer_prompts()
    drawn = pd.read_parquet(tmp_path / "buffer" / "prompts.parquet")
    assert sorted(info["index"] for info in drawn["extra_info"]) == list(range(24))


@pytest.fixture
def finished(tmp_path) -> Path:
    """Logs of plain RL and of CoKL, by hand; the questions were evaluated before the first step and at step 8."""

    def logged(trained: float, held_out: float, different: float) -> dict[str, float]:
        return {"val/trained/mean@64": trained, "val/held_out/mean@64": held_out, "val/trained/distinct@64": different}

    for name, end in (("grpo", logged(0.9, 0.8, 4.0)), ("cokl", logged(0.7, 0.6, 8.0))):
        folder = tmp_path / "chat" / name
        (folder / "metrics").mkdir(parents=True)
        lines = [{"step": 0, "data": logged(0.2, 0.25, 6.0)}, {"step": 8, "data": end}]
        (folder / "metrics" / "000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        run = {"method": name, "beta": 0.01 * (name == "cokl"), "kl_prompts": 6, "main": True}
        (folder / "run.json").write_text(json.dumps(run))
    return tmp_path


def test_the_base_is_what_was_measured_before_the_first_step(finished):
    config = dataclasses.replace(CONFIG, chat_steps=8)
    results = collect(config, finished)
    scores = results.scores.set_index("method")[["trained", "held_out", "distinct"]]
    assert scores.T.to_dict("list") == {"base": [20, 25, 6], "grpo": [90, 80, 4], "cokl": [70, 60, 8]}
    assert results.dynamics.query("method == 'cokl'")[["step", "math_val", "distinct"]].to_numpy().tolist() == [
        [0, 20, 6],
        [8, 70, 8],
    ]


def test_tables_and_picture_have_no_small_talk(finished):
    config = dataclasses.replace(CONFIG, chat_steps=8)
    save_results(collect(config, finished), finished / "results")
    results = read_results(finished / "results")
    raw, normalized, *_ = result_tables(results)
    assert [*raw.frame] == ["model", "method", "trained", "held_out", "distinct"]
    assert normalized.notes == ("trained and held_out prompts have no average",)
    drawing = dynamics(results)
    assert [panel.y for panel in drawing.panels.values()] == ["Trained accuracy [%]"] * 2
    assert drawing.caption.endswith("Trained at the end: GRPO w/o KL 90.0, CoKL 70.0.")


def test_nothing_to_report_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"nothing to report in .*: the first evaluation is not done"):
        collect(CONFIG, tmp_path)


def test_questions_of_ones_own_take_the_same_stages(tmp_path):
    config: LLMConfig = dataclasses.replace(CONFIG, own_data=str(tmp_path), model="mine")
    assert config.sets == ("chat_train", "trained", "held_out")
    job = chat_job(config, tmp_path, Path("mine"), "cokl")
    assert "+llm.cached_per_prompt=8" in job.overrides
