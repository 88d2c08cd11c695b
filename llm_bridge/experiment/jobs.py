"""Each job of an experiment as a command of VeRL's.

The YAML files in `settings/`, which Hydra puts over VeRL's own, say what a job sets. The command gives the numbers that
they name, as `+llm.NAME=VALUE`.

Assumption beyond the paper: a negative advantage's token ratio is bounded by 3, which has no effect while every
optimizer step is on-policy; and the joint loss's gradient is clipped to norm 1, which takes effect where the
regularizer's sum over tokens dominates, and then scales the GRPO term down with it. Both are VeRL's defaults.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cokl import methods
from cokl.support.errors import InputError
from cokl.support.extras import not_installed
from llm_bridge.experiment.config import BASE, MATH, LLMConfig
from llm_bridge.experiment.workloads import CANDIDATES

if TYPE_CHECKING:
    from omegaconf import DictConfig

REWARD_MARGIN = 2048
"""Tokens by which a reward model's tokenizer may need more than the policy's."""
SCORE = "pkg://llm_bridge.rewards.score:compute_score"
"""The reward function where the experiment names no other."""
HANDED_ON = ("HF_", "MLFLOW_", "NCCL_", "OMP_", "PYTHONPATH", "SWANLAB_", "TENSORBOARD_", "VERL_", "VLLM_", "WANDB_")
"""How the names of variables begin that workers on other machines need."""
OWNED = {
    "actor_rollout_ref.model.path": "--model",
    "actor_rollout_ref.rollout.n": "--group-size",
    "cokl.beta": "--search-betas",
    "cokl.buffer": "--out",
    "cokl.kl_prompts": "--kl-groups",
    "cokl.length": "--length",
    "cokl.method": "--methods",
    "cokl.seed": "--seed",
    "data.train_batch_size": "--math-batch and --chat-batch",
    "data.train_files": "--own-data",
    "data.val_files": "--own-data",
    "reward.reward_model.model_path": "--reward-model",
    "trainer.default_local_dir": "--out",
    "trainer.n_gpus_per_node": "--accelerators",
    "trainer.nnodes": "--nodes",
    "trainer.total_training_steps": "--math-steps and --chat-steps",
    "trainer.v1.trainer_mode": "--methods",
}
"""Options that differ from job to job, or that other numbers follow from, and what sets them."""
EVALUATE_ONLY = ("trainer.resume_mode=auto", "trainer.val_before_train=True", "trainer.val_only=True")
"""Options with which a finished training job, started again, evaluates its last checkpoint."""


@dataclass(frozen=True)
class Job:
    """One run of VeRL. Its folder holds checkpoints, log and metrics."""

    name: str
    folder: Path
    overrides: tuple[str, ...]
    """Options in Hydra's syntax."""
    steps: int
    """Training steps after which it is done; 0 for the buffer's, which trains nothing."""
    rows: dict[str, int]
    """Rows of one optimizer step, or of the whole job if it trains nothing, by what they are."""

    @property
    def last_step(self) -> int:
        """The step of VeRL's last complete checkpoint; 0 if there is none."""
        tracker = self.folder / "checkpoints" / "latest_checkpointed_iteration.txt"
        return int(tracker.read_text()) if tracker.is_file() else 0

    @property
    def done(self) -> bool:
        """Whether it has its last checkpoint, or the buffer is there."""
        return self.last_step >= self.steps if self.steps else self.folder.with_suffix(".parquet").is_file()

    @property
    def model(self) -> Path:
        """The Hugging Face folder that a training job's last checkpoint holds."""
        return self.folder / "checkpoints" / f"global_step_{self.steps}" / "actor" / "huggingface"

    def shown(self) -> str:
        """What it does in a line, and its command."""
        rows = " + ".join(f"{count} {kind}" for kind, count in self.rows.items())
        amount = f"{self.steps} steps of {sum(self.rows.values())} rows ({rows})" if self.steps else f"{rows} in all"
        return f"# {self.name}: {amount}\n{shlex.join(['python', *command_line(self.overrides)])}\n"


def trained(config: LLMConfig, root: Path, name: str) -> Job:
    """Where the training of "base" or of a chat run, by its folder's name, left metrics and model; no command."""
    stage, steps = (MATH, config.math_steps) if name == BASE else (f"chat/{name}", config.chat_steps)
    return Job(stage, root / stage, (), steps, {})


