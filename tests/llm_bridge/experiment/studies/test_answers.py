"""The exact probability of every answer, what is made of it, and responses drawn from a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from llm_bridge.data.rows import math_row
from llm_bridge.experiment.studies.answers import answers, measures, sample
from llm_bridge.tiny.language import problems


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """An untrained model's folder and tokenizer, and two rows with prompts of different lengths."""
    pytest.importorskip("transformers")
    from llm_bridge.tiny.model import make_model
    from llm_bridge.tiny.tokenizer import make_tokenizer

    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    torch.manual_seed(3)
    make_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    chosen_problems = [problems("plain")[0], problems("sum")[0]]
    rows = [math_row("", 0, "", problem.text, str(problem.total)) for problem in chosen_problems]
    return folder, tokenizer, pd.DataFrame(rows)


def test_probabilities_of_answers_are_products_over_their_tokens(tiny):
    folder, tokenizer, rows = tiny
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts, totals = rows["prompt"], [int(given["ground_truth"]) for given in rows["reward_model"]]
    table = answers(folder, rows)
    assert len(table) == sum(totals) + len(totals)
    for row in table.iloc[::3].itertuples():
        text = tokenizer.apply_chat_template(prompts[row.prompt], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        probability = 1.0
        for word in ("\\boxed{", str(row.first), "+", str(row.second), "}", tokenizer.eos_token):
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1].double()
            token = tokenizer.convert_tokens_to_ids(word)
            probability *= float(torch.softmax(logits, -1)[token])
            ids.append(token)
        assert row.p == pytest.approx(probability, rel=1e-4)


def test_sampled_responses_have_the_probabilities_that_the_model_gives_them(tiny):
    """Prompts of different lengths in one batch, so that padding on the left counts for nothing."""
    folder, tokenizer, rows = tiny
    from transformers import AutoModelForCausalLM

    model, prompts = AutoModelForCausalLM.from_pretrained(folder).eval(), list(rows["prompt"])
    drawn = sample(folder, prompts, 3, 5, seed=1)
    assert list(drawn["prompt"]) == [0, 0, 0, 1, 1, 1]
    for _, row in drawn.iterrows():
        text = tokenizer.apply_chat_template(prompts[row["prompt"]], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([[*ids, *row["response_ids"]]])).logits[0, len(ids) - 1 : -1]
        own = logits.log_softmax(-1)[range(len(row["response_ids"])), row["response_ids"]]
        np.testing.assert_allclose(row["log_probs"], own.numpy(), atol=2e-5)
        assert row["response"] == tokenizer.decode(row["response_ids"], skip_special_tokens=True)


def test_measures_are_means_over_prompts_of_sums_over_answers():
    table = pd.DataFrame(
        [(0, 1, 3, 0.5), (0, 2, 2, 0.25), (0, 3, 1, 0.0), (1, 0, 5, 0.125), (1, 4, 1, 0.375)],
        columns=["prompt", "first", "second", "p"],
    )
    found = measures(table)
    entropies = [-(2 / 3) * np.log(2 / 3) - np.log(1 / 3) / 3, -0.25 * np.log(0.25) - 0.75 * np.log(0.75)]
    seen = [2 - 0.5**64 - 0.75**64, 2 - 0.875**64 - 0.625**64]
    assert found["accuracy"] == pytest.approx((0.75 + 0.5) / 2)
    assert found["accepted"] == pytest.approx((0.5 + 0.125) / 2)
    assert found["distinct"] == pytest.approx(np.mean(seen))
    assert found["entropy"] == pytest.approx(np.mean(entropies))
