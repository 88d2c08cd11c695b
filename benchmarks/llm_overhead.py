"""`python -m benchmarks llm-overhead`: an actor update with CoKL's rows beside GRPO's, on the same rows and tokens.

Both are VeRL's own worker and loss on one model in one process with one thread: GRPO's takes all rows as RL rows,
CoKL's takes a fifth of them (E.3: 16 of 80 groups) as regularization rows, after the trainer's own part of a step: rows
are asked for and joined to the RL prompts, groups are weighted, and the weights become advantages. The worker does the
same in both, so what CoKL adds, the trainer's part, is also timed by itself.

With `--cached 0,1,2` all groups are RL rows whose own prompts are regularized (`cokl.prompts=training`), with so many
cached rows per prompt beside them: the worker takes log-probabilities and updates, as in a step. 0 is the method
without term 1. All rows have the longest length then, so that no padding hides in the ratios.

All take turns, in the other order every second round. Times are the process's CPU seconds, which other work on the
machine disturbs least; the figure is the median of the ratios within a round, between the order statistics that hold
the median with at least 95% (none of them below six rounds).
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from cokl.support.errors import InputError
from cokl.support.options import separated

if TYPE_CHECKING:
    from torch import Tensor

GROUP, SHARE = 8, 5
LOG_PROB = -6.0
PROMPT = 32
SHAPE = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
MODELS = {"1m": (512, 128, 384, 4, 4), "110m": (16384, 768, 2048, 12, 6)}
"""Shapes of Qwen3 models of about so many parameters."""


@dataclass(frozen=True)
class LLMOverhead:
    """CPU seconds of an actor update with CoKL's rows over GRPO's, as a ratio with an interval."""

    rounds: int = 20
    """Pairs of updates."""
    groups: int = 20
    """Groups of 8 rows; a fifth of them, rounded down to an even number, are regularization rows of CoKL's update."""
    response_length: int = 64
    """Tokens of the longest response."""
    micro_batch: int = 16
    """Rows of a micro-batch; must divide all rows."""
    cached: Annotated[tuple[int, ...], separated(int, "NUMBER")] = ()
    """Cached rows per prompt, each number beside GRPO; if not given, a fifth of GRPO's rows instead."""
    model: Literal["1m", "110m"] = "1m"
    """Parameters of the model."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all figures to this file."""

    def run(self) -> int:
        """Measure, print a line per update, write the JSON after every round."""
        rows = [self.groups * (GROUP + cached) for cached in self.cached or (0,)]
        if self.rounds < 1 or self.response_length < 1 or self.micro_batch < 1:
            raise InputError("expected at least 1 round, 1 token and 1 row")
        if self.groups < (1 if self.cached else 2 * SHARE) or not all(0 <= cached <= GROUP for cached in self.cached):
            raise InputError(f"expected {2 * SHARE} groups or more without --cached, and up to {GROUP} cached rows")
        if wrong := [number for number in rows if number % self.micro_batch]:
            raise InputError(f"micro-batch: expected a divisor of {wrong[0]} rows, got {self.micro_batch}")
        for name, found in measure(self)["updates"].items():
            outside = found["outside_model"]
            print(
                f"{name}: {found['tokens']:.3f} of GRPO's tokens, {found['ratio']:.4f} of its CPU seconds "
                f"[{found['low']:.4f}, {found['high']:.4f}]; outside the model {100 * outside['ratio']:.3f} % of them "
                f"[{100 * outside['low']:.3f}, {100 * outside['high']:.3f}] ({self.rounds} rounds)"
            )
        return 0


