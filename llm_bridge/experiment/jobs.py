"""VeRL's configuration of each job, as Hydra overrides of VeRL's own defaults, and the environment it runs in."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cokl.support.errors import InputError
from llm_bridge.experiment.config import LLMConfig

if TYPE_CHECKING:
    from omegaconf import DictConfig

SETTINGS: dict[str, tuple[str, ...]] = {
    "actor_rollout_ref.model.path": ("model",),
    "actor_rollout_ref.rollout.n": ("group_size",),
    "data.train_batch_size": ("math_batch", "chat_batch"),
    "reward.reward_model.model_path": ("reward_model",),
    "trainer.n_gpus_per_node": ("accelerators",),
    "trainer.nnodes": ("nodes",),
    "trainer.total_training_steps": ("math_steps", "chat_steps"),
}
"""Options of VeRL that other numbers follow from, and the settings that stand for them."""
ROLLOUT_SHARE, REWARD_SHARE = 0.6, 0.5
"""Parts of a GPU's memory that vLLM takes for rollouts and for the reward model, one after the other."""
REWARD_MARGIN = 2048
"""Tokens by which a reward model's tokenizer may need more than the policy's."""
HANDED_ON = ("HF_", "MLFLOW_", "NCCL_", "PYTHONPATH", "SWANLAB_", "TENSORBOARD_", "VERL_", "VLLM_", "WANDB_")
"""How the names of variables begin that workers on other machines need."""
OWNED = {
    "cokl.beta": "--search-betas, or --beta of `cokl llm train`",
    "cokl.buffer": "--out",
    "cokl.epsilon_is": "--epsilon-is",
    "cokl.kl_prompts": "--kl-groups",
    "cokl.length": "--length",
    "cokl.method": "--methods",
    "cokl.seed": "--seed",
    "data.train_files": "--own-data",
    "data.val_files": "--own-data",
    "trainer.default_local_dir": "--out",
    "trainer.v1.trainer_mode": "--methods",
}
"""Options that differ from job to job, and what sets them."""


@dataclass(frozen=True)
class Job:
    """One run of VeRL. Its folder holds checkpoints, log and metrics.

    overrides: options in Hydra's syntax.
    """

    name: str
    folder: Path
    overrides: tuple[str, ...]
    steps: int
    """Training steps after which it is done; 0 for a job that trains nothing."""
    rows: dict[str, int]
    """Rows of one optimizer step, or of the whole job if it trains nothing, by what they are."""

    @property
    def last_step(self) -> int:
        """The step of VeRL's last complete checkpoint; 0 if there is none."""
        tracker = self.folder / "checkpoints" / "latest_checkpointed_iteration.txt"
        return int(tracker.read_text()) if tracker.is_file() else 0

    @property
    def done(self) -> bool:
        """Whether it has its last checkpoint, or, where it trains nothing, its result."""
        return self.last_step >= self.steps if self.steps else (self.folder / "done").is_file()

    @property
    def model(self) -> Path:
        """The Hugging Face folder that a training job's last checkpoint holds."""
        return self.folder / "checkpoints" / f"global_step_{self.steps}" / "actor" / "huggingface"


def math_job(config: LLMConfig, root: Path, model: Path | str) -> Job:
    """The math stage: GRPO from the starting model on verified mathematics (E.3)."""
    folder = root / "math"
    overrides = [
        *_common(config, folder, model, config.math_batch),
        *_training(config, root, "math_train", config.math_steps, config.math_learning_rate),
        "trainer.v1.trainer_mode=rewarded",
    ]
    rows = {"RL": config.math_batch * config.group_size}
    return Job("math", folder, tuple(overrides), config.math_steps, rows)


def buffer_job(config: LLMConfig, root: Path, reference: Path) -> Job:
    """G_ref verified responses of the reference model to each prompt drawn for the buffer (E.3): no reward model."""
    config = replace(config, reward_model="")
    folder = root / "buffer"
    prompts = min(config.buffer_prompts, config.chat_batch)
    overrides = [
        *_common(config, folder, reference, prompts, config.reference_group_size),
        f"data.train_files={quoted(root / 'buffer' / 'prompts.parquet')}",
        f"data.val_files={quoted(root / 'buffer' / 'prompts.parquet')}",
        f"actor_rollout_ref.rollout.n={config.reference_group_size}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1",
        "trainer.v1.trainer_mode=cokl_buffer",
        "trainer.resume_mode=disable",
        "trainer.val_before_train=False",
        f"+cokl.buffer={quoted(root / 'buffer.parquet')}",
    ]
    return Job("buffer", folder, tuple(overrides), 0, {"sampled": config.buffer_prompts * config.reference_group_size})


