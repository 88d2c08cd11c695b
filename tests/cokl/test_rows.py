"""Row weights against loops written straight from Eqs. 11-17 and 20, over rows in any order."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cokl import methods, regularizers
from cokl.groups import RegularizationRows, RowIndex, SurrogateConfig
from cokl.support.errors import InputError

METHODS = ("none", *regularizers.names(), "cokl_floor")
BETA, EPSILON_IS = 0.3, 0.25


@st.composite
def batches(draw):
    """Rows of N groups with G_ref cached and G fresh responses, shuffled, with log-likelihoods down to -1e4 nats."""
    prompts, cached, fresh = (draw(st.integers(1, 4)) for _ in range(3))
    rows = [
        ("reference" if member < cached else "rollout", group)
        for group in range(prompts)
        for member in range(cached + fresh)
    ]
    order = draw(st.permutations(range(len(rows))))
    numbers = st.lists(st.floats(-1e4, 0), min_size=len(rows), max_size=len(rows))
    rewards = draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    return RegularizationRows(
        index=RowIndex.of(rows[place] for place in order),
        log_probs=torch.tensor(draw(numbers), dtype=torch.float64),
        rewards=torch.tensor(rewards, dtype=torch.float64),
        behavior_log_probs=torch.tensor(draw(numbers), dtype=torch.float64) if draw(st.booleans()) else None,
        reference_log_probs=torch.tensor(draw(numbers), dtype=torch.float64),
    )


def _ratio(rows: RegularizationRows, row: int) -> float:
    if rows.behavior_log_probs is None:
        return 1.0
    log_ratio = float(rows.log_probs[row] - rows.behavior_log_probs[row])
    return math.exp(min(max(log_ratio, math.log(1 - EPSILON_IS)), math.log(1 + EPSILON_IS)))


def _places(rows: RegularizationRows) -> list[tuple[str, int]]:
    """The stream and the prompt of every row, from the index."""
    places = {
        row: (stream, prompt)
        for stream, table in rows.index._asdict().items()
        for prompt, members in enumerate(table.tolist())
        for row in members
    }
    return [places[row] for row in range(len(rows.rewards))]


def _members(rows: RegularizationRows, row: int) -> list[int]:
    places = _places(rows)
    return [other for other, place in enumerate(places) if place == places[row]]


def _correct_share(rows: RegularizationRows, row: int, ratios: bool) -> float:
    """alpha of a cached row, gamma of a fresh one."""
    sizes = {
        other: float(rows.rewards[other]) * (_ratio(rows, other) if ratios else 1) for other in _members(rows, row)
    }
    total = sum(sizes.values())
    return sizes[row] / total if total else 0.0


def _naive(name: str, rows: RegularizationRows) -> list[float]:
    places = _places(rows)
    streams = [stream for stream, _ in places]
    prompts = len({prompt for _, prompt in places})
    weights = []
    mean = {
        stream: [float(reward) for reward, tag in zip(rows.rewards, streams, strict=True) if tag == stream]
        for stream in ("reference", "rollout")
    }
    gate = max(sum(mean["reference"]) / len(mean["reference"]) - sum(mean["rollout"]) / len(mean["rollout"]), 0)
    for row, stream in enumerate(streams):
        members = _members(rows, row)
        weight = 0.0
        if stream == "reference":
            if name in ("cokl", "cokl_floor", "correct_forward_kl"):
                weight -= BETA * _correct_share(rows, row, ratios=False)
            if name == "forward_kl":
                weight -= BETA / len(members)
            if name == "cokl_floor":
                weight -= gate * float(rows.rewards[row]) / len(members)
        elif name in ("cokl", "cokl_without_term1", "cokl_floor"):
            weight += BETA * _correct_share(rows, row, ratios=True)
        elif name == "reverse_kl":
            assert rows.reference_log_probs is not None
            costs = {other: float(rows.log_probs[other] - rows.reference_log_probs[other]) for other in members}
            others = [costs[other] for other in members if other != row]
            baseline = sum(others) / max(len(others), 1)
            weight += BETA * _ratio(rows, row) * (costs[row] - baseline) / len(members)
        weights.append(weight / prompts)
    return weights


@pytest.mark.parametrize(
    "name",
    [
        "none",
        "forward_kl",
        "reverse_kl",
        "correct_forward_kl",
        "cokl",
        "cokl_without_term1",
        "cokl_floor",
    ],
)
@given(rows=batches())
def test_weights_are_those_of_the_definitions(name, rows):
    weights = methods.get(name).row_weights(rows, BETA, SurrogateConfig(EPSILON_IS))
    torch.testing.assert_close(weights, torch.tensor(_naive(name, rows), dtype=torch.float64), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", METHODS)
@given(rows=batches(), data=st.data())
def test_the_order_of_rows_does_not_matter(name, rows, data):
    places = _places(rows)
    order = data.draw(st.permutations(range(len(places))))
    shuffled = RegularizationRows(
        RowIndex.of(places[row] for row in order),
        *(None if column is None else column[order] for column in list(vars(rows).values())[1:]),  # type: ignore[arg-type]
    )
    method, arguments = methods.get(name), (BETA, SurrogateConfig(EPSILON_IS))
    expected = method.row_weights(rows, *arguments)
    assert expected.isfinite().all()
    torch.testing.assert_close(method.row_weights(shuffled, *arguments), expected[list(order)], rtol=1e-9, atol=1e-9)


def test_groups_of_unequal_size_are_refused():
    with pytest.raises(ValueError, match=r"rollout: expected groups of equal size, got sizes \[1, 2\]"):
        RowIndex.of([("rollout", 0), ("rollout", 0), ("rollout", 1)])
    with pytest.raises(ValueError, match=r"reference: expected groups of equal size, got sizes \[0, 1\]"):
        RowIndex.of([("reference", 0), ("rollout", 0), ("rollout", 1)])


@given(rows=batches(), data=st.data())
def test_rows_of_neither_stream_weigh_nothing_and_change_nothing(rows, data):
    places = _places(rows)
    order = data.draw(st.permutations([*range(len(places)), None, None]))
    others = torch.tensor([row is None for row in order])
    columns = [
        None if column is None else torch.where(others, math.nan, column[[row or 0 for row in order]])
        for column in list(vars(rows).values())[1:]
    ]
    wider = RegularizationRows(RowIndex.of(None if row is None else places[row] for row in order), *columns)  # type: ignore[arg-type]
    method, arguments = methods.get("cokl"), (BETA, SurrogateConfig(EPSILON_IS))
    weights, expected = method.row_weights(wider, *arguments), method.row_weights(rows, *arguments)
    assert weights[others].eq(0).all()
    kept = [row for row in order if row is not None]
    torch.testing.assert_close(weights[~others], expected[kept], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("bounds", "reference", "rollout"),
    [
        ((0, 5), [[1], [3]], [[0], [4]]),
        ((0, 2), [[1]], [[0]]),
        ((3, 5), [[3]], [[4]]),
        ((1, 5), [[3]], [[4]]),
        ((0, 4), [[1]], [[0]]),
        ((1, 4), [], []),
    ],
)
def test_a_part_of_the_rows_has_the_prompts_that_lie_in_it_whole(bounds, reference, rollout):
    index = RowIndex.of([("rollout", 2), ("reference", 2), None, ("reference", 5), ("rollout", 5)]).within(*bounds)
    assert (index.reference.tolist(), index.rollout.tolist()) == (reference, rollout)


def test_no_row_of_either_stream_is_no_weight():
    rows = RegularizationRows(RowIndex.of([None, None]), -torch.ones(2), torch.ones(2))
    for name in METHODS:
        assert methods.get(name).row_weights(rows, 1.0, SurrogateConfig()).tolist() == [0.0, 0.0]


def test_rewards_that_are_no_verdicts_are_refused():
    rows = RegularizationRows(RowIndex.of([("reference", 0)] * 2), -torch.ones(2), torch.tensor([0.5, 1.0]))
    with pytest.raises(ValueError, match="0 or 1"):
        methods.get("correct_forward_kl").row_weights(rows, 1.0, SurrogateConfig())


def test_a_coefficient_whose_weights_overflow_is_refused():
    rows = RegularizationRows(RowIndex.of([("reference", 0)] * 2), -torch.ones(2).half(), torch.tensor([0.0, 1.0]))
    with pytest.raises(InputError, match=r"beta: expected a coefficient whose weights fit in torch\.float16, got 1e"):
        methods.get("correct_forward_kl").row_weights(rows, 1e30, SurrogateConfig())


@pytest.mark.parametrize("lacking", [0.0, -2.0, float("nan")])
def test_a_response_without_tokens_is_named_and_a_row_outside_the_index_may_have_none(lacking):
    """Divided by, it gave infinite weights, for which the coefficient was blamed."""
    index = RowIndex.of([("reference", 0), ("reference", 0), None])
    columns = -torch.ones(3), torch.ones(3)
    RegularizationRows(index, *columns, tokens=torch.tensor([3.0, 1.0, lacking]))
    with pytest.raises(ValueError, match=r"^tokens: expected lengths of at least 1, got \S+ in row 1$"):
        RegularizationRows(index, *columns, tokens=torch.tensor([3.0, lacking, 1.0]))


@pytest.mark.parametrize("name", ["rewards", "behavior_log_probs", "reference_log_probs", "tokens"])
def test_a_column_of_another_length_is_named(name):
    columns = {"log_probs": -torch.ones(2), "rewards": torch.ones(2), name: torch.ones(3)}
    with pytest.raises(ValueError, match=rf"^{name}: expected shape \(2,\), got \(3,\)$"):
        RegularizationRows(RowIndex.of([("reference", 0)] * 2), **columns)
