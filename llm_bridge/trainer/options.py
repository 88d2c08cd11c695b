"""The options `+cokl.*` of VeRL's configuration, and the settings of VeRL under which the joint loss is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf

from cokl import methods
from cokl.groups import LENGTHS, SurrogateConfig
from cokl.methods import Method
from cokl.support.errors import InputError
from cokl.support.options import Bound, require, require_types
from llm_bridge.trainer.schedule import SCHEDULES

PROMPTS = ("buffer", "training", "both")
"""Which prompts are regularized: drawn from the buffer beside the RL batch, the RL batch's own, or both."""
_NOT_NEGATIVE = Bound(lambda number: number >= 0, "a number >= 0")


def _one_of(names: Sequence[str]) -> Bound:
    return Bound(lambda name: name in names, " or ".join(names))


@dataclass(frozen=True)
class RegularizationSettings:
    """The node `cokl` of VeRL's configuration.

    method: what to add to the RL loss; its options are `method`, a name that `cokl.methods.get` knows, and `options`,
    a list of the regularizer's "NAME.FIELD=VALUE". beta: its coefficient. buffer: the buffer's file. kl_prompts:
    prompts of a regularization minibatch. seed: of the order of the buffer's prompts. epsilon_is: clipping
    range of the sequence-level importance ratio (Eq. 15). correct_above: a reward above it counts as correct. length:
    how a response's log-probabilities are reduced, one of `cokl.groups.LENGTHS`; ratios and costs are always of whole
    sequences. schedule: of the coefficient, one of `schedule.SCHEDULES`: from beta to beta_end, or such that the
    conditional KL approaches kl_target, in nats.

    prompts: one of `PROMPTS`. Training prompts are looked up in the buffer, or with "both" in training_buffer, another
    file; their fresh responses are the RL batch's. cached_per_prompt: how many cached responses each prompt adds to a
    step, drawn again for each step; 0 adds all of them.

    judge: FILE.py:NAME or pkg://MODULE:NAME, a reward function that judges fresh responses to drawn prompts in place of
    the run's own. judge_key: the key of the score, if it returns a dictionary. judge_kwargs: its further arguments.
    """

    method: Method
    beta: Annotated[float, _NOT_NEGATIVE] = 1.0
    buffer: str = ""
    kl_prompts: int = 8
    seed: Annotated[int, _NOT_NEGATIVE] = 0
    epsilon_is: float = SurrogateConfig.epsilon_is
    correct_above: float = 0.5
    length: Annotated[str, _one_of(LENGTHS)] = "token-sum"
    schedule: Annotated[str, _one_of(SCHEDULES)] = "constant"
    beta_end: Annotated[float, _NOT_NEGATIVE] = 0.0
    kl_target: float = 0.0
    prompts: Annotated[str, _one_of(PROMPTS)] = "buffer"
    cached_per_prompt: Annotated[int, _NOT_NEGATIVE] = 0
    training_buffer: str = ""
    judge: str = ""
    judge_key: str = "score"
    judge_kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, verl_config: DictConfig) -> RegularizationSettings:
        """From VeRL's configuration. Raises InputError for an unknown name, a value out of its range, and a method that
        adds nothing to the RL loss.
        """
        node: Any = OmegaConf.to_container(verl_config.get("cokl") or OmegaConf.create(), resolve=True)
        known = [*(known.name for known in fields(cls)), "options"]
        for name in node:
            require(name in known, f"cokl.{name}", f"one of {', '.join(known)}", "an unknown name")
        require("method" in node, "cokl.method", "a method's name", "nothing")
        options = node.pop("options", ())
        node["method"] = methods.get(str(node["method"]), options)
        for name in ("beta", "epsilon_is", "correct_above", "beta_end", "kl_target"):
            if isinstance(node.get(name), int):
                node[name] = float(node[name])
        settings = cls(**node)
        require_types(settings, "cokl.")
        name = settings.method.name
        require(len(settings.method.streams()) > 0, "cokl.method", "a regularizer (plain RL is VeRL's own)", name)
        made_of = [used.name for used in settings.method.regularizer.made_of()] if settings.method.regularizer else []
        for option in options:
            require(option.partition(".")[0] in made_of, "cokl.options", f"options of {name}", option)
        if not settings.draws:
            expected = "nothing with cokl.prompts=training, which draws no prompts"
            require("kl_prompts" not in node, "cokl.kl_prompts", expected, settings.kl_prompts)
            settings = replace(settings, kl_prompts=0)
        else:
            require(settings.kl_prompts > 0, "cokl.kl_prompts", "a number > 0", settings.kl_prompts)
        settings._check_cached()
        if settings.judge:
            expected = "nothing with cokl.prompts=training, whose fresh responses the run's own reward function judges"
            require(settings.draws, "cokl.judge", expected, settings.judge)
            path, _, function = settings.judge.rpartition(":")
            require(bool(path and function), "cokl.judge", "FILE.py:NAME or pkg://MODULE:NAME", settings.judge)
            if not path.startswith("pkg://"):
                settings = replace(settings, judge=f"{Path(path).expanduser().absolute()}:{function}")
        if settings.schedule == "target":
            require(settings.kl_target > 0, "cokl.kl_target", "a number > 0, of nats", settings.kl_target)
            both = len(settings.method.streams()) == 2
            require(both, "cokl.schedule", "constant or linear for a method without both streams", "target")
        settings.surrogate()
        return settings

    @property
    def regularizes_training(self) -> bool:
        """Whether the RL batch's own prompts are regularized."""
        return self.prompts != "buffer"

    @property
    def looks_training_up(self) -> bool:
        """Whether the training prompts' cached responses are needed, as weighted rows or to filter unsolved prompts."""
        return self.regularizes_training and (self.method.filtered or "reference" in self.method.streams())

    @property
    def draws(self) -> bool:
        """Whether prompts are drawn from the buffer."""
        return self.prompts != "training"

    @property
    def training_file(self) -> str:
        """The file in which training prompts are looked up."""
        return self.training_buffer if self.prompts == "both" else self.buffer

    @property
    def files(self) -> list[Path]:
        """Those that a run reads: the one that prompts are drawn from, then the one in which others are looked up."""
        return [Path(self.buffer)] * self.draws + [Path(self.training_file)] * self.looks_training_up

    def _check_cached(self) -> None:
        """Raises InputError for a file or a number of cached responses that does not fit `prompts` or the method."""
        if self.prompts == "both" and self.looks_training_up:
            expected = "a file of responses to training prompts, beside cokl.buffer"
            require(bool(self.training_buffer), "cokl.training_buffer", expected, "nothing")
        if self.prompts != "both":
            expected = f"nothing with cokl.prompts={self.prompts}, which reads cokl.buffer alone"
            require(not self.training_buffer, "cokl.training_buffer", expected, self.training_buffer)
        cached = self.cached_per_prompt
        expected = f"nothing with {self.method.name}, which weights no cached response"
        require(not cached or "reference" in self.method.streams(), "cokl.cached_per_prompt", expected, cached)

    def surrogate(self) -> SurrogateConfig:
        """Choices in the sampled surrogates. Raises InputError for a clipping range outside (0, 1)."""
        return SurrogateConfig(epsilon_is=self.epsilon_is)


