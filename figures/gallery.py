"""docs/gallery.md: every picture, its caption and the command that draws it; `python -m figures.gallery` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from figures.style import read_captions

RENDERED = Path(__file__).parent / "rendered"
PAGE = Path(__file__).parents[1] / "docs" / "gallery.md"


@dataclass(frozen=True)
class Entry:
    """A picture's name, the command that draws it, and the figure of the paper that it answers, if any."""

    name: str
    command: str
    answers: str = ""


_SWEEP = "cokl figures --results runs/paper"
_THEORY = "cokl theory figures --results runs/paper"
_FINITE_GROUP = "cokl bandit finite-group"
ENTRIES = (
    Entry("figure1_constraint_scopes", _SWEEP, "Figure 1, the scopes of KL constraints"),
    Entry("figure2_tradeoff", _SWEEP, "the controlled experiment's trade-offs"),
    Entry("figure3_dynamics", _SWEEP, "the controlled experiment's dynamics"),
    Entry("theory_optima", _THEORY),
    Entry("theory_off_policy_bias", _THEORY),
    Entry("finite_group_metrics", _FINITE_GROUP),
    Entry("finite_group_recovery", _FINITE_GROUP),
    *(
        Entry(f"shift_{kind}_{mode}", "cokl bandit shift", answers)
        for kind, answers in (
            ("tradeoff", ""),
            ("beta", "the coefficient's effect and the search over it, in miniature"),
            ("dynamics", "the training dynamics, in miniature"),
            ("decomposition", ""),
        )
        for mode in ("exact", "sampled")
    ),
    Entry("shift_kl_batch", "cokl bandit shift", "the KL batch's effect, in miniature"),
    Entry("phase_reference_correctness-correct_modes", "cokl bandit phase"),
    Entry("phase_cluster_overlap-group_size", "cokl bandit phase"),
    Entry("llm_training_dynamics", "cokl llm report --preset tiny", "the training dynamics of the LLM experiment"),
    Entry("llm_beta", "cokl llm run --preset tiny --paper-search", "the coefficient's effect and the search over it"),
    Entry("llm_kl_batch", "cokl llm run --preset tiny --paper-search", "the KL batch's effect"),
)


def page(rendered: Path = RENDERED) -> str:
    """The gallery as Markdown: the pictures that are in `rendered`, then the commands of those that are not."""
    captions = read_captions(rendered)
    here = [entry for entry in ENTRIES if (rendered / f"{entry.name}.png").exists()]
    parts = ["# Gallery", "Each picture is drawn by the command under it. Captions and their numbers are made with it."]
    for entry in here:
        answers = f"Its counterpart in the paper: {entry.answers}." if entry.answers else ""
        caption = captions.get(entry.name, "")
        parts += [f"## {entry.name}", f"![{entry.name}](../figures/rendered/{entry.name}.png)", caption, answers]
        parts += [f"```bash\n{entry.command}\n```"]
    absent = [entry for entry in ENTRIES if entry not in here]
    if absent:
        parts += ["## Not among these pictures", "Drawn with the results of an experiment of your own:"]
        rows = "\n".join(f"| {entry.name} | `{entry.command}` | {entry.answers} |" for entry in absent)
        parts += [f"| picture | command | its counterpart in the paper |\n|---|---|---|\n{rows}"]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
