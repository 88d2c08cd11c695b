"""GRPO with a regularizer on a language model, top to bottom: sample, judge, weights, loss, step. Copy it.

Plain PyTorch and transformers. Axes in names: Q all questions, P the prompts of a step, G fresh answers to each, C
cached ones, R the rows that have a weight, L tokens of a prompt, T tokens of an answer, V the vocabulary.

Two savings, both exact. A prompt is read once for all its answers. Equal answers to a prompt are computed once: in
sampling until they part, and in the loss as one row with the sum of their weights.

Assumptions beyond the paper: the cached answers are to RL's own prompts, as in the controlled experiment. The fresh
answers of term 2 are RL's own, which costs no further sampling. A prompt without a right cached answer has no part in
a method that weights right ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

import cokl
from llm_bridge.open_questions.questions import Question


@dataclass(frozen=True)
class Settings:
    """What a run is given. Lengths are in tokens."""

    method: str = "cokl"
    beta: float = 0.0
    seed: int = 0
    steps: int = 16
    prompts: int = 6
    group: int = 8
    cached: int = 8
    """Cached answers to each prompt of a step: right ones, if wrong ones have no weight in the method."""
    length: int = 8
    learning_rate: float = 4e-5
    temperature: float = 1.0
    micro_batch: int = 3
    """Prompts in one backward pass: less memory, the same gradient."""


@dataclass(frozen=True)
class Prompts:
    """Tokens of P prompts, padded on the left."""

    tokens_PL: Tensor
    mask_PL: Tensor

    def __getitem__(self, chosen: Tensor) -> Prompts:
        return Prompts(self.tokens_PL[chosen], self.mask_PL[chosen])


def tokenize(tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question]) -> Prompts:
    """The questions in the model's chat template, up to where its answer begins."""
    chats = [[{"role": "user", "content": question.text}] for question in questions]
    texts = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
    found = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt", add_special_tokens=False)
    return Prompts(found["input_ids"], found["attention_mask"])


def read(model: PreTrainedModel, prompts: Prompts) -> tuple[DynamicCache, Tensor]:
    """Keys and values of the prompts, and the logits of the first answer token, (P, V)."""
    places_PL = (prompts.mask_PL.cumsum(-1) - 1).clamp(min=0)
    out = model(
        prompts.tokens_PL, attention_mask=prompts.mask_PL, position_ids=places_PL, use_cache=True, logits_to_keep=1
    )
    return out.past_key_values, out.logits[:, -1]


def go_on(
    model: PreTrainedModel, cache: DynamicCache, mask_PL: Tensor, prompt_R: Tensor, tokens_RT: Tensor, done: int
) -> Tensor:
    """Logits after the last T - `done` tokens of each row, (R, T - done, V); the cache holds what is before."""
    mask_R = torch.cat([mask_PL[prompt_R], torch.ones_like(tokens_RT)], 1)
    places_R = mask_R.cumsum(-1)[:, mask_R.shape[1] - tokens_RT.shape[1] + done :] - 1
    return model(tokens_RT[:, done:], attention_mask=mask_R, position_ids=places_R, past_key_values=cache).logits


