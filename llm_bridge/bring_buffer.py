"""A buffer from responses that were sampled elsewhere, by vLLM, SGLang or another engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from cokl.responses.buffer import Buffer, CachedGroup, groups_of, model_fingerprint, model_folder
from cokl.responses.rows import read_rows
from cokl.support.errors import InputError
from cokl.support.options import require
from llm_bridge.rewards.judge import judged

REQUIRED = {"prompt", "data_source", "ground_truth", "response_ids"}
"""Columns of what is brought, and `reward` if no function judges."""
BATCH_TOKENS = 8192
"""Of a pass of the reference, padding included, unless a response alone is longer."""


def bring_buffer(
    responses: Path,
    reference: str,
    function: Callable[..., Any] | None = None,
    thinking: bool | None = None,
    temperature: float = 1.0,
    log_probs: bool = True,
    correct_above: float = 0.5,
) -> Buffer:
    """The buffer of the prompts in a file of responses, in its order.

    responses: Parquet of `cokl.responses.rows.SCHEMA`, of which REQUIRED must be there. `reward` is given by
    `function`, a reward function of VeRL's form, or by the file. Missing prompt tokens are the chat template's.
    Log-probabilities are the reference's, computed here. reference: the folder or the hub's name of the model that
    sampled them. thinking: given to the chat template if it is not None. temperature: of log-probabilities. log_probs:
    without them the responses may be another model's, for methods that do not compare with the reference.
    correct_above: a larger `reward` is the verdict correct. Raises InputError for rows that are refused, tokens of
    another vocabulary or of padding, a reference whose weights have other names, and groups that no method could use.
    """
    table = read_rows(responses, REQUIRED if function else {*REQUIRED, "reward"})
    if "log_probs" in table.column_names:
        table = table.drop_columns("log_probs")
    beside = function is not None and "reward" in table.column_names
    require(not beside, f"{responses}, column 'reward'", "none beside a reward function", "one")
    groups = groups_of(table, responses)
    folder = model_folder(reference)
    tokenizer = _loaded("AutoTokenizer", folder)
    if "prompt_ids" not in table.column_names:
        groups = tuple(replace(group, prompt_ids=_prompt_ids(group, tokenizer, thinking)) for group in groups)
    rows = [(group.prompt_ids, ids) for group in groups for ids in group.response_ids]
    _require_tokens(rows, tokenizer, responses)
    rewards = [_rewards(group, tokenizer, function) if function else group.rewards for group in groups]
    verdicts = [np.where(values > correct_above, 1.0, 0.0) for values in rewards]
    groups = tuple(replace(group, rewards=values) for group, values in zip(groups, verdicts, strict=True))
    if log_probs:
        left = iter(score(rows, folder, temperature))
        groups = tuple(replace(group, log_probs=[next(left) for _ in group.response_ids]) for group in groups)
    return Buffer(groups, model_fingerprint(folder), temperature)


def _loaded(kind: str, folder: Path, **options: Any) -> Any:
    """From `folder`, by a class of transformers. Raises InputError for what it cannot read."""
    import transformers

    try:
        return getattr(transformers, kind).from_pretrained(folder, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{folder}: expected a Hugging Face model folder ({reason})") from error


def _prompt_ids(group: CachedGroup, tokenizer: Any, thinking: bool | None) -> np.ndarray:
    """(P,) tokens by the chat template. Raises InputError for messages that it refuses."""
    from jinja2 import TemplateError

    options = {} if thinking is None else {"enable_thinking": thinking}
    try:
        text = tokenizer.apply_chat_template(group.prompt, add_generation_prompt=True, tokenize=False, **options)
    except (TemplateError, ValueError) as error:
        raise InputError(f"column 'prompt': the chat template refuses {str(group.prompt)[:80]} ({error})") from error
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int64)


def _require_tokens(rows: Sequence[tuple[np.ndarray, np.ndarray]], tokenizer: Any, path: Path) -> None:
    """Raises InputError for tokens that the tokenizer does not know, and for padding at a row's ends."""
    known = f"token ids of {tokenizer.name_or_path}, below {len(tokenizer)}"
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id}
    for row, (prompt, response) in enumerate(rows):
        for name, ids in (("prompt_ids", prompt), ("response_ids", response)):
            require(ids.max() < len(tokenizer), f"{path}, column {name!r}, row {row}", known, int(ids.max()))
        padded = len(response) > 1 and set(response[-2:].tolist()) <= ends
        expected = "no padding and no second end token after the end token"
        require(not padded, f"{path}, column 'response_ids', row {row}", expected, response[-2:].tolist())
        padded = len(prompt) > 1 and prompt[0] == tokenizer.pad_token_id != tokenizer.bos_token_id
        require(not padded, f"{path}, column 'prompt_ids', row {row}", "no padding", prompt[:2].tolist())


@torch.no_grad()
def score(rows: Sequence[tuple[np.ndarray, np.ndarray]], folder: Path, temperature: float) -> list[np.ndarray]:
    """Log-probabilities of responses' tokens, (T,) each, in nats, under the model in `folder`.

    rows: tokens of prompt and response. On a GPU, in bfloat16, if there is one. Rows of like length go together.
    Raises InputError unless the folder's weights are the model's, by name and shape.
    """
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    model, report = _loaded("AutoModelForCausalLM", folder, dtype=dtype, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(map(str, report[kind])):
            expected = f"the weights of {type(model).__name__} and no others; merge an adapter into its model"
            raise InputError(f"{folder}: expected {expected}, got {len(names)} {kind[:-5]} ones ({names[0]}, ...)")
    model = model.to(device).eval()
    lengths = [len(prompt) + len(response) for prompt, response in rows]
    scores: list[np.ndarray] = [np.zeros(0)] * len(rows)
    left = sorted(range(len(rows)), key=lengths.__getitem__)
    with tqdm(total=len(rows), desc="log-probabilities", unit="response") as progress:
        while left:
            size = max(1, BATCH_TOKENS // lengths[left[-1]])
            left, batch = left[:-size], left[-size:]
            tokens = [torch.tensor(np.concatenate(rows[row]), device=device) for row in batch]
            padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
            mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
            logits = model(padded, attention_mask=mask).logits
            for row, own, all_logits in zip(batch, tokens, logits, strict=True):
                start = len(rows[row][0])
                log_probs = (all_logits[start - 1 : len(own) - 1].float() / temperature).log_softmax(-1)
                scores[row] = log_probs.gather(-1, own[start:, None])[:, 0].cpu().numpy()
            progress.update(len(batch))
    return scores


def _rewards(group: CachedGroup, tokenizer: Any, function: Callable[..., Any]) -> np.ndarray:
    """(G,): the function's scores, one response after the other."""
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in group.response_ids]
    told = group.data_source, group.ground_truth, group.extra_info
    return np.array([judged(function, text, *told) for text in texts])
