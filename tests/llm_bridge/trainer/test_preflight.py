"""Every way of starting VeRL that would leave `cokl.*` unused ends in one line, before Ray is started."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template

import pytest

pytest.importorskip("verl")

import numpy as np
import ray
import verl
from hydra import compose, initialize_config_module
from omegaconf import open_dict
from ray.exceptions import RayTaskError
from verl.utils.config import validate_config

import llm_bridge.plugin  # noqa: F401  registers the trainers
from cokl.responses.buffer import Buffer, CachedGroup, model_fingerprint
from cokl.support.errors import InputError
from llm_bridge.trainer.buffers import check_buffer, regularization
from llm_bridge.trainer.options import RegularizationSettings
from llm_bridge.trainer.start import preflight
from llm_bridge.trainer.start.command import MAIN, check_command, check_start
from llm_bridge.trainer.start.preflight import check_configuration
from llm_bridge.trainer.start.versions import PINNED
from tests.llm_bridge.test_how_to import blocks
from tests.llm_bridge.trainer.test_options import BASE, configuration

main_ppo = importlib.import_module(MAIN)  # after the plug-in, as when VeRL starts
OURS = ["python", "-m", MAIN, "+cokl.method=cokl"]
MODE = "trainer.v1.trainer_mode"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


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
        ["-mverl.trainer.main_ppo_v0"],
        ["-X", "dev", "-u", "/code/verl-recipe/dapo/main_dapo.py"],
    ],
)
def test_another_program_than_verls_main_is_refused_by_its_name(capsys, program):
    line = line_of(capsys, check_command, ["python", *program, "+cokl.method=cokl"], "0.9.1")
    assert Path(program[-1]).name.removeprefix("-m") in line
    assert MAIN in line


@pytest.mark.parametrize("option", ["+cokl.method=cokl", "++cokl.beta=1", "cokl.beta=1", "+cokl={method:cokl}"])
def test_another_version_of_verl_is_refused(capsys, option):
    line = line_of(capsys, check_command, ["python", "-m", MAIN, option], "0.9.2")
    assert "verl is 0.9.2, expected 0.9.1" in line


def test_a_start_without_the_plug_in_is_refused(capsys):
    line = line_of(capsys, check_command, OURS, "0.9.1", False)
    assert "VERL_USE_EXTERNAL_MODULES: expected llm_bridge.plugin" in line


@pytest.mark.parametrize(
    "arguments",
    [
        OURS,
        ["python", "/environment/bin/cokl", "llm", "run", "+cokl.schedule=linear"],
        ["python", "-m", "cokl_cli", "llm", "run", "+cokl.schedule=linear"],
        ["python", "-X", "dev", "-W", "ignore", "-m", MAIN, "+cokl.method=cokl"],
        ["python", "-m", "pdb", "-m", MAIN, "+cokl.method=cokl"],
        ["python", "/code/my_training.py", "+cokl.method=cokl"],  # what it calls is checked with its configuration
        ["python", "-m", "verl.model_merger", "cokl.yaml", "--out", "cokl.parquet"],
        ["python", "/site-packages/verl/trainer/main_ppo.py", "+cokl.method=cokl"],
        ["python", "-m", "recipe.dapo.main_dapo", "trainer.project_name=cokl.runs"],
        ["python", "-m", "pytest"],
        ["python", "/ray/default_worker.py", "--node-ip=10.0.0.1"],
        ["python", "-c", "import verl"],
    ],
)
def test_other_processes_pass(arguments):
    check_command(arguments, "0.9.1+cu128", loaded=arguments is OURS or "+cokl.method=cokl" in arguments)


def test_the_pinned_version_passes_and_no_other_does(capsys):
    check_start(MAIN, "0.9.1")
    for other in ("0.9.0", "0.9.10", "0.10.0.dev0"):
        assert f"verl is {other}, expected 0.9.1" in line_of(capsys, check_start, MAIN, other)


def test_a_relative_path_is_looked_at_where_it_leads(tmp_path, monkeypatch, capsys):
    for folder in ("verl/trainer", "verl/experimental/one_step_off_policy"):
        (tmp_path / folder).mkdir(parents=True)
    command = ["python", "main_ppo.py", "+cokl.method=cokl"]
    monkeypatch.chdir(tmp_path / "verl/trainer")
    check_command(command, "0.9.1")
    monkeypatch.chdir(tmp_path / "verl/experimental/one_step_off_policy")
    assert "main_ppo.py does not select its trainer" in line_of(capsys, check_command, command, "0.9.1")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((f"{MODE}=cokl", "trainer.use_v1=False"), "trainer.use_v1: expected True"),
        ((f"{MODE}=sync",), f"{MODE}: expected cokl or cokl_rewarded, got sync"),
        ((f"{MODE}=rewarded",), "got rewarded, with which cokl.* has no effect"),
        ((f"{MODE}=cokl_buffer",), "got cokl_buffer"),
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


def test_a_reward_model_with_a_function_passes_where_the_function_is_told_all(files):
    rewarding = *files, *ROOM, "reward.reward_model.enable=True", "reward.custom_reward_function.path=r.py"
    check_configuration(configuration(f"{MODE}=cokl_rewarded", *rewarding))
    check_configuration(configuration(f"{MODE}=cokl", *rewarding, "reward.reward_model.enable_resource_pool=True"))


QUESTION = [{"role": "user", "content": "2 + 2"}]


def buffer(log_probs=-1.0, temperature=1.0, model="abc", size=1) -> Buffer:
    """A prompt of 600 tokens with `size` correct responses of 700 and as many wrong ones of 900."""
    answers = [np.arange(700), np.arange(900)] * size
    known = [np.full(len(ids), log_probs) for ids in answers]
    group = CachedGroup(QUESTION, "", "", np.arange(600), answers, known, np.array([1, 0] * size))
    return Buffer((group,), model, temperature)


ROOM = "data.max_response_length=700", "data.max_prompt_length=600"


@pytest.fixture
def files(tmp_path) -> list[str]:
    """Options that name a model, of which only the bytes matter here, and its buffer of eight responses a prompt."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    buffer(model=model_fingerprint(model), size=4).save(tmp_path / "buffer.parquet")
    return [f"actor_rollout_ref.model.path={model}", f"++cokl.buffer={tmp_path / 'buffer.parquet'}"]


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


