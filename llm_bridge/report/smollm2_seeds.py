"""`python -m llm_bridge.report.smollm2_seeds FOLDER_OR_CSV ...`: what runs of several seeds say, as Markdown.

Means with 95 % t-intervals over seeds, CoKL minus each other method paired by seed, and what the first folder's models
say to its known sums. A table of scores is one like SmolLM2's SCORES.csv, of which the rows with `main` 1 count.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from cokl.support.errors import InputError
from cokl.support.options import from_json
from cokl.support.results import read_config
from cokl.support.statistics import mean_and_half_width, plain_markdown_table, with_spread
from llm_bridge.experiment.config import BASE, LLMConfig
from llm_bridge.experiment.jobs import trained
from llm_bridge.experiment.smollm2.tasks import score
from llm_bridge.report.collect import collect
from llm_bridge.report.tables import HEADERS, method_label

MEASURED = ["known", "unknown", "chat_val", "distinct", "share"]


def page(paths: list[Path]) -> Iterator[str]:
    """The table, then each method's right draws, a known sum's mean, and ten to the first: wrong if none is right.

    Raises InputError without results, for a seed twice and a method's second coefficient, KeyError for other tables.
    """
    folders = [path for path in paths if path.suffix != ".csv"]
    configs = [from_json(LLMConfig, read_config(folder)) for folder in folders]
    scores = [collect(*one).scores.assign(seed=one[0].seed) for one in zip(configs, folders, strict=True)]
    scores += [pd.read_csv(path).astype({"seed": int, "main": int}) for path in paths if path.suffix == ".csv"]
    if not scores or (main := pd.concat(scores).query("main == 1")).duplicated(["seed", "method"]).any():
        raise InputError("expected folders of runs or tables of scores, each of another seed")
    levels = {str(name): rows.set_index("seed") for name, rows in main.groupby("method", sort=False)}
    if mixed := [name for name, level in levels.items() if level["beta"].nunique() > 1]:
        raise InputError(f"{mixed[0]}: expected one coefficient in all folders; average those that have the same")
    rows = [[method_label(name), f"{level['beta'].iloc[0]:g}", *_cells(level)] for name, level in levels.items()]
    for rival in [name for name in levels if name not in (BASE, "cokl") and "cokl" in levels]:
        pairs = levels["cokl"][MEASURED] - levels[rival][MEASURED]
        rows.append([f"CoKL minus {method_label(rival)}", "", *_cells(pairs.dropna(how="all"))])
    yield plain_markdown_table(["", "coefficient", "seeds", *(HEADERS[name] for name in MEASURED)], rows)
    for name in main.loc[main["seed"] == configs[0].seed, "method"] if configs else ():
        drawn = list(_drawn(trained(configs[0], folders[0], name).model, folders[0] / "data" / "known.parquet"))
        right, forms = (sum(len(count(right)) for _, right in drawn) / len(drawn) for count in (list, set))
        yield f"**{method_label(name)}**: {right:.1f} of 64 draws right, {forms:.1f} different, over {len(drawn)} sums"
        yield "\n".join(f"- `{' '.join(text.split())}`" for text in (drawn[0][1] or drawn[0][0])[:10])


def _cells(level: pd.DataFrame) -> list[str]:
    return [str(len(level)), *(with_spread(*mean_and_half_width(level[name]), 1) for name in MEASURED)]


def _drawn(folder: Path, prompts: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Replies to each prompt, and the right ones, at temperature 1, in float32: VeRL's config.json says bfloat16."""
    set_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    free = {"do_sample": True, "top_k": 0, "top_p": 1.0, "num_return_sequences": 64, "max_new_tokens": 24}
    for asked, verified, extra in pd.read_parquet(prompts)[["prompt", "reward_model", "extra_info"]].to_numpy():
        ids = tokenizer.apply_chat_template([*asked], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        rows = model.generate(**ids, **free, temperature=1.0)[:, ids["input_ids"].shape[1] :]
        said = [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]
        yield said, [text for text in said if score("known", text, verified["ground_truth"], extra)["score"]]


if __name__ == "__main__":
    try:
        sys.stdout.writelines(f"{part}\n\n" for part in page(list(map(Path, sys.argv[1:]))))
    except (OSError, KeyError, ValueError) as error:
        print(f"smollm2_seeds: error: {error}", file=sys.stderr)
        sys.exit(2)
