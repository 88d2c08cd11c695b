"""Configuration of the sequence lab: Appendix E.3 with responses of many tokens. No heavy imports here.

What the paper does not say, or what only a simulator has, is declared with `assumption`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from bandit.two_tasks.config import METHODS, TwoTaskConfig
from cokl.support.assumptions import assumption
from cokl.support.options import Coefficients, Names, require, separated


@dataclass(frozen=True)
class SequenceConfig(TwoTaskConfig):
    """Which runs to train on two families of prompts whose answers are token sequences, and how."""

    mode: Literal["both", "exact", "sampled"] = "both"
    """Expectations over all responses, sampled groups of them, or both one after the other."""
    methods: Names = tuple(name for name in METHODS if name not in ("entropy", "cokl_without_term2"))
    """What to train: names that `cokl.methods.get` knows; "none" is GRPO w/o KL. CoKL w/o term 2 is left out of the
    defaults, for its gradient is correct-only forward KL's. A method whose expectations no
    recursion gives (Jensen-Shannon) is trained in samples only, unless the responses are few enough to list."""
    betas: Coefficients = (0.01, 0.03, 0.1, 0.3, 1.0)
    """Coefficients of every regularizer; each method's best one is chosen on the selection seeds."""
    seeds: int = 5
    """Reported seeds, from first_seed on; each draws its own tasks, inputs, initialisation, buffer and minibatches."""
    first_seed: int = 0
    """The first reported seed: other seeds repeat the experiment with everything random drawn anew."""
    selection_seeds: int = assumption(2, "the luck in the choice of each method's coefficient")
    """Further seeds, 1000 to 1000 + N - 1, on which coefficients are chosen and nothing is reported."""
    length: int = assumption(
        12, "the ratio of sums over tokens (Eq. 13) to the token means of GRPO's loss grows with it"
    )
    """T, tokens of a response."""
    symbols: int = assumption(8, "more symbols make more correct responses")
    """V, symbols that a token can be."""
    states: int = assumption(2, "one makes the last token all that a policy needs to know")
    """States of the automaton that decides correctness, besides the one that rejects. The policy does not see them."""
    forbidden: int = assumption(
        4, "with the length, how rare correct responses are: (1 - forbidden / symbols)^length of uniform ones"
    )
    """Symbols that each state forbids; a response that uses none is correct."""
    concentration: float = assumption(8.0, "a smaller one makes the first policy prefer fewer responses")
    """Concentration of the Dirichlet distribution that each cluster's next-token probabilities are drawn from. The base
    model is pretrained on them given that the response is correct."""
    token_reduction: Literal["sum", "mean"] = assumption(
        "sum",
        "'mean' makes every coefficient smaller by the length; GRPO's loss is a token mean (Eq. 3) in either case",
    )
    """Whether what a method adds sums log-likelihoods over a response's tokens, as Eq. 13 does, or averages them."""
    clusters: int = assumption(12, "more clusters leave less of the network to each")
    """Latent problem clusters of either task; each has an automaton of its own."""
    input_dim: int = assumption(16, "fewer dimensions bring clusters closer together")
    """Dimension of a prompt x."""
    noise: float = assumption(0.7, "more noise blurs the clusters")
    """Standard deviation of each coordinate around its cluster's centre, whose own is 1."""
    train_inputs: int = assumption(2000, "fewer prompts are learnt by heart")
    """Training prompts of either task."""
    test_inputs: int = assumption(120, "noise of the metrics")
    """Test prompts of either task, on which metrics are averaged."""
    steps: int = assumption(200, "more steps forget more")
    """Optimizer steps on the new task, one on each batch of rollouts."""
    eval_interval: int = 50
    """Steps between evaluations; the first and the last step are always evaluated."""
    batch_size: int = assumption(16, "noise of the gradients")
    """New-task prompts per step."""
    group_size: int = 8
    """G, fresh rollouts per prompt of either task; in expectations, the size of GRPO's group."""
    reference_group_size: int = 8
    """G_ref, cached reference responses per prompt of the buffer."""
    buffer_size: int = 512
    """Prior-task prompts in the buffer, before the filtered methods leave out those without a correct response."""
    kl_groups: int = 16
    """Response groups per update: 16 prompts for a method that weights one stream of responses, 8 for one with two."""
    pass_draws: int = 8
    """k of pass@k, the chance that one of k independent responses is correct."""
    hidden: tuple[int, ...] = assumption((64, 64), "wider networks interfere less")
    """Widths of the MLP's hidden layers, which end in Tanh. It reads the prompt, the position and the last token."""
    pretrain_steps: int = assumption(1000, "how correct the first policy is")
    """Soft-label cross-entropy steps on both tasks, every context alike."""
    pretrain_batch_size: int = assumption(32, "noise of pretraining only")
    """Prompts of both tasks together per pretraining step."""
    prior_steps: int = assumption(40, "more steps make the reference more correct and less diverse")
    """Exact-mode RL steps on the prior task, without a regularizer, that make the base model."""
    learning_rate: float = assumption(1e-3, "with the number of steps, how far training goes and how much is forgotten")
    """Adam's learning rate; there is no weight decay."""
    new_learning_rate: float | None = assumption(None, "how much is forgotten, at one reference")
    """Adam's learning rate on the new task, if it is another one than before."""
    max_gradient_norm: float = assumption(1.0, "bounds the first steps; Adam's scale does not depend on it later")
    """Each run's gradient is clipped to this norm."""
    adam_betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of Adam's moments."""
    adam_epsilon: float = assumption(1e-8, "matters only where gradients vanish, at saturated policies")
    """The constant in Adam's denominator."""
    init_scale: float = assumption(1.0, "how far pretraining gets in its steps")
    """Initial weights and biases are uniform in ±init_scale / sqrt(fan_in)."""
    regularizer_options: Annotated[tuple[str, ...], separated(str, "NAME.FIELD=VALUE")] = ()
    """Options of single regularizers, such as correct_reverse_kl.form=restricted."""

    def __post_init__(self) -> None:
        """Raises InputError for a value of the wrong type or out of range."""
        super().__post_init__()
        self.require_counts(["length", "states", "clusters", "input_dim", "train_inputs", "test_inputs"])
        require(self.symbols >= 2, "symbols", "at least 2", self.symbols)
        require(1 <= self.forbidden < self.symbols, "forbidden", f"1 to {self.symbols - 1}", self.forbidden)
        self.require_positive(["concentration", "noise"])
        enough = self.train_inputs
        require(self.buffer_size <= enough, "buffer_size", f"at most the {enough} training prompts", self.buffer_size)


PRESETS: dict[str, SequenceConfig] = {
    "paper": SequenceConfig(),
    "quick": SequenceConfig(
        methods=("none", "reverse_kl", "correct_forward_kl", "cokl", "cokl_without_term1"),
        betas=(0.01, 0.1, 1.0),
        seeds=2,
        selection_seeds=1,
        length=8,
        steps=100,
        pretrain_steps=500,
    ),
}
