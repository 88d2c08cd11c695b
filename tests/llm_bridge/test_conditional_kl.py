"""docs/examples/conditional_kl.py against the same two numbers from products of next-token probabilities in float64."""

import json
import math
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch

from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from tests.llm_bridge.toy import make_model, make_tokenizer

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "conditional_kl.py"
TEMPERATURE = 0.7
SEVERAL, TWO, ONE, NONE = (11, 12, 13), (18, 19), (14, 15), (16, 17)
CACHED = {
    # a prompt's responses: tokens, which of them the policy wrote, verdict
    SEVERAL: [
        ([20, 21, 5], [1, 1, 1], 1),
        ([22, 5], [1, 1], 1),
        ([20, 21, 5], [1, 1, 1], 1),  # again, which counts once
        ([23, 24, 25, 5], [1, 0, 1, 1], 1),  # a tool wrote the second token
        ([30, 5], [1, 1], 0),
    ],
    TWO: [([29, 5], [1, 1], 1), ([31, 32, 5], [1, 1, 1], 1), *[([27, 5], [1, 1], 0)] * 3],
    ONE: [([26, 5], [1, 1], 1), *[([27, 5], [1, 1], 0)] * 4],
    NONE: [([28, 5], [1, 1], 0)] * 5,
}


def save(folder: Path, seed: int):
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    model.lm_head.weight.data *= 1 + 4 * seed  # far enough for either direction of the KL to be another number
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))  # as VeRL leaves it
    return model.double()


def group(prompt: tuple[int, ...]) -> CachedGroup:
    ids, masks, rewards = zip(*CACHED[prompt], strict=True)
    message = [{"role": "user", "content": str(prompt[0])}]
    arrays = [list(map(np.array, rows)) for rows in (ids, masks)]
    return CachedGroup(message, "sums", "4", np.array(prompt), arrays[0], np.array(rewards), {}, arrays[1])


def probability(model, prompt: tuple[int, ...], response: list[int], mask: list[int]) -> float:
    product = 1.0
    for place, token in enumerate(response):
        if mask[place]:
            logits = model(torch.tensor([[*prompt, *response[:place]]])).logits[0, -1] / TEMPERATURE
            product *= (logits.exp() / logits.exp().sum())[token].item()
    return product


@pytest.mark.parametrize("prompts", [[SEVERAL, TWO, ONE, NONE], [ONE, NONE]])
def test_both_numbers_of_two_models(prompts, tmp_path, capsys, monkeypatch):
    models = [save(tmp_path / name, seed) for seed, name in enumerate(("reference", "moved"))]
    groups = tuple(map(group, prompts))
    Buffer(groups, model_fingerprint(tmp_path / "reference"), TEMPERATURE).save(tmp_path / "buffer.parquet")
    arguments = [str(tmp_path / name) for name in ("buffer.parquet", "reference", "reference", "moved")]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    found = [float(number) for number in re.findall(r"(?:KL|log-probability) (\S+) over", shown)]

    divergences, changes = [], []
    for prompt in [prompt for prompt in prompts if prompt != NONE]:
        right = {tuple(ids): (ids, mask) for ids, mask, verdict in CACHED[prompt] if verdict}
        old, new = ([probability(model, prompt, *row) for row in right.values()] for model in models)
        changes.append(math.log(sum(new) / sum(old)))
        if len(right) > 1:
            pairs = [(before / sum(old), after / sum(new)) for before, after in zip(old, new, strict=True)]
            divergences.append(sum(before * math.log(before / after) for before, after in pairs))
    expected = [sum(divergences) / len(divergences) if divergences else math.nan, sum(changes) / len(changes)]
    unmoved = [0.0 if divergences else math.nan, 0.0]
    assert found == pytest.approx([*unmoved, *expected], abs=6e-4, nan_ok=True)
    assert f"over {len(divergences)} prompts" in shown
    assert f"over {len(changes)} prompts" in shown


@pytest.mark.parametrize(("models", "told"), [([], "required: model"), (["another"], "no weights")])
def test_bad_input_is_told_without_a_traceback(models, told, tmp_path, capsys, monkeypatch):
    arguments = [str(tmp_path / "buffer.parquet"), str(tmp_path), *models]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ended.value.code == 2
    assert re.search(rf"conditional_kl.py: error: .*{told}", capsys.readouterr().err)
