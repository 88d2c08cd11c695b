"""What every start of VeRL with `cokl.*` passes before anything is spent, as a callback of Hydra's.

Hydra calls it with the composed configuration before VeRL's program, and with what the program raised after it. All
refusals come at once, a line each, and then their remedies as options to paste. `+cokl.check=True` asks without a
start.
"""

from __future__ import annotations

import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from pyarrow import parquet as pq
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.utils.reward_score import default_compute_score

from cokl.support.errors import InputError
from llm_bridge.buffer.groups import CachedGroup, prompt_key
from llm_bridge.command import check_program, refuse
from llm_bridge.rewards.judge import load_function, reward_of
from llm_bridge.trainer.buffer_filler import BufferTrainer
from llm_bridge.trainer.checks import Refusal, look, not_run, sampling
from llm_bridge.trainer.core import CoKLTrainer
from llm_bridge.trainer.rows import AGENT
from llm_bridge.trainer.settings import RegularizationSettings

JUDGED_GROUPS = 8
"""Of how many of the buffer's prompts the run's reward function judges the cached responses again."""


class Preflight(Callback):
    """Ends the process with exit code 2 where a run would be wrong, or plain RL under CoKL's name."""

    def on_job_start(self, config: DictConfig, *, task_function: Callable[..., Any], **_: Any) -> None:
        """Before VeRL's program. Hydra would make a warning of an error, so every error ends the process here."""
        try:
            mode = OmegaConf.select(config, "trainer.v1.trainer_mode")
            if config.get("cokl") is not None or str(mode).startswith("cokl"):
                check_program(task_function.__code__.co_filename)
                if found := refusals(config):
                    end(found)
                for line in warnings(config):
                    print(f"cokl: warning: {line}", file=sys.stderr, flush=True)
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
    """A line for each, and the remedies as one block for a shell; exit code 2."""
    remedies = list(dict.fromkeys(refusal.remedy for refusal in found if refusal.remedy))
    lines = [refusal.reason for refusal in found]
    if remedies:
        lines.append(f"add {shlex.join(remedies)}")
    refuse("\ncokl: ".join(lines))


def refusals(config: DictConfig) -> list[Refusal]:
    """Everything for which this configuration is not started."""
    mode = config.trainer.v1.trainer_mode
    trainer = TRAINER_REGISTRY.get(mode, object)
    ours = get_close_matches(str(mode), [name for name in TRAINER_REGISTRY if name.startswith("cokl")], 1)
    if mode not in TRAINER_REGISTRY and ours:
        return [
            Refusal(f"trainer.v1.trainer_mode: expected {ours[0]}, got {mode}", f"trainer.v1.trainer_mode={ours[0]}")
        ]
    if issubclass(trainer, BufferTrainer):
        return [*sampling(config), *_of_data(config, None, ()), *_of_lengths(config), *_of_function(config)]
    found, settings, groups = look(config)
    if not issubclass(trainer, CoKLTrainer):
        reason = f"trainer.v1.trainer_mode: expected cokl, got {mode}, with which cokl.* has no effect"
        found.append(Refusal(reason, "trainer.v1.trainer_mode=cokl"))
    asked = groups if settings and "rollout" in settings.method.streams() else ()
    for another in () if asked else _of_template(config, groups):  # a buffer may bring tokens of its own
        print(f"cokl: warning: {another.reason}", file=sys.stderr, flush=True)
    return [
        *found,
        *_of_data(config, settings, groups),
        *_of_template(config, asked),
        *_of_function(config, settings, asked),
    ]


def warnings(config: DictConfig) -> Iterator[str]:
    """What is not refused and not as the command may seem. config: Hydra's, with the options as they were given."""
    if options := ", ".join(not_run(config)):
        yield f"{options}: read in VeRL's source and not run with a regularizer; compare the first steps with plain RL"
    mode = "trainer.v1.trainer_mode"
    given = [option.partition("=")[2] for option in config.hydra.overrides.task if option.startswith(f"{mode}=")]
    for other in dict.fromkeys(name for name in given if name.endswith("_async")):
        yield f"{mode}={config.trainer.v1.trainer_mode} replaces {other}: rollouts and updates no longer overlap"