def chat_job(
    config: LLMConfig,
    root: Path,
    reference: Path,
    method_name: str,
    beta: float | None = None,
    kl_groups: int | None = None,
) -> Job:
    """The chat stage with one method (E.3). beta, kl_groups: other than the configuration's, for the searches."""
    from cokl import methods

    folder = root / "chat" / variant(method_name, beta, kl_groups)
    streams = methods.get(method_name).streams()
    prompts = kl_prompts(config, method_name, kl_groups)
    rows = {"RL": config.chat_batch * config.group_size}
    for stream in streams:
        rows[f"KL, {stream}"] = prompts * (config.reference_group_size if stream == "reference" else config.group_size)
    overrides = [
        *_common(config, folder, reference, config.chat_batch, math.gcd(*rows.values())),
        *_training(config, root, "chat_train", config.chat_steps, config.learning_rate),
        f"trainer.v1.trainer_mode={'cokl_rewarded' if streams else 'rewarded'}",
        f"actor_rollout_ref.actor.ppo_epochs={config.optimizer_steps}",
    ]
    if streams:
        overrides += [
            f"+cokl.method={method_name}",
            f"+cokl.beta={config.beta(method_name) if beta is None else beta}",
            f"+cokl.kl_prompts={prompts}",
            f"+cokl.epsilon_is={config.epsilon_is}",
            f"+cokl.length={config.length}",
            f"+cokl.seed={config.seed}",
            f"+cokl.buffer={quoted(root / 'buffer.parquet')}",
        ]
    return Job(f"chat/{folder.name}", folder, tuple(overrides), config.chat_steps, rows)


def evaluation_job(config: LLMConfig, root: Path, name: str, model: Path) -> Job:
    """average@n of one model on all evaluation sets."""
    folder = root / "evaluation" / name
    overrides = [
        *_common(config, folder, model, config.chat_batch),
        *_evaluation(config, root),
        f"data.train_files={quoted(prompts_file(config, root, 'chat_train'))}",
        "trainer.v1.trainer_mode=rewarded",
        "trainer.resume_mode=disable",
        "trainer.val_before_train=True",
        "trainer.val_only=True",
    ]
    return Job(f"evaluation/{name}", folder, tuple(overrides), 0, {})


def prompts_file(config: LLMConfig, root: Path, name: str) -> Path:
    """The prompts of a set, the user's own or those that the experiment has prepared."""
    return (Path(config.own_data).expanduser().resolve() if config.own_data else root / "data") / f"{name}.parquet"


def kl_prompts(config: LLMConfig, method_name: str, kl_groups: int | None = None) -> int:
    """Buffer prompts per update: each gives a group to every stream that the method weights; 0 for GRPO w/o KL."""
    from cokl import methods

    streams = methods.get(method_name).streams()
    groups = config.kl_groups if kl_groups is None else kl_groups
    return groups // len(streams) if streams else 0


def variant(method_name: str, beta: float | None = None, kl_groups: int | None = None) -> str:
    """The name of a method's run: the method, and what differs from the configuration."""
    differs = {"beta": beta, "kl": kl_groups}
    return "-".join([method_name, *(f"{name}-{value:g}" for name, value in differs.items() if value is not None)])


def configured(config: LLMConfig, overrides: Sequence[str]) -> tuple[LLMConfig, tuple[str, ...]]:
    """The settings that some overrides stand for, and the other overrides.

    Raises InputError for an override that is not in Hydra's syntax, has no number where one is due, or sets what
    differs from job to job.
    """
    others = []
    for override in overrides:
        if not re.match(r"^(\+\+?|~)?[\w./@]+(=.*)?$", override, re.DOTALL):
            raise InputError(f"override {override!r}: expected Hydra's syntax, such as trainer.save_freq=10")
        name, _, text = override.lstrip("+~").partition("=")
        if name in OWNED:
            raise InputError(f"override {override!r}: it differs from job to job; use {OWNED[name]}")
        if name not in SETTINGS:
            others.append(override)
            continue
        value: Any = text.strip("'\"")
        for setting in SETTINGS[name]:
            if isinstance(getattr(config, setting), int):
                if not str(value).isdecimal():
                    raise InputError(f"override {override!r}: expected a number")
                value = int(value)
            config = replace(config, **{setting: value})
    return config, tuple(others)


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
        raise InputError(
            f"no {error.name} here: VeRL composes configurations; `make llm-setup` installs it for .venv-llm/bin/cokl"
        ) from None
    try:
        with initialize_config_dir(str(Path(verl.origin).with_name("trainer") / "config"), version_base=None):
            composed = compose("ppo_trainer", overrides=list(job.overrides))
        OmegaConf.resolve(composed)
        return composed
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(f"{job.name}: {' '.join(str(error).split())[:300]}") from error


