"""`python -m llm_bridge.report.smollm2_seeds FOLDER_OR_CSV ...`: what runs of several seeds say, as Markdown.

Means with 95 % t-intervals over seeds, CoKL minus each other method paired by seed, and what the first folder's models
say to its known sums. A table of scores is one like SmolLM2's SCORES.csv, of which the rows with `main` 1 count. That
one has no `share`: its runs logged another quantity, `share_row_by_row`, in which rows of equal tokens count apart.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

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
DRAWS, SHOWN = 64, 10
"""Replies drawn to each known sum, and how many of the first sum's are shown."""


class Replies(NamedTuple):
    """What a model says to one prompt, and the right ones among it."""

    drawn: list[str]
    right: list[str]


def page(paths: list[Path]) -> Iterator[str]:
    """The table of scores, then what each model of the first folder says.

    Raises InputError without results, for a seed twice and a method's second coefficient, KeyError for other tables.
    """
    folders = [path for path in paths if path.suffix != ".csv"]
    configs = [from_json(LLMConfig, read_config(folder)) for folder in folders]
    scores = [collect(*one).scores.assign(seed=one[0].seed) for one in zip(configs, folders, strict=True)]
    tables = [pd.read_csv(path).astype({"seed": int, "main": int}) for path in paths if path.suffix == ".csv"]
    scores += [table if "share" in table else table.assign(share=math.nan) for table in tables]
    levels = by_method(scores)
    yield score_table(levels)
    if folders:
        for name in (name for name, level in levels.items() if configs[0].seed in level.index):
            model, prompts = trained(configs[0], folders[0], name).model, folders[0] / "data" / "known.parquet"
            yield from said(name, list(replies(model, prompts, configs[0].max_response_length)))


def by_method(scores: list[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The main scores of each method, a row per seed. Raises InputError as `page` does."""
    main = pd.concat(scores).query("main == 1") if scores else pd.DataFrame()
    if main.empty or main.duplicated(["seed", "method"]).any():
        raise InputError("expected folders of runs or tables of scores, each of another seed")
    levels = {str(name): rows.set_index("seed") for name, rows in main.groupby("method", sort=False)}
    for name, level in levels.items():
        if level["beta"].nunique() > 1:
            raise InputError(f"{name}: expected one coefficient in all folders; average those that have the same")
    return levels


def score_table(levels: Mapping[str, pd.DataFrame]) -> str:
    """A row for each method, then one for CoKL minus each rival over the seeds that both have."""
    rows = [[method_label(name), f"{level['beta'].iloc[0]:g}", *_cells(level)] for name, level in levels.items()]
    if "cokl" in levels:
        for rival, level in levels.items():
            if rival not in (BASE, "cokl"):
                pairs = levels["cokl"][MEASURED] - level[MEASURED]
                rows.append([f"CoKL minus {method_label(rival)}", "", *_cells(pairs.dropna(how="all"))])
    return plain_markdown_table(["", "coefficient", "seeds", *(HEADERS[name] for name in MEASURED)], rows)


def _cells(level: pd.DataFrame) -> list[str]:
    """How many seeds, and the mean of each column; "-" where not all seeds have it."""
    means = {name: mean_and_half_width(level[name]) for name in MEASURED if not level[name].isna().any()}
    return [str(len(level)), *(with_spread(*means[name], 1) if name in means else "-" for name in MEASURED)]


def replies(folder: Path, prompts: Path, tokens: int) -> Iterator[Replies]:
    """Of the model in `folder` to each prompt, at temperature 1, of as many tokens at most as in training.

    In float32, as it was trained: VeRL's config.json says bfloat16, which changes what it says.
    """
    set_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    free = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    for asked, verified, extra in pd.read_parquet(prompts)[["prompt", "reward_model", "extra_info"]].to_numpy():
        ids = tokenizer.apply_chat_template([*asked], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        rows = model.generate(**ids, **free, num_return_sequences=DRAWS, max_new_tokens=tokens)
        answers = rows[:, ids["input_ids"].shape[1] :]
        drawn = [text.strip() for text in tokenizer.batch_decode(answers, skip_special_tokens=True)]
        yield Replies(drawn, [text for text in drawn if score("known", text, verified["ground_truth"], extra)["score"]])


def said(method: str, to_sums: list[Replies]) -> Iterator[str]:
    """How many replies to a known sum are right and different, on average; and some to the first: wrong if none is."""
    right = sum(len(replies.right) for replies in to_sums) / len(to_sums)
    forms = sum(len(set(replies.right)) for replies in to_sums) / len(to_sums)
    label = method_label(method)
    yield f"**{label}**: {right:.1f} of {DRAWS} draws right, {forms:.1f} different, over {len(to_sums)} sums"
    shown = (to_sums[0].right or to_sums[0].drawn)[:SHOWN]
    yield "\n".join(f"- `{' '.join(text.split())}`" for text in shown)


if __name__ == "__main__":
    try:
        sys.stdout.writelines(f"{part}\n\n" for part in page(list(map(Path, sys.argv[1:]))))
    except (OSError, KeyError, ValueError) as error:
        print(f"smollm2_seeds: error: {error}", file=sys.stderr)
        sys.exit(2)
