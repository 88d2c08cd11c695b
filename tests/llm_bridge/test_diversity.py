"""docs/how-to/diversity.md as a reader would follow it on a CPU: its blocks exactly as printed, with a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("verl")

from tests.llm_bridge.test_how_to import TAUGHT, blocks, follow, logged
from tests.llm_bridge.toy import make_toy

pytestmark = pytest.mark.runs

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "diversity.md"
PROMPTS, VALIDATION, CACHED, FRESH, PER_PROMPT = 64, 8, 64, 5, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What the reader has: a model that knows several answers to each prompt, prompts, the page's scripts. Every fourth
    training prompt asks for a total that no two numbers of the model's make, so that no response to it is right.
    """
    root = tmp_path_factory.mktemp("diversity")
    make_toy(root, TAUGHT)
    known = pd.read_parquet(root / "math_train.parquet").assign(data_source="sums")
    asked = known[:PROMPTS].copy()
    asked["reward_model"] = [
        told | {"ground_truth": "1000"} if row % 4 == 0 else told for row, told in enumerate(asked["reward_model"])
    ]
    asked.to_parquet(root / "new_task.parquet")
    known[PROMPTS : PROMPTS + VALIDATION].to_parquet(root / "old_task.parquet")
    (root / "my_reward.py").write_text(blocks("python", PAGE)[0])
    (root / "grpo.sh").write_text(blocks("bash")[0])
    return root


@pytest.fixture(scope="module")
def followed(folder) -> Path:
    """The folder in which the page has been followed to its end."""
    _, plugin, on_cpu, *_ = blocks("bash")
    done = follow(folder, "page", plugin, on_cpu, *blocks("bash", PAGE))
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


def said() -> Any:
    """The page's function `coefficient`."""
    names: dict[str, Any] = {}
    exec(blocks("python", PAGE)[1], names)
    return names["coefficient"]


def test_the_runs_are_regularized_on_their_own_prompts(followed):
    """But for those of which the buffer has no correct response."""
    buffer, metrics = pd.read_parquet(followed / "own.parquet"), logged(followed, "diverse")
    assert len(buffer) == PROMPTS * CACHED
    asked = buffer.assign(prompt=buffer["prompt"].astype(str))
    solved = asked.groupby(["prompt", "ground_truth"])["reward"].max()
    assert len(solved) == PROMPTS
    assert metrics["cokl/not_regularized"] == pytest.approx(1 - solved.mean())
    assert solved.mean() <= 3 / 4
    assert metrics["cokl/kl_rows"] == solved.sum() * (PER_PROMPT + FRESH)
    assert abs(metrics["cokl/loss"]) > 0


def test_what_the_page_watches_is_in_the_log(followed):
    """Of the run and of the one that it is compared with."""
    for run in ("diverse", "entropy"):
        metrics = logged(followed, run)
        for name in ("mean", "distinct", "entropy"):
            assert metrics[f"val/sums/{name}@8"] >= 0
        assert metrics["val/sums/entropy@8"] > 0  # several correct answers to a prompt
        assert ("cokl/zero_correct" in metrics) == (run == "diverse")
        assert ("actor/entropy_loss" in metrics) == (run == "entropy")


def test_the_coefficient_that_the_page_computes_gives_the_share_that_it_names():
    """Norms are proportional to the coefficient: a share s at one is r^2 s / (1 - s + r^2 s) at r times this one."""
    for share in (0.001, 0.3, 0.997):
        for beta in (0.01, 1.0):
            part = (said()(share, beta) / beta) ** 2 * share
            assert part / (1 - share + part) == pytest.approx(0.2)
