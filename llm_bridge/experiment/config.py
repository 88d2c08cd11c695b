"""Configurations of the LLM experiment (E.3): the paper's three models, and two that a laptop trains. No heavy imports.

What the paper does not say is declared with `assumption`; ASSUMPTIONS.md lists these fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from cokl.names import canonical
from cokl.support.assumptions import assumption
from cokl.support.options import SOME, Bound, Names, Settings, above, require
from llm_bridge.experiment.workloads import (
    AVERAGES,
    CHAT,
    DEFAULT,
    DISTINCT,
    MATH_SETS,
    OWN_PROMPTS,
    PAPER,
    PAPERS_PROMPTS,
    RUN,
    SHARE,
    WORKLOADS,
    Workload,
)

BASE = "base"
"""The method name of the model after the math stage, before the chat stage."""
MATH = "math"
"""The job of the math stage, whatever its task, and its folder."""
PAPER_METHODS = (
    "grpo",
    "reverse_kl",
    "forward_kl",
    "correct_reverse_kl",
    "correct_forward_kl",
    "cokl",
    "cokl_without_term1",
    "cokl_floor",
)
"""The methods of the paper's tables; any regularizer with a sampled surrogate can join them."""
REVISIONS = {
    "Qwen/Qwen3-0.6B": "c1899de289a04d12100db370d81485cdf75e47ca",
    "Qwen/Qwen3-1.7B": "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e",
    "Qwen/Qwen3-4B": "1cfa9a7208912126459214e8b04321603b3df60c",
    "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2": "d4117fbfd81b72f41b96341238baa1e3e90a4ce1",
}
"""Commits of the hub's main branches that the paper's models are pinned to."""

PositiveInt = Annotated[int, above(0)]
PositiveFloat = Annotated[float, above(0)]
_OTHER_COLUMNS = CHAT, DISTINCT, SHARE, *RUN, *AVERAGES
_NO_OTHER_COLUMN = Bound(
    lambda name: name not in _OTHER_COLUMNS, f"none of {', '.join(_OTHER_COLUMNS)}, for tables have these beside", True
)
_EVEN = Bound(lambda number: number % 2 == 0, "an even number, for CoKL weights two streams")


@dataclass(frozen=True)
class LLMConfig(Settings):
    """Numbers of one experiment; batch sizes count prompts, lengths count tokens.

    Raises InputError for a value of another type or out of its range.
    """

    name: str
    """How the command line calls it; a workload with this name is what it is of."""
    model: str
    """The starting model: a name on the hub or a folder; empty for SmolLM2-135M-Instruct from its package."""
    device: Literal["cuda", "cpu"]
    """What VeRL trains on."""
    accelerators: PositiveInt
    """Accelerators of a node."""
    math_steps: int
    """Steps of the math stage; 0 in a workload that has none."""
    chat_steps: PositiveInt
    """Steps of the chat stage."""
    nodes: PositiveInt = 1
    """Nodes of the Ray cluster."""
    chat_batch: PositiveInt = 64
    """Chat prompts per step."""
    math_batch: PositiveInt = assumption(64, "sets how much mathematics the model has seen when the chat stage starts")
    """Math prompts per step of the math stage."""
    group_size: PositiveInt = 8
    """Fresh rollouts per prompt, G, of both streams."""
    reference_group_size: PositiveInt = 8
    """Cached reference responses per buffer prompt, G_ref."""
    buffer_prompts: PositiveInt = 512
    """Prompts drawn for the buffer, before filtering."""
    kl_groups: Annotated[PositiveInt, _EVEN] = 16
    """Response groups of the regularization minibatch: 16 prompts with one stream each, or 8 with both. Where the RL
    prompts are the regularized ones, it says nothing."""
    learning_rate: PositiveFloat = 1e-6
    """AdamW's learning rate in the chat stage."""
    math_learning_rate: PositiveFloat = assumption(1e-6, "sets how far the math stage gets")
    """AdamW's learning rate in the math stage."""
    max_prompt_length: PositiveInt = assumption(2048, "longer prompts are left out of training and evaluation")
    """Tokens of the longest prompt."""
    max_response_length: PositiveInt = 8192
    """Tokens after which a response is cut off."""
    thinking: bool = True
    """Whether the chat template enables Qwen3's thinking mode."""
    temperature: PositiveFloat = assumption(
        1.0, "exploration of the rollouts; the paper gives only the evaluation's temperature"
    )
    """Sampling temperature of training rollouts and of the reference responses."""
    eval_samples: PositiveInt = 8
    """Responses per evaluated prompt (average@8)."""
    eval_interval: PositiveInt = 100
    """Steps between evaluations during training; the last step is always evaluated."""
    save_interval: PositiveInt = 50
    """Steps between checkpoints."""
    optimizer_steps: PositiveInt = assumption(
        1, "with more, later steps are off-policy and gamma is recomputed for each"
    )
    """Passes over a step's rollouts, mu of Algorithm 1."""
    length: Literal["token-sum", "token-mean"] = assumption(
        "token-mean",
        "Eq. 13 is a sum. Over 7,000 tokens, beside a GRPO loss that is a token mean and under a gradient clip of 1, "
        "the chat signal may be drowned. A mean makes the regularizer weaker by about the length of a response. The "
        "presets of short answers, smollm2 and open-questions, keep the sum",
    )
    """How the regularizer reduces a response's log-probabilities: their sum, or their mean over tokens."""
    reward_model: str = "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
    """The chat reward, on the hub or in a folder; empty where `reward_function` gives every reward."""
    reward_function: str = ""
    """FILE.py:NAME or pkg://MODULE:NAME, VeRL's reward function for every row; if empty, verifier and chat reward."""
    own_data: str = ""
    """Folder of prompts as VeRL reads them: math_train, chat_train, chat_val and `math_sets`; the preset's if empty."""
    math_sets: Annotated[Names, SOME, _NO_OTHER_COLUMN] = MATH_SETS
    """Evaluation sets of the task to be kept, in percent correct; the first is drawn over the steps."""
    seed: int = 0
    """Seed of data order, rollouts and buffer."""
    repeatable: bool = True
    """Whether each request has a seed of its own, so that a run repeats; vLLM draws such requests one by one."""

    def __post_init__(self) -> None:
        """Raises InputError as `LLMConfig` says, and where only one of configuration and workload has a math stage."""
        super().__post_init__()
        if self.workload.math_stage:
            require(self.math_steps > 0, "math_steps", "a number > 0", self.math_steps)
        else:
            require(self.math_steps == 0, "math_steps", f"0, since {self.name} has no math stage", self.math_steps)

    @property
    def workload(self) -> Workload:
        """What the experiment is of: the workload of its name, or the paper's; `DEFAULT` where nothing else is named.

        Its prompts go with its starting model. With `own_data` they are one's own, with another model the paper's.
        """
        named = WORKLOADS.get(self.name, PAPER if self.model or self.own_data else DEFAULT)
        if self.own_data:
            return replace(named, prompts=OWN_PROMPTS)
        return replace(named, prompts=PAPERS_PROMPTS) if self.model else named

    def beta(self, method_name: str) -> float:
        """The coefficient of a method's regularizer."""
        return self.workload.coefficients.get(canonical(method_name), self.workload.coefficient)

    @property
    def evaluation_sets(self) -> tuple[str, ...]:
        """Names of all sets that are evaluated on: files of prompts, and the data source of their rows."""
        return (*self.math_sets, *self.workload.chat_sets)

    @property
    def sets(self) -> tuple[str, ...]:
        """Names of all files of prompts: those that stages train on, and those that are evaluated on."""
        return (*(["math_train"] if self.workload.math_stage else []), "chat_train", *self.evaluation_sets)


