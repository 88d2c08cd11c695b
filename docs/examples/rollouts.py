"""Rollouts as rows of docs/how-to/verl.md: from VeRL's trainer.rollout_data_dir or TRL's completions_*.parquet.

    python rollouts.py MODEL PROMPTS.parquet RESPONSES.parquet REWARD_COLUMN ROLLOUTS...

They hold text, so each response is taken as complete and gets the end token; leave out those that were cut off. Only
the first step's are the starting model's own.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import AutoTokenizer

from cokl.responses.rows import SCHEMA


def convert(tokenizer, prompts: Path, reward: str, rollouts: list[Path]) -> pa.Table:
    """The rows, in the order of `prompts`, a training file of VeRL's that has all prompts of the rollouts."""
    asked, found = [], {}
    for number, row in enumerate(pq.read_table(prompts).to_pylist()):
        messages = [{"role": message["role"], "content": message["content"]} for message in row["prompt"]]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        for name in (json.dumps(messages), text, tokenizer.decode(ids, skip_special_tokens=True)):
            found[name] = number
        truth = row["reward_model"]["ground_truth"]
        asked.append(
            {
                "prompt": messages,
                "data_source": row["data_source"],
                "ground_truth": truth if isinstance(truth, str) else json.dumps(truth),
                "ground_truth_is_json": not isinstance(truth, str),
                "extra_info": json.dumps(row.get("extra_info") or {}),
            }
        )
    rows = []
    for file in rollouts:
        text = file.suffix == ".jsonl"
        lines = map(json.loads, file.open()) if text else pq.read_table(file).to_pylist()
        for line in lines:
            prompt, answer = line.get("input", line.get("prompt")), line.get("output", line.get("completion"))
            number = found[prompt if isinstance(prompt, str) else json.dumps(prompt)]
            text = answer if isinstance(answer, str) else answer[-1]["content"]
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += [tokenizer.eos_token_id] * (ids[-1:] != [tokenizer.eos_token_id])
            rows.append((number, asked[number] | {"response_ids": ids, "reward": float(line[reward])}))
    rows.sort(key=lambda row: row[0])
    names = [name for name in SCHEMA.names if name in rows[0][1]]
    return pa.Table.from_pylist([row for _, row in rows], pa.schema([SCHEMA.field(name) for name in names]))


if __name__ == "__main__":
    model, prompts, responses, reward, *rollouts = sys.argv[1:]
    table = convert(AutoTokenizer.from_pretrained(model), Path(prompts), reward, list(map(Path, rollouts)))
    pq.write_table(table, responses)