def _of_data(
    config: DictConfig, settings: RegularizationSettings | None, groups: Sequence[CachedGroup]
) -> Iterator[Refusal]:
    """Training prompts that are not there or no text, and a buffer that has none of those that are to be regularized.

    Local Parquet files are looked at, others not. settings: None where a buffer is made.
    """
    given, tables = _files(config), _tables(config)
    for file in given:
        if re.fullmatch(r"[^:]+\.(parquet|jsonl?)", file) and not Path(file).expanduser().exists():
            yield Refusal(f"data.train_files: expected files, got {file}, which is not there")
    media = {config.data.get(f"{kind}_key", f"{kind}s") for kind in ("image", "video", "audio")}
    for table in tables:
        there = [name for name in table.schema_arrow.names if name in media]
        first = next(table.iter_batches(64, columns=there), None) if there else None
        if first is not None and any(any(row.values()) for row in first.to_pylist()):
            yield Refusal("data.train_files: expected prompts of text, as a buffer's are; got images, video or audio")
            return
    names = [config.data.get("prompt_key", "prompt"), "reward_model"]
    looked_at = len(tables) == len(given) and all(set(names) <= set(table.schema_arrow.names) for table in tables)
    if settings is None or settings.prompts == "buffer" or not groups or not looked_at:
        return
    known = {group.key for group in groups}
    rows = [row for table in tables for row in table.read(columns=names).to_pylist()]
    found = sum(prompt_key(row[names[0]], row["reward_model"]["ground_truth"]) in known for row in rows)
    share = f"{found} of the {len(rows)} prompts in data.train_files are regularized"
    if found:
        print(f"cokl: {share}: they have cached responses", flush=True)
    else:
        yield Refusal(f"cokl.buffer: {share}; build it from prompts of these files, with their ground_truth")


def _files(config: DictConfig) -> list[str]:
    files = config.data.train_files
    return [files] if isinstance(files, str) else list(files or ())


def _tables(config: DictConfig) -> list[pq.ParquetFile]:
    """The local Parquet files among the training files."""
    files = map(Path, _files(config))
    return [pq.ParquetFile(file) for file in files if file.suffix == ".parquet" and file.is_file()]


def _of_template(config: DictConfig, groups: Sequence[CachedGroup]) -> Iterator[Refusal]:
    """Another chat template than the buffer's. The prompts of other agent loops than VeRL's first are not looked at."""
    default = config.actor_rollout_ref.rollout.agent.default_agent_loop
    looked_at = [group for group in groups if group.extra_info.get(AGENT, default) == "single_turn_agent"]
    if not looked_at:
        return
    ids = _prompt_ids(config, _tokenizer(config), [group.prompt for group in looked_at])
    others = sum(now != group.prompt_ids.tolist() for now, group in zip(ids, looked_at, strict=True))
    if others:
        expected = "expected the template, and its arguments, that the buffer was made with"
        count = f"{others} of its {len(looked_at)} prompts have"
        yield Refusal(f"cokl.buffer: {count} other tokens than this run's chat template gives; {expected}")


def _of_lengths(config: DictConfig) -> Iterator[Refusal]:
    """Prompts of which VeRL would cut off the beginning, and the starting model answer the rest.

    Those of other agent loops than VeRL's first are not looked at.
    """
    data, rollout = config.data, config.actor_rollout_ref.rollout
    if data.get("filter_overlong_prompts") or rollout.agent.default_agent_loop != "single_turn_agent":
        return
    tokenizer, name, longest = _tokenizer(config), data.get("prompt_key", "prompt"), 0
    for table in _tables(config):
        if name in table.schema_arrow.names and AGENT not in table.schema_arrow.names:
            for batch in table.iter_batches(1024, columns=[name]):
                prompts = [prompt for prompt in batch[name].to_pylist() if isinstance(prompt, list)]
                if prompts:
                    longest = max(longest, *map(len, _prompt_ids(config, tokenizer, prompts)))
    if longest > rollout.prompt_length:
        expected = f"at least {longest}, tokens of the longest prompt: VeRL cuts off the beginning of a longer one"
        reason = f"data.max_prompt_length: expected {expected}, got {rollout.prompt_length}"
        yield Refusal(reason, f"data.max_prompt_length={longest}")


def _prompt_ids(config: DictConfig, tokenizer: Any, prompts: Sequence[Any]) -> list[list[int]]:
    """The tokens of prompts in messages, by this run's chat template."""
    arguments = config.data.get("apply_chat_template_kwargs") or {}
    tokenizer.chat_template = config.actor_rollout_ref.model.get("custom_chat_template") or tokenizer.chat_template
    ids: list[list[int]] = tokenizer.apply_chat_template(
        list(prompts), return_dict=False, add_generation_prompt=True, **arguments
    )
    return ids


