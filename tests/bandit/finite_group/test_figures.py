"""The recovery's panels: each prints the slope on its own prediction."""

import pandas as pd

from bandit.finite_group.figures import recovery


def test_each_panel_prints_the_slope_on_what_it_draws():
    """What was measured is half of one prediction, and a quarter of the other."""
    table = pd.DataFrame(
        [
            {
                "seed": seed, "method": "cokl", "beta": 0.3, "groups": "fresh", "group_size": 2.0,
                "optimizer_steps": 4, "step": 0, "cluster": cluster, "measured": 1.0 + cluster, "standard_error": 0.1,
                "predicted": 2.0 * (1 + cluster), "predicted_at_rollout": 4.0 * (1 + cluster), "p_correct": 0.5,
            }
            for seed in range(3)
            for cluster in range(2)
        ]
    )  # fmt: skip
    marks = recovery(table).marks
    texts = marks[marks["kind"] == "text"].set_index("panel")["text"].to_dict()
    assert texts == {
        "fresh, mu = 4, predicted": "slope 0.500 ± 0.000",
        "fresh, mu = 4, predicted_at_rollout": "slope 0.250 ± 0.000",
    }
