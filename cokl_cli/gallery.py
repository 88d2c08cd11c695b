"""docs/gallery.md: every picture, its caption and the command that draws it; `python -m cokl_cli.gallery` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cokl.support.statistics import plain_markdown_table
from figures.style import read_captions

_ROOT = Path(__file__).parents[1]
RENDERED, PAGE = _ROOT / "figures" / "rendered", _ROOT / "docs" / "gallery.md"


@dataclass(frozen=True)
class Entry:
    """A picture: its file name and title, the command that draws it, and its counterpart in the paper, if any."""

    name: str
    title: str
    command: str
    answers: str = ""


_NOT_RUN = "<!-- not run: trains for minutes, or draws what did; tests/cokl_cli/test_gallery.py parses it -->"
_SWEEP = "cokl figures --results runs/paper"
_THEORY = "cokl theory figures --results runs/paper"
_FINITE_GROUP = "cokl bandit finite-group"
_SEARCH = "cokl llm run --preset tiny --paper-search"
_BETA = "the coefficient's effect and the search over it"
ENTRIES = (
    Entry("figure1_constraint_scopes", "What each KL constrains", _SWEEP, "Figure 1, the scopes of KL constraints"),
    Entry("figure2_tradeoff", "The trade-offs", _SWEEP, "the controlled experiment's trade-offs"),
    Entry("figure3_dynamics", "Training dynamics", _SWEEP, "the controlled experiment's dynamics"),
    Entry("theory_optima", "Population optima and what is reached", _THEORY),
    Entry("theory_off_policy_bias", "Bias of the off-policy weights", _THEORY),
    Entry("finite_group_metrics", "Finite groups: the metrics against group size", _FINITE_GROUP),
    Entry("finite_group_recovery", "Finite groups: the recovery, measured and predicted", _FINITE_GROUP),
    *(
        Entry(f"shift_{kind}_{mode}", f"Task shift, {mode}: {title}", "cokl bandit shift", answers)
        for kind, title, answers in (
            ("tradeoff", "retention against adaptation", ""),
            ("beta", "the coefficient", f"{_BETA}, in miniature"),
            ("dynamics", "training dynamics", "the training dynamics, in miniature"),
            ("decomposition", "what drifts", ""),
        )
        for mode in ("exact", "sampled")
    ),
    Entry("shift_kl_batch", "Task shift: the KL batch", "cokl bandit shift", "the KL batch's effect, in miniature"),
    Entry(
        "phase_reference_correctness-correct_modes",
        "Where CoKL helps: the reference's correctness and the number of correct modes",
        "cokl bandit phase",
    ),
    Entry(
        "phase_cluster_overlap-group_size",
        "Where CoKL helps: the tasks' overlap and the group size",
        "cokl bandit phase",
    ),
    Entry(
        "llm_training_dynamics",
        "The tiny language model's training",
        "cokl llm report --preset tiny",
        "the training dynamics of the LLM experiment",
    ),
    Entry("llm_beta", "The tiny language model: the coefficient", _SEARCH, _BETA),
    Entry("llm_kl_batch", "The tiny language model: the KL batch", _SEARCH, "the KL batch's effect"),
)


def page(rendered: Path = RENDERED) -> str:
    """The gallery as Markdown: the pictures that are in `rendered`, then the commands of those that are not."""
    captions = read_captions(rendered)
    here = [entry for entry in ENTRIES if (rendered / f"{entry.name}.png").exists()]
    parts = ["# Gallery", "Each picture is drawn by the command under it. Captions and their numbers are made with it."]
    for entry in here:
        answers = f"Its counterpart in the paper: {entry.answers}." if entry.answers else ""
        caption = captions.get(entry.name, "")
        parts += [f"## {entry.title}", f"![{entry.title}](../figures/rendered/{entry.name}.png)", caption, answers]
        parts += [f"{_NOT_RUN}\n```bash\n{entry.command}\n```"]
    absent = [entry for entry in ENTRIES if entry not in here]
    if absent:
        parts += ["## Not among these pictures", "Drawn with the results of an experiment of your own:"]
        rows = ((entry.title, f"`{entry.command}`", entry.answers) for entry in absent)
        parts += [plain_markdown_table(("picture", "command", "its counterpart in the paper"), rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
