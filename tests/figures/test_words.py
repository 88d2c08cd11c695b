"""What stands beside each panel: title and axes with their units, of the numbers that `test_marks` finds in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bandit.finite_group import figures as finite_group
from bandit.plasticity import figures as plasticity
from bandit.shift import figures as shift
from bandit.shift.analysis import score, tables_of
from bandit.sweep.figures import dynamics, tradeoff
from cokl_cli import card
from figures.marks import Drawing
from tests.bandit.finite_group.tables import made_metrics
from tests.bandit.plasticity import tables as plastic
from tests.bandit.shift.tables import shift_table
from tests.bandit.sweep.tables import GOOD, sweep_table

KL = r"$D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+}\,\Vert\,\pi_\theta^{+})$ [nats]"
Words = tuple[str, str, str]

WORDS: dict[str, tuple[Callable[[], Drawing], dict[str, Words]]] = {
    "sweep, trade-off": (
        lambda: tradeoff(sweep_table(GOOD)),
        {
            "coverage_at_64": ("", r"Correctness $P_{\mathrm{corr}}$ (axis stretched towards 1)", "Coverage@64"),
            "conditional_kl": ("", r"Correctness $P_{\mathrm{corr}}$ (axis stretched towards 1)", KL),
        },
    ),
    "sweep, dynamics": (
        lambda: dynamics(sweep_table(GOOD)),
        {"coverage_at_64": ("", "Training step", "Coverage@64"), "conditional_kl": ("", "Training step", KL)},
    ),
    "shift, frontier": (
        lambda: shift.frontier(tables_of(score(shift_table()))["beta_search"]),
        {"": ("", "Adaptation", "Retention")},
    ),
    "shift, trade-off": (
        lambda: shift.tradeoff(tables_of(score(shift_table()))["beta_search"]),
        {"reverse_kl": ("Reverse KL", "Adaptation", "Retention")},
    ),
    "shift, KL batch": (
        lambda: shift.kl_batch(tables_of(score(shift_table()))["kl_batch"]),
        {
            "exact retention": ("", "KL prompts per update", "Retention (exact)"),
            "exact adaptation": ("", "KL prompts per update", "Adaptation (exact)"),
        },
    ),
    "finite groups, metrics": (
        lambda: finite_group.metrics(made_metrics()),
        {
            "p_correct, mu = 1": ("", "Group size $G$", "Correctness"),
            "coverage_at_8, mu = 1": (r"$\mu = 1$ (on-policy)", "Group size $G$", "Coverage@8"),
            "coverage_at_8, mu = 4": (r"$\mu = 4$ (off-policy)", "Group size $G$", "Coverage@8"),
            "conditional_kl, mu = 4": ("", "Group size $G$", "Conditional KL [nats]"),
        },
    ),
    "plasticity, trade-off": (
        lambda: plasticity.draw({"plasticity": plastic.lab()}, plastic.CONFIG)["plasticity_tradeoff"],
        {"": ("", "Correctness after phase 1", "Plasticity after narrowed-2")},
    ),
    "card": (
        lambda: card.drawing(plastic.lab(), {}),
        {
            "coverage_at_64": ("Correct answers kept: better ↗", "Correctness (axis stretched)", "Coverage@64"),
            "conditional_kl": (
                "Distance from the reference: better ↘",
                "Correctness (axis stretched)",
                "Conditional KL [nats]",
            ),
            "plasticity": (
                "Learned afterwards: better ↗",
                "Correctness (axis stretched)",
                "Plasticity: mean new reward",
            ),
            "optimum": ("Best possible: better ↑", "Coefficient β", "Optimum Z*"),
        },
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_panels_words_are_of_what_it_shows(name):
    draw, expected = WORDS[name]
    panels = draw().panels
    assert {panel: (panels[panel].title, panels[panel].x, panels[panel].y) for panel in expected} == expected
