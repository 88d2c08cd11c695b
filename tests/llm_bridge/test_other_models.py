"""docs/how-to/other-models.md: its reward function, and the plan of its task pair on a folder of one's own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from llm_bridge.data.prepare import check_own
from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import Job, compose
from llm_bridge.rewards.judge import load_function

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "other-models.md").read_text()


def block(language: str, place: int) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[place]


@pytest.fixture
def folder(tmp_path) -> Path:
    pytest.importorskip("verl")
    (tmp_path / "my_reward.py").write_text(block("python", 0))
    for name in ("math_train", "chat_train", "chat_val", "sums", "products"):
        write_rows([math_row(name, 0, "x", "1 + 1?", "2")], tmp_path / "my_data" / f"{name}.parquet")
    return tmp_path


def test_the_reward_function_is_one_that_verl_loads(folder):
    score = load_function(f"{folder}/my_reward.py:score")
    assert score("sums", "it is 2", "2") == 1.0
    assert score("sums", "", "2") == 0.0
    assert all(0 < score(name, "Dear Ada", "") < 1 for name in ("chat_train", "chat_val"))


def test_the_plan_reads_the_folder_and_calls_the_function(folder):
    check_own(folder / "my_data", ("math_train", "chat_train", "chat_val", "sums", "products"))
    arguments = shlex.split(block("bash", 1).replace("\\\n", " "))
    assert arguments[0] == "cokl"
    done = subprocess.run(
        [sys.executable, "-m", "cokl_cli", *arguments[1:], "--dry-run"], cwd=folder, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (chat,) = re.findall(r"^# chat/cokl: .*\n(.*)", done.stdout, re.MULTILINE)
    composed = compose(Job("chat/cokl", folder, tuple(shlex.split(chat)[3:-3]), 0, {}))
    files = [f"{folder}/my_data/{name}.parquet" for name in ("sums", "products", "chat_val")]
    assert list(composed.data.val_files) == files
    assert composed.reward.custom_reward_function == {
        "path": f"{folder}/my_reward.py", "name": "score", "reward_kwargs": {}
    }  # fmt: skip
    assert not composed.reward.reward_model.enable


def test_every_option_of_the_page_is_one_of_the_command():
    from cokl_cli.commands.llm import RunStages

    known = {field.replace("_", "-") for field in (*RunStages.__dataclass_fields__, *PRESETS["smollm2"].as_dict())}
    options = {name.removeprefix("no-") for name in re.findall(r"--([a-z][a-z-]+)", PAGE)}
    assert options <= known | {"dry-run"}
