"""The lab's section of the page: what its captions and its table say is what it shows."""

import pandas as pd
import pytest
from bandit.finite_group.section import section

from tests.bandit.finite_group.test_report import made_metrics, made_recovery


def test_the_first_row_of_panels_and_every_slope_are_those_that_are_named(tmp_path):
    metrics, recovery = made_metrics(), made_recovery()
    twice = recovery["optimizer_steps"] == 4
    recovery["measured"] = recovery["predicted"].where(~twice, 2 * recovery["predicted"])
    weaker = metrics.assign(beta=0.1, p_correct=0.5, coverage_at_8=0.5, conditional_kl=0.5)
    pd.concat([weaker, metrics]).to_parquet(tmp_path / "finite_group.parquet")
    recovery.to_parquet(tmp_path / "recovery.parquet")
    made = section(tmp_path)
    assert "at β = 0.3, mu = 1." in made.body
    shown = metrics[(metrics["step"] == 50) & (metrics["optimizer_steps"] == 1)]
    means = (
        shown[(shown["method"] == "cokl") & (shown["groups"] == "fresh")].groupby("group_size").mean(numeric_only=True)
    )
    drawn = [
        trace
        for trace in made.plots[f"{tmp_path.name}-metrics"].data
        if trace.name == "CoKL" and trace.x is not None and list(trace.x) == [1, 8]
    ]
    columns = ("p_correct", "coverage_at_8", "conditional_kl")
    for trace, column in zip(drawn, columns, strict=True):
        assert list(trace.y) == pytest.approx(means[column].to_list())
    for steps, slope in ((1, "1.0000 ± 0.0000"), (4, "2.0000 ± 0.0000")):
        for size in (1, 8):
            cells = ("CoKL", "0.3", "fresh", steps, size, slope)
            assert "".join(f"<td>{cell}</td>" for cell in cells) in made.body.replace("\n", "")
