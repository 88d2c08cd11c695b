"""`python -m benchmarks parts`: where a training step's time goes, by part, in one process with one thread."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from bandit.sweep.config import PRESETS
from bandit.sweep.plan import RUNS_PER_CHUNK_CPU


@dataclass(frozen=True)
class Parts:
    """Microseconds per run and step of each part of a training step."""

    rounds: int = 30
    """Rounds through all parts; medians count."""
    method: str = "cokl"
    """Regularizer of the stack."""
    runs: int = RUNS_PER_CHUNK_CPU
    """Stacked runs."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all figures to this file."""

    def run(self) -> int:
        """Measure, print a table, write the JSON."""
        import torch

        torch.set_num_threads(1)
        with torch.no_grad():
            parts = _parts(self.method, self.runs)
            seconds: dict[str, list[float]] = {name: [] for name in parts}
            for _ in range(self.rounds):
                for name, work in parts.items():
                    work()
                    start = time.perf_counter()
                    work()
                    seconds[name].append(time.perf_counter() - start)
        microseconds = {name: statistics.median(times) / self.runs * 1e6 for name, times in seconds.items()}
        microseconds[_EVALUATION] /= PRESETS["paper"].eval_interval
        for name, value in microseconds.items():
            print(f"{name:42} {value:8.1f}")
        if self.json:
            self.json.write_text(json.dumps(microseconds, indent=2) + "\n", encoding="utf-8")
        return 0


_EVALUATION = "an evaluation, spread over its interval"


def _parts(method: str, runs: int) -> dict[str, Callable[[], object]]:
    import torch

    from bandit.engine.exact import Objective, evaluate, loss_gradient, objectives
    from bandit.engine.networks import StackedMLP, Trainer
    from bandit.engine.reference import layer_sizes
    from benchmarks.engine import floor_step, stack_of, untrained_task

    config = PRESETS["paper"]
    task = untrained_task(config)
    stack = stack_of(method, runs)
    mlp = StackedMLP(layer_sizes(config), task.parameters.expand(runs, -1))
    trainer = Trainer(mlp, config, config.learning_rate)
    groups = objectives(stack, task.train)
    plain = Objective(stack[0].method, torch.tensor([run.beta for run in stack]), task.train)
    batch = torch.arange(config.batch_size)
    logits = mlp.forward(task.train.inputs[batch][None]).clone()
    work_logits, hidden = logits.clone(), torch.rand_like(mlp.activations[1])
    gradient = torch.rand_like(hidden)

    def whole_step() -> None:
        trainer.step(task.train.inputs[batch][None], partial(loss_gradient, groups=groups, batch=batch))

    return {
        "matrix products (the floor)": floor_step(config, task, runs),
        "softmax, objective and gradient, fused": lambda: loss_gradient(work_logits.copy_(logits), groups, batch),
        "  of which copying the logits for this test": lambda: work_logits.copy_(logits),
        "  the same by the plain path": lambda: plain.gradient(logits, batch),
        "tanh, two layers": lambda: (hidden.clone().tanh_(), hidden.clone().tanh_()),
        "tanh backward, two layers": lambda: [torch.ops.aten.tanh_backward(gradient, hidden) for _ in range(2)],
        "bias gradients": lambda: [torch.sum(x, 1, keepdim=True) for x in (logits, hidden, hidden)],
        "gradient norms": mlp.gradient_norms,
        "gradient scaling": lambda: mlp.scale_gradients(torch.ones(runs)),
        "Adam": trainer.update,
        "minibatch gather": lambda: task.train.inputs[batch],
        "whole step": whole_step,
        _EVALUATION: lambda: evaluate(config, task, mlp),
    }