def _common(config: LLMConfig, folder: Path, model: Path | str, batch: int, rows: int | None = None) -> list[str]:
    """What all jobs share: model, rollouts, rewards, arithmetic and logging.

    batch: prompts. rows: of a micro-batch on a CPU, which must divide the rows of each stream.
    """
    tokens = config.max_prompt_length + config.max_response_length
    name = next(parent.name for parent in folder.parents if parent.name not in ("chat", "evaluation"))
    overrides = [
        f"actor_rollout_ref.model.path={quoted(model)}",
        f"data.train_batch_size={batch}",
        f"data.max_prompt_length={config.max_prompt_length}",
        f"data.max_response_length={config.max_response_length}",
        "data.filter_overlong_prompts=True",
        f"data.seed={config.seed}",
        f"+data.apply_chat_template_kwargs.enable_thinking={config.thinking}",
        "algorithm.adv_estimator=grpo",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={batch}",
        f"actor_rollout_ref.actor.loss_agg_mode={config.loss_aggregation}",
        f"actor_rollout_ref.actor.clip_ratio_c={config.dual_clip}",
        f"actor_rollout_ref.actor.optim.clip_grad={config.max_gradient_norm}",
        "actor_rollout_ref.actor.use_kl_loss=False",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.actor.fsdp_config.strategy=fsdp2",
        "actor_rollout_ref.ref.fsdp_config.strategy=fsdp2",
        f"actor_rollout_ref.actor.optim.betas=[{config.adam_betas[0]},{config.adam_betas[1]}]",
        f"actor_rollout_ref.actor.optim.weight_decay={config.weight_decay}",
        "actor_rollout_ref.rollout.name=vllm",
        f"actor_rollout_ref.rollout.n={config.group_size}",
        f"actor_rollout_ref.rollout.temperature={config.temperature}",
        f"actor_rollout_ref.rollout.max_model_len={tokens}",
        f"actor_rollout_ref.rollout.seed={config.seed}",
        f"actor_rollout_ref.rollout.agent.default_agent_loop={'seeded' if config.repeatable else 'single_turn_agent'}",
        *_reward_function(config, tokens),
        f"trainer.n_gpus_per_node={config.accelerators}",
        f"trainer.nnodes={config.nodes}",
        f"trainer.device={config.device}",
        "trainer.project_name=cokl",
        f"trainer.experiment_name={quoted(f'{name}-{folder.name}')}",
        f"trainer.logger=[{','.join(config.loggers)}]",
        "trainer.critic_warmup=0",
        f"trainer.default_local_dir={quoted(folder / 'checkpoints')}",
    ]
    if config.reward_model:
        overrides += _reward_model(config, tokens)
    return overrides + (_cpu(tokens, rows or batch * config.group_size) if config.device == "cpu" else _cuda(tokens))


def _training(config: LLMConfig, root: Path, data: str, steps: int, learning_rate: float) -> list[str]:
    return [
        *_evaluation(config, root),
        f"data.train_files={quoted(prompts_file(config, root, data))}",
        f"actor_rollout_ref.actor.optim.lr={learning_rate}",
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
        "actor_rollout_ref.actor.checkpoint.load_contents=[model,optimizer,extra]",
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=100000",
        f"trainer.save_freq={config.save_interval}",
        f"trainer.test_freq={config.eval_interval}",
        "trainer.val_before_train=False",
        "trainer.max_actor_ckpt_to_keep=2",
    ]


