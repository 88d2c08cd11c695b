"""Two processes, DDP over gloo: each samples and weighs its share, and the gradient is that of all rows."""

from __future__ import annotations

import os
import pickle
import socket
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl")

from llm_bridge.buffer.groups import Buffer, model_fingerprint
from tests.trl import world

pytestmark = pytest.mark.trl

LIMIT = 900.0
"""Seconds after which the ranks count as hung."""


def rank(number: int, port: int, root: Path, rows: list[str], options: dict) -> None:
    """One process: trains, and leaves its record in ROOT."""
    own = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in own.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "true"})
    torch.set_num_threads(1)
    trainer = world.make_trainer(root, rows, output_dir=str(root / f"out{number}"), **options)
    assert trainer.accelerator.num_processes == 2
    record = world.Record().attach(trainer)
    trainer.train()
    (root / f"rank{number}").write_bytes(pickle.dumps((record.steps, record.sampled, record.logs)))


@pytest.mark.parametrize(("method", "prompts"), [("cokl", "buffer"), ("reverse_kl", "training")])
def test_the_gradient_of_two_processes_is_that_of_all_their_rows(tmp_path, method, prompts):
    world.make_folder(tmp_path)
    rows = [*(world.NEW if prompts == "buffer" else (world.OLD[0], world.NEW[0]))] * 8
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"cokl_method": method, "cokl_prompts": prompts}
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=rank, args=(number, port, tmp_path, rows, options)) for number in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=LIMIT)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0, 0]
    first, second = (pickle.loads((tmp_path / f"rank{number}").read_bytes()) for number in (0, 1))
    groups = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(tmp_path / "model")).groups
    known = {tuple(group.prompt_ids.tolist()): group for group in groups}
    twin = world.twin(tmp_path)
    calls = len(first[1]) // 2
    for number, (step, other) in enumerate(zip(first[0], second[0], strict=True)):
        torch.testing.assert_close(step.gradient, other.gradient, rtol=0, atol=0)
        call = calls * number + calls - 1  # the last of a step's is the regularizer's, if it samples at all
        asked, responses = (first[1][call][part] + second[1][call][part] for part in (1, 2))
        places = [at for at in range(0, len(asked), world.GROUP) if tuple(asked[at]) in known]
        fresh = [responses[at : at + world.GROUP] for at in places]
        step.rl += other.rl
        wanted, loss = world.expected(
            twin, step, first[0][0].weights, step.weights, [known[tuple(asked[at])] for at in places], fresh, method
        )
        assert first[2][number]["cokl/loss"] == pytest.approx(loss, rel=1e-3, abs=1e-4)
        assert float((step.gradient - wanted).norm() / wanted.norm()) < 1e-5
