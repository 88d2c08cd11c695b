"""`python -m benchmarks llm-overhead`: an actor update with CoKL's rows beside GRPO's, on the same rows and tokens.

Both are VeRL's own worker on one model in one process with one thread: GRPO's takes all rows as RL rows with VeRL's
loss, CoKL's takes a fifth of them (E.3: 16 of 80 groups) as regularization rows with the joint loss, after the
trainer's own part of a step: the minibatch is put together, joined to the RL prompts, and its groups are weighted.
The model does the same work in both, so what CoKL adds is also timed where it is spent: the trainer's part, the loss,
and the loss's gradient with respect to the tokens' log-probabilities.

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

    `outside_model` has those of the trainer's part and the loss alone, over the seconds of the whole GRPO update.
    """
    import torch
    from tqdm import tqdm
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from benchmarks.actor import free_port, training_worker

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


class _Timed:
    """A loss, as VeRL's worker calls it, and the CPU seconds that an update spends outside the model.

    Hooks on the loss and on the log-probabilities tell when the gradient between the two is computed.
    """

    def __init__(self, loss: Any, config: Any) -> None:
        self.loss, self.config = loss, config
        self.seconds, self.started = 0.0, time.process_time()

    def start(self, *_: Any) -> None:
        self.started = time.process_time()

    def stop(self, *_: Any) -> None:
        self.seconds += time.process_time() - self.started

    def __call__(self, model_output: dict[str, Tensor], data: Any, dp_group: Any = None) -> tuple[Tensor, Any]:
        self.start()
        loss, metrics = self.loss(self.config, model_output, data, dp_group)
        self.stop()
        loss.register_hook(self.start)
        model_output["log_probs"].register_hook(self.stop)
        return loss, metrics


def _columns(tokens: list[Tensor], generator: Any) -> dict[str, list[Tensor]]:
    """What VeRL's queue holds of rows, by name. tokens: prompt and response of each."""
    import torch

    lengths = [len(row) - PROMPT for row in tokens]
    return {
        "prompts": [row[:PROMPT] for row in tokens],
        "responses": [row[PROMPT:] for row in tokens],
        "input_ids": tokens,
        "position_ids": [torch.arange(len(row)) for row in tokens],
        "response_mask": [torch.ones(length, dtype=torch.int64) for length in lengths],
        "loss_mask": [torch.ones(length, dtype=torch.int64) for length in lengths],
        "old_log_probs": [torch.full((length,), LOG_PROB) for length in lengths],
        "advantages": [torch.randn((), generator=generator).expand(length).clone() for length in lengths],
    }


def _batch(contents: dict[str, list[Tensor]], rl_rows: int, micro_batch: int) -> Any:
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    from benchmarks.actor import update_settings

    rows = len(contents["input_ids"])
    nested = {key: torch.nested.as_nested_tensor(value, layout=torch.jagged) for key, value in contents.items()}
    data = TensorDict(nested, batch_size=rows)
    tu.assign_non_tensor(data, **update_settings(rows, rl_rows, micro_batch))
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


def _row_weights(
    method: Any, prompts: Any, requested: tuple[list[Any], Any], keys: list[str], lengths: list[float], correct: Any
) -> Tensor:
    """What the trainer does beside the worker: joins the `requested` rows to the RL prompts and weighs those of `keys`.

    lengths: of their responses. correct: the verdicts on them.
    """
    import torch

    from cokl.groups import RegularizationRows, SurrogateConfig
    from llm_bridge.trainer.join import join

    rows, minibatch = requested
    join(prompts, rows, {"agent_name": "single_turn_agent", "__rollout_n__": GROUP})
    tokens, verdicts = (torch.tensor(values, dtype=torch.float64) for values in (lengths, correct))
    step = RegularizationRows(minibatch.index(keys), LOG_PROB * tokens, verdicts, tokens=tokens)
    return method.row_weights(step, 1.0, SurrogateConfig()).float()