WRONG = [
    (["trainer.use_v1=False"], "trainer.use_v1: expected True"),
    ([f"{MODE}=sync"], f"{MODE}: expected cokl or cokl_rewarded, got sync"),
    ([f"{MODE}=rewarded"], "got rewarded"),
    (["~cokl"], "cokl.method: expected a method's name, got nothing"),
    ([f"{MODE}=separate_async"], "got separate_async"),
    (["reward.reward_model.enable=True"], "reward.custom_reward_function.path: expected a file"),
    (["cokl.kl_prompts=0"], "cokl.kl_prompts: expected a number > 0"),
    (["actor_rollout_ref.model.lora.rank=8"], "lora.rank: expected 0"),
    (["algorithm.filter_groups.enable=True"], "algorithm.filter_groups.enable: expected False"),
    ([f"{ROLLOUT}.name=sglang"], f"{ROLLOUT}.name: expected vllm"),
    (["data.max_response_length=512"], "data.max_response_length: expected at least 700"),
    (["data.max_prompt_length=512"], "data.max_prompt_length: expected at least 600"),
    ([f"{ACTOR}.ppo_max_token_len_per_gpu=1400"], "ppo_max_token_len_per_gpu: expected at least 1500"),
    ([f"{ROLLOUT}.temperature=0.7"], "temperature: expected 1,"),
    (["cokl.buffer=/none.parquet"], "no buffer at /none.parquet"),
    (["actor_rollout_ref.model.path={other}"], "was sampled from another model"),
    (["+cokl.judge=judge.py"], "cokl.judge: expected FILE.py:NAME"),
    (["+cokl.judge=/none.py:judge"], "reward function '/none.py:judge': expected FILE.py:NAME"),
    (["~cokl.buffer"], "cokl.buffer: expected a file, got nothing"),
]


