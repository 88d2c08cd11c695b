"""What a run has to be for the regularizer to be right and to have an effect: every refusal, with its remedy.

VeRL accepts `cokl.*` wherever it reads a configuration, and only its V1 trainer looks the trainer up by its name. Every
other way would train without the regularizer and say nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

from omegaconf import DictConfig, OmegaConf

from cokl.support.code import code_of
from cokl.support.errors import InputError
from cokl.support.files import require_writable
from llm_bridge.buffer.groups import Buffer, CachedGroup, DrawOrder, model_fingerprint
from llm_bridge.trainer.settings import RegularizationSettings

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction"
ESTIMATORS = (
    "grpo",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "opo",
    "grpo_passk",
    "gpg",
    "rloo_vectorized",
    "grpo_vectorized",
)
"""Of advantages: those without a critic and without rollouts of their own. They see the RL rows alone."""
_ON_POLICY = ("vanilla", "gspo", "gpg", "cispo")
"""VeRL's policy losses whose gradient at a ratio of 1 is that of the advantage times the log-likelihood."""
ACCEPTED: dict[str, tuple[tuple, str]] = {
    "trainer.use_v1": ((True,), "V1 looks trainers up by name"),
    "algorithm.adv_estimator": (ESTIMATORS, "a critic's or a baseline's rows are not tested"),
    f"{CORRECTION}.bypass_mode": ((False, None), "cached responses have no rollout log-probabilities"),
    f"{CORRECTION}.rollout_rs": ((None,), "it rejects rows, and so breaks groups"),
    "trainer.v1.sampler.sync_refill_failed_groups": ((False, None), "it would ask again for added rows"),
    "distillation.enabled": ((False, None), "the teacher would judge cached responses"),
    "critic.enable": ((None, False), "a critic would see the added rows"),
    f"{ACTOR}.strategy": (("fsdp2", "fsdp", "megatron"), "others were neither run nor read"),
    f"{ACTOR}.megatron.router_replay.mode": (("disabled", "R2", None), "cached responses have no routes of the engine"),
    f"{ACTOR}.policy_loss.loss_mode": (_ON_POLICY, "at a ratio of 1 it is to be the advantage times the likelihood"),
    "actor_rollout_ref.model.lora_adapter_path": ((None,), "a buffer knows its model by the weights without one"),
    f"{ACTOR}.use_prefix_grouper": ((False, None), "it expects one prompt a group"),
    f"{ACTOR}.shuffle": ((False,), "groups would be torn apart"),
    f"{ROLLOUT}.name": (("vllm", "sglang"), "others were neither run nor read"),
    f"{ROLLOUT}.enable_rollout_routing_replay": ((False, None), "cached responses have no routes of the engine"),
    f"{ROLLOUT}.top_p": ((1, 1.0), "log-probabilities are those of the whole distribution"),
    f"{ROLLOUT}.top_k": ((-1, 0), "log-probabilities are those of the whole distribution"),
    "reward.reward_manager.name": (
        ("naive", "dapo", "rate_limited", "remote"),
        "others may not pass on the score that they were given",
    ),
}
"""Settings of VeRL: what each may be with a regularizer, the remedy first, and why."""
FILTERED: dict[str, tuple[tuple, str]] = {
    "algorithm.filter_groups.metric": (("reward", "score", "acc"), "cached responses have no other"),
    "cokl.prompts": (("buffer", None), "the cached rows of a dropped training prompt would stay"),
}
"""Further ones with `filter_groups`."""
NOT_RUN = {f"{ACTOR}.strategy": "megatron", f"{ROLLOUT}.name": "sglang"}
"""Accepted values of which VeRL's source was read, and that no run of ours had."""
_OWN_CONFIGURATION = ("torchtitan", "veomni")
"""Engines that a command does not leave by one option: their settings have names of their own."""
_ABSENT = object()
_FUNCTION, _MODEL, _PENALTY = "custom_reward_function", "reward_model", "reward.reward_kwargs.overlong_buffer_cfg"
_OLD_PENALTIES = (
    f"{_MODEL}.reward_kwargs.overlong_buffer_cfg",
    f"{_MODEL}.overlong_buffer",
    f"{_FUNCTION}.overlong_buffer",
)
_MOVED: tuple[tuple[str, dict[str, str]], ...] = (
    (f"{_MODEL}.reward_manager", {f"{_MODEL}.reward_manager": "reward.reward_manager.name"}),
    (
        f"{_FUNCTION}.path",
        {f"{_FUNCTION}.{name}": f"reward.{_FUNCTION}.{name}" for name in ("path", "name", "reward_kwargs")},
    ),
    (f"{_OLD_PENALTIES[0]}.enable", {f"{_MODEL}.reward_kwargs": "reward.reward_kwargs"}),
    *((f"{name}.enable", {name: _PENALTY}) for name in _OLD_PENALTIES[1:]),
    (
        f"{_MODEL}.enable",
        {
            f"{_MODEL}.model.path": "reward.reward_model.model_path",
            **{
                f"{_MODEL}.{name}": f"reward.reward_model.{name}"
                for name in ("enable", "enable_resource_pool", "n_gpus_per_node", "nnodes", "rollout")
            },
        },
    ),
)
"""Older options that VeRL's V1 trainer reads nothing from: the one that switches them on, and the new names."""


