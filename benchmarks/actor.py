"""`python -m benchmarks actor`: an actor update with CoKL's rows beside GRPO's, and how exact its gradient is.

A Qwen3 with random weights and random tokens, in plain PyTorch and in one process. Both updates take the same rows: all
as RL rows in GRPO's; in CoKL's a fifth of them, E.3's 16 of 80 groups, as cached and fresh responses to other prompts.
So the model computes the same, and what CoKL adds are the rows' weights and the surrogate. The updates take turns, in
the other order every second round; a ratio is taken within a round. On a CPU seconds are the process's, in float32; a
GPU's are the clock's, with bfloat16 by autocast. Log-probabilities of the rollout are known to both.

The gradient is compared with the definition's (Eqs. 12 and 17) in float64: all rows at once, weights by hand. The other
precisions take micro-batches and the toolkit's weights. In all of them transformers has the RMS norms in float32.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from bandit.engine.runs import resolve_device
from benchmarks.paired import Ratio, now, where
from cokl import methods
from cokl.groups import RegularizationRows, RowIndex, SurrogateConfig, row_surrogate_loss
from cokl.grpo import group_advantages, grpo_loss

ROUNDS = 20


@dataclass(frozen=True)
class Shape:
    """A Qwen3, and the rows of an update: `groups` of `group` responses, of `prompt` and `response` tokens each."""

    model: dict[str, int]
    groups: int
    group: int
    prompt: int
    response: int
    micro_batch: int


_WIDTHS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_HEADS = ("num_key_value_heads", "head_dim")
QWEN3 = Shape(dict(zip(_WIDTHS + _HEADS, (151_936, 1024, 3072, 28, 16, 8, 128), strict=True)), 20, 8, 128, 512, 8)
"""Qwen3-0.6B."""
SMALL = Shape(dict(zip(_WIDTHS + _HEADS, (512, 64, 192, 3, 4, 2, 16), strict=True)), 10, 8, 8, 16, 12)


@dataclass(frozen=True)
class Actor:
    """Seconds of an actor update with CoKL's rows over GRPO's, and the error of the surrogate's gradient."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where the update is timed."""
    small: bool = False
    """A model of 181 thousand parameters instead of Qwen3-0.6B's shape, to try the benchmark out."""

    def run(self) -> int:
        """Measure and print a table."""
        resolve_device(self.device)
        shape = SMALL if self.small else QWEN3
        errors = gradient_errors(shape, self.device)
        overhead, weights, seconds = compare(shape, self.device)
        model = "a small Qwen3" if self.small else "Qwen3-0.6B's shape"
        print(f"{where(self.device)}: {model}, {shape.groups * shape.group} rows")
        print(f"actor update with CoKL over GRPO's {seconds:.2f} s: {overhead} ({overhead.count} rounds)")
        print(f"CoKL's row weights alone: {100 * weights:.3f} % of an update")
        named = " and ".join(f"{error:.1e} in {name}" for name, error in errors.items())
        print(f"surrogate's gradient against float64: relative error {named}")
        return 0


@dataclass(frozen=True, eq=False)
class Rows:
    """R rows, of which the last `added` are CoKL's: first the cached, then as many fresh responses, prompt by prompt.

    tokens: (R, prompt + T). verdicts: (R,), 0 or 1; a group's first is 1. old: (R, T), the rollout's log-probabilities.
    """

    tokens: Tensor
    verdicts: Tensor
    old: Tensor
    added: int


def make_model(shape: Shape, device: str) -> Any:
    """The model with random weights, in float32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        return Qwen3ForCausalLM(Qwen3Config(**shape.model, tie_word_embeddings=True))


def make_rows(shape: Shape, model: Any, groups: int, prompts: int, dtype: torch.dtype) -> Rows:
    """Random rows. prompts: of how many CoKL has a cached and a fresh group among the `groups`."""
    generator = torch.Generator().manual_seed(1)
    rows, length = groups * shape.group, shape.prompt + shape.response
    tokens = torch.randint(shape.model["vocab_size"], (rows, length), generator=generator).to(model.device)
    verdicts = (torch.rand(groups, shape.group, generator=generator) < 0.5).float()
    verdicts[:, 0] = 1
    with torch.no_grad():
        parts = [log_probs(model, part, shape.prompt, dtype) for part in tokens.split(shape.micro_batch)]
    return Rows(tokens, verdicts.flatten().to(model.device), torch.cat(parts), 2 * prompts * shape.group)


def log_probs(model: Any, tokens: Tensor, prompt: int, dtype: torch.dtype) -> Tensor:
    """(B, T): of the responses' tokens, in float32 at least. dtype: bfloat16 for autocast, else the model's."""
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        logits = model.lm_head(model.model(tokens).last_hidden_state[:, prompt - 1 : -1])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
    return -cross_entropy(logits, tokens[:, prompt:].flatten(), reduction="none").view(len(tokens), -1)


def row_weights(rows: Rows, group: int) -> Tensor:
    """(R,): CoKL's, with a coefficient of 1; 0 for RL rows."""
    places = torch.arange(len(rows.tokens), device=rows.tokens.device)[-rows.added :].view(2, -1, group)
    table = RegularizationRows(RowIndex(places[0], places[1]), rows.old.sum(-1).double(), rows.verdicts.double())
    return methods.get("cokl").row_weights(table, 1.0, SurrogateConfig())


