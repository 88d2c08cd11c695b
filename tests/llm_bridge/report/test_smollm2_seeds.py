"""The page of SmolLM2's seeds: from logs written by hand, and from words of a model with random weights."""

import json
import re
from dataclasses import replace

import pytest

pytest.importorskip("transformers")
import torch
from transformers import GenerationMixin

from cokl.support.errors import InputError
from llm_bridge.experiment.config import PRESETS
from llm_bridge.report.smollm2_seeds import page
from tests.llm_bridge.report.test_collect import logged
from tests.llm_bridge.toy import make_model, make_tokenizer

CONFIG = replace(PRESETS["smollm2"], math_steps=1, chat_steps=1)
KNOWN = {"base": (0.9, 0.9, 0.9), "cokl": (0.7, 0.5, 0.6), "correct_forward_kl": (0.8, 0.8, None)}


@pytest.fixture
def folders(tmp_path):
    """Three seeds; the last lacks replay, so that its difference rests on two pairs, of -10 and -30 points."""
    model, tokenizer = make_model(make_tokenizer()), make_tokenizer()
    for seed in range(3):
        root = tmp_path / str(seed)
        for method, values in KNOWN.items():
            if (known := values[seed]) is None:
                continue
            job = root / ("math" if method == "base" else f"chat/{method}")
            measured = {"known/mean@8": known, "unknown/mean@8": 0.1, "known/distinct@8": 2.0, "chat_val/mean@8": 0.5}
            metrics = {f"val/{key}": value for key, value in measured.items()} | {"cokl/gradient_share": 0.25}
            logged(job / "metrics", {1: metrics})
            (job / "run.json").write_text(json.dumps({"method": method, "beta": 0.01, "kl_prompts": 4, "main": 1}))
            for part in (model, tokenizer):
                part.save_pretrained(job / "checkpoints/global_step_1/actor/huggingface")
        (root / "config.json").write_text(json.dumps(replace(CONFIG, seed=seed).as_dict()))
    return [tmp_path / str(seed) for seed in range(3)]


def test_means_and_pairs_by_seed_and_ten_draws_a_model(folders):
    parts = list(page(folders))
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in parts[0].split("\n")
    }
    assert rows["CoKL"] == ["0.01", "3", "60.0 ± 24.8", "10.0 ± 0.0", "50.0 ± 0.0", "2.0 ± 0.0", "25.0 ± 0.0"]
    assert rows["CoKL minus Replay"][1:3] == ["2", "-20.0 ± 127.1"]  # two pairs: 10 times Student's 12.706
    told = [re.findall(r"\*\*(.+)\*\*: of 64 draws (\d+) right", part)[0] for part in parts[1::2]]
    assert [name for name, _ in told] == ["Base", "Replay", "CoKL"]
    for (_, right), shown in zip(told, parts[2::2], strict=True):
        lines = shown.splitlines()
        assert len(lines) == min(int(right) or 64, 10)
        assert all((re.findall(r"\d+", line)[-1:] == ["11"]) == (right != "0") for line in lines)


def test_a_model_of_float32_is_not_rounded_where_its_config_says_bfloat16(folders, monkeypatch):
    """As VeRL saves it. Rounded, plain RL's model of one seed gave 26 right draws of 64 where it gives 2."""
    kinds, generate = [], GenerationMixin.generate

    def watched(model, **arguments):
        kinds.append(model.dtype)
        return generate(model, **arguments)

    monkeypatch.setattr(GenerationMixin, "generate", watched)
    for described in folders[0].rglob("huggingface/config.json"):
        described.write_text(json.dumps(json.loads(described.read_text()) | {"dtype": "bfloat16"}))
    list(page(folders[:1]))
    assert kinds == 3 * [torch.float32]


def test_scores_of_runs_whose_models_are_gone_count_and_those_of_a_search_do_not(folders, tmp_path):
    table = tmp_path / "scores.csv"
    rows = ["7,correct_forward_kl,0.01,1,50,0,50,1,9", "7,cokl,0.01,1,20,0,50,1,20", "7,cokl,0.1,0,99,99,99,9,99"]
    table.write_text("\n".join(["seed,method,beta,main,known,unknown,chat_val,distinct,share", *rows]))
    (alone,) = page([table])
    assert "| CoKL | 0.01 | 1 | 20.0 | 0.0 | 50.0 | 1.0 | 20.0 |" in alone.splitlines()
    both = next(page([table, *folders]))
    # CoKL: 20, 70, 50 and 60, of standard error 10.8: times Student's 3.18
    assert "| CoKL | 0.01 | 4 | 50.0 ± 34.4 |" in both
    assert "| CoKL minus Replay |  | 3 | -23.3 ± 28.7 |" in both  # -10, -30 and -30: 6.67 times 4.30
    with pytest.raises(InputError, match="each of another seed"):
        next(page([table, table]))
    table.write_text(table.read_text().replace("seed", "sown"))
    with pytest.raises(KeyError, match="seed"):
        next(page([table]))


def test_what_cannot_be_averaged_is_refused(folders):
    with pytest.raises(InputError, match="each of another seed"):
        next(page([folders[0], folders[1], folders[0]]))
    with pytest.raises(InputError, match="each of another seed"):
        next(page([]))
    described = folders[1] / "chat/cokl/run.json"
    described.write_text(described.read_text().replace("0.01", "0.1"))
    with pytest.raises(InputError, match="cokl: expected one coefficient in all folders"):
        next(page(folders))


def test_pairs_do_not_depend_on_the_order_of_the_folders(folders):
    first, again = (sorted(next(page(order)).splitlines()) for order in (folders, folders[::-1]))
    assert first == again