def math_job(config: LLMConfig, root: Path, model: Path | str) -> Job:
    """The math stage: GRPO from the starting model on verified mathematics (E.3).

    Until there are strata, the model is evaluated on the candidates that they are formed from.
    """
    rows = {"RL": config.math_batch * config.group_size}
    values: dict[str, Any] = {"batch": config.math_batch, "lr": config.math_learning_rate}
    if config.workload.prompts.strata and not last_stratum(config, root).is_file():
        values["val_files"] = [prompts_file(config, root, CANDIDATES)]
        values["answers"] = str(root / MATH / CANDIDATES)
    return _job(config, root, MATH, model, ("training",), rows, config.math_steps, values)


def buffer_job(config: LLMConfig, root: Path, reference: Path) -> Job:
    """G_ref verified responses of the reference model to each prompt drawn for the buffer (E.3): no reward model."""
    prompts, group = str(root / "buffer" / "prompts.parquet"), config.reference_group_size
    values = {
        "batch": min(config.buffer_prompts, config.chat_batch),
        "group": group,
        "micro_batch": group,
        "buffer": str(root / "buffer.parquet"),
        "train_files": prompts,
        "val_files": prompts,
        "trainer_mode": "cokl_buffer",
    }
    rows = {"sampled": config.buffer_prompts * group}
    return _job(replace(config, reward_model=""), root, "buffer", reference, ("buffer",), rows, 0, values)


def chat_job(config: LLMConfig, root: Path, reference: Path, method_name: str, beta: float | None = None) -> Job:
    """The chat stage with one method (E.3). beta: another than the configuration's, for a search."""
    method_name, streams = methods.get(method_name).name, methods.get(method_name).streams()
    prompts, cached = kl_prompts(config, method_name), config.workload.cached_per_prompt
    rows = {"RL": config.chat_batch * config.group_size}
    if "reference" in streams:
        rows["KL, reference"] = prompts * (cached or config.reference_group_size)
    if "rollout" in streams and not cached:  # else they are the RL rows
        rows["KL, rollout"] = prompts * config.group_size
    values = {
        "train_files": prompts_file(config, root, "chat_train"),
        "lr": config.learning_rate,
        "epochs": config.optimizer_steps,
        "micro_batch": math.gcd(*rows.values()),
    }
    if streams:
        values |= {
            "method": method_name,
            "beta": config.beta(method_name) if beta is None else beta,
            **({"cached_per_prompt": cached} if cached else {"kl_prompts": prompts}),
            "buffer": str(root / "buffer.parquet"),
            "trainer_mode": "cokl_rewarded",
        }
    kinds = ("training", "training_prompts" if cached else "cokl") if streams else ("training",)
    name = method_name if beta is None else f"{method_name}-beta-{beta:g}"
    return _job(config, root, f"chat/{name}", reference, kinds, rows, config.chat_steps, values)


def _job(
    config: LLMConfig,
    root: Path,
    name: str,
    model: Path | str,
    kinds: tuple[str, ...],
    rows: dict[str, int],
    steps: int,
    own: dict[str, Any],
) -> Job:
    """A job of the files `kinds` beside those of all jobs. own: its values where they are not the usual ones."""
    folder = root / name
    tokens = config.max_prompt_length + config.max_response_length
    path, _, function = (config.reward_function or SCORE).rpartition(":")
    arguments = {"reward_model": config.reward_model} if config.reward_model and not config.reward_function else {}
    values: dict[str, Any] = {
        **config.as_dict(),
        "model": str(model),
        "agent_loop": "seeded" if config.repeatable else "single_turn_agent",
        "batch": config.chat_batch,
        "group": config.group_size,
        "epochs": 1,
        "steps": steps,
        "tokens": tokens,
        "two_rows": 2 * tokens,
        "batched_tokens": max(2048, 8 * tokens),
        "reward_tokens": tokens + REWARD_MARGIN,
        "reward_path": path if path.startswith("pkg://") else str(Path(path).expanduser().absolute()),
        "reward_name": function,
        "reward_kwargs": arguments,
        "train_files": prompts_file(config, root, "math_train"),
        "val_files": [prompts_file(config, root, source) for source in config.evaluation_sets],
        "trainer_mode": "rewarded",
        "experiment_name": f"{root.name}-{folder.name}",
        "checkpoints": str(folder / "checkpoints"),
        "answers": str(folder / "answers"),
        **own,
    }
    values.setdefault("micro_batch", values["batch"] * values["group"])
    files = ["job", *kinds, config.device, *(["reward_model"] if config.reward_model else [])]
    files += [*(() if config.model else config.workload.start.settings), *config.workload.settings]
    overrides = [
        "hydra.searchpath=[pkg://llm_bridge]",
        f"+experiment/settings=[{','.join(files)}]",
        *(f"+llm.{key}={hydra(value)}" for key, value in values.items()),
    ]
    return Job(name, folder, tuple(overrides), steps, rows)


