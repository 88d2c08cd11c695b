"""What a run has to be for the regularizer to be right and to have an effect: every refusal, with its remedy.

VeRL accepts `cokl.*` wherever it reads a configuration, and only its V1 trainer looks the trainer up by its name. Every
other way would train without the regularizer and say nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from cokl.responses.buffer import Buffer, CachedGroup, DrawOrder, model_fingerprint
from cokl.support.errors import InputError
from llm_bridge.trainer.advantages import SEQUENCE_MODES
from llm_bridge.trainer.settings import RegularizationSettings, optimizer_steps

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
ESTIMATORS = (
    *("grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "opo"),
    *("grpo_passk", "gpg", "rloo_vectorized", "grpo_vectorized"),
)
"""Of advantages: those without a critic and without rollouts of their own. They see the RL rows alone."""
_ON_POLICY = ("vanilla", "gspo", "gpg", "cispo")
"""VeRL's policy losses whose gradient at a ratio of 1 is that of the advantage times the log-likelihood."""
ACCEPTED: dict[str, tuple[tuple, str]] = {
    "trainer.use_v1": ((True,), "V1 looks trainers up by name"),
    "algorithm.adv_estimator": (ESTIMATORS, "a critic's or a baseline's rows are not tested"),
    "algorithm.filter_groups.enable": ((False, None), "a step would lose added rows with the groups that it drops"),
    "algorithm.rollout_correction.bypass_mode": ((False, None), "cached responses have no rollout log-probabilities"),
    "algorithm.rollout_correction.rollout_is": ((None,), "its factors would weigh the added part of the loss too"),
    "algorithm.rollout_correction.rollout_rs": ((None,), "it rejects rows, and so breaks groups"),
    "trainer.v1.sampler.sync_refill_failed_groups": ((False, None), "it would ask again for added rows"),
    "distillation.enabled": ((False, None), "the teacher would judge cached responses"),
    "critic.enable": ((None, False), "a critic would see the added rows"),
    f"{ACTOR}.strategy": (("fsdp2", "fsdp"), "others are not tested"),
    f"{ACTOR}.policy_loss.loss_mode": (_ON_POLICY, "at a ratio of 1 it is to be the advantage times the likelihood"),
    f"{ACTOR}.entropy_coeff": ((0, 0.0), "VeRL's entropy term would count the added rows"),
    f"{ACTOR}.kl_loss_type": (
        ("low_var_kl", "k3", "k2", "mse", "k3+", "k2+", "k1+"),
        "the gradient of others is not 0 where the policy is the reference, as it is on added rows",
    ),
    f"{ACTOR}.use_prefix_grouper": ((False, None), "it expects one prompt a group"),
    f"{ACTOR}.shuffle": ((False,), "groups would be torn apart"),
    f"{ROLLOUT}.name": (("vllm",), "others are not tested"),
    f"{ROLLOUT}.top_p": ((1, 1.0), "log-probabilities are those of the whole distribution"),
    f"{ROLLOUT}.top_k": ((-1, 0), "log-probabilities are those of the whole distribution"),
    "reward.reward_manager.name": (("naive", "dapo"), "others may not pass on the score that they were given"),
}
"""Settings of VeRL: what each may be with a regularizer, the remedy first, and why."""
_SAMPLING = (f"{ROLLOUT}.name", f"{ROLLOUT}.top_p", f"{ROLLOUT}.top_k", "trainer.use_v1", "reward.reward_manager.name")
"""Those of them that the making of a buffer needs."""
_IGNORED = {
    "custom_reward_function.path": "reward.custom_reward_function.path",
    "reward_model.enable": "reward.reward_model.enable",
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.model.path": "reward.reward_model.model_path",
}
"""Older names that VeRL's V1 trainer reads nothing from, and the ones in use."""


class Refusal(NamedTuple):
    """One line for people, and the option that lifts it, if there is one."""

    reason: str
    remedy: str = ""


def fitting(config: DictConfig) -> tuple[RegularizationSettings, Sequence[CachedGroup]]:
    """A run's settings, and the groups that it regularizes with.

    Raises InputError with everything under which the loss would be wrong.
    """
    refused, settings, groups = look(config)
    if refused or settings is None:
        raise InputError("; ".join(refusal.reason for refusal in refused))
    return settings, groups


