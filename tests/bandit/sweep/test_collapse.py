"""The watched policies: those of the sweep, whose metrics they give, and then those that learn what still pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from bandit.config import EnvironmentConfig
from bandit.sweep.collapse import FILE, keep, policies
from bandit.sweep.config import SweepConfig
from bandit.sweep.experiment import Sweep
from bandit.sweep.figures.collapse import draw
from bandit.sweep.plan import planned_runs
from bandit.sweep.run import train_planned
from cokl.support.experiment import Execution
from cokl.support.files import read_parquet
from tests.oracles.plasticity_lab import NARROWED, stream
from tests.oracles.worlds import world

# One cluster and one test input, so that the one context is all that the sweep averages over.
CONFIG = SweepConfig(
    methods=("none", "cokl"),
    betas=(0.03, 0.3),
    seeds=1,
    steps=30,
    eval_interval=15,
    batch_size=16,
    pretrain_steps=40,
    hidden=(8,),
    dtype="float64",
    learning_rate=0.02,
    coverage_draws=4,
    environment=EnvironmentConfig(
        clusters=1, input_dim=4, actions=12, correct_actions=4, train_inputs=40, test_inputs=1
    ),
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The sweep's table and what is watched of it."""
    folder = tmp_path_factory.mktemp("sweep")
    table = Sweep().train(CONFIG, Execution(out=folder, jobs=1))
    return table, read_parquet(folder / FILE)


def test_the_last_policies_of_training_have_the_sweeps_metrics(kept):
    table, policies = kept
    ends = policies[(policies["phase"] == 1) & (policies["step"] == CONFIG.steps)]
    for (method, beta), rows in ends.groupby(["method", "beta"]):
        wrong, *right = rows.sort_values("action")["probability"]
        run = table[(table["method"] == method) & (table["beta"] == beta) & (table["step"] == CONFIG.steps)].iloc[0]
        assert 1 - wrong == pytest.approx(run["p_correct"])
        assert sum(right) == pytest.approx(run["p_correct"])
        assert np.mean([1 - (1 - p) ** 4 for p in right]) == pytest.approx(run["coverage_at_4"])
        start = policies[(policies["phase"] == 1) & (policies["step"] == 0) & (policies["method"] == method)]
        reference = np.array(start.sort_values("action")["probability"][1:])
        assert list(reference) == sorted(reference, reverse=True)
        given = reference / reference.sum(), np.array(right) / sum(right)
        divergence = float((given[0] * np.log(given[0] / given[1])).sum())
        assert divergence == pytest.approx(run["conditional_kl"], rel=1e-5)
    assert set(ends["method"]) == {"none", "cokl"}


def test_the_second_phase_starts_there_and_learns_what_pays(kept):
    _, policies = kept
    for method in ("none", "cokl"):
        of = {
            key: rows.sort_values("action")
            for key, rows in policies[policies["method"] == method].groupby(["phase", "step"])
        }
        np.testing.assert_allclose(of[2, 0]["probability"], of[1, CONFIG.steps]["probability"])
        paying = [float(of[2, step].loc[of[2, step]["pays"], "probability"].sum()) for step in (0, 25, 100)]
        assert of[2, 0]["pays"].sum() == 2
        assert paying == sorted(paying)
        assert paying[2] > paying[0] + 0.05


def test_each_context_has_its_own_clusters_stars():
    """A reference of biases alone likes higher actions more everywhere; of six clusters two are watched, 0 and 3.

    What was recorded comes out in its order: by method, moment, context and action.
    """
    config = replace(CONFIG, betas=(0.3,), environment=replace(CONFIG.environment, clusters=6, test_inputs=40))
    reference = torch.zeros(4 * 8 + 8 + 8 * 12 + 12, dtype=torch.float64)
    reference[-12:] = 0.1 * torch.arange(12)
    frames = len({round(30 * (number / 20) ** 2) for number in range(21)})
    probabilities = np.arange(2 * frames * 2 * 5).reshape(2, -1) / 1e3
    parameters = list(np.tile(reference.numpy(), (2, 1)))
    recorded = pd.DataFrame(
        {"method": ["none", "cokl"], "beta": [0.0, 0.3], "watched": list(probabilities), "parameters": parameters}
    )
    table = recorded[["method", "beta"]].assign(seed=0, step=30, p_correct=0.96)
    made = policies(config, table, recorded, reference)
    first = made[made["phase"] == 1].sort_values(["beta", "step", "context", "action"])
    np.testing.assert_array_equal(first["probability"], probabilities.ravel())
    correct = world(config.environment, 0).correct
    chance = stream(0, NARROWED).random(correct.shape)
    for context, cluster in enumerate((0, 3)):
        liked = np.flatnonzero(correct[cluster])[::-1]
        paid = sorted(liked, key=lambda action: chance[cluster, action])[:2]
        for _, rows in made[made["context"] == context].groupby(["method", "phase", "step"]):
            assert rows.sort_values("action")["pays"].tolist() == [False, *(action in paid for action in liked)]


def test_the_picture_has_a_frame_for_each_moment_and_a_bar_for_each_answer(kept):
    _, policies = kept
    figure = draw(policies)
    assert len(figure.frames) == len(policies[["phase", "step"]].drop_duplicates())
    last = policies[(policies["phase"] == 2) & (policies["step"] == 100) & (policies["method"] == "cokl")]
    bars, shape = figure.frames[-1].data[2:]
    *right, wrong = bars.y
    expected = last.sort_values("action")["probability"].tolist()
    np.testing.assert_allclose([wrong, *right], expected, rtol=1e-2, atol=1e-12)
    assert list(bars.text).count("★") == 2
    start = policies.query("phase == 1 and step == 0 and method == 'none' and action > 0").sort_values("action")
    given_correct = [figure.data[place] for place in (1, 3)]  # after each method's bars
    for line in (*given_correct, shape):
        np.testing.assert_allclose(line.y, start["probability"] / start["probability"].sum(), rtol=1e-2)
    assert len(figure.layout.updatemenus) == 1


def test_chunks_that_recorded_no_policies_leave_nothing_to_watch(tmp_path):
    table = train_planned(CONFIG, planned_runs(CONFIG), tmp_path, Execution(out=tmp_path, jobs=1), progress=False)
    keep(CONFIG, table, tmp_path)
    assert not (tmp_path / FILE).exists()