def prompts_file(config: LLMConfig, root: Path, name: str) -> str:
    """The prompts of a set, the user's own or those that the experiment has prepared."""
    folder = Path(config.own_data).expanduser().resolve() if config.own_data else root / "data"
    return str(folder / f"{name}.parquet")


def last_stratum(config: LLMConfig, root: Path) -> Path:
    """The set that is written last of those that the math-stage model's answers decide on: with it all are there."""
    return Path(prompts_file(config, root, [*config.workload.prompts.sets][-1]))


def kl_prompts(config: LLMConfig, method_name: str) -> int:
    """Regularized prompts per update, each of which gives a group to every stream that the method weights.

    0 for GRPO w/o KL, and all RL prompts where these are the regularized ones.
    """
    streams = methods.get(method_name).streams()
    if not streams:
        return 0
    return config.chat_batch if config.workload.cached_per_prompt else config.kl_groups // len(streams)


def check_overrides(overrides: Iterable[str]) -> None:
    """Raises InputError for an override that is not in Hydra's syntax, or whose value is the experiment's to set."""
    for override in overrides:
        if not re.match(r"^(\+\+?|~)?[\w./@]+(=.*)?$", override, re.DOTALL):
            raise InputError(f"override {override!r}: expected Hydra's syntax, such as trainer.save_freq=10")
        name = override.lstrip("+~").partition("=")[0]
        if name in OWNED:
            raise InputError(f"override {override!r}: other settings depend on it; use {OWNED[name]}")


def compose(job: Job) -> DictConfig:
    """VeRL's configuration of a job, all references resolved. Raises InputError for an option that VeRL does not know,
    and where VeRL is not installed.
    """
    try:
        from hydra import compose, initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        verl = find_spec("verl")  # found, not imported, which takes ten seconds
        if verl is None or verl.origin is None:
            raise ModuleNotFoundError(name="verl")
    except ModuleNotFoundError as error:
        raise InputError(f"{not_installed(error.name or 'verl')}; VeRL composes configurations") from None
    try:
        with initialize_config_dir(str(Path(verl.origin).with_name("trainer") / "config"), version_base=None):
            composed = compose("ppo_trainer", overrides=list(job.overrides))
        OmegaConf.resolve(composed)
        return composed
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(f"{job.name}: {' '.join(str(error).split())[:300]}") from error


def environment(config: LLMConfig, metrics: Path) -> dict[str, str]:
    """The environment of a job's process and, through Ray, of all its workers. metrics: where its JSON lines go."""
    added = {
        "VERL_FILE_LOGGER_PATH": str(metrics),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else a loaded machine starves the workers
        "HYDRA_FULL_ERROR": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])),
        "VERL_USE_EXTERNAL_MODULES": "llm_bridge.plugin",
    }
    if config.device == "cpu":
        added |= {"VERL_USE_EXTERNAL_MODULES": "llm_bridge.cpu,llm_bridge.plugin", "HF_HUB_OFFLINE": "1"}
    if "RAY_ADDRESS" not in os.environ:
        added["RAY_AUTH_MODE"] = "token"  # the cluster that the job starts listens on every interface
    variables = {**os.environ, **added}
    if "RAY_ADDRESS" in os.environ:  # the workers of a cluster that runs already inherit nothing from this process
        kept = {name: value for name, value in variables.items() if name.startswith(HANDED_ON)}
        variables["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({"runtime_env": {"env_vars": kept}})
        variables["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"
    return variables


def hydra(value: Any) -> str:
    """A value as Hydra reads it from a command; texts are quoted, for a path may hold spaces, commas and the like."""
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(hydra, value)) + "]"
    return str(value)


def command_line(overrides: Iterable[str]) -> list[str]:
    """Arguments after the interpreter that run a job; Hydra writes no files of its own."""
    ours = ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none"]
    return ["-m", "verl.trainer.main_ppo", *overrides, *ours]