@pytest.fixture
def entered(files, tmp_path, monkeypatch) -> Callable[..., None]:
    """Make this process one that runs VeRL's main with the regularizer and further options."""

    def enter(*overrides: str) -> None:
        hydra = "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none"
        options = [*BASE, *files, *ROOM, f"{MODE}=cokl", *overrides]
        monkeypatch.setattr(sys, "orig_argv", ["python", "-m", MAIN, *options])
        monkeypatch.setattr(sys, "argv", ["main_ppo.py", *options, *hydra])
        monkeypatch.setattr(verl, "__version__", PINNED["verl"])  # `make verl-test` has another one
        monkeypatch.chdir(tmp_path)

    return enter


@pytest.mark.parametrize(("overrides", "message"), WRONG)
def test_verls_program_started_the_wrong_way_ends_in_one_line_and_starts_nothing(
    overrides, message, entered, tmp_path, monkeypatch, capsys
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.safetensors").write_bytes(b"other weights")
    entered(*(override.format(other=other) for override in overrides))
    monkeypatch.setattr(ray, "init", lambda **given: pytest.fail("Ray is started"))
    assert message in line_of(capsys, main_ppo.main)


def test_what_the_trainer_refuses_ends_the_command_in_one_line(entered, monkeypatch, capsys):
    """As Ray hands an error over from another process: with a traceback for its text."""
    error = RayTaskError("run", "Traceback (most recent call last):\n  ...\n", InputError("the buffer does not fit"))

    def failing(config, task_runner_class):
        raise error.as_instanceof_cause()

    monkeypatch.setattr(main_ppo, "run_ppo", failing)
    entered()
    assert line_of(capsys, main_ppo.main) == "cokl: the buffer does not fit"


def test_a_defect_in_the_trainer_keeps_its_traceback(entered, monkeypatch):
    def failing(config, task_runner_class):
        raise RayTaskError("run", "Traceback", ValueError("a defect")).as_instanceof_cause()

    monkeypatch.setattr(main_ppo, "run_ppo", failing)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    entered()
    with pytest.raises(ValueError, match="Traceback"):
        main_ppo.main()


@pytest.mark.parametrize(
    ("program", "version", "message"),
    [
        ("verl.experimental.fully_async_policy.fully_async_main", "0.9.1", "fully_async_main.py does not select"),
        ("verl.experimental.one_step_off_policy.main_ppo", "0.9.1", "main_ppo.py does not select"),
        (MAIN, "0.9.2", "verl is 0.9.2, expected 0.9.1"),
    ],
)
def test_a_node_of_a_file_is_checked_as_one_of_the_command_is(files, monkeypatch, capsys, program, version, message):
    """`cokl` in the user's own YAML: the arguments do not tell, the configuration and the program that has it do."""
    config = configuration(*files, *ROOM, f"{MODE}=cokl")
    with open_dict(config):
        config.async_training = {}
    monkeypatch.setattr(verl, "__version__", version)
    assert message in line_of(capsys, importlib.import_module(program).main.__wrapped__, config)


def test_without_a_part_that_the_trainers_hang_on_the_plug_in_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(preflight, "missing", lambda: iter(["a part (and what would replace it)"]))
    assert "lacks a part (and what would replace it); expected 0.9.1" in line_of(capsys, preflight.install)


def test_training_prompts_may_be_longer_than_the_run_has_them(files):
    """They are the data's own, which VeRL has shortened or left out; drawn ones it would cut off."""
    training = "~cokl.kl_prompts", "+cokl.prompts=training"
    assert regularization(configuration(*files, ROOM[0], *training))[2].reference == 512
    with pytest.raises(InputError, match="max_prompt_length"):
        regularization(configuration(*files, ROOM[0]))


def test_a_number_of_cached_responses_is_one_that_both_files_have(files, tmp_path):
    other = tmp_path / "training.parquet"
    buffer(model=model_fingerprint(tmp_path / "model"), size=2).save(other)
    both = *files, *ROOM, "+cokl.prompts=both", f"+cokl.training_buffer={other}"
    assert regularization(configuration(*both, "+cokl.cached_per_prompt=4"))[2].reference == 4 * 72
    with pytest.raises(InputError, match="cached_per_prompt: expected at most the 4 cached responses"):
        regularization(configuration(*both, "+cokl.cached_per_prompt=6"))


def test_without_cokl_in_it_any_configuration_passes():
    plain = configuration("trainer.use_v1=False")
    with open_dict(plain):
        del plain["cokl"]
    check_configuration(plain)


@pytest.mark.parametrize(
    ("program", "overrides", "modules", "message"),
    [
        (MAIN, ("trainer.use_v1=False", f"{MODE}=cokl"), "llm_bridge.cpu,llm_bridge.plugin", "trainer.use_v1"),
        ("verl.experimental.one_step_off_policy.main_ppo", (), "llm_bridge.plugin", "main_ppo does not select"),
        ("verl.experimental.fully_async_policy.fully_async_main", (), "llm_bridge.plugin", "fully_async_main does"),
        (MAIN, (), "llm_bridge.cpu", "VERL_USE_EXTERNAL_MODULES: expected llm_bridge.plugin"),
    ],
)
def test_a_real_start_ends_in_one_line_and_starts_nothing(program, overrides, modules, message, tmp_path):
    variables = {**os.environ, "VERL_USE_EXTERNAL_MODULES": modules, "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", program, "+cokl.method=cokl", *overrides]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("cokl: ")]
    assert message in line
    assert "Started a local Ray instance" not in ended.stdout + ended.stderr


