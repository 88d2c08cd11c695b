"""What every start of VeRL with `cokl.*` passes before anything is spent, as a callback of Hydra's.

Hydra calls it with the composed configuration before VeRL's program, and with what the program raised after it. All
refusals come at once, a line each, and then their remedies as options to paste. `+cokl.check=True` asks without a
start.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import verl
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from cokl.responses.buffer import CachedGroup
from cokl.support.errors import InputError
from llm_bridge.command import check_program, check_version, refuse
from llm_bridge.rewards.judge import judged, load_function
from llm_bridge.trainer.checks import Refusal, draw_order, look, sampling
from llm_bridge.trainer.settings import RegularizationSettings

JUDGED_GROUPS = 8
"""Of how many of the buffer's prompts the run's reward function judges the cached responses again."""


class Preflight(Callback):
    """Ends the process with exit code 2 where a run would be wrong, or plain RL under CoKL's name."""

    def on_job_start(self, config: DictConfig, *, task_function: Callable[..., Any], **_: Any) -> None:
        """Before VeRL's program. Hydra would make a warning of an error, so every error ends the process here."""
        try:
            if config.get("cokl") is not None or _mode(config).startswith("cokl"):
                check_program(task_function.__code__.co_filename)
                check_version(verl.__version__)
                if found := refusals(config):
                    end(found)
                if OmegaConf.select(config, "cokl.check"):
                    print("cokl: nothing is refused", flush=True)
                    sys.exit(0)
        except InputError as error:
            refuse(str(error))
        except Exception:
            traceback.print_exc()
            sys.exit(1)

    def on_job_end(self, config: DictConfig, job_return: Any, **_: Any) -> None:
        """What the trainer refused in a process of its own ends this one in one line."""
        try:
            _ = job_return.return_value
        except Exception as error:
            cause = getattr(error, "cause", error)  # Ray's own text is the trainer's traceback
            if isinstance(error, InputError) or isinstance(cause, InputError):
                import ray

                ray.shutdown()  # which prints what its workers have said
                refuse(str(cause))


def end(found: Sequence[Refusal]) -> NoReturn:
    """A line for each, and the remedies as one block; exit code 2."""
    remedies = list(dict.fromkeys(refusal.remedy for refusal in found if refusal.remedy))
    lines = [refusal.reason for refusal in found]
    if len(lines) == 1 and remedies:
        lines[0] += f"; add {remedies[0]}"
    elif remedies:
        lines.append(f"add {' '.join(remedies)}")
    refuse("\ncokl: ".join(lines))


def refusals(config: DictConfig) -> list[Refusal]:
    """Everything for which this configuration is not started."""
    from llm_bridge.trainer.buffer_filler import BufferTrainer
    from llm_bridge.trainer.core import CoKLTrainer

    mode = _mode(config)
    trainer = TRAINER_REGISTRY.get(mode, object)
    if issubclass(trainer, BufferTrainer):
        return [*sampling(config), *_of_function(config)]
    if not issubclass(trainer, CoKLTrainer):
        names = " or ".join(sorted(name for name, known in TRAINER_REGISTRY.items() if issubclass(known, CoKLTrainer)))
        reason = f"trainer.v1.trainer_mode: expected {names}, got {mode}, with which cokl.* has no effect"
        return [Refusal(reason, "trainer.v1.trainer_mode=cokl")]
    found, settings, groups = look(config)
    missing = [*_of_function(config)]
    found += missing
    if settings and groups:
        found += _of_checkpoint(config, settings, groups)
        if "rollout" in settings.method.streams() and not missing:
            found += _of_cached(config, settings, groups)
    return found


def _mode(config: DictConfig) -> str:
    return str(OmegaConf.select(config, "trainer.v1.trainer_mode"))


def _of_function(config: DictConfig) -> Iterator[Refusal]:
    """A reward function that is not there, or not of the form that VeRL calls."""
    custom = config.reward.custom_reward_function
    if custom.path:
        told = {"data_source": "", "solution_str": "", "ground_truth": "", "extra_info": {}}
        try:
            inspect.signature(load_function(f"{custom.path}:{custom.name}")).bind(**told, **_options(config))
        except InputError as error:
            yield Refusal(f"reward.custom_reward_function: {error}")
        except TypeError as error:
            yield Refusal(f"reward.custom_reward_function: VeRL calls it with {', '.join(told)} as keywords ({error})")


def _options(config: DictConfig) -> dict[str, Any]:
    return dict(config.reward.custom_reward_function.get("reward_kwargs") or {})


def _of_checkpoint(
    config: DictConfig, settings: RegularizationSettings, groups: Sequence[CachedGroup]
) -> Iterator[Refusal]:
    """A checkpoint that VeRL would resume from, and that is no run's of this buffer."""
    trainer = config.trainer
    given = trainer.resume_mode == "resume_path"
    folder = trainer.resume_from_path if given else find_latest_ckpt_path(trainer.default_local_dir)
    try:
        if folder and trainer.resume_mode != "disable":
            draw_order(settings, groups).resume(Path(folder))
    except InputError as error:
        yield Refusal(f"trainer.default_local_dir: expected a folder of its own ({error})")


def _of_cached(
    config: DictConfig, settings: RegularizationSettings, groups: Sequence[CachedGroup]
) -> Iterator[Refusal]:
    """Whether this run asks for the buffer's prompts, and judges its responses, as they are stored.

    A reward function that needs a reward model, VeRL's built-in ones, and other agent loops' prompts are not asked.
    """
    from transformers import AutoTokenizer

    model, custom = config.actor_rollout_ref.model, config.reward.custom_reward_function
    path = model.get("tokenizer_path") or model.path
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=model.trust_remote_code)
    if config.actor_rollout_ref.rollout.agent.default_agent_loop == "single_turn_agent":
        tokenizer.chat_template = model.get("custom_chat_template") or tokenizer.chat_template
        arguments = {**(config.data.get("apply_chat_template_kwargs") or {}), "add_generation_prompt": True}
        ids = tokenizer.apply_chat_template(groups[0].prompt, return_dict=False, **arguments)
        if ids != groups[0].prompt_ids.tolist():
            expected = "expected the template, and its arguments, that the buffer was made with"
            yield Refusal(f"cokl.buffer: its prompts have other tokens than this run's chat template gives; {expected}")
    if not custom.path or config.reward.reward_model.enable:
        return
    function, options = load_function(f"{custom.path}:{custom.name}"), _options(config)
    for group in groups[:JUDGED_GROUPS]:
        told = group.data_source, group.ground_truth, group.extra_info
        for ids, stored in zip(group.response_ids, group.rewards, strict=True):
            try:
                score = judged(function, tokenizer.decode(ids, skip_special_tokens=True), *told, **options)
            except Exception as error:  # whatever the user's function raises
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                yield Refusal(f"reward.custom_reward_function: it failed on a cached response ({reason})")
                return
            if (score > settings.correct_above) != bool(stored):
                verdict = ("wrong", "correct")[int(stored)]
                yield Refusal(
                    f"cokl.buffer: a cached response is stored as {verdict} and this run's reward function gives it "
                    f"{score:g}, with cokl.correct_above={settings.correct_above:g}: expected the function that the "
                    "buffer was made with"
                )
                return
