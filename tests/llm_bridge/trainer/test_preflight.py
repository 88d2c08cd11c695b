"""Every way of starting VeRL that would leave `cokl.*` unused ends in one line, before Ray is started."""

import os
import re
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest

pytest.importorskip("verl")

import numpy as np
from hydra import compose, initialize_config_module
from omegaconf import open_dict
from verl.utils.config import validate_config

import llm_bridge.plugin  # noqa: F401  registers the trainers
from cokl.responses.buffer import Buffer, CachedGroup
from cokl.support.errors import InputError
from llm_bridge.trainer.options import RegularizationSettings, check_settings
from llm_bridge.trainer.preflight import MAIN, check_buffer, check_command, check_configuration
from tests.llm_bridge.trainer.test_options import configuration

OURS = ["python", "-m", MAIN, "+cokl.method=cokl"]
MODE = "trainer.v1.trainer_mode"


def line_of(capsys: pytest.CaptureFixture[str], refusing, *arguments) -> str:
    with pytest.raises(SystemExit) as ended:
        refusing(*arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    "program",
    [
        ["-m", "verl.experimental.one_step_off_policy.main_ppo"],
        ["-m", "verl.experimental.fully_async_policy.fully_async_main"],
        ["-m", "recipe.dapo.main_dapo"],
        ["-m", "verl.trainer.main_ppo_v0"],
        ["recipe/dapo/main_dapo.py"],
    ],
)
def test_another_program_than_verls_main_is_refused_by_its_name(capsys, program):
    line = line_of(capsys, check_command, ["python", *program, "+cokl.method=cokl"], "0.9.1")
    assert Path(program[-1]).name in line
    assert MAIN in line


@pytest.mark.parametrize("option", ["+cokl.method=cokl", "++cokl.beta=1", "cokl.beta=1"])
def test_another_version_of_verl_is_refused(capsys, option):
    line = line_of(capsys, check_command, ["python", "-m", MAIN, option], "0.9.2")
    assert "verl is 0.9.2, expected 0.9.1" in line


@pytest.mark.parametrize(
    "arguments",
    [
        OURS,
        ["python", "/site-packages/verl/trainer/main_ppo.py", "+cokl.method=cokl"],
        ["python", "-m", "recipe.dapo.main_dapo", "trainer.project_name=cokl.runs"],
        ["python", "-m", "pytest"],
        ["python", "/ray/default_worker.py", "--node-ip=10.0.0.1"],
        ["python", "-c", "import verl"],
    ],
)
def test_other_processes_pass(arguments):
    check_command(arguments, "0.9.1")
    check_configuration(configuration(f"{MODE}=cokl"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((f"{MODE}=cokl", "trainer.use_v1=False"), "trainer.use_v1: expected True"),
        ((f"{MODE}=sync",), f"{MODE}: expected one of cokl, "),
        ((f"{MODE}=separate_async",), "got separate_async"),
        ((f"{MODE}=colocate_async",), "got colocate_async"),
        (
            (f"{MODE}=cokl", "reward.reward_model.enable=True", "reward.custom_reward_function.path=r.py"),
            "expected cokl_rewarded, got cokl, beside a reward model on the same GPUs",
        ),
        ((f"{MODE}=cokl", "reward.reward_model.enable=True"), "custom_reward_function.path: expected a file"),
    ],
)
def test_a_configuration_that_would_not_use_the_regularizer_is_refused(capsys, overrides, message):
    assert message in line_of(capsys, check_configuration, configuration(*overrides))


def test_a_reward_model_with_a_function_passes_where_the_function_is_told_all():
    rewarding = "reward.reward_model.enable=True", "reward.custom_reward_function.path=r.py"
    check_configuration(configuration(f"{MODE}=cokl_rewarded", *rewarding))
    check_configuration(configuration(f"{MODE}=cokl", *rewarding, "reward.reward_model.enable_resource_pool=True"))


def buffer(log_probs=-1.0, temperature=1.0) -> Buffer:
    """A prompt of 600 tokens with a correct response of 700 and a wrong one of 900."""
    answers = [np.arange(700), np.arange(900)]
    known = [np.full(len(ids), log_probs) for ids in answers]
    group = CachedGroup([], "", "", np.arange(600), answers, known, np.array([1, 0]))
    return Buffer((group,), "abc", temperature)


ROOM = "data.max_response_length=700", "data.max_prompt_length=600"


