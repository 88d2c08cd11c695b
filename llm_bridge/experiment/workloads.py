"""What an experiment is of, beside its numbers: the paper's workload, SmolLM2's and the open questions'.

All in which they differ is a field here, and no other module asks which one it has. A new one is a `Workload` of this
file, a preset in `config.py` with its numbers and its reward function, and the preset's name on the command line; what
it asks is a module of its own, as `smollm2/tasks.py` and `open_questions.py`. No heavy imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CANDIDATES = "candidates"
"""The set whose answers by the math-stage model decide on strata, and the folder of these answers in that stage's."""
CHAT, DISTINCT, SHARE = "chat_val", "distinct", "share"
"""Columns of score tables that are no set of `math_sets`: the chat set, different right answers, and the gradient's
share."""
RUN = ("model", "method", "beta", "main")
"""Their columns that say of which run a row is."""
AVERAGES = ("math_avg", "overall")
"""Those that `llm_bridge.report.normalize` adds."""


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
class StartModel:
    """The model that a workload starts from where the configuration names none."""

    title: str
    weights: str
    """The module, loaded when it is asked, that has them: `require_room`, `find_weights` and `convert`."""
    settings: tuple[str, ...]
    """Files of `settings/` that jobs from it have beside those of all."""


@dataclass(frozen=True)
class Prompts:
    """Where a workload's prompts are from. The default is prompts of one's own, of which nothing is known."""

    write: str = ""
    """MODULE:FUNCTION, loaded when it is called. It takes a folder to write them into, `seed`, and `data_dir`, a folder
    with local copies of their sources or None. Empty where they are there already."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Their evaluation sets, of which `math_sets` names some, with their headers in tables."""
    strata: str = ""
    """Likewise: makes the buffer's prompts, and then these sets in their order, of the set `CANDIDATES`, by the answers
    of the math-stage model. Takes these answers, the prompts' folder, and how many the buffer takes."""
    counts_answers: bool = False
    """Whether the verdicts on them come with an answer, so that different right ones can be counted."""
    pace: Pace | None = None


SMOLLM2 = StartModel("SmolLM2-135M-Instruct", "llm_bridge.smollm2_weights", ("smollm2",))
OWN_PROMPTS = Prompts()
PAPERS_PROMPTS = Prompts(
    "llm_bridge.data.prepare:prepare", {"math_val": "MATH-Val", "math500": "MATH500", "olympiad": "Olympiad"}
)
MATH_SETS = tuple(PAPERS_PROMPTS.sets)
"""The sets of mathematics that the paper's models are evaluated on, which are also the columns of score tables."""


@dataclass(frozen=True)
class Workload:
    """What an experiment is of. The default is the paper's.

    Stages, options, files and columns have the paper's names, math and chat, whatever the tasks are: users have them.
    """

    title: str = ""
    """What pictures call it; as the model is called, if empty."""
    start: StartModel = SMOLLM2
    prompts: Prompts = PAPERS_PROMPTS
    coefficients: Mapping[str, float] = field(default_factory=lambda: {"reverse_kl": 1e-3, "correct_reverse_kl": 1e-3})
    """Of regularizers, by the method's name."""
    coefficient: float = 1.0
    """Of all others."""
    math_stage: bool = True
    """Whether there is one, whose model is the reference; else the reference is the starting model."""
    chat_sets: tuple[str, ...] = (CHAT,)
    """Evaluation sets of the new task."""
    cached_per_prompt: int = 0
    """Cached responses that each RL prompt brings, where these are the regularized ones; 0 where others are."""
    settings: tuple[str, ...] = ()
    """Files of `settings/` that its jobs have beside those of all."""

    @property
    def counts_answers(self) -> bool:
        """Whether different right answers to a prompt of the first set are among its scores."""
        return self.prompts.counts_answers or self.cached_per_prompt > 0

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
            {"known": "Known", "unknown": "Unknown"},
            "llm_bridge.experiment.smollm2.tasks:write_strata",
            counts_answers=True,
            pace=Pace(80.0, 0.75, 0.16, evaluated=98, candidates=132),
        ),
        coefficients={"correct_forward_kl": 0.003},  # the best on its selection seed, as the others
        coefficient=0.01,
    ),
    "open-questions": Workload(
        title="SmolLM2-135M, open questions",
        prompts=Prompts(
            "llm_bridge.experiment.open_questions:write_sets",
            {"trained": "Trained", "held_out": "Held out"},
        ),
        coefficients={},
        coefficient=0.01,
        math_stage=False,
        chat_sets=(),
        cached_per_prompt=8,
        settings=("open_questions",),
    ),
}
"""By the preset's name; the paper's is that of all others."""
DEFAULT = WORKLOADS["smollm2"]
"""What an experiment is of that names neither a workload, nor a model, nor prompts."""
