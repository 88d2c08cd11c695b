"""docs/how-to/trl.md as a reader would follow it: its blocks exactly as printed, on a CPU, with a tiny model."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("trl")
from llm_bridge.buffer.groups import Buffer, model_fingerprint
from tests.llm_bridge.toy import make_toy

pytestmark = pytest.mark.trl

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "trl.md"
STEPS, NEW, OLD = 2, 16, 32


TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """The page's scripts by name, and a folder with the model and the tasks that they read."""
    make_toy(tmp_path, 200)
    rows = pd.read_parquet(tmp_path / "math_train.parquet").to_dict("records")
    for name, part in (("new_task", rows[:NEW]), ("old_task", rows[NEW : NEW + OLD])):
        asked = [{"prompt": list(row["prompt"]), "answer": row["reward_model"]["ground_truth"]} for row in part]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, asked)))
    own = {"MODEL": str(tmp_path / "model"), "DATA": str(tmp_path), "OUT": str(tmp_path), "STEPS": str(STEPS)}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "common", raising=False)
    return dict(zip(("common", "fill", "train"), re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL), strict=True))


def follow(folder: Path, scripts: dict[str, str]) -> None:
    """Save the scripts and run what the page says to run."""
    for name, code in scripts.items():
        (folder / f"{name}.py").write_text(code)
    _, commands = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    for command in commands.splitlines():
        runpy.run_path(str(folder / command.removeprefix("python ")), run_name="__main__")


def logged(text: str, metric: str) -> list[float]:
    return [float(value) for value in re.findall(rf"'{metric}': '?(-?[\d.e-]+)", text)]


def test_the_pages_scripts_fill_a_buffer_and_train_with_it(scripts, tmp_path, capsys):
    follow(tmp_path, scripts)
    buffer = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(tmp_path / "model"))
    assert len(buffer) == OLD
    assert buffer.group_size == 4
    losses = logged(capsys.readouterr().out, "cokl/loss")
    assert len(losses) == STEPS
    assert all(loss > 0 for loss in losses)  # a negative log-likelihood


def test_the_changes_for_many_different_right_answers(scripts, tmp_path, capsys):
    section = TEXT.partition("### Many different right answers")[2].partition("## 4.")[0]
    one, two, three, four, five = re.findall(r"^\d\. (.*(?:\n   .*)*)$", section, re.MULTILINE)
    (more_answers,) = re.findall(r"`(GRPOConfig\(.*?\))`", two)
    method, beta, prompts = re.findall(r"`(cokl_(?:method|beta|prompts)=[^`]*)`", three)
    (cached,) = re.findall(r"`(cokl_cached_per_prompt=\d+)`", four)
    (diverse,) = re.findall(r"`(f\"\{OUT\}/.*?\")`", five)
    assert "new_task.jsonl" in one
    changes = {
        "fill": [
            ("old_task.jsonl", "new_task.jsonl"),
            ("buffer.parquet", "own.parquet"),
            ('GRPOConfig(f"{OUT}/fill", **options)', more_answers),
        ],
        "train": [
            ("buffer.parquet", "own.parquet"),
            ('cokl_method="replay"', method),
            ("cokl_beta=0.003", f"{beta}, {prompts}, {cached}"),
            ('f"{OUT}/replay"', diverse),
        ],
    }
    for name, of_script in changes.items():
        for before, after in of_script:
            assert scripts[name].count(before) == 1, before
            scripts[name] = scripts[name].replace(before, after)
    follow(tmp_path, scripts)
    buffer = Buffer.load(tmp_path / "own.parquet", model_fingerprint(tmp_path / "model"))
    assert len(buffer) == NEW
    assert buffer.group_size == 64
    out = capsys.readouterr().out
    assert len(logged(out, "cokl/loss")) == STEPS
    share = logged(out, "cokl/not_regularized")
    assert len(share) == STEPS
    assert min(share) < 1  # some prompts of the step are regularized
