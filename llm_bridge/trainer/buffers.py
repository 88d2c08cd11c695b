"""What a run regularizes with: its settings, the buffers that it reads, the rows of its steps, and whether they fit."""

from __future__ import annotations

import math
from pathlib import Path

from omegaconf import DictConfig

from cokl.responses.buffer import Buffer, model_fingerprint
from cokl.support.errors import InputError
from cokl.support.options import require
from llm_bridge.trainer.options import BatchShape, RegularizationSettings, check_settings


def regularization(config: DictConfig) -> tuple[RegularizationSettings, list[Buffer], BatchShape]:
    """From VeRL's configuration. The buffers are those of `RegularizationSettings.files`.

    Raises InputError for settings under which the loss would be wrong, for a file that is no buffer of the model in
    training, for two whose groups differ in size, and for a buffer that the run does not fit.
    """
    settings = RegularizationSettings.read(config)
    require(Path() not in settings.files, "cokl.buffer", "a file", "nothing")
    fingerprint = model_fingerprint(config.actor_rollout_ref.model.path)
    buffers = [Buffer.load(path, fingerprint) for path in settings.files]
    sizes = sorted({buffer.group_size for buffer in buffers})
    if len(sizes) > 1 and not settings.cached_per_prompt:
        expected = f"a number up to {sizes[0]}, since the files hold {sizes[0]} and {sizes[1]} responses per prompt"
        raise InputError(f"cokl.cached_per_prompt: expected {expected}, got 0")
    for place, buffer in enumerate(buffers):
        check_buffer(config, settings, buffer, drawn=settings.draws and place == 0)
    return settings, buffers, check_settings(config, sizes[0] if sizes else 0, settings)


def check_buffer(config: DictConfig, settings: RegularizationSettings, buffer: Buffer, drawn: bool) -> None:
    """Check that a run fits the buffer that it regularizes with. drawn: whether its prompts are drawn from the buffer.

    Raises InputError in three cases: fresh responses or prompts would be cut off shorter than the cached ones, which
    makes all of them wrong; a row exceeds a GPU's token budget; cached log-probabilities are missing, or at another
    temperature than the run's.
    """
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    members = [(group, *row) for group in buffer.groups for row in zip(group.response_ids, group.rewards, strict=True)]
    lengths: list[tuple[str, int, int, str]] = []
    if "rollout" in settings.method.streams():
        correct = max((len(ids) for _, ids, reward in members if reward), default=0)
        why = "tokens of the longest correct cached response: fresh ones that are cut off count as wrong"
        lengths.append(("data.max_response_length", correct, rollout.response_length, why))
        prompt = max(len(group.prompt_ids) for group in buffer.groups) if drawn else 0
        why = "tokens of the buffer's longest prompt: VeRL cuts off the beginning of a longer one"
        lengths.append(("data.max_prompt_length", prompt, rollout.prompt_length, why))
    row = max(len(group.prompt_ids) + len(ids) for group, ids, _ in members)
    row *= "reference" in settings.method.streams()
    why = "tokens of the buffer's longest row, which no micro-batch could hold"
    if actor.use_dynamic_bsz:
        budget = actor.ppo_max_token_len_per_gpu
        lengths.append(("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", row, budget, why))
    if rollout.log_prob_use_dynamic_bsz:
        budget = rollout.log_prob_max_token_len_per_gpu
        lengths.append(("actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", row, budget, why))
    for name, least, given, why in lengths:
        require(least <= given, name, f"at least {least}, {why}", given)
    if not buffer.has_log_probs:
        without = settings.schedule == "target" or settings.method.compares_with_reference
        expected = "a buffer with log-probabilities, for a method or a schedule that compares with the reference"
        require(not without, "cokl.buffer", expected, "one without")
    elif len(settings.method.streams()) == 2:
        expected = f"{buffer.temperature:g}, the temperature of the buffer's log-probabilities"
        same = math.isclose(buffer.temperature, rollout.temperature)
        require(same, "actor_rollout_ref.rollout.temperature", expected, rollout.temperature)
