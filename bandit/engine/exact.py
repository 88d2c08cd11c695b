"""Training and evaluating a stack of runs of one seed on the exact objective max E[Z - beta * D] (Appendix E.1).

Axes: R runs, B inputs, A actions. The runs of a stack share their seed, hence inputs, reference and minibatches, and
differ in method and coefficient. A run's result does not depend on its neighbours in the stack.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from bandit.config import TrainingConfig
from bandit.engine.fused import FusedObjective
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, Split
from bandit.engine.runs import Run
from cokl import methods
from cokl.methods import Method
from cokl.metrics import correctness, coverage
from cokl.policy import Policy
from cokl.regularizers.cokl import CoKL
from cokl.support.errors import InputError

# Evaluation walks through the test inputs in blocks of about this many logits, to stay in cache.
_LOGITS_PER_BLOCK = 500_000


class Objective:
    """Logit gradients of -Z plus all that `method` adds to the loss, exactly, for stacked runs on one split.

    betas: (R,), the runs' coefficients.
    """

    def __init__(self, method: Method, betas: Tensor, split: Split) -> None:
        self.method = method
        self.betas = betas
        self.split = split

    def gradient(self, logits: Tensor, batch: Tensor) -> Tensor:
        """(R, B, A): each input's gradient of its run's loss; batch (B,) are the inputs' positions in the split."""
        reference = self.split.reference(batch)
        policy = Policy(logits, reference.correct)
        return self.added_gradient(policy, reference) - policy.mass_logit_gradient()

    def added_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        """(R, B, A): the gradient of what the method adds."""
        return self.method.logit_gradient(policy, reference, self.betas[:, None, None])


def objectives(
    runs: list[Run], split: Split, compared: Iterable[str] = ()
) -> list[tuple[slice, Objective | FusedObjective]]:
    """The objective of each group of neighbours in the stack of one method, and their rows.

    compared: names of the methods that the runs are compared with. Where the fused kernel does not know one of them, as
    on the card of a regularizer of one's own, all are computed by the plain path.
    """
    fused = all(map(_is_fused, compared))
    groups: list[tuple[slice, Objective | FusedObjective]] = []
    start = 0
    for method, members in itertools.groupby(runs, key=lambda run: run.method):
        betas = torch.tensor([run.beta for run in members], dtype=split.inputs.dtype).to(split.inputs.device)
        rows = slice(start, start + len(betas))
        kind = FusedObjective if fused and FusedObjective.applies(method, split) else Objective
        groups.append((rows, kind(method, betas, split)))
        start = rows.stop
    return groups


def _is_fused(name: str) -> bool:
    try:
        return FusedObjective.knows(methods.get(name))
    except InputError:  # a class of one's own, of which a worker that trains the others knows nothing
        return False


def capture(step: Callable[[], None], trainer: Trainer) -> Callable[[], object]:
    """`step` as a CUDA graph, replayed with one launch; afterwards a fresh trainer is as fresh as before.

    The step must be free of host synchronisation and read its minibatch from the same memory each time.
    """
    parameters = trainer.mlp.flat.clone()
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):  # libraries set themselves up in the first calls, which cannot be captured
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    trainer.mlp.flat.copy_(parameters)
    for state in trainer.state():
        state.zero_()
    return graph.replay


def loss_gradient(logits: Tensor, groups: list[tuple[slice, Objective | FusedObjective]], batch: Tensor) -> Tensor:
    """(R, B, A): the logit gradients of all groups; may reuse the logits' memory."""
    gradients = [objective.gradient(logits[rows], batch) for rows, objective in groups]
    return gradients[0] if len(gradients) == 1 else torch.cat(gradients)


def evaluate(config: TrainingConfig, task: SeedTask, mlp: StackedMLP) -> dict[str, list[float]]:
    """Each run's metrics, averaged over the test inputs."""
    return averages(mlp, task.test, partial(policy_metrics, config))


def averages(
    mlp: StackedMLP, split: Split, metrics: Callable[[Policy, Policy], dict[str, Tensor]]
) -> dict[str, list[float]]:
    """Each run's mean over the split of `metrics`, (R, B) each, of policy and reference; sums are in float64."""
    runs, _, actions = mlp.blocks[-1].shape
    block = max(1, _LOGITS_PER_BLOCK // (runs * actions))
    totals: dict[str, Tensor] = {}
    for start in range(0, len(split.inputs), block):
        rows = slice(start, start + block)
        reference = split.reference(rows)
        policy = Policy(mlp.forward(split.inputs[rows][None]), reference.correct)
        for name, values in metrics(policy, reference).items():
            totals[name] = totals.get(name, 0) + values.double().sum(-1)
    return {name: (total / len(split.inputs)).tolist() for name, total in totals.items()}


def policy_metrics(config: TrainingConfig, policy: Policy, reference: Policy) -> dict[str, Tensor]:
    """Metrics of every run on every input, (R, B) each; names are the sweep table's columns."""
    draws = config.coverage_draws
    return {
        "p_correct": correctness(policy),
        f"coverage_at_{draws}": coverage(policy, draws),
        f"coverage_at_{draws}_correct": coverage(policy, draws, conditional=True),
        "conditional_kl": CoKL().value(policy, reference),
    }