class Refusal(NamedTuple):
    """One line for people, and the option that lifts it, if there is one."""

    reason: str
    remedy: str = ""


def look(config: DictConfig) -> tuple[list[Refusal], RegularizationSettings | None, Sequence[CachedGroup]]:
    """All refusals of a regularized run, its settings if they can be read, and its groups if the buffer can."""
    refused, settings = look_at_settings(config)
    groups: Sequence[CachedGroup] = ()
    try:
        if settings:
            buffer = Buffer.load(Path(settings.buffer), model_fingerprint(config.actor_rollout_ref.model.path))
            groups = (buffer.filtered() if settings.method.filtered else buffer).groups
            refused += _of_buffer(config, settings, buffer, groups)
            if folder := resumed(config):
                draw_order(settings, groups).resume(folder)
    except InputError as error:
        refused.append(Refusal(str(error)))
    return refused, settings, groups


def draw_order(settings: RegularizationSettings, groups: Sequence[CachedGroup]) -> DrawOrder:
    """Of the buffer's prompts; with `cokl.prompts=training`, which draws none, of nothing."""
    code = code_of(type(settings.method.regularizer))
    method = f"{settings.method.name}{code or ''}"
    content = hashlib.sha256(method.encode() + Path(settings.buffer).read_bytes()).hexdigest()
    drawn = len(groups) if settings.prompts == "buffer" else 0
    return DrawOrder(drawn, settings.seed, content=content)


def resumed(config: DictConfig) -> Path | None:
    """The folder of the checkpoint that VeRL resumes from."""
    from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

    trainer, given = config.trainer, config.trainer.resume_mode == "resume_path"
    folder = trainer.resume_from_path if given else find_latest_ckpt_path(trainer.default_local_dir)
    return Path(folder) if folder and trainer.resume_mode != "disable" else None


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
    """All refusals of a run that makes a buffer, with the options of the run to come or with fewer."""
    refused, settings = look_at_settings(cast("DictConfig", OmegaConf.merge({"cokl": {"method": "cokl"}}, config)))
    if settings and Path(settings.buffer).exists():
        refused.append(Refusal(f"cokl.buffer: expected a file that is not there yet, got {settings.buffer}"))
    elif settings:
        try:
            require_writable(Path(settings.buffer))
        except InputError as error:
            refused.append(Refusal(f"cokl.buffer: {error}"))
    return refused


def accepted(config: DictConfig, settings: dict[str, tuple[tuple, str]]) -> Iterator[Refusal]:
    """Of settings that are to be one of some values, those that are not."""
    for name, (values, why) in settings.items():
        value = OmegaConf.select(config, name)
        if value not in values:
            remedy = "" if value in _OWN_CONFIGURATION else values[0]
            yield _refusal(name, f"{' or '.join(map(_written, values))} with a regularizer ({why})", value, remedy)


