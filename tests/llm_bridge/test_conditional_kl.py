"""docs/examples/conditional_kl.py beside a sum over responses, one token at a time."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cokl.responses.buffer import Buffer, CachedGroup, model_fingerprint
from tests.llm_bridge.toy import make_model, make_tokenizer

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "conditional_kl.py"
PROMPTS: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {
    (5, 6): {(7, 8, 2): 2, (9, 2): 1},
    (6, 7, 8): {(10, 2): 1},
    (8,): {(3, 4, 5, 2): 1, (11, 2): 3, (12,): 1},
}
"""Correct responses to each prompt, and how often each is cached."""


def likelihood(model: torch.nn.Module, prompt: tuple[int, ...], response: tuple[int, ...]) -> float:
    product = 1.0
    for end, token in enumerate(response):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *response[:end]]])).logits[0, -1].double()
        product *= (logits.exp() / logits.exp().sum())[token].item()
    return product


def test_it_is_the_kl_between_normalized_probabilities_of_the_different_correct_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = []
    for name, seed in (("reference", 0), ("trained", 1)):
        torch.manual_seed(seed)
        models.append(make_model(make_tokenizer()).eval())
        with torch.no_grad():
            models[-1].model.norm.weight.mul_(4)  # far from uniform
        models[-1].save_pretrained(tmp_path / name)
        make_tokenizer().save_pretrained(tmp_path / name)
    groups = []
    for prompt, correct in PROMPTS.items():
        rows = [response for response, count in correct.items() for _ in range(count)]
        wrong = [(13, 14)] * (6 - len(rows))  # never part of it
        ids = [np.array(row) for row in wrong + rows]
        rewards = np.array([0] * len(wrong) + [1] * len(rows))
        message = [{"role": "user", "content": str(prompt)}]
        groups.append(CachedGroup(message, "sums", "1", np.array(prompt), ids, rewards))
    buffer = Buffer(tuple(groups), model_fingerprint(tmp_path / "reference"))
    buffer.save(tmp_path / "buffer.parquet")

    arguments = [str(tmp_path / name) for name in ("buffer.parquet", "reference", "trained")]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    runpy.run_path(str(SCRIPT), run_name="__main__")

    kls = []
    for prompt, correct in PROMPTS.items():
        p, q = (np.array([likelihood(model, prompt, response) for response in correct]) for model in models)
        p, q = p / p.sum(), q / q.sum()
        kls += [float((p * np.log(p / q)).sum())] if len(correct) > 1 else []
    assert np.mean(kls) > 0.1
    printed = [float(value) for value in re.findall(r": (\S+) over 2 prompts", capsys.readouterr().out)]
    assert printed == pytest.approx([0.0, np.mean(kls)], abs=6e-4)