@pytest.mark.parametrize(
    ("brought", "overrides", "message"),
    [
        (buffer(), (), r"data\.max_response_length: expected at least 700, tokens of the longest correct .*, got 512"),
        (buffer(), ROOM[:1], r"data\.max_prompt_length: expected at least 600, .*, got 512"),
        (
            buffer(),
            (*ROOM, "ACTOR.ppo_max_token_len_per_gpu=1400"),
            r"actor\.ppo_max.*: expected at least 1500, .* 1400",
        ),
        (
            buffer(),
            (*ROOM, "ROLLOUT.log_prob_use_dynamic_bsz=True", "ROLLOUT.log_prob_max_token_len_per_gpu=1400"),
            r"rollout\.log_prob_max.*: expected at least 1500",
        ),
        (buffer(temperature=0.7), ROOM, r"rollout\.temperature: expected 0\.7, .*, got 1\.0"),
        (buffer(), (*ROOM, "ROLLOUT.temperature=0.7"), r"rollout\.temperature: expected 1, .*, got 0\.7"),
        (buffer(np.nan), (*ROOM, "cokl.method=reverse_kl"), r"cokl\.buffer: expected a buffer with log-probabilities"),
        (buffer(np.nan), (*ROOM, "+cokl.schedule=target", "+cokl.kl_target=0.1"), "expected a buffer with log-prob"),
    ],
)
def test_a_run_that_does_not_fit_its_buffer_is_one_line(brought, overrides, message):
    names = {"ACTOR": "actor_rollout_ref.actor", "ROLLOUT": "actor_rollout_ref.rollout"}
    config = configuration(*(re.sub("^[A-Z]+", lambda name: names[name[0]], override) for override in overrides))
    with pytest.raises(InputError, match=message) as raised:
        check_buffer(config, RegularizationSettings.read(config), brought, drawn=True)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("brought", "overrides"),
    [
        (buffer(), ROOM),
        (buffer(), ("cokl.method=correct_forward_kl",)),  # replay looks at no fresh response
        (buffer(temperature=0.7), ("cokl.method=correct_forward_kl",)),
        (buffer(np.nan, 0.7), ROOM),
        (buffer(), (*ROOM, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1500")),
    ],
)
def test_a_run_that_fits_its_buffer_passes(brought, overrides):
    config = configuration(*overrides)
    check_buffer(config, RegularizationSettings.read(config), brought, drawn=True)


def test_training_prompts_are_as_long_as_the_data_has_them():
    config = configuration(ROOM[0])
    check_buffer(config, RegularizationSettings.read(config), buffer(), drawn=False)


def test_without_cokl_in_it_any_configuration_passes():
    plain = configuration("trainer.use_v1=False")
    with open_dict(plain):
        del plain["cokl"]
    check_configuration(plain)


@pytest.mark.parametrize(
    ("program", "overrides", "message"),
    [
        (MAIN, ("trainer.use_v1=False", f"{MODE}=cokl"), "trainer.use_v1"),
        ("verl.experimental.one_step_off_policy.main_ppo", (), "main_ppo does not select its trainer"),
    ],
)
def test_a_real_start_ends_in_one_line_and_starts_nothing(program, overrides, message, tmp_path):
    variables = {
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "llm_bridge.cpu,llm_bridge.plugin",
        "PYTHONPATH": str(Path.cwd()),
    }
    command = [sys.executable, "-m", program, "+cokl.method=cokl", *overrides]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("cokl: ")]
    assert message in line
    assert "Started a local Ray instance" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("name", ["verl", "diversity"])
def test_the_how_tos_commands_pass_verls_checks_and_ours_as_they_are_printed(name):
    """Nothing is added: no batch size that the page leaves out, and no folder that two runs would share."""
    variables = {"DATA": "/data", "MODEL": "/model", "OUT": "/out"}
    page = Path(f"docs/how-to/{name}.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    grpo, cokl = (
        [
            Template(line.removesuffix(" \\")).substitute(variables)
            for line in re.findall(r"^    (\S+=.*)$", script, re.M)
        ]
        for script in (scripts[0], scripts[2])
    )
    folders = []
    for overrides in (grpo, [*grpo, *cokl]):
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides)
        validate_config(config, use_reference_policy=False, use_critic=False)
        check_configuration(config)
        folders.append(config.trainer.default_local_dir)
    assert check_settings(config, reference_group_size=8).rl == 512
    assert len(set(folders)) == 2
