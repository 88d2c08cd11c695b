"""The statistics of F.2 against loops, SciPy on repeated rows, and a bootstrap that copies rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cokl.support.errors import InputError
from cokl_cli.app import main
from llm_bridge.rewards.validation import render, validate
from tests.oracles import llm_tables


def ratings(prompts: int, per_prompt: int, seed: int = 0) -> pd.DataFrame:
    """Rewards that follow ratings with noise, prompts of unequal numbers of responses, and lengths."""
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(prompts), rng.integers(1, per_prompt + 1, prompts))
    rating = rng.integers(1, 6, len(prompt)).astype(float)
    reward = np.round(rating + 2 * rng.normal(size=len(prompt)), 1)
    return pd.DataFrame(
        {"prompt": prompt.astype(str), "reward": reward, "rating": rating, "length": rng.integers(9, 99, len(prompt))}
    )


@given(st.data(), st.integers(2, 12))
def test_the_correlation_is_scipys_whatever_the_numbers_sizes_and_ties(data, size):
    values = hnp.arrays(np.float64, size, elements=st.integers(0, 4).map(float) | st.floats(-1e300, 1e300))
    table = pd.DataFrame({"prompt": np.arange(size), "reward": data.draw(values), "rating": data.draw(values)})
    assume(table["reward"].nunique() > 1)
    assume(table["rating"].nunique() > 1)
    expected = llm_tables.spearman(table.to_dict("records"), "reward", "rating")
    assert validate(table, 1, 0).reward_rating.value == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 30), st.integers(2, 8), st.integers(1, 4))
def test_estimates_are_the_definitions(seed, prompts, per_prompt):
    table = ratings(prompts, per_prompt, seed)
    assume(all(table[name].nunique() > 1 for name in ("reward", "rating", "length")))
    rows = table.to_dict("records")
    result = validate(table, 100, 0)
    agreeing, compared = llm_tables.agreement(rows)
    assert result.comparisons == compared
    assert result.agreement.value == pytest.approx(agreeing / compared if compared else np.nan, nan_ok=True)
    assert result.reward_rating.value == pytest.approx(llm_tables.spearman(rows, "reward", "rating"))
    assert result.reward_length is not None
    assert result.reward_length.value == pytest.approx(llm_tables.spearman(rows, "reward", "length"))


def test_intervals_are_those_of_copied_rows():
    table = ratings(8, 4)
    result = validate(table, 200, 3)
    rows = table.to_dict("records")
    names = list(dict.fromkeys(table["prompt"]))
    drawn = np.random.default_rng(3).multinomial(8, np.full(8, 1 / 8), size=200)
    rho, share = [], []
    for counts in drawn:
        sample = llm_tables.resampled(rows, dict(zip(names, counts, strict=True)))
        rho.append(llm_tables.spearman(sample, "reward", "rating"))
        pairs = [llm_tables.agreement([row for row in rows if row["prompt"] == name]) for name in names]
        agreeing, compared = np.array(pairs).T @ counts
        share.append(agreeing / compared)
    for estimate, values in ((result.reward_rating, rho), (result.agreement, share)):
        low, high = np.quantile(values, (0.025, 0.975))
        assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_resampling_whole_prompts_widens_the_interval_of_correlated_responses():
    rng = np.random.default_rng(0)
    quality = np.repeat(rng.normal(size=40), 25)
    table = pd.DataFrame({"prompt": np.repeat(np.arange(40), 25).astype(str), "rating": np.round(quality),
                          "reward": quality + np.repeat(rng.normal(size=40), 25)})  # fmt: skip
    clustered = validate(table, 500, 0).reward_rating
    independent = validate(table.assign(prompt=np.arange(1000).astype(str)), 500, 0).reward_rating
    assert clustered.value == independent.value
    assert clustered.high - clustered.low > 3 * (independent.high - independent.low)


def test_order_of_rows_and_a_monotone_scale_of_the_reward_change_nothing():
    table = ratings(12, 4)
    changed = table.assign(reward=np.exp(table["reward"] / 10), rating=3 * table["rating"] - 7)
    assert validate(changed, 200, 1) == validate(table, 200, 1)
    shuffled = validate(table.sample(frac=1, random_state=0), 200, 1)
    assert shuffled.reward_rating.value == pytest.approx(validate(table, 200, 1).reward_rating.value)
    assert shuffled.agreement.value == validate(table, 200, 1).agreement.value


def test_the_seed_decides_the_interval():
    table = ratings(12, 4)
    assert validate(table, 300, 1) == validate(table, 300, 1)
    assert validate(table, 300, 1) != validate(table, 300, 2)


def test_without_comparisons_agreement_is_undefined_and_said():
    table = ratings(20, 1)
    result = validate(table.drop(columns="length"), 100, 0)
    assert result.reward_length is None
    assert "agreement on non-tied pairs of a prompt   undefined" in render(result)


def test_resamples_without_a_value_are_left_out_and_counted():
    table = pd.DataFrame({"prompt": ["a", "a", "b", "b"], "reward": [1.0, 1, 2, 2], "rating": [1.0, 1, 2, 2]})
    result = validate(table, 1000, 0)
    assert result.reward_rating == type(result.reward_rating)(1.0, 1.0, 1.0, result.reward_rating.undefined)
    assert 400 < result.reward_rating.undefined < 600


def test_constant_columns_and_a_single_prompt_are_refused():
    table = ratings(5, 4)
    with pytest.raises(InputError, match="rating: every response has the same"):
        validate(table.assign(rating=3.0), 100, 0)
    with pytest.raises(InputError, match="at least 2 different prompts"):
        validate(table.assign(prompt="one"), 100, 0)


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["llm", "validate-reward", *map(str, arguments)])
    return ended.value.code, *capsys.readouterr()


def test_command_prints_the_statistics_and_warns_of_few_prompts(capsys, tmp_path):
    path = tmp_path / "ratings.csv"
    ratings(30, 4).to_csv(path, index=False)
    code, screen, errors = run(capsys, path, "--resamples", 500)
    assert (code, errors) == (0, "")
    result = validate(ratings(30, 4), 500, 0)
    assert f"{result.agreement.value:.3f}  [{result.agreement.low:.3f}, {result.agreement.high:.3f}]" in screen
    assert "length" in screen
    assert "warning" not in screen
    ratings(29, 4).drop(columns="length").to_csv(path, index=False)
    _, screen, _ = run(capsys, path, "--resamples", 100)
    assert "warning: with 29 prompts" in screen
    assert "length" not in screen


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("prompt,reward\na,1\n", [], "no column 'rating'"),
        (
            "prompt,reward,rating\na,1,good\n",
            [],
            "row 1, rating: expected a finite number of at most 1e+100, got 'good'",
        ),
        (
            "prompt,reward,rating,length\na,1,2,\n",
            [],
            "row 1, length: expected a finite number of at most 1e+100, got ''",
        ),
        ("prompt,reward,rating\na,1,2\na,2,3\n", [], "prompt: expected at least 2 different prompts"),
        ("prompt,reward,rating\na,1,2\nb,2,3\n", ["--resamples", "1"], "resamples: expected at least 100, got 1"),
        ("prompt,reward,rating\na,1,2\nb,2,3\n", ["--seed", "-1"], "seed: expected at least 0, got -1"),
    ],
)
def test_bad_input_is_one_clear_line(capsys, tmp_path, text, options, says):
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    code, screen, errors = run(capsys, path, *options)
    assert (code, screen) == (2, "")
    (line,) = errors.splitlines()
    assert says in line