def _evaluation(config: LLMConfig, root: Path) -> list[str]:
    files = ",".join(quoted(prompts_file(config, root, name)) for name in config.evaluation_sets)
    return [
        f"data.val_files=[{files}]",
        f"actor_rollout_ref.rollout.val_kwargs.n={config.eval_samples}",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=True",
        f"actor_rollout_ref.rollout.val_kwargs.temperature={config.eval_temperature}",
        "actor_rollout_ref.rollout.val_kwargs.top_p=1.0",
        "actor_rollout_ref.rollout.val_kwargs.top_k=-1",
    ]


def _cuda(tokens: int) -> list[str]:
    return [
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={2 * tokens}",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        f"actor_rollout_ref.rollout.gpu_memory_utilization={ROLLOUT_SHARE}",
    ]


def _reward_function(config: LLMConfig, tokens: int) -> list[str]:
    section = "reward.custom_reward_function"
    path, _, name = (config.reward_function or "pkg://llm_bridge.rewards.score:compute_score").rpartition(":")
    path = path if path.startswith("pkg://") else str(Path(path).expanduser().absolute())  # jobs run in their folders
    overrides = [f"{section}.path={quoted(path)}", f"{section}.name={name}"]
    if config.reward_function:
        return overrides
    overrides += [f"+{section}.reward_kwargs.chat_reward={'reward_model' if config.reward_model else 'programmatic'}"]
    if config.reward_model:
        overrides += [
            f"+{section}.reward_kwargs.reward_model={quoted(config.reward_model)}",
            f"+{section}.reward_kwargs.reward_model_tokens={tokens + REWARD_MARGIN}",
        ]
    return overrides


def _reward_model(config: LLMConfig, tokens: int) -> list[str]:
    section = "reward.reward_model.rollout"
    return [
        "reward.reward_model.enable=True",
        f"reward.reward_model.model_path={quoted(config.reward_model)}",
        f"{section}.name=vllm",
        f"{section}.tensor_model_parallel_size=1",
        f"{section}.prompt_length={tokens}",
        f"{section}.max_model_len={tokens + REWARD_MARGIN}",  # else all that it was trained for
        f"{section}.response_length=1",
        f"{section}.gpu_memory_utilization={REWARD_SHARE}",
    ]


def _cpu(tokens: int, rows: int) -> list[str]:
    return [
        "hydra.searchpath=[pkg://llm_bridge]",
        "+cpu=settings",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={rows}",
        f"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu={rows}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={rows}",
        f"actor_rollout_ref.rollout.max_num_batched_tokens={max(2048, 8 * tokens)}",
    ]


def environment(config: LLMConfig, job: Job, metrics: Path) -> dict[str, str]:
    """The environment of a job's process and, through Ray, of all its workers. metrics: where its JSON lines go."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    added = {
        "VERL_FILE_LOGGER_PATH": str(metrics),
        "TENSORBOARD_DIR": str(job.folder / "tensorboard"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else a loaded machine starves the workers
        "HYDRA_FULL_ERROR": "1",
        "WANDB_RUN_ID": hashlib.sha256(str(job.folder).encode()).hexdigest()[:16],
        "WANDB_RESUME": "allow",
        "VERL_LOGGING_LEVEL": "INFO",  # with it comes the heartbeat by which a job counts as alive
        "VERL_USE_EXTERNAL_MODULES": "llm_bridge.plugin",
    }
    if config.device == "cpu":
        added |= {"VERL_USE_EXTERNAL_MODULES": "llm_bridge.cpu,llm_bridge.plugin", "HF_HUB_OFFLINE": "1"}
    added["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if "RAY_ADDRESS" not in os.environ:
        added["RAY_AUTH_MODE"] = "token"  # the cluster that the job starts listens on every interface
    variables = {**os.environ, **added}
    if "RAY_ADDRESS" in os.environ:  # the workers of a cluster that runs already inherit nothing from this process
        kept = {name: value for name, value in variables.items() if name.startswith(HANDED_ON)}
        variables["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({"runtime_env": {"env_vars": kept}})
        variables["RAY_OVERRIDE_JOB_RUNTIME_ENV"] = "1"
    return variables


def quoted(value: object) -> str:
    """A value in Hydra's quotes, so that a path may hold spaces, commas and the like."""
    return "'" + str(value).replace("'", "\\'") + "'"


def command_line(overrides: Iterable[str]) -> list[str]:
    """Arguments after the interpreter that run a job; Hydra writes no files of its own."""
    return [
        "-m",
        "verl.trainer.main_ppo",
        *overrides,
        "hydra.run.dir=.",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
    ]