@dataclass(frozen=True)
class BatchShape:
    """Rows of one training step, over all ranks.

    rl, reference, rollout: fresh current-task rows, and the cached and fresh rows that are added to them. mini_batches:
    into how many the step is split, each with its share of RL rows and of whole groups. steps: optimizer steps. shared:
    RL rows that are fresh regularization rows as well.
    """

    rl: int
    reference: int
    rollout: int
    mini_batches: int
    steps: int
    shared: int = 0

    @property
    def added(self) -> int:
        """Regularization rows beside the RL rows."""
        return self.reference + self.rollout

    @property
    def mini_batch(self) -> int:
        """Rows of an optimizer step."""
        return (self.rl + self.added) // self.mini_batches


def batch_shape(verl_config: DictConfig, settings: RegularizationSettings, reference_group_size: int) -> BatchShape:
    """Rows of a step under VeRL's configuration, whose mini-batch size counts RL prompts.

    reference_group_size: G_ref, cached responses per prompt, of which `settings.cached_per_prompt` may take fewer.
    """
    streams = settings.method.streams()
    cached = (settings.cached_per_prompt or reference_group_size) * ("reference" in streams)
    training = verl_config.data.train_batch_size * settings.regularizes_training
    actor, size = verl_config.actor_rollout_ref.actor, verl_config.actor_rollout_ref.rollout.n
    mini_batches = verl_config.data.train_batch_size // actor.ppo_mini_batch_size
    return BatchShape(
        rl=verl_config.data.train_batch_size * size,
        reference=(settings.kl_prompts + training) * cached,
        rollout=settings.kl_prompts * size * ("rollout" in streams),
        mini_batches=mini_batches,
        steps=mini_batches * actor.ppo_epochs,
        shared=training * size * ("rollout" in streams),
    )


