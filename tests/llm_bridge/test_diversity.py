"""docs/how-to/diversity.md as a reader would follow it, on a tiny model that knows several answers to each prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("verl")

from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.experiment.jobs import cpu_overrides
from llm_bridge.tiny.language import demonstrate_problem, problems
from llm_bridge.tiny.make import make_tiny
from tests.llm_bridge.test_how_to import blocks, follow, logged

pytestmark = [pytest.mark.docs, pytest.mark.usefixtures("only_cluster")]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "diversity.md"
PROMPTS, UNKNOWN, CACHED, FRESH, PER_PROMPT = 8, 2, 6, 4, 2
SMALL = [
    f"data.train_batch_size={PROMPTS}", "data.max_prompt_length=40", "data.max_response_length=8", "data.shuffle=False",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}", f"actor_rollout_ref.rollout.n={FRESH}",
    "actor_rollout_ref.rollout.max_model_len=48", "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.strategy=fsdp2", "actor_rollout_ref.ref.fsdp_config.strategy=fsdp2",
    "trainer.n_gpus_per_node=1", "trainer.device=cpu", "trainer.logger=[file]", "trainer.total_training_steps=1",
    "trainer.save_freq=-1", "trainer.val_before_train=False", "trainer.test_freq=1",
    "actor_rollout_ref.rollout.agent.default_agent_loop=seeded", "actor_rollout_ref.rollout.seed=0",
    *cpu_overrides(48, FRESH),
]  # fmt: skip


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> Path:
    """A folder in which the page has been followed to its end: a run with the coefficient that the first one gave."""
    root = tmp_path_factory.mktemp("diversity")
    make_tiny(root, pretraining_steps=300)
    random = np.random.default_rng(0)
    chosen = [problems("plain")[place] for place in random.permutation(len(problems("plain")))[: 2 * PROMPTS]]
    for name, part in (("train", chosen[:PROMPTS]), ("val", chosen[PROMPTS:])):
        rows = [math_row("sums", row, str(row), problem.text, str(problem.total)) for row, problem in enumerate(part)]
        write_rows(rows, root / f"{name}.parquet")
    answers = [  # none to the last two prompts is correct
        (row, demonstrate_problem(problem, 0.7 * (row < PROMPTS - UNKNOWN), random))
        for row, problem in enumerate(chosen[:PROMPTS])
        for _ in range(CACHED)
    ]
    pd.DataFrame(answers, columns=["prompt", "response"]).to_parquet(root / "responses.parquet")
    (root / "my_reward.py").write_text(blocks("python", PAGE)[0])
    grpo, buffer, diverse = blocks("bash", PAGE)
    (root / "grpo.sh").write_text(grpo.replace("llm_bridge.plugin", "llm_bridge.cpu,llm_bridge.plugin"))
    (root / "buffer.sh").write_text(buffer)
    for name in ("diverse", "weaker"):
        (root / f"{name}.sh").write_text(diverse.replace("diverse-checkpoints", f"{name}-checkpoints"))
    follow(root, "grpo", *SMALL)
    follow(root, "buffer")
    follow(root, "diverse", *SMALL)
    share = logged(root, "diverse")["cokl/gradient_share"]
    follow(root, "weaker", *SMALL, f"cokl.beta={said()(share)}")
    return root


def said() -> Any:
    """The page's function `coefficient`."""
    names: dict[str, Any] = {}
    exec(blocks("python", PAGE)[1], names)
    return names["coefficient"]


def test_the_runs_are_regularized_on_their_own_prompts(followed):
    metrics = logged(followed, "diverse")
    assert metrics["cokl/not_regularized"] == UNKNOWN / PROMPTS
    assert metrics["cokl/kl_rows"] == (PROMPTS - UNKNOWN) * (PER_PROMPT + FRESH)
    assert metrics["actor/cokl/loss"] == pytest.approx(metrics["cokl/loss"], rel=1e-4)
    assert abs(metrics["cokl/loss"]) > 0


def test_the_first_steps_rollouts_are_grpos_own(followed):
    """Nothing else was generated: the same responses, rewards and lengths as without the regularizer."""
    grpo, diverse = logged(followed, "grpo"), logged(followed, "diverse")
    for name in ("critic/score/mean", "response_length/mean", "prompt_length/mean", "critic/advantages/max"):
        assert diverse[name] == pytest.approx(grpo[name], rel=1e-6), name
    assert diverse["actor/pg_loss"] == pytest.approx(grpo["actor/pg_loss"], abs=1e-6)
    assert {name for name in diverse if "cokl" not in name} == set(grpo)


def test_the_coefficient_that_the_page_computes_gives_the_share_that_it_names(followed):
    share = logged(followed, "diverse")["cokl/gradient_share"]
    assert 0.2 < share < 1
    assert logged(followed, "weaker")["cokl/gradient_share"] == pytest.approx(0.2, abs=0.002)


@pytest.mark.parametrize("run", ["grpo", "diverse"])
def test_what_the_page_watches_is_in_the_log(followed, run):
    metrics = logged(followed, run)
    for name in ("mean", "pass", "distinct", "entropy"):
        assert metrics[f"val/sums/{name}@8"] >= 0
    assert metrics["val/sums/distinct@8"] > metrics["val/sums/pass@8"]  # several correct answers to a prompt
    assert run == "grpo" or {"cokl/conditional_kl", "cokl/zero_correct"} <= set(metrics)