def _refusal(name: str, expected: str, got: Any, remedy: Any = "") -> Refusal:
    return Refusal(
        f"{name}: expected {expected}, got {_written(got)}", f"{name}={_written(remedy)}" if remedy != "" else ""
    )


def _written(value: Any) -> str:
    """A value as Hydra reads it; texts are quoted where they hold more than a name or a path."""
    if isinstance(value, str) and not re.fullmatch(r"[\w./:@~-]+", value):
        return "'" + value.replace("'", "\\'") + "'"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(_written, value))}]"
    return "null" if value is None else str(value)


def penalized(config: DictConfig) -> bool:
    """Whether VeRL's manager of DAPO adds a penalty on length to the reward function's score."""
    return bool(OmegaConf.select(config, "reward.reward_kwargs.overlong_buffer_cfg.enable"))


def filters_groups(config: DictConfig) -> bool:
    """Whether VeRL drops RL groups of equal rewards and asks for others."""
    return bool(OmegaConf.select(config, "algorithm.filter_groups.enable"))


def not_run(config: DictConfig) -> Iterator[str]:
    """The engines of a run that no run of ours had, as options, and whether their packages are here."""
    for name, engine in NOT_RUN.items():
        if OmegaConf.select(config, name) == engine:
            yield f"{name}={engine}" + ("" if find_spec(engine) else ", not installed here")