_paper = partial(LLMConfig, device="cuda", accelerators=8, math_steps=200, repeatable=False)
PRESETS: dict[str, LLMConfig] = {
    "smollm2": LLMConfig(
        name="smollm2",
        model="",
        device="cpu",
        accelerators=1,
        math_steps=12,
        chat_steps=24,
        chat_batch=4,
        math_batch=8,
        learning_rate=5e-5,
        math_learning_rate=2e-5,
        buffer_prompts=32,
        kl_groups=4,
        max_prompt_length=40,
        max_response_length=24,
        eval_interval=100,
        save_interval=8,
        length="token-sum",
        reward_model="",
        reward_function="pkg://llm_bridge.experiment.smollm2.tasks:score",
        math_sets=tuple(WORKLOADS["smollm2"].prompts.sets),
    ),
    "qwen3-0.6b": _paper("qwen3-0.6b", "Qwen/Qwen3-0.6B", chat_steps=800),
    "qwen3-0.6b-one-gpu": _paper(
        "qwen3-0.6b-one-gpu",
        "Qwen/Qwen3-0.6B",
        accelerators=1,
        chat_steps=200,
        max_prompt_length=1024,
        max_response_length=2048,
        thinking=False,
        reward_model="",
        reward_function="pkg://llm_bridge.rewards.friendly:compute_score",
    ),
    "qwen3-1.7b": _paper("qwen3-1.7b", "Qwen/Qwen3-1.7B", chat_steps=600),
    "qwen3-4b": _paper("qwen3-4b", "Qwen/Qwen3-4B", chat_steps=600),
    "open-questions": LLMConfig(
        name="open-questions",
        model="",
        device="cpu",
        accelerators=1,
        math_steps=0,
        chat_steps=24,
        chat_batch=6,
        learning_rate=4e-5,
        buffer_prompts=24,
        reference_group_size=64,
        max_prompt_length=20,
        max_response_length=8,
        eval_samples=64,
        eval_interval=8,
        save_interval=8,
        length="token-sum",
        reward_model="",
        reward_function="pkg://llm_bridge.experiment.open_questions:score",
        math_sets=tuple(WORKLOADS["open-questions"].prompts.sets),
    ),
}