@torch.no_grad()
def sample(
    model: PreTrainedModel, prompts: Prompts, settings: Settings, draws: int, end: int, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`draws` answers to each prompt, (P, G, T), the end token from their end on; log-likelihoods, (P, G), in nats."""
    cache, logits_NV = read(model, prompts)
    prompt_D = torch.arange(len(prompts.tokens_PL)).repeat_interleave(draws)
    node_D, tokens_DT = prompt_D, torch.empty(len(prompt_D), 0, dtype=torch.long)
    log_probs_D, done_D = torch.zeros(len(prompt_D)), torch.zeros(len(prompt_D), dtype=torch.bool)
    for step in range(settings.length):
        log_probs_NV = (logits_NV / settings.temperature).log_softmax(-1)
        new_D = torch.multinomial(log_probs_NV.exp()[node_D], 1, generator=random)[:, 0]
        log_probs_D += log_probs_NV[node_D, new_D].masked_fill(done_D, 0)
        new_D[done_D] = end
        done_D = done_D | (new_D == end)
        tokens_DT = torch.cat([tokens_DT, new_D[:, None]], 1)
        if step == settings.length - 1 or bool(done_D.all()):
            break
        beginnings_N, child_D = torch.cat([prompt_D[:, None], tokens_DT], 1).unique(dim=0, return_inverse=True)
        parent_N = torch.empty(len(beginnings_N), dtype=torch.long)
        parent_N[child_D] = node_D
        cache.batch_select_indices(parent_N)
        logits_NV = go_on(model, cache, prompts.mask_PL, beginnings_N[:, 0], beginnings_N[:, 1:], step)[:, -1]
        node_D = child_D
    tokens_DT = torch.nn.functional.pad(tokens_DT, (0, settings.length - tokens_DT.shape[1]), value=end)
    return tokens_DT.view(-1, draws, settings.length), log_probs_D.view(-1, draws)


def lengths_of(tokens: Tensor, end: int) -> Tensor:
    """Tokens of each answer up to and with the end token, (...) of (..., T)."""
    ended = tokens == end
    return (ended.cumsum(-1) - ended.long() == 0).sum(-1)


def log_likelihoods(
    model: PreTrainedModel, prompts: Prompts, prompt_R: Tensor, tokens_RT: Tensor, end: int, temperature: float
) -> Tensor:
    """Sum of the answers' token log-probabilities, (R,), in nats; carries the gradient."""
    cache, first_PV = read(model, prompts)
    cache.batch_select_indices(prompt_R)
    rest_RTV = go_on(model, cache, prompts.mask_PL, prompt_R, tokens_RT[:, :-1], 0)
    logits_RTV = torch.cat([first_PV[prompt_R][:, None], rest_RTV], 1) / temperature
    log_probs_RT = logits_RTV.log_softmax(-1).gather(-1, tokens_RT[..., None])[..., 0]
    mask_RT = torch.arange(tokens_RT.shape[1]) < lengths_of(tokens_RT, end)[:, None]
    return (log_probs_RT * mask_RT).sum(-1)


@dataclass(frozen=True)
class Buffer:
    """Answers of the reference, the model before training, to Q prompts."""

    tokens_QCT: Tensor
    rewards_QC: Tensor


def judge(
    tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question], tokens_PGT: Tensor
) -> list[list[str | None]]:
    """The answer that each reply gives, None if it gives none, for P questions with G replies each."""
    return [
        [question.answer(reply) for reply in tokenizer.batch_decode(tokens_GT, skip_special_tokens=True)]
        for question, tokens_GT in zip(questions, tokens_PGT, strict=True)
    ]


