"""Generated policies, masks and references, and the regularizers that the tests run over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from cokl import regularizers
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer

LARGEST_LOGIT = 1e4

VARIANTS: dict[str, Regularizer] = {name: regularizers.get(name) for name in regularizers.names()}
every_regularizer = pytest.mark.parametrize("variant", VARIANTS)


@dataclass(frozen=True)
class Case:
    """A batch of contexts: (B, A) logits of the policy and of the reference, and the (B, A) mask of correct actions."""

    logits: np.ndarray
    reference_logits: np.ndarray
    mask: np.ndarray

    def correct(self) -> CorrectSet:
        """The correct sets."""
        return CorrectSet.from_mask(torch.from_numpy(self.mask))

    def policies(self, dtype: torch.dtype = torch.float64) -> tuple[Policy, Policy]:
        """The policy and the reference."""
        correct = self.correct()
        policy, reference = (torch.tensor(x, dtype=dtype) for x in (self.logits, self.reference_logits))
        return Policy(policy, correct), Policy(reference, correct)

    def contexts(self) -> Iterator[tuple[list[float], list[float], list[bool]]]:
        """Logits, reference logits and correctness of each context, as Python numbers."""
        return zip(self.logits.tolist(), self.reference_logits.tolist(), self.mask.tolist(), strict=True)

    def map(self, change: Any) -> Case:
        """A case with `change` applied to its three arrays."""
        return Case(*(change(x) for x in (self.logits, self.reference_logits, self.mask)))


@st.composite
def masks(draw: st.DrawFn, contexts: int, actions: int, allow_empty: bool = True) -> np.ndarray:
    """(B, A) masks whose rows hold one, all, no (if allowed) or any number of correct actions."""
    rows = []
    for _ in range(contexts):
        kind = draw(st.sampled_from(["one", "all", "any", "none"] if allow_empty else ["one", "all", "any"]))
        row = draw(arrays(bool, actions)) if kind == "any" else np.full(actions, kind == "all")
        if kind == "one" or (kind == "any" and not allow_empty):
            row[draw(st.integers(0, actions - 1))] = True
        rows.append(row)
    return np.stack(rows)


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    largest: float = LARGEST_LOGIT,
    allow_empty: bool = True,
    min_actions: int = 1,
    max_actions: int = 6,
    max_contexts: int = 3,
) -> Case:
    """Batches with logits up to `largest`, often with the correct actions far above or below the others."""
    contexts, actions = draw(st.integers(1, max_contexts)), draw(st.integers(min_actions, max_actions))
    mask = draw(masks(contexts, actions, allow_empty))
    scales = st.sampled_from([scale for scale in (1.0, 30.0, LARGEST_LOGIT) if scale <= largest])
    spreads = arrays(np.float64, mask.shape, elements=st.floats(-1, 1))
    advantages = st.sampled_from([0.0, 0.0, -70.0, 70.0, -800.0, 800.0, -LARGEST_LOGIT])
    logits, reference_logits = (
        np.clip(draw(scales) * draw(spreads) + draw(advantages) * mask, -largest, largest) for _ in range(2)
    )
    return Case(logits, reference_logits, mask)


@st.composite
def cases_with_impossible_actions(draw: st.DrawFn) -> Case:
    """Batches with some logits of -inf, and some action possible; correct ones may all be impossible (q = 0)."""
    case = draw(cases(largest=1.0, allow_empty=False, min_actions=2))
    rows = np.arange(len(case.mask))
    impossible, impossible_reference = (draw(arrays(bool, case.mask.shape)) for _ in range(2))
    for side in (impossible, impossible_reference):
        side[rows, draw(st.integers(0, case.mask.shape[1] - 1))] = False
    return Case(
        np.where(impossible, -np.inf, case.logits),
        np.where(impossible_reference, -np.inf, case.reference_logits),
        case.mask,
    )


def moderate_cases(**options: Any) -> st.SearchStrategy[Case]:
    """Batches whose probabilities are ordinary float64 numbers."""
    return cases(largest=30.0, **options)


def assert_close(actual: Tensor, expected: Tensor | Sequence[Any], tolerance: float) -> None:
    """Every element of `actual` is within the absolute `tolerance`; infinities must agree and NaN never does."""
    if not isinstance(expected, Tensor):
        expected = torch.from_numpy(np.array(expected, dtype=np.float64))
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance, check_dtype=False)
