"""What every start of VeRL with `cokl.*` passes before anything is spent, as a callback of Hydra's.

Hydra calls it with the composed configuration before VeRL's program, and with what the program raised after it. All
refusals come at once, a line each, and then their remedies as options to paste. `+cokl.check=True` asks without a
start.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import verl
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, ListConfig, OmegaConf
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path
from verl.utils.fs import is_non_local

from cokl.responses.buffer import CachedGroup, DrawOrder
from cokl.support.errors import InputError
from llm_bridge.command import check_program, check_version, refuse
from llm_bridge.rewards.judge import Judge, load_function
from llm_bridge.trainer.checks import Refusal, look, sampling
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
        return [*sampling(config), *_of_files(config), *_of_attention(config)]
    if not issubclass(trainer, CoKLTrainer):
        names = " or ".join(sorted(name for name, known in TRAINER_REGISTRY.items() if issubclass(known, CoKLTrainer)))
        reason = f"trainer.v1.trainer_mode: expected {names}, got {mode}, with which cokl.* has no effect"
        return [Refusal(reason, "trainer.v1.trainer_mode=cokl")]
    found, settings, groups = look(config)
    files = [*_of_files(config)]
    found += [*files, *_of_attention(config)]
    if settings and groups:
        found += _of_checkpoint(config, settings, groups)
        found += [] if files else _of_cached(config, settings, groups)
    return found


def _mode(config: DictConfig) -> str:
    return str(OmegaConf.select(config, "trainer.v1.trainer_mode"))


def _of_files(config: DictConfig) -> Iterator[Refusal]:
    """Files that VeRL would miss minutes later."""
    for name in ("data.train_files", "data.val_files"):
        value = OmegaConf.select(config, name)
        for file in value if isinstance(value, list | ListConfig) else [value]:
            if file and not is_non_local(str(file)) and not Path(str(file)).expanduser().exists():
                yield Refusal(f"{name}: there is no {file}")
    path = config.reward.custom_reward_function.path
    if path:
        try:
            load_function(f"{path}:{config.reward.custom_reward_function.name}")
        except InputError as error:
            yield Refusal(f"reward.custom_reward_function: {error}")


def _of_attention(config: DictConfig) -> Iterator[Refusal]:
    """An attention that is not installed, which is looked for where it is used alone."""
    option = "actor_rollout_ref.model.override_config.attn_implementation"
    chosen = OmegaConf.select(config, option) or "flash_attention_2"  # VeRL's default
    if config.trainer.device == "cuda" and chosen == "flash_attention_2" and not find_spec("flash_attn"):
        yield Refusal(f"{option}: flash-attn is not installed; expected it, or sdpa", f"++{option}=sdpa")


def _of_cached(
    config: DictConfig, settings: RegularizationSettings, groups: Sequence[CachedGroup]
) -> Iterator[Refusal]:
    """Whether this run makes the same tokens of the buffer's prompts, and judges its responses as they are stored.

    An agent loop that may add tools is not compared here; the responses to one prompt are, in each step. A reward
    function that needs a reward model, and VeRL's built-in ones, are not asked.
    """
    from transformers import AutoTokenizer

    model, custom = config.actor_rollout_ref.model, config.reward.custom_reward_function
    path, trusted = model.get("tokenizer_path") or model.path, model.trust_remote_code
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trusted)
    tokenizer.chat_template = model.get("custom_chat_template") or tokenizer.chat_template
    options = OmegaConf.to_container(config.data.get("apply_chat_template_kwargs") or OmegaConf.create(), resolve=True)
    if config.actor_rollout_ref.rollout.agent.default_agent_loop in ("single_turn_agent", "seeded"):
        for group in groups:
            text = tokenizer.apply_chat_template(group.prompt, add_generation_prompt=True, tokenize=False, **options)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if ids != group.prompt_ids.tolist():
                yield Refusal(
                    f"cokl.buffer: a prompt has {len(group.prompt_ids)} tokens there and {len(ids)} or others in this "
                    "run: build the buffer with the chat template, its arguments, tools and system prompt of this "
                    "run, and shorten no prompt"
                )
                break
    if not custom.path or config.reward.reward_model.enable or "rollout" not in settings.method.streams():
        return
    function, given = load_function(f"{custom.path}:{custom.name}"), dict(custom.get("reward_kwargs") or {})
    judge = Judge(function, "score", given, settings.correct_above)
    for group in groups[:JUDGED_GROUPS]:
        for ids, stored in zip(group.response_ids, group.rewards, strict=True):
            text = tokenizer.decode(ids, skip_special_tokens=True)
            try:
                score = asyncio.run(judge.score(text, group.data_source, group.ground_truth, group.extra_info))
            except Exception as error:  # whatever the user's function raises
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                yield Refusal(f"reward.custom_reward_function: it failed on a cached response ({reason})")
                return
            if (score > judge.threshold) != bool(stored):
                verdict = ("wrong", "correct")[int(stored)]
                yield Refusal(
                    f"cokl.buffer: a cached response is stored as {verdict} and this run's reward function gives it "
                    f"{score:g}, with cokl.correct_above={judge.threshold:g}: expected the function that the buffer "
                    "was made with"
                )
                return


def _of_checkpoint(
    config: DictConfig, settings: RegularizationSettings, groups: Sequence[CachedGroup]
) -> Iterator[Refusal]:
    """A folder from which VeRL would resume another run."""
    from llm_bridge.trainer.core import file_digest

    trainer = config.trainer
    folder = {
        "auto": lambda: find_latest_ckpt_path(str(Path(trainer.default_local_dir).absolute())),
        "resume_path": lambda: trainer.resume_from_path,
    }.get(trainer.resume_mode, lambda: None)()
    if folder:
        drawn = groups if settings.prompts == "buffer" else ()
        try:
            DrawOrder(len(drawn), settings.seed, content=file_digest(settings.buffer)).resume(Path(folder))
        except InputError as error:
            yield Refusal(f"trainer.default_local_dir: {error}, in a folder of its own")