def test_a_verl_without_what_the_trainers_extend_is_refused_in_one_line(tmp_path):
    """Such as one whose V1 is gone: the plug-in could not be imported."""
    package = tmp_path / "verl"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '0.10.0'\nimport llm_bridge.plugin\n")
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    for option, message in (
        ("", "does not have what the trainers extend (No module named 'verl."),
        (OURS[-1], "verl is 0.10.0, expected 0.9.1, whose trainer"),
    ):
        command = [sys.executable, "-c", "import verl", option]
        ended = subprocess.run(command, check=False, cwd=tmp_path, env=variables, capture_output=True, text=True)
        (line,) = ended.stderr.splitlines()
        assert (ended.returncode, message in line, "expected 0.9.1" in line) == (2, True, True), line


@pytest.mark.parametrize("gpus", ["1", "8"])
@pytest.mark.parametrize("name", ["verl", "diversity"])
def test_the_how_tos_commands_pass_verls_checks_and_ours_as_they_are_printed(name, gpus, files, tmp_path):
    """On GPUs too nothing is missing: no batch size, and no folder of its own for each run."""
    variables = {"DATA": "/data", "MODEL": tmp_path / "model", "OUT": tmp_path, "GPUS": gpus}
    model = model_fingerprint(tmp_path / "model")
    group = CachedGroup(QUESTION, "", "", np.arange(9), [np.arange(9)] * 8, [np.zeros(9)] * 8, np.array([1, 0] * 4))
    Buffer((group,), model).save(tmp_path / "buffer.parquet")
    scripts = blocks("bash", Path(f"docs/how-to/{name}.md"))
    grpo, cokl = (
        [
            shlex.split(Template(line.removesuffix(" \\")).substitute(variables))[0]
            for line in re.findall(r"^    (\S+=.*)$", script, re.M)
        ]
        for script in (scripts[0], scripts[3])
    )
    folders = []
    for overrides in (grpo, [*grpo, *cokl]):
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides)
        validate_config(config, use_reference_policy=False, use_critic=False)
        check_configuration(config)
        assert config.trainer.n_gpus_per_node % config.actor_rollout_ref.rollout.tensor_model_parallel_size == 0
        folders.append(config.trainer.default_local_dir)
    assert regularization(config)[2].rl == 512
    assert len(set(folders)) == 2
