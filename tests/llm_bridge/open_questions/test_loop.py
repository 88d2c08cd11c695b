"""The loop's step against definitions: whole gradients in float64, one answer at a time, without caches or padding."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from llm_bridge.open_questions import loop
from llm_bridge.open_questions.loop import Buffer, Prompts, Settings, Training, judge, sample, tokenize
from llm_bridge.open_questions.questions import Question
from tests.llm_bridge import toy
from tests.oracles.sampled import score_function, self_normalised

QUESTIONS = [
    Question("What do you think of cats ?", "own", ("cats", "dogs", "owls", "calm", "warm", "I")),
    Question("Split apples", "own", ("apples", "balls", "books", "1", "2", "3", "4", "5", "6")),
    Question("What do you think of two dogs and two owls ?", "own", ("lovely",)),  # often without a right answer
]
SETTINGS = Settings(prompts=3, group=5, cached=4, length=4, micro_batch=2, learning_rate=0.1)
METHODS = ("none", "cokl", "correct_forward_kl", "forward_kl", "reverse_kl", "entropy")


@pytest.fixture(scope="module")
def tokenizer():
    return toy.make_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(3)
    return toy.make_model(tokenizer).eval()


@pytest.fixture(scope="module")
def buffer(model, tokenizer):
    """Answers of the model; the last question has no right one."""
    prompts = tokenize(tokenizer, QUESTIONS)
    tokens, _ = sample(model, prompts, SETTINGS, 12, tokenizer.eos_token_id, torch.Generator().manual_seed(5))
    answers = judge(tokenizer, QUESTIONS, tokens)
    rewards = torch.tensor([[float(answer is not None) for answer in group] for group in answers])
    rewards[2] = 0
    assert 0 < rewards[0].sum() < 12
    assert 0 < rewards[1].sum() < 12
    return Buffer(tokens, rewards)


def log_likelihood(model, tokenizer, question: Question, tokens: torch.Tensor, temperature: float) -> torch.Tensor:
    """Of one answer, from its whole text, up to and with its end token."""
    chat = [{"role": "user", "content": question.text}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    answer = own_tokens(tokens, tokenizer)
    logits = model(torch.tensor([prompt + answer])).logits[0].double()
    log_probs = (logits / temperature).log_softmax(-1)
    return sum(log_probs[len(prompt) + place - 1, token] for place, token in enumerate(answer))


def own_tokens(tokens: torch.Tensor, tokenizer) -> list[int]:
    answer = tokens.tolist()
    end = tokenizer.eos_token_id
    return answer[: answer.index(end) + 1] if end in answer else answer


class Kept(torch.optim.SGD):
    """Keeps the gradients that a step would use."""

    def step(self, closure=None):
        self.gradients = [value.grad.clone() for value in self.param_groups[0]["params"]]


def step_of(model, tokenizer, buffer, settings, monkeypatch, reference):
    """The gradients of one step, its question numbers, fresh answers and cached draws."""
    training = Training(copy.deepcopy(model), tokenizer, QUESTIONS, buffer, settings, reference)
    training.optimizer = kept = Kept(training.model.parameters(), lr=0.1)
    seen: dict[str, Any] = {}

    def recorded(*arguments):
        seen["fresh"] = sample(*arguments)
        seen["random"] = training.random.get_state()
        return seen["fresh"]

    monkeypatch.setattr(loop, "sample", recorded)
    numbers = training.step()
    random = torch.Generator()
    random.set_state(seen["random"])
    chosen = training.order[: settings.prompts]
    drawn = torch.multinomial(training.drawable_QC[chosen], settings.cached, replacement=True, generator=random)
    return kept.gradients, chosen.tolist(), seen["fresh"][0], drawn, numbers


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("method", METHODS)
def test_a_steps_gradient_is_that_of_the_definitions(method, temperature, model, tokenizer, buffer, monkeypatch):
    settings = replace(SETTINGS, method=method, beta=0.0 if method == "none" else 0.3, seed=1, temperature=temperature)
    torch.manual_seed(9)
    reference = toy.make_model(tokenizer).eval()  # another model, so that reverse KL has costs
    gradients, chosen, fresh, drawn, numbers = step_of(model, tokenizer, buffer, settings, monkeypatch, reference)

    exact, exact_reference = copy.deepcopy(model).double(), copy.deepcopy(reference).double()
    total = torch.zeros((), dtype=torch.float64)
    for group, question in enumerate(chosen):
        asked = QUESTIONS[question]
        likelihoods = [log_likelihood(exact, tokenizer, asked, tokens, temperature) for tokens in fresh[group]]
        lengths = [len(own_tokens(tokens, tokenizer)) for tokens in fresh[group]]
        rewards = [float(answer is not None) for answer in judge(tokenizer, [asked], fresh[group][None])[0]]
        mean = sum(rewards) / len(rewards)
        deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
        for reward, length, likelihood in zip(rewards, lengths, likelihoods, strict=True):
            total = total - (reward - mean) / (deviation + 1e-6) * likelihood / length / len(rewards) / len(chosen)
        cached = [
            log_likelihood(exact, tokenizer, asked, buffer.tokens_QCT[question][number], temperature)
            for number in drawn[group]
        ]
        verdicts = [float(buffer.rewards_QC[question][number]) for number in drawn[group]]
        now = [float(likelihood.detach()) for likelihood in likelihoods]
        under_reference = [
            float(log_likelihood(exact_reference, tokenizer, asked, tokens, temperature).detach())
            for tokens in fresh[group]
        ]
        ones = [1.0] * len(rewards)
        of_cached, of_fresh = {
            "none": ([], []),
            "cokl": (self_normalised(verdicts), self_normalised(rewards) if any(verdicts) else []),
            "correct_forward_kl": (self_normalised(verdicts), []),
            "forward_kl": ([1 / len(cached)] * len(cached), []),
            "reverse_kl": ([], score_function([a - b for a, b in zip(now, under_reference, strict=True)], ones)),
            "entropy": ([], score_function(now, ones)),
        }[method]
        regularizer = sum((w * value for w, value in zip(of_fresh, likelihoods, strict=False)), torch.zeros(()))
        regularizer = regularizer - sum(w * value for w, value in zip(of_cached, cached, strict=False))
        total = total + settings.beta * regularizer / len(chosen)
    total.backward()
    norm = math.sqrt(sum(float(value.grad.square().sum()) for value in exact.parameters()))
    assert norm > 0.01
    assert numbers["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    for got, value in zip(gradients, exact.parameters(), strict=True):
        expected = value.grad * min(1.0, 1 / norm)  # clipped at norm 1
        assert float((got - expected).norm()) < 1e-5 * max(1.0, float(expected.norm()))


@pytest.mark.parametrize("method", ["cokl", "correct_forward_kl"])
def test_without_a_right_cached_answer_a_step_is_plain_rl(method, model, tokenizer, buffer, monkeypatch):
    unsolved = replace(buffer, rewards_QC=torch.zeros_like(buffer.rewards_QC))
    settings = replace(SETTINGS, method=method, beta=0.3, seed=1)
    found, *_ = step_of(model, tokenizer, unsolved, settings, monkeypatch, None)
    plain, *_ = step_of(model, tokenizer, unsolved, replace(settings, method="none", beta=0.0), monkeypatch, None)
    assert any(value.any() for value in plain)
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_answers_are_drawn_from_the_model_whatever_is_beside_them(model, tokenizer):
    prompts = tokenize(tokenizer, QUESTIONS)
    settings = replace(SETTINGS, length=2, temperature=0.8)
    random = torch.Generator().manual_seed(0)
    tokens, log_probs = sample(model, prompts, settings, 3000, tokenizer.eos_token_id, random)
    for number, question in enumerate(QUESTIONS):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question.text}], add_generation_prompt=True, tokenize=False
        )
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        first = (model(ids).logits[0, -1].double() / 0.8).softmax(-1)
        counts = torch.bincount(tokens[number, :, 0], minlength=len(first)).double()
        deviations = (counts - 3000 * first) / (3000 * first * (1 - first)).sqrt()
        assert float(deviations.detach().abs().max()) < 4.5
        for draw in range(5):
            expected = log_likelihood(model, tokenizer, question, tokens[number, draw], 0.8)
            assert float(log_probs[number, draw]) == pytest.approx(float(expected.detach()), abs=1e-4)
        second = tokens[number, :, 1][tokens[number, :, 0] == first.argmax()]
        assert len(second.unique()) > 3  # what begins alike goes on by itself


def test_the_split_into_micro_batches_does_not_change_the_gradient(model, tokenizer, buffer, monkeypatch):
    found = [
        step_of(
            model, tokenizer, buffer, replace(SETTINGS, method="cokl", beta=0.3, micro_batch=size), monkeypatch, None
        )
        for size in (1, 3)
    ]
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert torch.allclose(one, other, atol=1e-7)


def test_where_every_right_answer_is_one_cokl_adds_nothing(model, tokenizer, monkeypatch):
    """Cached and fresh right answers are then the same tokens, whose weights cancel: plain RL to the last digit."""
    same = tokenizer("cats cats cats cats", add_special_tokens=False, return_tensors="pt")["input_ids"]
    wrong = tokenizer("dogs dogs dogs dogs", add_special_tokens=False, return_tensors="pt")["input_ids"]
    only = [Question("What do you think of cats ?", "own", ("cats",))]
    held = Buffer(same.expand(1, 4, 4), torch.ones(1, 4))
    fresh = torch.cat([same, same, wrong, same, wrong])[None]
    gradients = []
    for method in ("none", "cokl"):
        settings = replace(SETTINGS, method=method, beta=0.7, prompts=1)
        training = Training(copy.deepcopy(model), tokenizer, only, held, settings)
        training.optimizer = kept = Kept(training.model.parameters(), lr=0.1)
        monkeypatch.setattr(loop, "sample", lambda *_: (fresh, torch.zeros(1, 5)))
        training.step()
        gradients.append(kept.gradients)
    assert any(float(value.abs().max()) > 0 for value in gradients[0])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-7)


def test_every_question_comes_once_before_any_comes_again(model, tokenizer, buffer, monkeypatch):
    training = Training(copy.deepcopy(model), tokenizer, QUESTIONS, buffer, replace(SETTINGS, prompts=1, seed=4))
    seen: list[Question] = []

    def recorded(_, asked, tokens):
        seen.extend(asked)
        return [[None] * 5]

    monkeypatch.setattr(loop, "judge", recorded)
    for _ in range(6):
        training.step()
    assert {question.text for question in seen[:3]} == {question.text for question in seen[3:]}
    assert len({question.text for question in seen[:3]}) == 3


def test_lengths_count_the_end_token_once():
    end = 9
    tokens = torch.tensor([[1, 2, 9, 9], [9, 9, 9, 9], [1, 2, 3, 4], [1, 2, 3, 9]])
    assert loop.lengths_of(tokens, end).tolist() == [3, 1, 4, 4]


def test_prompts_of_unequal_length_are_selected_with_their_masks():
    prompts = Prompts(torch.tensor([[0, 1], [2, 3]]), torch.tensor([[0, 1], [1, 1]]))
    assert prompts[torch.tensor([1])].tokens_PL.tolist() == [[2, 3]]
    assert prompts[torch.tensor([0])].mask_PL.tolist() == [[0, 1]]


def test_wrong_cached_answers_are_drawn_where_the_method_weights_them_and_where_none_is_right(model, tokenizer, buffer):
    for method, wrong_too in (("cokl", False), ("correct_forward_kl", False), ("forward_kl", True)):
        training = Training(copy.deepcopy(model), tokenizer, QUESTIONS, buffer, replace(SETTINGS, method=method))
        expected = torch.ones(3, 12) if wrong_too else torch.stack([*buffer.rewards_QC[:2], torch.ones(12)])
        assert torch.equal(training.drawable_QC, expected)


def test_the_order_of_prompts_is_a_seeds_whatever_was_sampled(model, tokenizer, buffer):
    orders = []
    for method, length, seed in (("cokl", 4, 3), ("none", 2, 3), ("none", 2, 4)):
        settings = replace(SETTINGS, method=method, length=length, seed=seed, prompts=1, steps=30)
        training = Training(copy.deepcopy(model), tokenizer, QUESTIONS, buffer, settings)
        orders.append(training.order[:30].tolist())
    assert orders[0] == orders[1] != orders[2]


def test_a_step_without_rows_changes_nothing_also_after_others(model, tokenizer, buffer, monkeypatch):
    """AdamW would go on with its momentum if gradients were zeros."""
    training = Training(copy.deepcopy(model), tokenizer, QUESTIONS, buffer, replace(SETTINGS, steps=3))
    assert training.step()["rows"] > 0
    before = [value.clone() for value in training.model.parameters()]
    monkeypatch.setattr(loop, "judge", lambda _, asked, tokens: [["cats"] * 5] * len(asked))
    assert training.step()["rows"] == 0
    assert all(torch.equal(one, other) for one, other in zip(before, training.model.parameters(), strict=True))