def backward(model: Any, rows: Rows, weights: Tensor | None, shape: Shape, dtype: torch.dtype) -> None:
    """Add the gradient of GRPO's loss, and of the added rows' surrogate if they have weights, by micro-batches."""
    rl = len(rows.tokens) - (0 if weights is None else rows.added)
    advantages = group_advantages(rows.verdicts[:rl].view(-1, shape.group)).flatten()
    for start in range(0, len(rows.tokens), shape.micro_batch):
        part = slice(start, start + shape.micro_batch)
        ours = log_probs(model, rows.tokens[part], shape.prompt, dtype)
        count = min(max(rl - start, 0), len(ours))  # RL rows come first
        loss = ours.new_zeros(())
        if count:
            old, mask = rows.old[part][:count], torch.ones_like(ours[:count], dtype=torch.bool)
            mean = grpo_loss(ours[None, :count], old[None], advantages[None, start : start + count], mask[None])
            loss = loss + mean * count / rl
        if weights is not None and count < len(ours):
            loss = loss + row_surrogate_loss(weights[part][count:], ours[count:].sum(-1))
        loss.backward()


def compare(shape: Shape, device: str) -> tuple[Ratio, float, float]:
    """CoKL's update over GRPO's; the seconds of its row weights over those of an update; and the latter."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = make_model(shape, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    rows = make_rows(shape, model, shape.groups, shape.groups // 10, dtype)

    def seconds(regularized: bool) -> float:
        start = now(device, clock)
        backward(model, rows, row_weights(rows, shape.group) if regularized else None, shape, dtype)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return now(device, clock) - start

    times: dict[bool, list[float]] = {False: [], True: []}
    for number in tqdm(range(-1, ROUNDS), desc="rounds", unit="round"):
        for regularized in (number % 2 == 0, number % 2 == 1):
            found = seconds(regularized)
            if number >= 0:  # the first round sets libraries up
                times[regularized].append(found)
    start = now(device, clock)
    for _ in range(20):
        row_weights(rows, shape.group)
    weighing = (now(device, clock) - start) / 20
    grpo = median(times[False])
    ratios = [cokl / base for cokl, base in zip(times[True], times[False], strict=True)]
    return Ratio.of(ratios), weighing / grpo, grpo


def gradient_errors(shape: Shape, device: str) -> dict[str, float]:
    """The relative error of the surrogate's gradient over all parameters, in the Euclidean norm, by precision."""
    shape = replace(shape, prompt=16, response=32)
    model, exact = make_model(shape, device), make_model(shape, device).double()
    rows = make_rows(shape, exact, 4, 2, torch.float64)
    expected = torch.autograd.grad(_definition(exact, rows, shape), list(exact.parameters()))
    size = torch.stack([gradient.norm() for gradient in expected]).norm()
    errors = {}
    for dtype in (torch.float32, torch.bfloat16):
        model.zero_grad()
        backward(model, rows, row_weights(rows, shape.group), shape, dtype)
        gaps = [p.grad.double() - gradient for p, gradient in zip(model.parameters(), expected, strict=True)]
        errors[str(dtype).removeprefix("torch.")] = float(torch.stack([gap.norm() for gap in gaps]).norm() / size)
    return errors


def _definition(model: Any, rows: Rows, shape: Shape) -> Tensor:
    """The mean over prompts of the fresh correct responses' mean log-likelihood minus the cached ones'."""
    likelihoods = log_probs(model, rows.tokens, shape.prompt, torch.float64).sum(-1).view(2, -1, shape.group)
    verdicts = rows.verdicts.double().view(2, -1, shape.group)
    cached, fresh = (likelihoods * verdicts).sum(-1) / verdicts.sum(-1)
    return (fresh - cached).mean()