def look(config: DictConfig) -> tuple[list[Refusal], RegularizationSettings | None, Sequence[CachedGroup]]:
    """All refusals of a regularized run, its settings if they can be read, and its groups if the buffer can."""
    refused, settings = look_at_settings(config)
    groups: Sequence[CachedGroup] = ()
    try:
        if settings:
            buffer = Buffer.load(Path(settings.buffer), model_fingerprint(config.actor_rollout_ref.model.path))
            groups = (buffer.filtered() if settings.method.filtered else buffer).groups
            refused += _of_buffer(config, settings, buffer, groups)
    except InputError as error:
        refused.append(Refusal(str(error)))
    return refused, settings, groups


def draw_order(settings: RegularizationSettings, groups: Sequence[CachedGroup]) -> DrawOrder:
    """Of the buffer's prompts; with `cokl.prompts=training`, which draws none, of nothing."""
    content = hashlib.sha256(Path(settings.buffer).read_bytes()).hexdigest()  # tells it from other buffers
    return DrawOrder(len(groups) * (settings.prompts == "buffer"), settings.seed, content=content)


def look_at_settings(config: DictConfig) -> tuple[list[Refusal], RegularizationSettings | None]:
    """The refusals for which no file is read, and the run's settings if they can be read."""
    refused, settings = [*accepted(config, ACCEPTED), *_of_verl(config)], None
    try:
        settings = RegularizationSettings.read(config)
        refused += _of_settings(config, settings)
    except InputError as error:
        refused.append(Refusal(str(error)))
    return refused, settings


def sampling(config: DictConfig) -> list[Refusal]:
    """All refusals of a run that makes a buffer."""
    refused = [*accepted(config, {name: ACCEPTED[name] for name in _SAMPLING}), *_of_verl(config)]
    for name in config.cokl:
        if name not in ("buffer", "correct_above", "check"):
            refused.append(
                Refusal(f"cokl.{name}: a buffer is made with cokl.buffer and cokl.correct_above alone", f"~cokl.{name}")
            )
    file = config.cokl.get("buffer")
    if not file or Path(file).exists():
        refused.append(Refusal(f"cokl.buffer: expected a file to write that is not there yet, got {file}"))
    return refused


def accepted(config: DictConfig, settings: dict[str, tuple[tuple, str]]) -> Iterator[Refusal]:
    """Of settings that are to be one of some values, those that are not."""
    for name, (values, why) in settings.items():
        value = OmegaConf.select(config, name)
        if value not in values:
            remedy = "" if value == "megatron" else values[0]  # which has a configuration of its own
            yield _refusal(name, f"{' or '.join(map(_written, values))} with a regularizer ({why})", value, remedy)


def _refusal(name: str, expected: str, got: Any, remedy: Any = "") -> Refusal:
    return Refusal(
        f"{name}: expected {expected}, got {_written(got)}", f"{name}={_written(remedy)}" if remedy != "" else ""
    )


def _written(value: Any) -> str:
    """A value as Hydra reads it."""
    return "null" if value is None else str(value)


def _of_settings(config: DictConfig, settings: RegularizationSettings) -> Iterator[Refusal]:
    """What VeRL's configuration and the regularizer's settings are to each other."""
    actor = config.actor_rollout_ref.actor
    prompts, mini_batch = config.data.train_batch_size, actor.ppo_mini_batch_size
    name = f"{ACTOR}.ppo_mini_batch_size"
    if not mini_batch or prompts % mini_batch:
        yield _refusal(name, f"a divisor of data.train_batch_size ({prompts})", mini_batch, prompts)
    elif optimizer_steps(config) > 1:
        for option, constant in (
            ("lr_scheduler_type", "constant"),
            ("lr_warmup_steps_ratio", 0.0),
            ("lr_warmup_steps", -1),
        ):
            value = actor.optim.get(option)
            if value not in (constant, None) and not (constant == -1 and value <= 0):
                yield _refusal(
                    f"{ACTOR}.optim.{option}", f"{constant} with several optimizer steps per rollout", value, constant
                )
        if settings.prompts == "training":
            yield _refusal("cokl.prompts", "buffer with several optimizer steps per rollout", "training")
    if actor.use_kl_loss and actor.loss_agg_mode in SEQUENCE_MODES:
        expected = "False with a mean over sequences, which would count the added rows; token-mean does not"
        yield _refusal(f"{ACTOR}.use_kl_loss", expected, True, False)
    if actor.loss_agg_mode == "seq-mean-token-sum-norm" and actor.loss_scale_factor is None:
        expected = "a number with seq-mean-token-sum-norm, such as the response length"
        yield _refusal(f"{ACTOR}.loss_scale_factor", expected, None, config.data.max_response_length)


