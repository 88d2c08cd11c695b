"""A Qwen3 of about 200,000 parameters, pretrained on demonstrations on a CPU in about a minute."""

from __future__ import annotations

import numpy as np
import torch
from tqdm import trange
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from llm_bridge.data.rows import MATH_INSTRUCTION
from llm_bridge.tiny import language

BATCH_ROWS = 48
MATH_SHARE = 0.75
PEAK_LEARNING_RATE = 6e-3
CAREFUL_SHARE = 0.75
MAX_TOKENS = 64


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """An untrained model; its weights follow torch's global seed."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=True,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def pretrain(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int, seed: int) -> None:
    """Fit the model to fresh demonstrations at each step.

    In the last quarter of the steps a demonstration is right with probability `language.RIGHT`; before, all are.
    """
    random = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LEARNING_RATE, total_steps=steps + 1, pct_start=0.1)
    stock = _Stock(random)
    model.train()
    for step in trange(steps, desc="pretraining", unit="step", mininterval=1.0):
        careful = step < CAREFUL_SHARE * steps
        batch = teaching_batch([stock.draw(1.0 if careful else language.RIGHT) for _ in range(BATCH_ROWS)], tokenizer)
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


class _Stock:
    """Everything that can be asked, and a demonstrated answer to a random part of it."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.kinds = {kind: language.problems(kind) for kind in language.KIND_SHARES}
        self.chat = language.small_talk()

    def draw(self, right: float) -> tuple[str, str]:
        """A user message and the response to it, which for a problem is right with probability `right`."""
        random = self.random
        if random.random() >= MATH_SHARE:
            prompt = self.chat[random.integers(len(self.chat))]
            return prompt, language.demonstrate_chat(prompt, random)
        kind = list(self.kinds)[random.choice(len(self.kinds), p=list(language.KIND_SHARES.values()))]
        problem = self.kinds[kind][random.integers(len(self.kinds[kind]))]
        return f"{MATH_INSTRUCTION}\n\n{problem.text}", language.demonstrate_problem(problem, right, random)


def teaching_batch(pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast) -> dict[str, torch.Tensor]:
    """Prompts and responses under the chat template, (rows, tokens); labels are -100 outside the responses."""
    dialogues = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}] for prompt, response in pairs
    ]
    texts = tokenizer.apply_chat_template(dialogues, tokenize=False)
    batch = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    tokens = batch["input_ids"]
    in_response = (tokens == tokenizer.convert_tokens_to_ids("<|assistant|>")).cumsum(1).bool()
    labels = tokens.masked_fill(~in_response | (batch["attention_mask"] == 0), -100)
    labels[tokens == tokenizer.convert_tokens_to_ids("<|assistant|>")] = -100
    return {"input_ids": tokens, "attention_mask": batch["attention_mask"], "labels": labels}
