"""What an experiment is of, beside its numbers: the paper's workload, SmolLM2's and the open questions'.

All in which they differ is a field here, and no other module asks which one it has. A new one is a `Workload` of this
file, and a preset in `config.py` with its numbers and its reward function; what it asks is a module of its own, as
`smollm2/tasks.py` and `open_questions.py`. No heavy imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MATH_SETS = ("math_val", "math500", "olympiad")
"""The sets of mathematics that the paper's models are evaluated on, which are also the columns of score tables."""


@dataclass(frozen=True)
class Pace:
    """How long a workload's jobs take on a CPU, with SmolLM2: seconds, and the numbers of evaluated prompts."""

    start: float
    """Of a job."""
    row: float
    """Of a row that is sampled and trained on."""
    response: float
    """Of an evaluated or cached response."""
    evaluated: int
    """Prompts of all evaluation sets."""
    candidates: int
    """Prompts that the math-stage model answers once more, for its strata."""


@dataclass(frozen=True)
class Prompts:
    """Where a workload's prompts are from. The default is prompts of one's own, of which nothing is known."""

    write: str = ""
    """MODULE:FUNCTION, loaded when it is called. It takes a folder to write them into, `seed`, and `data_dir`, a folder
    with local copies of their sources or None. Empty where they are there already."""
    sets: tuple[str, ...] = ()
    """Their evaluation sets, of which `math_sets` names some."""
    strata: str = ""
    """Likewise: makes these sets and the buffer's prompts of the set `candidates`, by the answers of the math-stage
    model. Takes these answers, the prompts' folder, and how many the buffer takes."""
    pace: Pace | None = None


OWN_PROMPTS = Prompts()
PAPERS_PROMPTS = Prompts("llm_bridge.data.prepare:prepare", MATH_SETS)


@dataclass(frozen=True)
class Workload:
    """What an experiment is of. The default is the paper's.

    Stages, options, files and columns have the paper's names, math and chat, whatever the tasks are: users have them.
    """

    title: str = ""
    """What pictures call it; as the model is called, if empty."""
    prompts: Prompts = PAPERS_PROMPTS
    coefficients: Mapping[str, float] = field(default_factory=lambda: {"reverse_kl": 1e-3, "correct_reverse_kl": 1e-3})
    """Of regularizers, by the method's name."""
    coefficient: float = 1.0
    """Of all others."""
    math_stage: bool = True
    """Whether there is one, whose model is the reference; else the reference is the starting model."""
    chat_sets: tuple[str, ...] = ("chat_val",)
    """Evaluation sets of the new task."""
    cached_per_prompt: int = 0
    """Cached responses that each RL prompt brings, where these are the regularized ones; 0 where others are."""
    settings: tuple[str, ...] = ()
    """Files of `settings/` that its jobs have beside those of all."""

    @property
    def counts_answers(self) -> bool:
        """Whether different right answers to a prompt of the first set are among its scores."""
        return bool(self.prompts.strata) or self.cached_per_prompt > 0

    @property
    def buffer_file(self) -> str:
        """The prompts that the buffer's are drawn from: what the strata leave for it, else the first stage's own."""
        if self.prompts.strata:
            return "buffer_prompts"
        return "math_train" if self.math_stage else "chat_train"


PAPER = Workload()
WORKLOADS = {
    "smollm2": Workload(
        title="SmolLM2-135M",
        prompts=Prompts(
            "llm_bridge.experiment.smollm2.tasks:write_sets",
            ("known", "unknown"),
            "llm_bridge.experiment.smollm2.tasks:write_strata",
            Pace(80.0, 0.75, 0.16, evaluated=98, candidates=132),
        ),
        coefficients={"correct_forward_kl": 0.003},  # the best on its selection seed, as the others
        coefficient=0.01,
    ),
    "open-questions": Workload(
        title="SmolLM2-135M, open questions",
        prompts=Prompts("llm_bridge.experiment.open_questions:write_sets", ("trained", "held_out")),
        coefficients={},
        coefficient=0.01,
        math_stage=False,
        chat_sets=(),
        cached_per_prompt=8,
        settings=("open_questions",),
    ),
}
"""By the preset's name; the paper's is that of all others."""