class Training:
    """A model in training; `step()` is the page's subject."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        questions: Sequence[Question],
        buffer: Buffer,
        settings: Settings,
        reference: PreTrainedModel | None = None,
    ):
        """`reference`: the model before training, needed if `cokl.methods.get(NAME).compares_with_reference`."""
        self.model, self.tokenizer, self.questions, self.buffer = model, tokenizer, questions, buffer
        self.settings, self.reference = settings, reference
        self.method = cokl.methods.get(settings.method)
        self.everything, self.end = tokenize(tokenizer, questions), tokenizer.eos_token_id
        self.random = torch.Generator().manual_seed(settings.seed)
        # the prompts of all steps, by a generator of their own: each question once before any comes again
        shuffles = torch.Generator().manual_seed(settings.seed)
        rounds = settings.steps * settings.prompts // len(questions) + 1
        self.order = torch.cat([torch.randperm(len(questions), generator=shuffles) for _ in range(rounds)])
        self.done = 0
        self.right_QC = right_QC = buffer.rewards_QC == 1
        self.drawable_QC = (right_QC | ~right_QC.any(1, keepdim=True) | (not self.method.blind_to_wrong_cached)).float()
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            model.parameters(), settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
        )

    def step(self) -> dict[str, float]:
        """One optimizer step; gives its numbers."""
        settings, shape_PG = self.settings, (self.settings.prompts, self.settings.group)

        chosen_P = self.order[self.done * settings.prompts :][: settings.prompts]
        self.done += 1
        prompts = self.everything[chosen_P]

        # sample and judge
        tokens_PGT, log_probs_PG = sample(self.model, prompts, settings, settings.group, self.end, self.random)
        answers = judge(self.tokenizer, [self.questions[q] for q in chosen_P], tokens_PGT)
        rewards_PG = torch.tensor([[float(answer is not None) for answer in group] for group in answers])
        assert rewards_PG.shape == log_probs_PG.shape == tokens_PGT.shape[:2] == shape_PG

        # one weight for each fresh and each cached answer: GRPO's, a mean over tokens (Eq. 4), and the regularizer's
        drawn_PC = torch.multinomial(
            self.drawable_QC[chosen_P], settings.cached, replacement=True, generator=self.random
        )
        cached_PCT = self.buffer.tokens_QCT[chosen_P[:, None], drawn_PC]
        cached_rewards_PC = self.buffer.rewards_QC[chosen_P[:, None], drawn_PC]
        under_reference_PG = None
        if self.method.compares_with_reference:
            assert self.reference is not None, f"{settings.method} compares with the reference"
            prompt_R = torch.arange(settings.prompts).repeat_interleave(settings.group)
            tokens_RT = tokens_PGT.flatten(0, 1)
            with torch.no_grad():
                under_reference_R = log_likelihoods(
                    self.reference, prompts, prompt_R, tokens_RT, self.end, settings.temperature
                )
            under_reference_PG = under_reference_R.view(shape_PG)
        weights = cokl.weights(
            log_probs_PG,
            rewards_PG,
            cached_rewards_PC,
            method=settings.method,
            beta=settings.beta,
            reference_log_probs=under_reference_PG,
        )
        # a question without a right cached answer has no part in a method that weighs right ones (E.3): the fresh term
        # alone would push its right answers down
        kept_P = self.right_QC[chosen_P].any(1) | (not self.method.filtered)
        fresh_PG = (
            weights.rollout * kept_P[:, None]
            - cokl.group_advantages(rewards_PG) / lengths_of(tokens_PGT, self.end) / rewards_PG.numel()
        )
        cached_PC = weights.reference

        # equal answers to a prompt are one row; rows without a weight are left out
        prompt_N = torch.arange(settings.prompts).repeat_interleave(fresh_PG.shape[1] + cached_PC.shape[1])
        tokens_NT = torch.cat([tokens_PGT, cached_PCT], 1).flatten(0, 1)
        weight_N = torch.cat([fresh_PG, cached_PC], 1).flatten()
        rows_R, row_N = torch.cat([prompt_N[:, None], tokens_NT], 1).unique(dim=0, return_inverse=True)
        weight_R = torch.zeros(len(rows_R)).index_add(0, row_N, weight_N)
        prompt_R, tokens_RT, weight_R = rows_R[weight_R != 0, 0], rows_R[weight_R != 0, 1:], weight_R[weight_R != 0]

        # loss and gradient, some prompts at a time; the weights were made over whole groups, so any split is exact
        for part in torch.arange(settings.prompts).split(settings.micro_batch):
            here_R = torch.isin(prompt_R, part)
            if bool(here_R.any()):
                rows = (prompts[part], prompt_R[here_R] - part[0], tokens_RT[here_R])
                log_probs_R = log_likelihoods(self.model, *rows, self.end, settings.temperature)
                (weight_R[here_R] * log_probs_R).sum().backward()

        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()  # a step without rows has no gradient, and changes nothing
        return {
            "reward": float(rewards_PG.mean()),
            "zero_correct": float((rewards_PG.sum(1) == 0).float().mean()),
            "rows": len(tokens_RT),
            "gradient_norm": float(norm),
        }
