"""docs/how-to/diversity.md as a reader would follow it on a CPU: its blocks exactly as printed, with a tiny model.

Then its scripts once more with seeded draws and small sizes, so that runs can be compared with each other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")

from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.tiny.language import demonstrate_problem, problems
from tests.llm_bridge.test_how_to import blocks, follow, logged, roomy_model, write_responses

pytestmark = [pytest.mark.docs, pytest.mark.usefixtures("only_cluster")]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "diversity.md"
PROMPTS, VALIDATION, CACHED, FRESH, PER_PROMPT = 64, 8, 32, 8, 2
FEW = 8
"""Prompts of a compared run, of which every fourth has no correct cached response."""
COMPARED = (
    f"data.train_batch_size={FEW} actor_rollout_ref.actor.ppo_mini_batch_size={FEW} data.shuffle=False "
    "actor_rollout_ref.rollout.agent.default_agent_loop=seeded actor_rollout_ref.rollout.seed=0 "
    "trainer.total_training_steps=1 trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq=-1"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What the reader has: a model that knows several answers to each prompt, prompts, samples, the page's scripts."""
    root = tmp_path_factory.mktemp("diversity")
    roomy_model(root)
    random = np.random.default_rng(0)
    chosen = [problems("plain")[place] for place in random.permutation(len(problems("plain")))[: PROMPTS + VALIDATION]]
    for name, part in (("train", chosen[:PROMPTS]), ("val", chosen[PROMPTS:])):
        rows = [math_row("sums", row, str(row), problem.text, str(problem.total)) for row, problem in enumerate(part)]
        write_rows(rows, root / f"{name}.parquet")
    answers = [
        (row, demonstrate_problem(problem, 0.7 * (row % 4 > 0), random))
        for row, problem in enumerate(chosen[:PROMPTS])
        for _ in range(CACHED)
    ]
    write_responses(root, "train", answers)
    grpo, _, _, diverse, _ = blocks("bash", PAGE)
    for name, block in (("my_reward.py", blocks("python", PAGE)[0]), ("grpo.sh", grpo), ("diverse.sh", diverse)):
        (root / name).write_text(block)
    return root


@pytest.fixture(scope="module")
def followed(folder) -> Path:
    """The folder in which the page has been followed to its end."""
    _, run_grpo, buffer, _, run_diverse = blocks("bash", PAGE)
    done = follow(folder, "page", run_grpo, buffer, run_diverse)
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


@pytest.fixture(scope="module")
def compared(followed) -> Path:
    """The folder with further runs: grpo-0 and diverse-0, and weaker-0 with the coefficient that the page computes."""
    _, run_grpo, _, _, run_diverse = blocks("bash", PAGE)
    variable, run_grpo = run_grpo.splitlines()

    def run(name: str, command: str) -> None:
        own = f"trainer.experiment_name={name} trainer.default_local_dir={followed}/{name}"
        done = follow(followed, name, variable, f"{command.strip()} {COMPARED} {own}")
        assert done.returncode == 0, done.stdout[-3000:]

    run("grpo-0", run_grpo)
    run("diverse-0", run_diverse)
    weaker = said()(logged(followed, "diverse-0")["cokl/gradient_share"])
    printed = (followed / "diverse.sh").read_text()
    (followed / "weaker.sh").write_text(printed.replace("+cokl.beta=1.0", f"+cokl.beta={weaker}"))
    run("weaker-0", run_diverse.replace("diverse.sh", "weaker.sh"))
    return followed


def said() -> Any:
    """The page's function `coefficient`."""
    names: dict[str, Any] = {}
    exec(blocks("python", PAGE)[1], names)
    return names["coefficient"]


def test_the_runs_are_regularized_on_their_own_prompts(followed):
    metrics = logged(followed, "diverse")
    assert metrics["cokl/not_regularized"] == 1 / 4
    assert metrics["cokl/kl_rows"] == PROMPTS * 3 / 4 * (PER_PROMPT + FRESH)
    assert metrics["actor/cokl/loss"] == pytest.approx(metrics["cokl/loss"], rel=1e-4)
    assert abs(metrics["cokl/loss"]) > 0


@pytest.mark.parametrize("run", ["grpo", "diverse"])
def test_what_the_page_watches_is_in_the_log(followed, run):
    metrics = logged(followed, run)
    for name in ("mean", "pass", "distinct", "entropy"):
        assert metrics[f"val/sums/{name}@8"] >= 0
    assert metrics["val/sums/distinct@8"] > metrics["val/sums/pass@8"]  # several correct answers to a prompt
    assert run == "grpo" or {"cokl/conditional_kl", "cokl/zero_correct"} <= set(metrics)


def test_the_first_steps_rollouts_are_grpos_own(compared):
    """Nothing else was generated: the same responses, rewards and lengths as without the regularizer."""
    grpo, diverse = logged(compared, "grpo-0"), logged(compared, "diverse-0")
    for name in ("critic/score/mean", "response_length/mean", "prompt_length/mean", "critic/advantages/max"):
        assert diverse[name] == pytest.approx(grpo[name], rel=1e-6), name
    assert diverse["actor/pg_loss"] == pytest.approx(grpo["actor/pg_loss"], abs=1e-6)
    assert {name for name in diverse if "cokl" not in name} == set(grpo)


def test_the_coefficient_that_the_page_computes_gives_the_share_that_it_names(compared):
    share = logged(compared, "diverse-0")["cokl/gradient_share"]
    assert 0.2 < share < 1
    assert logged(compared, "weaker-0")["cokl/gradient_share"] == pytest.approx(0.2, abs=0.002)