def measure(setting: LLMOverhead) -> dict[str, Any]:
    """Of each update beside GRPO's: ratio of CPU seconds, its interval, ratio of tokens, and the seconds themselves.

    `outside_model` has those of the trainer's part alone, over the seconds of the whole GRPO update.
    """
    import torch
    from tqdm import tqdm
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from benchmarks.actor import actor_config, free_port, training_worker

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        shape = dict(zip(SHAPE, MODELS[setting.model], strict=True))
        heads, size = shape["num_attention_heads"], shape["hidden_size"] // shape["num_attention_heads"]
        config = Qwen3Config(**shape, head_dim=size, num_key_value_heads=heads // 2, tie_word_embeddings=False)
        model = Qwen3ForCausalLM(config)
        result: dict[str, Any] = {"parameters": model.num_parameters()}
        model.save_pretrained(folder)
        worker = training_worker(Path(folder), 0, 1, free_port())
        from verl.workers.utils.losses import ppo_loss  # after the worker, whose platform VeRL then has

        worker.set_loss_fn(partial(ppo_loss, actor_config(loss_agg_mode="seq-mean-token-mean")))
        updates, tokens = (_of_training_prompts if setting.cached else _updates)(worker, setting)
        for update in updates.values():
            update()
        seconds: dict[str, list[float]] = {name: [] for name in updates}
        outside: dict[str, list[float]] = {name: [] for name in updates}
        for number in tqdm(range(setting.rounds), desc="rounds", unit="round"):
            for name in list(updates)[:: 1 if number % 2 == 0 else -1]:
                start = time.process_time()
                outside[name].append(updates[name]())
                seconds[name].append(time.process_time() - start)
            result["updates"] = {
                name: {
                    **_compared(times, seconds["GRPO"]),
                    "tokens": tokens[name] / tokens["GRPO"],
                    "seconds": times,
                    "outside_model": {**_compared(outside[name], seconds["GRPO"]), "seconds": outside[name]},
                }
                for name, times in seconds.items()
            }
            if setting.json:
                setting.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        torch.distributed.destroy_process_group()
    return result


def _compared(times: list[float], base: list[float]) -> dict[str, float]:
    """The median of the ratios, and its 95% interval by order statistics, infinite where there are too few."""
    import numpy as np
    from scipy import stats

    ratios = np.sort(np.array(times) / np.array(base))
    outside = int(stats.binom.ppf(0.025, len(ratios), 0.5))  # so many ratios on either side may lie beyond the median
    sides = (ratios[outside - 1], ratios[-outside]) if outside else (0.0, np.inf)
    return {"ratio": float(np.median(ratios)), "low": float(sides[0]), "high": float(sides[1])}


def _columns(tokens: list[Tensor], generator: Any, added: int) -> dict[str, list[Tensor]]:
    """What VeRL's queue holds of rows, by name. tokens: prompt and response of each. added: how many of the last rows
    do not count among VeRL's tokens.
    """
    import torch

    lengths = [len(row) - PROMPT for row in tokens]
    return {
        "prompts": [row[:PROMPT] for row in tokens],
        "responses": [row[PROMPT:] for row in tokens],
        "input_ids": tokens,
        "position_ids": [torch.arange(len(row)) for row in tokens],
        "response_mask": [torch.ones(length, dtype=torch.int64) for length in lengths],
        "loss_mask": [torch.full((length,), int(row < len(lengths) - added)) for row, length in enumerate(lengths)],
        "old_log_probs": [torch.full((length,), LOG_PROB) for length in lengths],
        "advantages": [torch.randn((), generator=generator).expand(length).clone() for length in lengths],
    }


def _batch(contents: dict[str, list[Tensor]], micro_batch: int) -> Any:
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    from benchmarks.actor import update_settings

    rows = len(contents["input_ids"])
    nested = {key: torch.nested.as_nested_tensor(value, layout=torch.jagged) for key, value in contents.items()}
    data = TensorDict(nested, batch_size=rows)
    tu.assign_non_tensor(data, **update_settings(rows, micro_batch))
    return data


def _cached_group(uid: str, tokens: list[Tensor], rewards: list[float]) -> Any:
    """The reference's responses to one prompt, as the buffer has them. tokens: prompt and response of each."""
    import numpy as np

    from cokl.responses.buffer import CachedGroup

    return CachedGroup(
        prompt=[{"role": "user", "content": uid}],
        data_source="math_train",
        ground_truth=uid,
        prompt_ids=tokens[0][:PROMPT].numpy(),
        response_ids=[row[PROMPT:].numpy() for row in tokens],
        log_probs=[np.full(len(row) - PROMPT, LOG_PROB) for row in tokens],
        rewards=np.array(rewards, dtype=np.int64),
    )


def _prompts(uids: list[str]) -> Any:
    """RL prompts as VeRL's queue holds them."""
    from verl.utils import tensordict_utils as tu

    return tu.get_tensordict({"raw_prompt": [[{"role": "user", "content": uid}] for uid in uids], "uid": uids})


def _advantages(
    method: Any, prompts: Any, requested: tuple[list[Any], Any], keys: list[str], own: Any, correct: Any
) -> tuple[list[Tensor], float]:
    """What the trainer does beside the worker, and the CPU seconds that it takes.

    It joins the `requested` rows to the RL prompts, weighs the rows of `keys` and makes advantages of the weights. own:
    VeRL's advantages, (T,) of each row. correct: verdicts on the rows.
    """
    import torch

    from cokl.groups import RegularizationRows, SurrogateConfig
    from llm_bridge.trainer.advantages import Aggregation, regularized_advantages
    from llm_bridge.trainer.rows import join

    start = time.process_time()
    rows, members = requested
    join(prompts, rows, {"agent_name": "single_turn_agent", "__rollout_n__": GROUP})
    masks = [torch.ones(len(row), dtype=torch.int64) for row in own]
    tokens = torch.tensor([len(row) for row in own], dtype=torch.float64)
    verdicts, added = torch.tensor(correct, dtype=torch.float64), torch.tensor([members.added(key) for key in keys])
    step = RegularizationRows(members.index(keys), LOG_PROB * tokens, verdicts, tokens=tokens)
    weights = method.row_weights(step, 1.0, SurrogateConfig())
    aggregation = Aggregation("seq-mean-token-mean", len(keys), int((~added).sum()))
    made = regularized_advantages(own, masks, weights, added, aggregation)
    return made, time.process_time() - start


def _with_advantages(data: Any, advantages: list[Tensor]) -> Any:
    import torch

    changed = data.copy()
    changed["advantages"] = torch.nested.as_nested_tensor(advantages, layout=torch.jagged)
    return changed


def _of_training_prompts(worker: Any, setting: LLMOverhead) -> tuple[dict[str, Any], dict[str, int]]:
    """GRPO's passes of a step, and those with so many cached rows to each of its prompts; and the tokens of each."""
    import torch
    from verl.utils import tensordict_utils as tu

    from cokl import methods
    from llm_bridge.trainer.rows import ask

    generator = torch.Generator().manual_seed(1)
    rl_rows, length = setting.groups * GROUP, setting.response_length

    def draw() -> Tensor:
        return torch.randint(MODELS[setting.model][0], (PROMPT + length,), generator=generator)

    fresh, cached = [draw() for _ in range(rl_rows)], [[draw() for _ in range(GROUP)] for _ in range(setting.groups)]
    uids = [f"rl-{number}" for number in range(setting.groups)]
    groups = [_cached_group(uid, answers, [1] * GROUP) for uid, answers in zip(uids, cached, strict=True)]
    prompts = _prompts(uids)
    batches = {count: fresh + [row for answers in cached for row in answers[:count]] for count in {0, *setting.cached}}
    tokens = {count: sum(map(len, rows)) for count, rows in batches.items()}
    columns = {count: _columns(rows, generator, added=len(rows) - rl_rows) for count, rows in batches.items()}
    data = {count: _batch(contents, setting.micro_batch) for count, contents in columns.items()}
    verdicts = (torch.arange(rl_rows) % 2).double().tolist()

    def passes(batch: Any) -> None:
        for_log_probs = batch.copy()
        tu.assign_non_tensor(for_log_probs, calculate_entropy=True, compute_loss=False)
        worker.infer_batch(for_log_probs)
        worker.train_mini_batch(batch)

    def grpo() -> float:
        passes(data[0].copy())
        return 0.0

    def with_cached(count: int) -> float:
        method = methods.get("cokl" if count else "cokl_without_term1")
        brought = {uid: group.drawn(count or 1, [0], True) for uid, group in zip(uids, groups, strict=True)}
        requested = ask([], brought, method.streams(), GROUP, 1)
        keys = [f"{uid}_{session}_0" for uid in uids for session in range(GROUP)]
        keys += [f"{row['uid']}_0_0" for row in requested[0]]
        correct = verdicts + [1.0] * len(requested[0])
        made, seconds = _advantages(method, prompts, requested, keys, columns[count]["advantages"], correct)
        passes(_with_advantages(data[count], made))
        return seconds

    updates: dict[str, Any] = {"GRPO": grpo}
    updates |= {f"{count} cached": partial(with_cached, count) for count in setting.cached}
    return updates, {"GRPO": tokens[0], **{f"{count} cached": tokens[count] for count in setting.cached}}


def _updates(worker: Any, setting: LLMOverhead) -> tuple[dict[str, Any], dict[str, int]]:
    """The two updates, of the same tokens, the last groups being regularization rows in the second; and the tokens."""
    import torch

    from cokl import methods
    from llm_bridge.trainer.rows import ask

    rows = setting.groups * GROUP
    regularized = setting.groups // SHARE // 2  # prompts, each with a cached and a fresh group
    added_rows = 2 * regularized * GROUP
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, setting.response_length + 1, (rows,), generator=generator).tolist()
    tokens = [torch.randint(MODELS[setting.model][0], (PROMPT + length,), generator=generator) for length in lengths]
    columns, method = _columns(tokens, generator, added_rows), methods.get("cokl")
    verdicts = (torch.rand(rows, generator=generator) < 0.5).double().tolist()
    cached = [*range(rows - added_rows, rows - added_rows // 2)]
    drawn = [
        _cached_group(str(start), tokens[start : start + GROUP], verdicts[start : start + GROUP])
        for start in cached[::GROUP]
    ]
    rl = [f"rl-{number}" for number in range(setting.groups - 2 * regularized)]
    prompts = _prompts(rl)
    grpo_batch = _batch(_columns(tokens, generator, 0), setting.micro_batch)
    cokl_batch = _batch(columns, setting.micro_batch)

    def grpo() -> float:
        worker.train_mini_batch(grpo_batch.copy())
        return 0.0

    def cokl() -> float:
        requested = ask(drawn, {}, method.streams(), GROUP, 1)
        asked = sorted(requested[1].asked, key=lambda uid: requested[1].members[uid].stream)
        keys = [f"{uid}_{session}_0" for uid in rl for session in range(GROUP)] + [f"{uid}_0_0" for uid in asked]
        made, seconds = _advantages(method, prompts, requested, keys, columns["advantages"], verdicts)
        worker.train_mini_batch(_with_advantages(cokl_batch, made))
        return seconds

    return {"GRPO": grpo, "CoKL": cokl}, dict.fromkeys(("GRPO", "CoKL"), sum(map(len, tokens)))