def _tokenizer(config: DictConfig) -> Any:
    from transformers import AutoTokenizer

    model = config.actor_rollout_ref.model
    path = model.get("tokenizer_path") or model.path
    return AutoTokenizer.from_pretrained(path, trust_remote_code=model.trust_remote_code)


def _of_function(
    config: DictConfig, settings: RegularizationSettings | None = None, groups: Sequence[CachedGroup] = ()
) -> Iterator[Refusal]:
    """A reward function that is not there, or that judges the buffer's responses otherwise than they are stored.

    One that needs a reward model, and VeRL's built-in ones, are not asked to judge.
    """
    custom = config.reward.custom_reward_function
    options = dict(custom.get("reward_kwargs") or {})
    if not custom.path:
        yield from _of_built_in(config, groups)
        return
    routed = ("reward_router_address", "reward_model_tokenizer") if config.reward.reward_model.enable else ()
    try:
        function = load_function(f"{custom.path}:{custom.name}", **options, **dict.fromkeys(routed))
    except InputError as error:
        yield Refusal(f"reward.custom_reward_function: {error}")
        return
    if config.reward.reward_model.enable:
        return
    if settings is None or not groups:
        yield from _of_first_answer(config, function, options)
        return
    tokenizer = _tokenizer(config)
    for group in groups[:JUDGED_GROUPS]:
        told = group.data_source, group.ground_truth, group.extra_info
        for ids, stored in zip(group.response_ids, group.rewards, strict=True):
            try:
                score = reward_of(function, tokenizer.decode(ids, skip_special_tokens=True), *told, **options)
            except InputError as error:
                yield Refusal(f"reward.custom_reward_function: {error}")
                return
            if (score > settings.correct_above) != bool(stored):
                said = f"this run's reward function gives it {score:g}, with correct_above={settings.correct_above:g}"
                verdict = ("wrong", "correct")[int(stored)]
                yield Refusal(f"cokl.buffer: a cached response is stored as {verdict} and {said}")
                return


def _of_first_answer(config: DictConfig, function: Callable[..., Any], options: dict[str, Any]) -> Iterator[Refusal]:
    """A reward function that fails on the first training prompt's own answer, whatever the answer says.

    Its own errors are none but those of names and imports: a text without the expected form may cause the others, and
    the model's answers may all have it.
    """
    names = ["data_source", "reward_model"]
    for table in _tables(config)[:1]:
        there = [name for name in (*names, "extra_info") if name in table.schema_arrow.names]
        first = next(table.iter_batches(1, columns=there), None) if set(names) <= set(there) else None
        for row in [] if first is None else first.to_pylist():
            truth = (row["reward_model"] or {}).get("ground_truth")
            try:
                reward_of(function, str(truth), row["data_source"], truth, row.get("extra_info") or {}, **options)
            except InputError as error:
                cause = error.__cause__
                place = cause.__traceback__ if cause else None
                returned = place is not None and place.tb_next is None  # and not what VeRL asks for
                if returned or isinstance(cause, NameError | ImportError | NotImplementedError):
                    yield Refusal(f"reward.custom_reward_function: {error}")


def _of_built_in(config: DictConfig, groups: Sequence[CachedGroup]) -> Iterator[Refusal]:
    """Data for which VeRL has no reward function of its own, where the command names none.

    Agent loops other than VeRL's may bring a score themselves. So may a reward model; an older option that names a
    function has a refusal of its own.
    """
    names, tables = ["data_source", "reward_model"], _tables(config)
    named = OmegaConf.select(config, "custom_reward_function.path") or config.reward.reward_model.enable
    default = config.actor_rollout_ref.rollout.agent.default_agent_loop
    loops = {default, *(group.extra_info.get(AGENT, default) for group in groups)}
    if named or loops - {"single_turn_agent", "tool_agent"} or any(AGENT in one.schema_arrow.names for one in tables):
        return
    truths = {group.data_source: group.ground_truth for group in groups}
    for table in tables:
        if set(names) <= set(table.schema_arrow.names):
            for batch in table.iter_batches(1024, columns=names):
                rows = batch.to_pylist()
                truths |= {row["data_source"]: (row["reward_model"] or {}).get("ground_truth") for row in rows}
    for source, truth in truths.items():
        try:
            default_compute_score(source, "", truth)
        except NotImplementedError:
            expected = f"a file with a reward function: VeRL has none of its own for the data_source {source!r}"
            yield Refusal(f"reward.custom_reward_function.path: expected {expected}, got null")
        except Exception:  # it has one, whatever that thinks of an empty answer
            continue
