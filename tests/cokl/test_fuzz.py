"""`make fuzz`: generated contexts through the public functions against 60 digits, mutated files through the parsers.

A case is one context and one function, or one mutated file. More or fewer: FUZZ_EXAMPLES, of which each holds 20
contexts.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bandit.sweep.config import SweepConfig
from cokl.decomposition import decompose_kl
from cokl.floor import floor_value
from cokl.metrics import coverage, expected_zero_correct_rate
from cokl.policy import Policy
from cokl.responses.verifier import _boxes
from cokl.support.errors import InputError
from cokl.support.files import read_json, read_parquet
from cokl.support.options import from_json
from llm_bridge.rewards.score import without_thinking
from tests.cokl.cases import VARIANTS, Case
from tests.oracles import exact
from tests.oracles.optima import REDUCED_PENALTIES
from theory.recovery import recovery_derivative, zero_correct_probability

pytestmark = pytest.mark.fuzz

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "400"))
CONTEXTS = 20
fuzzed = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
cases_run: Counter[str] = Counter()
PRECISE = exact.PRECISE


@pytest.fixture(scope="module", autouse=True)
def count():
    """Says at the end how many cases ran."""
    yield
    print(f"\n{sum(cases_run.values())} cases: {dict(cases_run)}")


def contexts(seed: int, actions: int) -> Case:
    """Logits to ±1e4 at every scale, ties, correct actions far above or below; masks of every size, 0 included."""
    rng = np.random.default_rng(seed)
    shape = (CONTEXTS, actions)
    sizes = rng.integers(actions + 1, size=CONTEXTS)
    mask = np.argsort(rng.random(shape), axis=1) < sizes[:, None]
    both = []
    for _ in range(2):
        scale = 10.0 ** rng.uniform(-8, 4, size=(CONTEXTS, 1))
        logits = scale * rng.uniform(-1, 1, size=shape)
        logits += mask * rng.choice([0, 0, 0, -40, 40, -745, 745, 1e4, -1e4], size=(CONTEXTS, 1))
        both.append(np.clip(np.where(rng.random(shape) < 0.1, 0.0, logits), -1e4, 1e4))
    if rng.random() < 0.1:
        both[1] = both[0].copy()
    policy, reference = both
    return Case(policy, reference, mask)


seeds, widths = st.integers(0, 2**63), st.integers(1, 7)


def require_close(found: torch.Tensor, expected: list[Any], what: str, scale: float = 1.0) -> None:
    wanted = np.array([float(value) for value in expected])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-10 * scale)
    cases_run[what] += wanted.size


@pytest.mark.parametrize("variant", VARIANTS)
@fuzzed
@given(seed=seeds, actions=widths)
def test_values_and_gradients(variant: str, seed: int, actions: int):
    case = contexts(seed, actions)
    policy, reference = case.policies()
    softmaxes = [
        (exact.softmax(ours, PRECISE), exact.softmax(theirs, PRECISE), right) for ours, theirs, right in case.contexts()
    ]
    expected = [exact.VALUES[variant](*context, PRECISE) for context in softmaxes]
    require_close(VARIANTS[variant].value(policy, reference), expected, "values")
    gradient = VARIANTS[variant].logit_gradient(policy, reference)
    assert bool(gradient.isfinite().all())
    largest = gradient.abs().max(-1).values.clamp_min(1)
    assert bool((gradient.sum(-1).abs() <= 1e-9 * largest).all())
    cases_run["gradients"] += CONTEXTS


@fuzzed
@given(seed=seeds, actions=widths, k=st.integers(1, 10**6))
def test_decomposition_floor_and_metrics(seed: int, actions: int, k: int):
    case = contexts(seed, actions)
    policy, reference = case.policies()
    pairs = [
        [exact.softmax(logits, PRECISE) for logits in both]
        for both in zip(case.logits, case.reference_logits, strict=True)
    ]
    rights = case.mask.tolist()
    parts = [
        exact.decomposed_kl(theirs, ours, right, PRECISE) for (ours, theirs), right in zip(pairs, rights, strict=True)
    ]
    found = decompose_kl(reference, policy)
    for name, values in zip(("mass", "correct", "incorrect"), zip(*parts, strict=True), strict=True):
        require_close(getattr(found, name), list(values), "decompositions")
    ours, theirs = zip(*pairs, strict=True)
    require_close(floor_value(policy, reference), exact.floor(ours, theirs, rights, PRECISE), "floors")
    missed = [(1 - exact.mass(probs, right)) ** k for probs, right in zip(ours, rights, strict=True)]
    require_close(expected_zero_correct_rate(policy, k), missed, "zero-correct rates")
    some = case.mask.any(-1)
    if some.any():
        solvable = Case(case.logits[some], case.reference_logits[some], case.mask[some])
        kept = [(probs, right) for probs, right in zip(ours, rights, strict=True) if any(right)]
        hits = [exact.coverage(probs, right, k) for probs, right in kept]
        require_close(coverage(solvable.policies()[0], k), hits, "coverages")
    if not some.all():
        with pytest.raises(ValueError, match="coverage is undefined"):
            coverage(policy, k)


probabilities = st.one_of(st.floats(0, 1, exclude_min=True, exclude_max=True), st.floats(5e-324, 1e-300))


@fuzzed
@given(masses=st.lists(probabilities, min_size=CONTEXTS, max_size=CONTEXTS), size=st.integers(1, 10**6))
def test_recovery(masses: list[float], size: int):
    masses_ = np.array(masses)
    expected = [float((1 - PRECISE.mpf(z)) ** size) for z in masses]
    np.testing.assert_allclose(zero_correct_probability(masses_, size), expected, rtol=1e-9, atol=1e-300)
    with np.errstate(over="ignore"):
        slopes = recovery_derivative(masses_, size)
    wanted = [float(-((1 - PRECISE.mpf(z)) ** size) / PRECISE.mpf(z)) for z in masses]
    np.testing.assert_allclose(slopes, wanted, rtol=1e-9, atol=1e-300)
    cases_run["recovery"] += 2 * CONTEXTS


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name in REDUCED_PENALTIES])
@fuzzed
@given(
    q=st.floats(1e-12, 1 - 1e-12), exponent=st.floats(-8, 8), fraction=st.floats(1e-6, 1 - 1e-6), step=st.floats(-7, -1)
)
def test_optima_are_not_beaten_nearby(variant: str, q: float, exponent: float, fraction: float, step: float):
    beta = 10.0**exponent
    best = VARIANTS[variant].optimal_mass(q, beta, fraction)
    assert best is not None
    top = float(best)
    assert 0 <= top <= 1
    precise = [PRECISE.mpf(value) for value in (q, beta, fraction)]

    def objective(z: Any) -> Any:
        return z - precise[1] * REDUCED_PENALTIES[variant](z, precise[0], precise[2], PRECISE)

    inside = [z for z in (PRECISE.mpf(top), PRECISE.mpf(top) * (1 - PRECISE.mpf("1e-16"))) if 0 < z < 1]
    if not inside:
        return  # Z* rounds to a corner, where the reduced penalties are limits
    reached = max(objective(z) for z in inside)
    for other in (top * (1 - 10**step), top + (1 - top) * 10**step):
        if 0 < other < 1:
            assert objective(PRECISE.mpf(other)) <= reached + 1e-12 * max(1.0, beta)
            cases_run["optima"] += 1


@fuzzed
@given(
    logits=st.sampled_from(["int", "bool", "float16", "empty", "scalar", "nan", "longer", "flat"]),
    name=st.sampled_from(list(VARIANTS)),
)
def test_what_is_no_policy_gives_the_documented_error_or_a_number(logits: str, name: str):
    good = torch.zeros(2, 3)
    correct = Case(np.zeros((2, 3)), np.zeros((2, 3)), np.eye(2, 3, dtype=bool)).correct()
    bad = {
        "int": good.long(), "bool": good.bool(), "float16": good.half(), "empty": good[:0], "scalar": torch.tensor(1.0),
        "nan": good + math.nan, "longer": torch.zeros(2, 5), "flat": torch.zeros(3),
    }[logits]  # fmt: skip
    try:
        value = VARIANTS[name].value(Policy(bad, correct), Policy(good.double(), correct))
    except (ValueError, TypeError, RuntimeError, IndexError):
        value = torch.zeros(0)
    assert logits == "nan" or not bool(value.isnan().any())
    cases_run["bad shapes and dtypes"] += 1


def mutated(content: bytes, cuts: list[tuple[int, bytes]]) -> bytes:
    """The file with pieces of it overwritten, and cut off at the last of them if that is empty."""
    changed = bytearray(content)
    for place, piece in cuts:
        at = place % (len(changed) + 1)
        changed[at : at + len(piece)] = piece
        if not piece:
            del changed[at:]
    return bytes(changed)


mutations = st.lists(
    st.tuples(
        st.integers(0, 10**5),
        st.one_of(
            st.binary(max_size=4), st.sampled_from([b",", b'"', b"\n", b"nan", b"1e999", b"-", b"\0", b"{", b"["])
        ),
    ),
    min_size=1,
    max_size=5,
)
CONFIG = json.dumps(SweepConfig().as_dict()).encode()
TABLE = io.BytesIO()
pd.DataFrame({"method": ["none", "cokl"], "p_correct": [0.5, math.nan]}).to_parquet(TABLE, index=False)


@settings(fuzzed, max_examples=10 * EXAMPLES)
@given(cuts=mutations)
def test_files_from_outside(tmp_path_factory, cuts):
    """Each is read, or refused in one line."""
    path: Path = tmp_path_factory.getbasetemp() / "mutated"
    for content, read in (
        (CONFIG, lambda: from_json(SweepConfig, read_json(path, dict))),
        (TABLE.getvalue(), lambda: read_parquet(path)),
    ):
        path.write_bytes(mutated(content, cuts))
        said = ""
        try:
            read()
        except InputError as error:
            said = str(error)
        assert "\n" not in said
        cases_run["files"] += 1


@settings(fuzzed, max_examples=10 * EXAMPLES)
@given(parts=st.lists(st.one_of(st.text(max_size=8), st.sampled_from(
    ["\\boxed{", "\\boxed", "\\fbox{", "}", "{", "\\{", "\\}", "<think>", "</think>", "$", "\\text{", "42", "\\frac"]
)), max_size=40))  # fmt: skip
def test_answers_of_a_model(parts: list[str]):
    answer = "".join(parts)
    found = _boxes(answer)
    assert isinstance(found, str) or all(box in answer for box in found)
    assert len(without_thinking(answer)) <= len(answer)
    cases_run["answers"] += 1
