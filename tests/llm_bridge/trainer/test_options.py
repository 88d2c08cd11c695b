"""Settings of VeRL under which the joint loss would be wrong are refused, each in one line."""

import pytest

pytest.importorskip("verl")

from hydra import compose, initialize_config_module

from cokl.support.errors import InputError
from llm_bridge.trainer.options import BatchShape, check_settings

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
BASE = (
    "data.train_batch_size=64",
    "algorithm.adv_estimator=grpo",
    "trainer.n_gpus_per_node=8",
    f"{ACTOR}.strategy=fsdp2",
    f"{ACTOR}.ppo_mini_batch_size=64",
    f"{ACTOR}.use_dynamic_bsz=True",
    f"{ROLLOUT}.name=vllm",
    f"{ROLLOUT}.n=8",
    "+cokl.method=cokl",
    "+cokl.kl_prompts=8",
)
FIXED_SIZES = (f"{ACTOR}.use_dynamic_bsz=False", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=1")


def configuration(*overrides: str):
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", [*BASE, *overrides])


def test_the_papers_settings_are_accepted_and_give_80_groups():
    config = configuration()
    shape = check_settings(config, reference_group_size=8)
    assert shape == BatchShape(rl=512, reference=64, rollout=64, mini_batches=1, steps=1)
    assert shape.mini_batch == 80 * 8
    one_stream = configuration("cokl.method=reverse_kl", "cokl.kl_prompts=16")
    assert check_settings(one_stream, reference_group_size=8).mini_batch == 80 * 8


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.adv_estimator=gae", "adv_estimator: expected grpo or rloo or reinforce_plus_plus with a regul"),
        ("algorithm.adv_estimator=reinforce_plus_plus_baseline", "got reinforce_plus_plus_baseline"),
        ("algorithm.adv_estimator=remax", "got remax"),
        ("algorithm.use_kl_in_reward=True", "use_kl_in_reward"),
        ("algorithm.filter_groups.enable=True", "filter_groups"),
        ("algorithm.rollout_correction.bypass_mode=True", "bypass_mode"),
        (f"{ACTOR}.use_kl_loss=True", "use_kl_loss"),
        (f"{ACTOR}.shuffle=True", "shuffle"),
        (f"{ACTOR}.policy_loss.loss_mode=gspo", "loss_mode"),
        (f"{ACTOR}.strategy=megatron", "strategy"),
        (f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm", "loss_scale_factor"),
        (f"{ACTOR}.ppo_mini_batch_size=60", "ppo_mini_batch_size"),
        (f"{ROLLOUT}.name=sglang", "rollout.name: expected vllm"),
        (f"{ROLLOUT}.top_p=0.9", "top_p"),
        ("actor_rollout_ref.model.lora_rank=8", "lora_rank: expected 0"),
        ("actor_rollout_ref.model.lora.rank=8", "lora.rank: expected 0"),
        ("actor_rollout_ref.model.lora_adapter_path=/a", "lora_adapter_path"),
        (f"{ACTOR}.ulysses_sequence_parallel_size=2", "ulysses"),
        ("cokl.kl_prompts=0", "kl_prompts"),
        ("cokl.method=unheard", "unknown method"),
        ("+cokl.beta=-1", "beta"),
        ("+cokl.beta=abc", "beta"),
        ("+cokl.epsilon_is=1.5", "epsilon_is"),
        ("+cokl.kl_prompt=8", "cokl.kl_prompt:"),
        ("+cokl.judge=my_judge.py", "cokl.judge: expected FILE.py:NAME or pkg://MODULE:NAME"),
        ("+cokl.judge_kwargs=3", "cokl.judge_kwargs: expected dict"),
        ("+cokl.options=['reverse_kl.estimator=k3']", r"cokl\.options: expected options of cokl, got reverse_kl\.est"),
        ("trainer.n_gpus_per_node=48", "multiple"),
    ],
)
def test_a_setting_that_breaks_the_loss_is_named(override, message):
    with pytest.raises(InputError, match=message) as error:
        check_settings(configuration(override), reference_group_size=8)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((f"{ACTOR}.ppo_mini_batch_size=16", "cokl.kl_prompts=6"), "kl_prompts"),
        ((f"{ACTOR}.ppo_epochs=2", f"{ACTOR}.optim.lr_scheduler_type=cosine"), "lr_scheduler_type"),
        ((f"{ACTOR}.ppo_mini_batch_size=16", f"{ACTOR}.optim.lr_scheduler_type=cosine"), "lr_scheduler_type"),
        ((f"{ACTOR}.ppo_epochs=2", f"{ACTOR}.optim.lr_warmup_steps=5"), "lr_warmup_steps"),
        ((f"{ACTOR}.ppo_mini_batch_size=16", f"{ACTOR}.optim.lr_warmup_steps_ratio=0.1"), "lr_warmup_steps_ratio"),
        ((*FIXED_SIZES, f"{ACTOR}.ppo_micro_batch_size_per_gpu=3"), "rows of a mini-batch"),
    ],
)
def test_combinations_that_split_groups_or_batches_are_named(overrides, message):
    with pytest.raises(InputError, match=message):
        check_settings(configuration(*overrides), reference_group_size=8)


