"""What every lab's plan hands on."""

from typing import Any

import pytest

from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.train import planned_runs as finite_group
from bandit.sequences.config import SequenceConfig
from bandit.sequences.train import planned_runs as sequences
from bandit.shift.config import ShiftConfig
from bandit.shift.train import planned_runs as shift

LABS = pytest.mark.parametrize(
    ("plan", "config"), [(finite_group, FiniteGroupConfig), (sequences, SequenceConfig), (shift, ShiftConfig)]
)


@LABS
@pytest.mark.parametrize("form", ["restricted", "conditional"])
def test_options_reach_the_regularizers(plan, config, form):
    options: dict[str, Any] = {"kl_sweep_methods": ()} if config is ShiftConfig else {}
    runs = plan(
        config(methods=("correct_reverse_kl",), regularizer_options=(f"correct_reverse_kl.form={form}",), **options)
    )
    assert {run.method.regularizer.form for run in runs} == {form}


@LABS
def test_what_has_no_regularizer_has_no_coefficient(plan, config):
    assert {run.beta for run in plan(config()) if run.method.regularizer is None} == {0.0}
