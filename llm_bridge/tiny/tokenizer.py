"""A word-level tokenizer over the tiny world, with a chat template; Appendix H's instruction is one token."""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, Regex, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from llm_bridge.data.rows import MATH_INSTRUCTION
from llm_bridge.tiny.language import vocabulary

PAD, UNKNOWN, END = "<|pad|>", "<|unknown|>", "<|im_end|>"  # the name that VeRL looks for in a Qwen tokenizer
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Words, numbers, `\\boxed{` and punctuation marks are tokens; decoding joins them with spaces."""
    words = {word: number for number, word in enumerate([PAD, UNKNOWN, END, *ROLES, *vocabulary()])}
    core = tokenizers.Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    token = Regex(r"\\boxed\{|\w+(-\w+)*|[^\w\s]")
    core.pre_tokenizer = pre_tokenizers.Split(token, behavior="removed", invert=True)
    core.add_tokens([AddedToken(MATH_INSTRUCTION, normalized=False), AddedToken("\n", normalized=False)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        extra_special_tokens=list(ROLES),
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