def check_settings(
    verl_config: DictConfig, reference_group_size: int, settings: RegularizationSettings | None = None
) -> BatchShape:
    """Check VeRL's configuration against what the joint loss was derived and tested for; returns the rows of a step.

    reference_group_size: G_ref, cached responses per prompt. settings: read from `verl_config` unless they are given.
    Raises InputError naming the first setting under which the loss would be wrong.
    """
    settings = settings or RegularizationSettings.read(verl_config)
    cached, expected = settings.cached_per_prompt, f"at most the {reference_group_size} cached responses of a prompt"
    require(cached <= reference_group_size, "cokl.cached_per_prompt", expected, cached)
    for name, accepted in _ACCEPTED.items():
        value = OmegaConf.select(verl_config, name)
        expected = " or ".join(map(str, accepted))
        require(value in accepted, name, f"{expected} with a regularizer", value)
    actor, rollout = verl_config.actor_rollout_ref.actor, verl_config.actor_rollout_ref.rollout
    if actor.loss_agg_mode == "seq-mean-token-sum-norm":
        name = "actor_rollout_ref.actor.loss_scale_factor"
        require(actor.loss_scale_factor is not None, name, "a number with seq-mean-token-sum-norm", "null")
    prompts, mini_batch = verl_config.data.train_batch_size, actor.ppo_mini_batch_size
    _divisible("data.train_batch_size", prompts, mini_batch, "actor_rollout_ref.actor.ppo_mini_batch_size")
    shape = batch_shape(verl_config, settings, reference_group_size)
    if settings.kl_prompts:
        _divisible("cokl.kl_prompts", settings.kl_prompts, shape.mini_batches, "the mini-batches of a step")
    _divisible("rows of a mini-batch", shape.mini_batch, rollout.n, "actor_rollout_ref.rollout.n")
    if shape.steps > 1:
        for name, constant in (("lr_scheduler_type", ("constant",)), ("lr_warmup_steps_ratio", (0, 0.0))):
            value = actor.optim.get(name)
            require(value in constant, f"{_ACTOR}.optim.{name}", f"{constant[0]} with several steps", value)
        warmup = actor.optim.get("lr_warmup_steps") or 0
        require(warmup <= 0, f"{_ACTOR}.optim.lr_warmup_steps", "none with several steps", warmup)
    _check_ranks(verl_config, shape, settings.method)
    return shape


_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_ACCEPTED: dict[str, tuple] = {
    "trainer.use_v1": (True,),
    "algorithm.adv_estimator": ("grpo", "rloo", "reinforce_plus_plus"),
    "algorithm.use_kl_in_reward": (False,),
    "algorithm.filter_groups.enable": (False, None),
    "algorithm.rollout_correction.bypass_mode": (False, None),
    "algorithm.rollout_correction.rollout_rs": (None,),
    "trainer.v1.sampler.sync_refill_failed_groups": (False, None),
    "distillation.enabled": (False, None),
    f"{_ACTOR}.strategy": ("fsdp", "fsdp2"),
    f"{_ACTOR}.policy_loss.loss_mode": ("vanilla",),
    f"{_ACTOR}.use_kl_loss": (False,),
    f"{_ACTOR}.use_prefix_grouper": (False, None),
    f"{_ACTOR}.shuffle": (False,),
    f"{_ROLLOUT}.name": ("vllm",),
    f"{_ROLLOUT}.top_p": (1, 1.0),
    f"{_ROLLOUT}.top_k": (-1, 0),
    "actor_rollout_ref.model.lora_rank": (0, None),
    "actor_rollout_ref.model.lora.rank": (0, None),
    "actor_rollout_ref.model.lora_adapter_path": (None,),
    f"{_ACTOR}.ulysses_sequence_parallel_size": (1,),
    f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size": (1,),
}
"""Settings of VeRL that a regularizer needs, and what each may be."""


def _check_ranks(verl_config: DictConfig, shape: BatchShape, method: Method) -> None:
    """Rows divide evenly over data-parallel ranks and, where these are of fixed size, over their micro-batches."""
    actor, rollout, ref = (verl_config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    ranks = verl_config.trainer.n_gpus_per_node * verl_config.trainer.nnodes
    log_prob = 1 if rollout.log_prob_use_dynamic_bsz else rollout.log_prob_micro_batch_size_per_gpu
    update = 1 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
    weighed = shape.added + shape.shared  # which several steps take the log-probabilities of before each
    parts = [
        ("rows of a mini-batch", shape.mini_batch, update),
        ("RL rows", shape.rl, log_prob),
        ("added regularization rows", shape.added, log_prob),
        ("regularization rows", weighed // shape.mini_batches if shape.steps > 1 else 0, log_prob),
    ]
    if method.compares_with_reference:
        reference = 1 if ref.log_prob_use_dynamic_bsz else ref.log_prob_micro_batch_size_per_gpu
        require(reference is not None, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", "a number", "null")
        parts.append(("regularization rollouts", shape.rollout + shape.shared, reference))
    for name, rows, micro_batch in parts:
        if rows:
            require(micro_batch is not None, f"micro-batch size for {name}", "a number per accelerator", "null")
            _divisible(name, rows, ranks * micro_batch, "ranks times micro-batch size")


def _divisible(name: str, number: int, divisor: int, of: str) -> None:
    if not divisor or number % divisor or not number:
        raise InputError(f"{name}: expected a positive multiple of {of} ({divisor}), got {number}")
