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


def test_the_pages_scripts_fill_a_buffer_and_train_with_it(tmp_path, monkeypatch, capsys):
    make_toy(tmp_path, 200)
    rows = pd.read_parquet(tmp_path / "math_train.parquet").to_dict("records")
    for name, part in (("new_task", rows[:NEW]), ("old_task", rows[NEW : NEW + OLD])):
        asked = [{"prompt": list(row["prompt"]), "answer": row["reward_model"]["ground_truth"]} for row in part]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, asked)))
    text = PAGE.read_text()
    codes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for name, code in zip(("common", "fill", "train"), codes, strict=True):
        (tmp_path / f"{name}.py").write_text(code)
    own = {"MODEL": str(tmp_path / "model"), "DATA": str(tmp_path), "OUT": str(tmp_path), "STEPS": str(STEPS)}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "common", raising=False)
    _, commands = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    for command in commands.splitlines():
        runpy.run_path(str(tmp_path / command.removeprefix("python ")), run_name="__main__")
    buffer = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(tmp_path / "model"))
    assert len(buffer) == OLD
    assert buffer.group_size == 4
    losses = re.findall(r"'cokl/loss': '?(-?[\d.e-]+)", capsys.readouterr().out)
    assert len(losses) == STEPS
    assert all(float(loss) > 0 for loss in losses)  # a negative log-likelihood
