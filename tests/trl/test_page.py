"""docs/how-to/trl.md as a reader would follow it: its blocks exactly as printed, on a CPU, with a tiny model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("trl")
from cokl.responses.buffer import Buffer, model_fingerprint
from tests.llm_bridge.toy import make_toy

pytestmark = pytest.mark.trl

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "trl.md"
STEPS, NEW, OLD = 2, 16, 32


def test_the_pages_scripts_fill_a_buffer_and_train_with_it(tmp_path):
    make_toy(tmp_path, 200)
    rows = pd.read_parquet(tmp_path / "math_train.parquet").to_dict("records")
    for name, part in (("new_task", rows[:NEW]), ("old_task", rows[NEW : NEW + OLD])):
        asked = [{"prompt": list(row["prompt"]), "answer": row["reward_model"]["ground_truth"]} for row in part]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, asked)))
    text = PAGE.read_text()
    for name, code in zip(
        ("common", "fill", "train"), re.findall(r"```python\n(.*?)```", text, re.DOTALL), strict=True
    ):
        (tmp_path / f"{name}.py").write_text(code)
    _, commands = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    own = {"MODEL": str(tmp_path / "model"), "DATA": str(tmp_path), "OUT": str(tmp_path), "STEPS": str(STEPS)}
    own["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=tmp_path, env={**os.environ, **own}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    buffer = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(tmp_path / "model"))
    assert len(buffer) == OLD
    assert buffer.group_size == 4
    losses = re.findall(r"'cokl/loss': '?(-?[\d.e-]+)", done.stdout)
    assert len(losses) == STEPS, done.stdout[-3000:]
    assert all(float(loss) > 0 for loss in losses)  # a negative log-likelihood
