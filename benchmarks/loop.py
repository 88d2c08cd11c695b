"""`python -m benchmarks loop`: what a step of the open questions' loop costs by part, and its peak memory, by method.

Each method trains in a process of its own, one after another, with one thread. All train on the same questions, in the
same order and from one buffer, which another process samples. Seconds are the process's; a part's are the median over
all steps but the first. Memory is the largest that the process had, its start included.
"""

from __future__ import annotations

import copy
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.paired import where
from cokl import methods
from cokl.support.errors import InputError
from cokl.support.files import read_parquet, write_parquet
from cokl.support.statistics import plain_markdown_table

if TYPE_CHECKING:
    from llm_bridge.open_questions.questions import Question

PARTS = ("sampling", "judging", "reference", "gradient", "optimizer")
"""Of a step. The reference's are its log-probabilities; the gradient's has the policy's, and the weights."""
COEFFICIENTS = {
    "none": 0.0,
    "entropy": 0.003,
    "forward_kl": 0.01,
    "reverse_kl": 0.01,
    "correct_forward_kl": 0.01,
    "cokl": 0.01,
}


@dataclass(frozen=True)
class Loop:
    """CPU seconds of a step by part, and peak memory, of each method."""

    model: Path | None = None
    """A folder with another model than SmolLM2-135M-Instruct."""
    steps: int = 9
    """Of each method; the first is not counted."""

    def run(self) -> int:
        """Measure and print a table. Raises InputError for fewer than two steps and for a folder without a model."""
        from llm_bridge.open_questions.experiment import smollm2_in

        if self.steps < 2:
            raise InputError(f"--steps {self.steps}: expected 2 or more, since the first is not counted")
        with tempfile.TemporaryDirectory() as scratch:
            model, buffer = self.model or apart(smollm2_in, Path(scratch)), Path(scratch) / "buffer.parquet"
            apart(sample_buffer, model, buffer)
            costs = {name: apart(cost, name, beta, model, buffer, self.steps) for name, beta in COEFFICIENTS.items()}
        rows, plain = [], sum(costs["none"][part] for part in PARTS)
        for name, of_method in costs.items():
            step = sum(of_method[part] for part in PARTS)
            cells = [*(f"{of_method[part]:.2f}" for part in PARTS), f"{step:.2f}", f"{step / plain:.2f}"]
            rows.append(["plain RL" if name == "none" else methods.label(name), *cells, f"{of_method['memory']:.2f}"])
        print(f"{where('cpu')}, one thread; seconds")
        print(plain_markdown_table(["", *PARTS, "a step", "over plain RL's", "peak memory, GB"], rows))
        return 0


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives in a new process. Raises what it raises."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def asked() -> list[Question]:
    """The questions that are trained on."""
    from llm_bridge.open_questions.questions import built_in

    return [question for question in built_in() if not question.held_out]


def sample_buffer(model_folder: Path, path: Path) -> None:
    """Write the model's answers to the questions that are trained on."""
    from llm_bridge.open_questions.experiment import sampled_buffer
    from llm_bridge.open_questions.loop import Settings

    write_parquet(sampled_buffer(model_folder, asked(), Settings()), path)


def cost(method: str, beta: float, model_folder: Path, buffer_file: Path, steps: int) -> dict[str, float]:
    """CPU seconds of each of `PARTS`, and `memory` in GB of 2^30 bytes. To be called in a process of its own."""
    import torch

    from llm_bridge.open_questions import experiment, loop

    torch.set_num_threads(1)
    questions = asked()
    model, tokenizer = experiment.open_model(model_folder)
    buffer, _, _ = experiment.opened_buffer(read_parquet(buffer_file), questions, tokenizer)
    reference = copy.deepcopy(model) if methods.get(method).compares_with_reference else None
    training = loop.Training(model, tokenizer, questions, buffer, loop.Settings(method, beta, steps=steps), reference)
    spent: dict[str, float] = {}

    def timed(part: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def outer(*arguments: Any) -> Any:
            if part == "reference" and arguments[0] is model:
                return inner(*arguments)
            start = time.process_time()
            result = inner(*arguments)
            spent[part] = spent.get(part, 0.0) + time.process_time() - start
            return result

        return outer

    for part, name in (("sampling", "sample"), ("judging", "judge"), ("reference", "log_likelihoods")):
        setattr(loop, name, timed(part, getattr(loop, name)))
    training.optimizer.step = timed("optimizer", training.optimizer.step)  # type: ignore[method-assign]
    rows = []
    for _ in range(steps):
        spent.clear()
        start = time.process_time()
        training.step()
        rest = time.process_time() - start - sum(spent.values())
        rows.append(dict.fromkeys(PARTS, 0.0) | spent | {"gradient": rest})
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return {part: median(row[part] for row in rows[1:]) for part in PARTS} | {"memory": kilobytes / 1024**2}