def _of_training_prompts(worker: Any, setting: LLMOverhead) -> tuple[dict[str, Any], dict[str, int]]:
    """GRPO's passes of a step, and those with so many cached rows to each of its prompts; and the tokens of each."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.losses import ppo_loss

    from benchmarks.actor import actor_config
    from cokl import methods
    from llm_bridge.trainer.loss import ADDED, WEIGHT, joint_loss
    from llm_bridge.trainer.streams import requests

    generator, config = torch.Generator().manual_seed(1), actor_config(loss_agg_mode="seq-mean-token-mean")
    rl_rows, length = setting.groups * GROUP, setting.response_length

    def draw() -> Tensor:
        return torch.randint(MODELS[setting.model][0], (PROMPT + length,), generator=generator)

    fresh, cached = [draw() for _ in range(rl_rows)], [[draw() for _ in range(GROUP)] for _ in range(setting.groups)]
    uids = [f"rl-{number}" for number in range(setting.groups)]
    groups = [_cached_group(uid, answers, [1] * GROUP) for uid, answers in zip(uids, cached, strict=True)]
    prompts = _prompts(uids)

    def passes(data: TensorDict, timed: _Timed) -> float:
        timed.stop()
        worker.set_loss_fn(timed)
        for_log_probs = data.copy()
        tu.assign_non_tensor(for_log_probs, calculate_entropy=True, compute_loss=False)
        worker.infer_batch(for_log_probs)
        worker.train_mini_batch(data)
        return timed.seconds

    batches = {count: fresh + [row for answers in cached for row in answers[:count]] for count in {0, *setting.cached}}
    tokens = {count: sum(map(len, rows)) for count, rows in batches.items()}
    data = {
        count: _batch(
            {
                name: [values * (name != "loss_mask" or row < rl_rows) for row, values in enumerate(columns)]
                for name, columns in _columns(rows, generator).items()
            },
            rl_rows,
            setting.micro_batch,
        )
        for count, rows in batches.items()
    }
    verdicts = (torch.arange(rl_rows) % 2).double().tolist()

    def with_cached(count: int) -> float:
        timed = _Timed(joint_loss, config)
        method = methods.get("cokl" if count else "cokl_without_term1")
        brought = {uid: group.drawn(count or 1, [0], True) for uid, group in zip(uids, groups, strict=True)}
        requested = requests([], brought, method.streams(), GROUP, 1)
        keys = [f"{uid}_{session}_0" for uid in uids for session in range(GROUP)]
        keys += [f"{row['uid']}_0_0" for row in requested[0]]
        lengths, correct = [float(length)] * len(keys), verdicts + [1.0] * len(requested[0])
        weights = _row_weights(method, prompts, requested, keys, lengths, correct)
        batch = data[count].copy()
        batch[WEIGHT] = weights[:, None]
        batch[ADDED] = (torch.arange(len(keys)) >= rl_rows).float()[:, None]
        return passes(batch, timed)

    updates: dict[str, Any] = {"GRPO": lambda: passes(data[0].copy(), _Timed(ppo_loss, config))}
    updates |= {f"{count} cached": partial(with_cached, count) for count in setting.cached}
    return updates, {"GRPO": tokens[0], **{f"{count} cached": tokens[count] for count in setting.cached}}


def _updates(worker: Any, setting: LLMOverhead) -> tuple[dict[str, Any], dict[str, int]]:
    """The two updates, of the same tokens, the last groups being regularization rows in the second; and the tokens."""
    import torch
    from tensordict import TensorDict
    from verl.workers.utils.losses import ppo_loss

    from benchmarks.actor import actor_config
    from cokl import methods
    from llm_bridge.trainer.loss import ADDED, WEIGHT, joint_loss
    from llm_bridge.trainer.streams import requests

    rows = setting.groups * GROUP
    regularized = setting.groups // SHARE // 2  # prompts, each with a cached and a fresh group
    added_rows = 2 * regularized * GROUP
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, setting.response_length + 1, (rows,), generator=generator).tolist()
    tokens = [torch.randint(MODELS[setting.model][0], (PROMPT + length,), generator=generator) for length in lengths]
    columns = _columns(tokens, generator)
    is_added = (torch.arange(rows) >= rows - added_rows)[torch.randperm(rows, generator=generator)]
    added_indices = is_added.nonzero().flatten().tolist()  # cached rows first, prompt by prompt, then fresh ones
    verdicts = (torch.rand(added_rows, generator=generator) < 0.5).double().tolist()
    added, method = [tokens[row] for row in added_indices], methods.get("cokl")
    sizes = [float(len(row) - PROMPT) for row in added]
    drawn = [
        _cached_group(str(start), added[start : start + GROUP], verdicts[start : start + GROUP])
        for start in range(0, added_rows // 2, GROUP)
    ]
    prompts = _prompts([f"rl-{number}" for number in range(setting.groups - 2 * regularized)])
    masks = [mask * (not flag) for mask, flag in zip(columns["loss_mask"], is_added.tolist(), strict=True)]
    grpo_batch = _batch(columns, rows, setting.micro_batch)
    cokl_batch = _batch({**columns, "loss_mask": masks}, rows - added_rows, setting.micro_batch)
    config = actor_config(loss_agg_mode="seq-mean-token-mean")

    def updated(data: TensorDict, timed: _Timed) -> float:
        timed.stop()
        worker.set_loss_fn(timed)
        worker.train_mini_batch(data)
        return timed.seconds

    def cokl() -> float:
        timed = _Timed(joint_loss, config)
        requested = requests(drawn, {}, method.streams(), GROUP, 1)
        origins = requested[1].origins.items()
        keys = [f"{uid}_0_0" for uid, origin in origins if origin.stream == "reference"]
        fresh = [uid for uid, origin in origins if origin.stream == "rollout"]
        keys += [f"{uid}_{session}_0" for uid in fresh for session in range(GROUP)]
        weights = torch.zeros(rows)
        weights[added_indices] = _row_weights(method, prompts, requested, keys, sizes, verdicts)
        data = cokl_batch.copy()
        data[WEIGHT], data[ADDED] = weights[:, None], is_added.float()[:, None]
        return updated(data, timed)

    updates = {"GRPO": lambda: updated(grpo_batch.copy(), _Timed(ppo_loss, config)), "CoKL": cokl}
    return updates, dict.fromkeys(("GRPO", "CoKL"), sum(map(len, tokens)))
