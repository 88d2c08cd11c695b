"""The page of SmolLM2's seeds: from logs written by hand, and from words of a model with random weights."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

pytest.importorskip("transformers")
pytest.importorskip("reasoning_gym")
import torch
from transformers import GenerationMixin

from cokl.support.errors import InputError
from llm_bridge.data.rows import chat_row, write_rows
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
            (job / "run.json").write_text(json.dumps({"method": method, "beta": 0.01, "kl_prompts": 4, "main": True}))
            for part in (model, tokenizer):
                part.save_pretrained(job / "checkpoints/global_step_1/actor/huggingface")
        (root / "config.json").write_text(json.dumps(replace(CONFIG, seed=seed).as_dict()))
        sums = [chat_row("known", 0, "chain_sum", [{"role": "user", "content": asked}]) for asked in ("1 + 2", "4 + 4")]
        golds = [{"reward_model": {"style": "rule", "ground_truth": gold}} for gold in ("3", "8")]
        write_rows([row | gold for row, gold in zip(sums, golds, strict=True)], root / "data" / "known.parquet")
    return [tmp_path / str(seed) for seed in range(3)]


def test_means_and_pairs_by_seed_and_draws_of_each_model(folders, monkeypatch):
    """40 of the replies are right for the first sum, in two forms, and 3 for the other."""
    said, asked = ["", "3", "1 + 2 3", "3 eggs", "8"], []
    encoded = make_tokenizer()(said, padding=True, return_tensors="pt")["input_ids"]
    draws = encoded.repeat_interleave(torch.tensor([20, 30, 10, 1, 3]), dim=0)

    def generate(model, input_ids, **arguments):
        asked.append((input_ids, arguments["num_return_sequences"], arguments["temperature"], arguments["top_k"]))
        return torch.cat([input_ids.expand(64, -1), draws], dim=1)

    monkeypatch.setattr(GenerationMixin, "generate", generate)
    parts = list(page(folders))
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in parts[0].split("\n")
    }
    assert rows["CoKL"] == ["0.01", "3", "60.0 ± 24.8", "10.0 ± 0.0", "50.0 ± 0.0", "2.0 ± 0.0", "25.0 ± 0.0"]
    assert rows["CoKL minus Replay"][1:3] == ["2", "-20.0 ± 127.1"]  # two pairs: 10 times Student's 12.706
    assert parts[1::2] == [
        f"**{label}**: 21.5 of 64 draws right, 1.5 different, over 2 sums" for label in ("Base", "Replay", "CoKL")
    ]
    assert set(parts[2::2]) == {"\n".join(10 * ["- `3`"])}
    assert [question[1:] for question in asked] == 6 * [(64, 1.0, 0)]
    assert [make_tokenizer().decode(question[0][0]) for question in asked[:2]] == [
        "<|user|> 1 + 2 <|im_end|> <|assistant|>",
        "<|user|> 4 + 4 <|im_end|> <|assistant|>",
    ]


def test_wrong_draws_are_shown_where_none_is_right(folders):
    prompts = folders[0] / "data" / "known.parquet"
    wrong = {"reward_model": {"style": "rule", "ground_truth": "99"}}
    write_rows([row | wrong for row in pq.read_table(prompts).to_pylist()], prompts)
    parts = list(page(folders[:1]))
    assert all(": 0.0 of 64 draws right, 0.0 different" in told for told in parts[1::2])
    assert [len(shown.splitlines()) for shown in parts[2::2]] == [10, 10, 10]


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
    assert kinds == 6 * [torch.float32]


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


def test_scores_without_a_share_have_none_and_make_none_up_for_others(folders, tmp_path):
    """As SCORES.csv, whose runs logged another quantity."""
    table = tmp_path / "scores.csv"
    rows = ["7,cokl,0.01,1,20,0,50,1,20"]
    table.write_text("\n".join(["seed,method,beta,main,known,unknown,chat_val,distinct,share_row_by_row", *rows]))
    (alone,) = page([table])
    assert "| CoKL | 0.01 | 1 | 20.0 | 0.0 | 50.0 | 1.0 | - |" in alone.splitlines()
    (line,) = [line for line in next(page([table, *folders])).splitlines() if line.startswith("| CoKL | 0.01 | 4 |")]
    assert line.endswith("| - |")


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
