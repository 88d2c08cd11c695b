"""`python -m benchmarks llm-overhead`: an actor update with CoKL's rows beside GRPO's, on the same rows and tokens.

Both are VeRL's own worker on one model in one process with one thread: GRPO's takes all rows as RL rows with VeRL's
loss, CoKL's takes a fifth of them (E.3: 16 of 80 groups) as regularization rows with the joint loss, after the
trainer's own part of a step: the minibatch is put together, joined to the RL prompts, and its groups are weighted. They
take turns. Times are the process's CPU seconds, which other work on the machine disturbs least; the figure is the mean
of the pairs' log-ratios with a 95% t-interval.
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
    model: Literal["1m", "110m"] = "1m"
    """Parameters of the model."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all figures to this file."""

    def run(self) -> int:
        """Measure, print a line, write the JSON."""
        if self.rounds < 2 or self.groups < 2 * SHARE or self.response_length < 1 or self.micro_batch < 1:
            raise InputError(
                f"expected at least 2 rounds, {2 * SHARE} groups and 1 token, got {self.rounds}, {self.groups} and "
                f"{self.response_length}"
            )
        if self.groups * GROUP % self.micro_batch:
            raise InputError(f"micro-batch: expected a divisor of {self.groups * GROUP} rows, got {self.micro_batch}")
        result = measure(self)
        print(
            f"actor update with CoKL's rows over GRPO's: {result['ratio']:.4f} "
            f"[{result['low']:.4f}, {result['high']:.4f}] (GRPO {result['grpo_s']:.2f} CPU s, {self.rounds} pairs)"
        )
        if self.json:
            self.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return 0