def _of_verl(config: DictConfig) -> Iterator[Refusal]:
    """Reward settings that VeRL's V1 trainer would not do, or would do wrong."""
    for old, new in _IGNORED.items():
        value, used = OmegaConf.select(config, old), OmegaConf.select(config, new)
        if value not in (None, False, used):
            yield Refusal(f"{old}: VeRL's V1 trainer ignores it; expected {new}, got {value}", f"{new}={value}")
    model = config.reward.reward_model
    if model.enable and config.reward.custom_reward_function.path is None:
        yield Refusal(
            "reward.custom_reward_function.path: expected a file beside a reward model; without one the model's raw "
            "logit would decide which responses are correct"
        )
    mode = config.trainer.v1.trainer_mode  # of a trainer that is being made, which was looked at before, it is sync
    if model.enable and not model.enable_resource_pool and mode not in ("cokl_rewarded", "sync"):
        pool, rewarded = "reward.reward_model.enable_resource_pool=True", "trainer.v1.trainer_mode=cokl_rewarded"
        remedy = pool if mode == "cokl_buffer" else rewarded
        yield Refusal(
            f"trainer.v1.trainer_mode: expected {remedy} beside a reward model on the same GPUs: VeRL would pass only "
            f"the prompt to the reward function, without ground truth and data source, got {mode}",
            remedy,
        )


def _of_buffer(
    config: DictConfig, settings: RegularizationSettings, buffer: Buffer, groups: Sequence[CachedGroup]
) -> Iterator[Refusal]:
    """A buffer that the run does not fit: fresh responses would be cut off shorter than cached ones, which makes all of
    them wrong, or sampled at another temperature.
    """
    rollout, streams = config.actor_rollout_ref.rollout, settings.method.streams()
    if settings.kl_prompts > len(groups):
        expected = f"at most the {len(groups)} prompts that the buffer has for {settings.method.name}"
        yield _refusal("cokl.kl_prompts", expected, settings.kl_prompts, len(groups))
    if settings.cached_per_prompt > buffer.group_size:
        expected = f"at most the {buffer.group_size} cached responses of a prompt"
        yield _refusal("cokl.cached_per_prompt", expected, settings.cached_per_prompt, buffer.group_size)
    members = [row for group in buffer.groups for row in zip(group.response_ids, group.rewards, strict=True)]
    lengths: list[tuple[str, int, int, str]] = []
    if "rollout" in streams:
        correct = max((len(ids) for ids, reward in members if reward), default=0)
        why = "tokens of the longest correct cached response: fresh ones that are cut off count as wrong"
        lengths.append(("data.max_response_length", correct, rollout.response_length, why))
        if settings.prompts == "buffer":
            prompt = max(len(group.prompt_ids) for group in buffer.groups)
            why = "tokens of the buffer's longest prompt: VeRL cuts off the beginning of a longer one"
            lengths.append(("data.max_prompt_length", prompt, rollout.prompt_length, why))
    for name, least, given, why in lengths:
        if given < least:
            yield _refusal(name, f"at least {least}, {why}", given, least)
    if len(streams) == 2 and not math.isclose(buffer.temperature, rollout.temperature):
        expected = f"{buffer.temperature:g}, at which the buffer's responses were sampled"
        yield _refusal(f"{ROLLOUT}.temperature", expected, rollout.temperature, f"{buffer.temperature:g}")