def _of_settings(config: DictConfig, settings: RegularizationSettings) -> Iterator[Refusal]:
    """What VeRL's configuration and the regularizer's settings are to each other."""
    actor = config.actor_rollout_ref.actor
    prompts, mini_batch = config.data.train_batch_size, actor.ppo_mini_batch_size
    if not mini_batch or prompts % mini_batch:
        expected = f"a divisor of data.train_batch_size ({prompts})"
        yield _refusal(f"{ACTOR}.ppo_mini_batch_size", expected, mini_batch, prompts)
    elif settings.prompts == "training":
        why = "with cokl.prompts=training: its rows would have two ratios in later optimizer steps"
        if prompts > mini_batch:
            expected = f"{prompts}, data.train_batch_size, {why}"
            yield _refusal(f"{ACTOR}.ppo_mini_batch_size", expected, mini_batch, prompts)
        if actor.ppo_epochs > 1:
            yield _refusal(f"{ACTOR}.ppo_epochs", f"1 {why}", actor.ppo_epochs, 1)
    elif settings.kl_prompts < (steps := prompts // mini_batch):
        expected = f"at least {steps}, one for each optimizer step: others would be plain RL"
        yield _refusal("cokl.kl_prompts", expected, settings.kl_prompts, steps)
    if settings.prompts == "training" and "kl_prompts" in config.cokl:
        reason = "cokl.kl_prompts: expected nothing with cokl.prompts=training, which draws no prompts"
        yield Refusal(f"{reason}, got {settings.kl_prompts}", "~cokl.kl_prompts")
    if filters_groups(config):
        yield from accepted(config, FILTERED)
    factors, bounds = (OmegaConf.select(config, f"{CORRECTION}.rollout_is{name}") for name in ("", "_threshold"))
    if settings.prompts == "training" and factors and isinstance(bounds, str):
        expected = "a number with cokl.prompts=training: two bounds give factors of 0, which take the regularizer too"
        yield _refusal(f"{CORRECTION}.rollout_is_threshold", expected, bounds, 2.0)
    if actor.loss_agg_mode == "seq-mean-token-sum-norm" and actor.loss_scale_factor is None:
        expected = "a number with seq-mean-token-sum-norm, such as the response length"
        yield _refusal(f"{ACTOR}.loss_scale_factor", expected, None, config.data.max_response_length)


def _of_verl(config: DictConfig) -> Iterator[Refusal]:
    """Settings that VeRL's V1 trainer would not do, or would do wrong."""
    actor, temperature = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.temperature
    if temperature <= 0:
        yield _refusal(f"{ROLLOUT}.temperature", "a number > 0, by which logits are divided", temperature, 1.0)
    if actor.strategy == "megatron" and "megatron" not in actor:
        yield _refusal("model_engine", "megatron, which has its settings", "another", "megatron")
    for switch, names in _MOVED:
        if OmegaConf.select(config, switch):
            for old, new in names.items():
                yield from _moved(config, old, new)
    limits = ("reward.reward_kwargs.max_resp_len", f"{_MODEL}.reward_kwargs.max_resp_len")
    if any(OmegaConf.select(config, f"{name}.enable") for name in (_PENALTY, *_OLD_PENALTIES)) and not any(
        OmegaConf.select(config, name) for name in limits
    ):
        expected = "expected a number of tokens with a penalty on length, got null"
        yield Refusal(f"{limits[0]}: {expected}", f"++{limits[0]}={config.data.max_response_length}")
    enabled, judges = (
        [OmegaConf.select(config, f"{root}{name}") for root in ("", "reward.")]
        for name in (f"{_MODEL}.enable", f"{_FUNCTION}.path")
    )
    if any(enabled) and not any(judges):
        expected = "a file beside a reward model, whose raw logit would decide else which responses are correct"
        yield _refusal("reward.custom_reward_function.path", expected, None)


def _moved(config: DictConfig, old: str, new: str) -> Iterator[Refusal]:
    """Of an older option, or a node of them, what its new name does not have."""
    value = OmegaConf.select(config, old)
    if isinstance(value, DictConfig):
        for name in value:
            yield from _moved(config, f"{old}.{name}", f"{new}.{name}")
    elif value not in (None, OmegaConf.select(config, new)):
        reason = f"{old}: VeRL's V1 trainer ignores it; expected {new}, got {_written(value)}"
        if new in ACCEPTED and value not in ACCEPTED[new][0]:
            known = ", ".join(ACCEPTED[new][0])
            reason = f"{old}: VeRL's V1 trainer ignores it, and {value} is none of {known}; expected {new}"
            yield Refusal(reason, f"{old}=null")
        else:
            added = OmegaConf.select(config, new, default=_ABSENT) is _ABSENT
            yield Refusal(reason, f"{'++' if added else ''}{new}={_written(value)}")


def _of_buffer(
    config: DictConfig, settings: RegularizationSettings, buffer: Buffer, groups: Sequence[CachedGroup]
) -> Iterator[Refusal]:
    """A buffer that the run does not fit.

    What `Buffer.missed` says; and a prompt that is cut off is another prompt than the one whose answers are cached.
    """
    rollout = config.actor_rollout_ref.rollout
    if settings.prompts == "buffer" and settings.kl_prompts > len(groups):
        expected = f"at most the {len(groups)} prompts that the buffer has for {settings.method.name}"
        yield _refusal("cokl.kl_prompts", expected, settings.kl_prompts, len(groups))
    if settings.cached_per_prompt > buffer.group_size:
        expected = f"at most {buffer.group_size}, the responses that the buffer has to a prompt; 0 brings all of them"
        yield _refusal("cokl.cached_per_prompt", expected, settings.cached_per_prompt, 0)
    given = {
        "length": ("data.max_response_length", rollout.response_length),
        "temperature": (f"{ROLLOUT}.temperature", rollout.temperature),
    }
    for what, expected, remedy in buffer.missed(settings.method.streams(), *(value for _, value in given.values())):
        name, value = given[what]
        yield _refusal(name, expected, value, remedy)
    prompt = max(len(group.prompt_ids) for group in buffer.groups)
    if settings.prompts == "buffer" and rollout.prompt_length < prompt:
        why = "tokens of the buffer's longest prompt: VeRL cuts off the beginning of a longer one"
        yield _refusal("data.max_prompt_length", f"at least {prompt}, {why}", rollout.prompt_length, prompt)