def measure(setting: LLMOverhead) -> dict[str, float]:
    """Ratio, its interval, and the mean CPU seconds of both updates."""
    import numpy as np
    import torch
    from scipy import stats
    from tqdm import tqdm
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from benchmarks.actor import free_port, training_worker

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        shape = dict(zip(SHAPE, MODELS[setting.model], strict=True))
        heads, size = shape["num_attention_heads"], shape["hidden_size"] // shape["num_attention_heads"]
        config = Qwen3Config(**shape, head_dim=size, num_key_value_heads=heads // 2, tie_word_embeddings=False)
        model = Qwen3ForCausalLM(config)
        parameters = model.num_parameters()
        model.save_pretrained(name)
        worker = training_worker(Path(name), 0, 1, free_port())
        grpo, cokl = _updates(worker, setting)
        grpo()
        cokl()
        pairs = []
        for number in tqdm(range(setting.rounds), desc="pairs", unit="pair"):
            order = (grpo, cokl) if number % 2 == 0 else (cokl, grpo)
            seconds = {}
            for update in order:
                start = time.process_time()
                update()
                seconds[update] = time.process_time() - start
            pairs.append((seconds[grpo], seconds[cokl]))
        torch.distributed.destroy_process_group()
    times = np.array(pairs)
    ratios = np.log(times[:, 1] / times[:, 0])
    low, high = stats.t.interval(0.95, len(ratios) - 1, ratios.mean(), stats.sem(ratios))
    return {
        "ratio": float(np.exp(ratios.mean())),
        "low": float(np.exp(low)),
        "high": float(np.exp(high)),
        "grpo_s": float(times[:, 0].mean()),
        "cokl_s": float(times[:, 1].mean()),
        "parameters": float(parameters),
    }


def _updates(worker: Any, setting: LLMOverhead) -> tuple[Any, Any]:
    """The two updates: of the same tokens, the last groups being regularization rows in the second."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.losses import ppo_loss

    from benchmarks.actor import actor_config, update_settings
    from llm_bridge.trainer.loss import ADDED, WEIGHT, joint_loss

    rows = setting.groups * GROUP
    prompts = setting.groups // SHARE // 2  # each with a cached and a fresh group
    added_rows = 2 * prompts * GROUP
    vocabulary = MODELS[setting.model][0]
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, setting.response_length + 1, (rows,), generator=generator).tolist()
    tokens = [torch.randint(vocabulary, (PROMPT + length,), generator=generator) for length in lengths]
    columns = {
        "prompts": [row[:PROMPT] for row in tokens],
        "responses": [row[PROMPT:] for row in tokens],
        "input_ids": tokens,
        "position_ids": [torch.arange(len(row)) for row in tokens],
        "response_mask": [torch.ones(length, dtype=torch.int64) for length in lengths],
        "loss_mask": [torch.ones(length, dtype=torch.int64) for length in lengths],
        "old_log_probs": [torch.full((length,), LOG_PROB) for length in lengths],
        "advantages": [torch.randn((), generator=generator).expand(length).clone() for length in lengths],
    }
    is_added = (torch.arange(rows) >= rows - added_rows)[torch.randperm(rows, generator=generator)]
    added_indices = is_added.nonzero().flatten().tolist()  # cached rows first, prompt by prompt, then fresh ones
    verdicts = (torch.rand(added_rows, generator=generator) < 0.5).double().tolist()
    trainer = _TrainersPart([tokens[row] for row in added_indices], verdicts, setting.groups - 2 * prompts)
    cokl_columns = dict(columns)
    masks = zip(columns["loss_mask"], is_added.tolist(), strict=True)
    cokl_columns["loss_mask"] = [mask * (not flag) for mask, flag in masks]

    def batch(contents: dict[str, list[torch.Tensor]], rl_rows: int) -> TensorDict:
        nested = {key: torch.nested.as_nested_tensor(value, layout=torch.jagged) for key, value in contents.items()}
        data = TensorDict(nested, batch_size=rows)
        tu.assign_non_tensor(data, **update_settings(rows, rl_rows, setting.micro_batch))
        return data

    grpo_batch, cokl_batch = batch(columns, rows), batch(cokl_columns, rows - added_rows)
    config = actor_config(loss_agg_mode="seq-mean-token-mean")

    def grpo() -> None:
        worker.set_loss_fn(partial(ppo_loss, config))
        worker.train_mini_batch(grpo_batch.copy())

    def cokl() -> None:
        weights = torch.zeros(rows)
        weights[added_indices] = trainer.weights()
        data = cokl_batch.copy()
        data[WEIGHT], data[ADDED] = weights[:, None], is_added.float()[:, None]
        worker.set_loss_fn(partial(joint_loss, config))
        worker.train_mini_batch(data)

    return grpo, cokl


class _TrainersPart:
    """What the trainer does beside the worker in a step with regularization rows.

    added: tokens of these rows, prompt and response, those of the cached groups before those of the fresh ones.
    verdicts: on them. rl_prompts: how many prompts the others answer.
    """

    def __init__(self, added: list[Tensor], verdicts: list[float], rl_prompts: int) -> None:
        import numpy as np
        from verl.utils import tensordict_utils as tu

        from cokl import methods
        from cokl.responses.buffer import CachedGroup

        self.method, self.verdicts = methods.get("cokl"), verdicts
        self.lengths = [float(len(tokens) - PROMPT) for tokens in added]
        self.prompts = tu.get_tensordict(
            {
                "raw_prompt": [[{"role": "user", "content": str(row)}] for row in range(rl_prompts)],
                "uid": [f"rl-{row}" for row in range(rl_prompts)],
            }
        )
        self.drawn = [
            CachedGroup(
                prompt=[{"role": "user", "content": str(start)}],
                data_source="math_train",
                ground_truth=str(start),
                prompt_ids=added[start][:PROMPT].numpy(),
                response_ids=[tokens[PROMPT:].numpy() for tokens in added[start : start + GROUP]],
                log_probs=[np.full(len(tokens) - PROMPT, LOG_PROB) for tokens in added[start : start + GROUP]],
                rewards=np.array(verdicts[start : start + GROUP], dtype=np.int64),
            )
            for start in range(0, len(added) // 2, GROUP)
        ]

    def weights(self) -> Tensor:
        """Of the added rows, in their order."""
        import torch

        from cokl.groups import RegularizationRows, SurrogateConfig
        from llm_bridge.trainer.join import join
        from llm_bridge.trainer.streams import requests

        rows, minibatch = requests(self.drawn, {}, self.method.streams(), GROUP, 1)
        join(self.prompts, rows, {"agent_name": "single_turn_agent", "__rollout_n__": GROUP})
        keys = [f"{uid}_0_0" for uid, origin in minibatch.origins.items() if origin.stream == "reference"]
        fresh = [uid for uid, origin in minibatch.origins.items() if origin.stream == "rollout"]
        keys += [f"{uid}_{session}_0" for uid in fresh for session in range(GROUP)]
        lengths, verdicts = (torch.tensor(values, dtype=torch.float64) for values in (self.lengths, self.verdicts))
        step = RegularizationRows(minibatch.index(keys), LOG_PROB * lengths, verdicts, tokens=lengths)
        return self.method.row_weights(step, 1.0, SurrogateConfig()).float()