TRAINING = "+cokl.prompts=training"


def of_training_prompts(*overrides: str):
    """The RL prompts themselves are regularized, and none are drawn."""
    return configuration("~cokl.kl_prompts", *overrides)


def test_training_prompts_add_their_cached_responses_and_nothing_else():
    shape = check_settings(of_training_prompts(TRAINING, "+cokl.cached_per_prompt=2"), reference_group_size=8)
    assert shape == BatchShape(rl=512, reference=128, rollout=0, mini_batches=1, steps=1, shared=512)
    assert (shape.added, shape.mini_batch) == (128, 640)
    everything = check_settings(of_training_prompts(TRAINING), reference_group_size=8)
    assert everything.reference == 512


def test_a_method_of_fresh_responses_alone_adds_no_row_to_training_prompts():
    config = of_training_prompts("cokl.method=entropy", TRAINING)
    shape = check_settings(config, reference_group_size=0)
    assert (shape.added, shape.shared, shape.mini_batch) == (0, 512, 512)
    reverse = of_training_prompts("cokl.method=reverse_kl", TRAINING)
    reverse.actor_rollout_ref.ref.log_prob_use_dynamic_bsz = False
    reverse.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu = 64
    assert check_settings(reverse, reference_group_size=0).shared == 512
    reverse.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu = 65
    with pytest.raises(InputError, match="regularization rollouts"):
        check_settings(reverse, reference_group_size=0)


def test_drawn_and_training_prompts_together():
    config = configuration("+cokl.prompts=both", "+cokl.training_buffer=t.parquet", "+cokl.cached_per_prompt=2")
    shape = check_settings(config, reference_group_size=8)
    assert shape == BatchShape(rl=512, reference=2 * 72, rollout=64, mini_batches=1, steps=1, shared=512)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("+cokl.prompts=rl",), r"cokl\.prompts: expected buffer or training or both, got rl"),
        ((TRAINING,), r"cokl\.kl_prompts: expected nothing with cokl\.prompts=training"),
        ((TRAINING, "~cokl.kl_prompts", "+cokl.training_buffer=t"), r"training_buffer: expected nothing with"),
        (("+cokl.training_buffer=t",), r"training_buffer: expected nothing with cokl\.prompts=buffer"),
        (("+cokl.prompts=both",), r"training_buffer: expected a file of responses to training prompts"),
        (("+cokl.cached_per_prompt=9",), r"cached_per_prompt: expected at most the 8 cached"),
        (("+cokl.cached_per_prompt=-1",), r"cached_per_prompt: expected a number >= 0"),
        (("+cokl.cached_per_prompt=2", "cokl.method=reverse_kl"), r"cached_per_prompt: expected nothing with reverse"),
        (("~cokl.kl_prompts", TRAINING, "+cokl.cached_per_prompt=1", "trainer.n_gpus_per_node=5"), "multiple of"),
        (
            ("~cokl.kl_prompts", TRAINING, "+cokl.cached_per_prompt=1", f"{ACTOR}.ppo_mini_batch_size=4"),
            "rows of a mini-batch: expected a positive multiple of actor_rollout_ref.rollout.n",
        ),
    ],
)
def test_combinations_that_training_prompts_do_not_have_are_named(overrides, message):
    with pytest.raises(InputError, match=message) as error:
        check_settings(configuration(*overrides), reference_group_size=8)
    assert "\n" not in str(error.value)


def test_several_optimizer_steps_keep_whole_groups():
    config = configuration(f"{ACTOR}.ppo_mini_batch_size=16", f"{ACTOR}.ppo_epochs=2")
    shape = check_settings(config, reference_group_size=8)
    assert (shape.mini_batches, shape.steps, shape.mini_batch) == (4, 8, 160)


@pytest.mark.parametrize("method", ["none", "grpo"])
def test_a_method_that_adds_nothing_is_verls_own(method):
    with pytest.raises(InputError, match=r"cokl\.method: .* VeRL's own"):
        check_settings(configuration(f"cokl.method={method}"), reference_group_size=8)


def test_a_missing_method_is_named():
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", [])
    with pytest.raises(InputError, match=r"cokl\.method"):
        check_settings(config, 8)
