"""docs/how-to/verl.md and responses.md as a reader would follow them: their blocks exactly as printed, on a CPU.

The reader brings data, a model, sampled responses and the variables that the page names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("verl")

from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.trainer.rows import AGENT
from tests.llm_bridge import tools
from tests.llm_bridge.toy import answer, make_tokenizer, make_toy

pytestmark = pytest.mark.runs

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "verl.md"
IMPORT = PAGE.with_name("responses.md")
LIMIT = 1500.0
TAUGHT = 300
"""Steps that the reader's model was taught for: some of its answers are right, and all end."""
NEW, OLD, FRESH, TOOLED = 64, 32, 5, 3


def blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def reader(root: Path) -> dict[str, str]:
    """The environment of a reader who has set what the page names; the cluster of a test is closed to others."""
    own = {"DATA": str(root), "MODEL": str(root / "model"), "OUT": str(root), "GPUS": "1"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, **own, "PATH": path, "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


def follow(root: Path, name: str, *lines: str) -> subprocess.CompletedProcess[str]:
    """Lines that the reader enters in one shell. Their output is ROOT/NAME.log too."""
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)], cwd=root, env=reader(root), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    (root / f"{name}.log").write_text(done.stdout)
    return done


def logged(root: Path, name: str) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for line in (root / "verl_examples" / f"{name}.jsonl").read_text().splitlines():
        metrics |= json.loads(line)["data"]
    return metrics


def write_responses(root: Path, task: str, answers: list[tuple[int, str]]) -> None:
    """ROOT/responses.parquet of texts, each with the number of its prompt in the task's file."""
    tokenizer, asked = make_tokenizer(), pd.read_parquet(root / f"{task}.parquet").to_dict("records")
    rows = [
        {
            "prompt": [dict(message) for message in asked[row]["prompt"]],
            "data_source": asked[row]["data_source"],
            "ground_truth": asked[row]["reward_model"]["ground_truth"],
            "response_ids": [*tokenizer(text)["input_ids"], tokenizer.eos_token_id],
        }
        for row, text in answers
    ]
    pd.DataFrame(rows).to_parquet(root / "responses.parquet")


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> Path:
    """A folder in which the page has been followed to its end."""
    root = tmp_path_factory.mktemp("how-to")
    make_toy(root, TAUGHT)
    known = pd.read_parquet(root / "math_train.parquet")
    known[:NEW].to_parquet(root / "new_task.parquet")
    known[NEW : NEW + OLD].to_parquet(root / "old_task.parquet")
    truths = [int(row["ground_truth"]) for row in known["reward_model"][NEW : NEW + OLD]]
    answers = [(row, answer(1, truths[row] - 1 + wrong)) for row in range(OLD) for wrong in (0, 1)]
    write_responses(root, "old_task", answers)
    (reward,) = blocks("python")
    grpo, plugin, on_cpu, buffer, cokl, check, train = blocks("bash")
    imported, _ = blocks("bash", IMPORT)  # the other has rollouts of earlier runs
    for name, block in (("my_reward.py", reward), ("grpo.sh", grpo), ("cokl.sh", cokl)):
        (root / name).write_text(block)
    done = follow(root, "page", plugin, on_cpu, buffer, imported, check, train)
    assert done.returncode == 0, done.stdout[-3000:]
    return root


def test_the_runs_own_command_makes_the_buffer(followed):
    """Every response is judged by the page's function."""
    from transformers import AutoTokenizer

    buffer = pd.read_parquet(followed / "buffer.parquet")
    assert len(buffer) == OLD * FRESH
    reward: dict[str, Any] = {}
    exec((followed / "my_reward.py").read_text(), reward)
    tokenizer = AutoTokenizer.from_pretrained(followed / "model")
    for row in buffer.to_dict("records"):
        text = tokenizer.decode(row["response_ids"], skip_special_tokens=True)
        assert row["reward"] == reward["compute_score"]("", text, row["ground_truth"])


def test_a_buffer_is_imported_from_responses(followed):
    buffer = pd.read_parquet(followed / "imported" / "buffer.parquet")
    assert buffer["reward"].tolist() == [1, 0] * OLD


def test_the_command_is_checked_before_it_is_started(followed):
    assert "cokl: nothing is refused" in (followed / "page.log").read_text()


def test_six_options_more_train_with_added_rows(followed):
    metrics = logged(followed, "replay")
    assert metrics["cokl/kl_rows"] == 8 * FRESH
    assert metrics["cokl/loss"] > 0  # a negative log-likelihood
    assert 0 < metrics["cokl/gradient_share"] <= 1
    assert any(name.startswith("val-core/math_train/") for name in metrics)


def test_a_row_added_for_a_prompt_with_tools_runs_its_agent_loop_with_what_its_tools_are_told(followed):
    """A real step. Only the buffer's prompts have tools: every call is an added row's, one between its two turns."""
    tokenizer, told = make_tokenizer(), followed / "told"
    told.mkdir()
    groups = []
    for number, row in enumerate(pd.read_parquet(followed / "old_task.parquet").to_dict("records")[:TOOLED]):
        prompt, truth = [dict(message) for message in row["prompt"]], int(row["reward_model"]["ground_truth"])
        texts = [answer(1, truth - 1), answer(2, truth - 1)]
        ids = [np.array([*tokenizer(text)["input_ids"], tokenizer.eos_token_id]) for text in texts]
        asked = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        extra = {AGENT: "tool_agent", "tools_kwargs": {tools.NAME: {"create_kwargs": {"number": number}}}}
        masks = [np.array([1, 0] + [1] * (len(row) - 2)) for row in ids]
        verdicts = np.array([1, 0])
        groups.append(CachedGroup(prompt, "old", str(truth), np.array(asked), ids, verdicts, extra, masks))
    Buffer(tuple(groups), model_fingerprint(followed / "model")).save(followed / "tooled.parquet")
    (followed / "tools.yaml").write_text(json.dumps(tools.configuration(told)))
    own = "llm_bridge.cpu,llm_bridge.plugin,tests.llm_bridge.tools"
    options = (
        "trainer.total_training_steps=1 trainer.experiment_name=tools trainer.default_local_dir=$OUT/tools "
        "trainer.val_before_train=False trainer.test_freq=-1 trainer.v1.trainer_mode=cokl +cokl.method=cokl "
        f"+cokl.buffer=$OUT/tooled.parquet +cokl.kl_prompts={TOOLED} data.max_response_length=64 "
        "actor_rollout_ref.rollout.multi_turn.tool_config_path=$OUT/tools.yaml "
        f"actor_rollout_ref.rollout.multi_turn.format={tools.NAME} "
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=2"
    )
    exports = f"export PYTHONPATH={Path.cwd()} VERL_USE_EXTERNAL_MODULES={own}", blocks("bash")[2].splitlines()[1]
    done = follow(followed, "tools", *exports, f"bash grpo.sh $ON_CPU {options}")
    assert done.returncode == 0, done.stdout[-3000:]
    calls = [json.loads(file.read_text())["number"] for file in told.iterdir()]
    assert sorted(calls) == [number for number in range(TOOLED) for _ in range(FRESH)]
    assert logged(followed, "tools")["cokl/kl_rows"] == TOOLED * (2 + FRESH)
