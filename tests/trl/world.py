"""A toy model with a buffer, a trainer on it, and a record of what its optimizer steps were given and did.

The record is of TRL's own parts: what its engine sampled, what its loss was given, the gradient that reached the
optimizer, and the weights before. `expected` writes the gradient from these and the definitions, in float64, a response
at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM, TrainerCallback

from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.trl import CoKLGRPOConfig, CoKLGRPOTrainer
from tests.llm_bridge.toy import make_model, make_tokenizer
from tests.oracles import sampled as definitions

TOKENIZER = make_tokenizer()
OLD, NEW = ("Split 4 apples into two.", "Split 5 balls into two.", "Split 6 keys into two."), ("Hi !", "What do you")
TEMPERATURE, BETA, LENGTH, GROUP = 0.7, 0.4, 7, 2


def right(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Answers with an even number of characters are right."""
    return [float(len(answer[0]["content"]) % 2 == 0) for answer in completions]


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def make_folder(root: Path) -> None:
    """ROOT/model and ROOT/buffer.parquet: three prompts with three cached answers each, right and wrong ones."""
    tokenizer = TOKENIZER
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(root / "model")
    tokenizer.save_pretrained(root / "model")
    groups = []
    for number, text in enumerate(OLD):
        said = ["1 + 3 +", "2 + 2", "two of you and"] if number else ["2 + 2 two", "1 + 3 coins of", "4 + 4"]
        ids = [np.array([*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]) for answer in said]
        asked = tokenizer.apply_chat_template(messages(text), add_generation_prompt=True, return_dict=False)
        groups.append(
            CachedGroup(
                prompt=messages(text),
                data_source="old",
                ground_truth=str(number),
                prompt_ids=np.array(asked),
                response_ids=ids,
                rewards=np.array([is_right(row) for row in ids]).astype(int),
                masks=[np.array([1, 1, 0] + [1] * (len(row) - 3)) for row in ids],
            )
        )
    Buffer(tuple(groups), model_fingerprint(root / "model"), TEMPERATURE).save(root / "buffer.parquet")


def is_right(ids: Any) -> bool:
    return len(TOKENIZER.decode(list(ids), skip_special_tokens=True)) % 2 == 0


def make_trainer(root: Path, rows: Sequence[str] = NEW * 4, kind: Any = CoKLGRPOTrainer, **options: Any) -> Any:
    """On ROOT's model. options: of the config, but model, peft_config, reward_funcs and callbacks of the trainer."""
    names = ("model", "peft_config", "eval_dataset", "callbacks", "reward_funcs")
    own = {"model": str(root / "model"), "reward_funcs": right} | {
        name: options.pop(name) for name in names if name in options
    }
    settings: dict[str, Any] = {
        "output_dir": str(root / "out"), "max_steps": 2, "per_device_train_batch_size": 2, "num_generations": GROUP,
        "gradient_accumulation_steps": 2, "use_cpu": True, "max_completion_length": LENGTH, "report_to": [],
        "save_strategy": "no", "learning_rate": 5e-3, "disable_tqdm": True, "bf16": False, "max_grad_norm": 0.0,
        "temperature": TEMPERATURE, "loss_type": "grpo", "logging_steps": 1, "lr_scheduler_type": "constant",
        "model_init_kwargs": {"dtype": "float32"}, "cokl_buffer": str(root / "buffer.parquet"), "cokl_beta": BETA,
        "cokl_kl_prompts": 2, "seed": 3,
    }  # fmt: skip
    truths = [str(OLD.index(text)) if text in OLD else "new" for text in rows]
    data = {"prompt": [messages(text) for text in rows], "ground_truth": truths}
    return kind(args=CoKLGRPOConfig(**settings | options), train_dataset=datasets.Dataset.from_dict(data), **own)


@dataclass
class Step:
    """An optimizer step: the weights before it, the gradient that it takes, and the RL rows that TRL's loss was given
    as (prompt, response, advantage).
    """

    weights: dict[str, Tensor]
    gradient: Any = None
    rl: list[tuple[list[int], list[int], float]] = field(default_factory=list)


class Record(TrainerCallback):
    """Attach to a trainer before it trains. sampled: what each call of TRL's engine returned, and in which step."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.sampled: list[tuple[int, list[list[int]], list[list[int]]]] = []
        self.logs: list[dict[str, float]] = []

    def attach(self, trainer: Any) -> Record:
        trainer.add_callback(self)
        sample, loss = trainer._generate_single_turn, trainer._compute_loss

        def sampled(prompts: list, *others: Any) -> Any:
            found = sample(prompts, *others)
            self.sampled.append((len(self.steps) - 1, [list(one) for one in prompts], [list(one) for one in found[0]]))
            return found

        def of_batch(model: Any, inputs: dict) -> Tensor:
            if trainer.model.training:
                columns = (inputs[name] for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"))
                for prompt, asked, ids, kept, advantage in zip(*columns, inputs["advantages"], strict=True):
                    row = prompt[asked.bool()].tolist(), ids[kept.bool()].tolist(), float(advantage)
                    self.steps[-1].rl.append(row)
            return loss(model, inputs)

        trainer._generate_single_turn, trainer._compute_loss = sampled, of_batch
        return self

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.steps.append(Step(copy.deepcopy(model.state_dict())))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.steps[-1].gradient = flat(model)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.logs.append(dict(logs))


def flat(model: Any) -> Tensor:
    """The gradient of all trainable parameters."""
    return torch.cat(
        [
            (torch.zeros_like(one) if one.grad is None else one.grad).flatten().double()
            for one in model.parameters()
            if one.requires_grad
        ]
    )


def token_log_probs(model: Any, prompt: Sequence[int], response: Sequence[int]) -> Tensor:
    """(T,): of one response, run by itself without padding."""
    ids = torch.tensor([[*prompt, *response]])
    logits = model(ids).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
    return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]


def twin(root: Path, trainer: CoKLGRPOTrainer | None = None) -> Any:
    """The model in float64, with the trainer's adapters, loaded anew: TRL changes the forward pass of its own."""
    from peft import get_peft_model

    base = Qwen3ForCausalLM.from_pretrained(root / "model", dtype=torch.float64)
    adapters = getattr(getattr(trainer, "model", None), "peft_config", None)
    return (get_peft_model(base, adapters["default"]).double() if adapters else base).eval()


def expected(
    model: Any,
    step: Step,
    start: dict[str, Tensor],
    generated: dict[str, Tensor],
    groups: Sequence[CachedGroup],
    fresh: Sequence[Sequence[list[int]]],
    method: str,
    length: str = "token-sum",
) -> tuple[Tensor, float]:
    """The gradient of GRPO's loss (means over tokens, then over responses) plus the regularizer's, and its loss.

    model: a `twin`, whose weights are set. start, generated: weights before training, and when the step's responses
    were sampled. groups, fresh: the regularized prompts and the fresh responses to each.
    """
    model.zero_grad()

    def scored(weights: dict[str, Tensor], prompt: Sequence[int], response: Sequence[int]) -> Tensor:
        model.load_state_dict(weights)
        with torch.no_grad():
            return token_log_probs(model, prompt, response)

    prompts = [group.prompt_ids.tolist() for group in groups]
    old = [scored(generated, prompt, ids) for prompt, ids, _ in step.rl]
    asked = [*zip(prompts, fresh, strict=True)]
    before, reference = (
        [[float(scored(weights, prompt, ids).sum()) for ids in responses] for prompt, responses in asked]
        for weights in (generated, start)
    )
    verdicts = [[float(is_right(ids)) for ids in responses] for responses in fresh]
    gate = (
        definitions.opened([group.rewards.tolist() for group in groups], verdicts) if method.endswith("_floor") else 0.0
    )
    model.load_state_dict(step.weights)
    total, added = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for (prompt, ids, advantage), past in zip(step.rl, old, strict=True):
        ratio = (token_log_probs(model, prompt, ids) - past).exp()
        gained = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        total = total - gained.mean() / len(step.rl)
    for place, (group, responses) in enumerate(zip(groups, fresh, strict=True)):
        cached = [
            (token_log_probs(model, prompts[place], ids.tolist()) * torch.tensor(mask), mask.sum())
            for ids, mask in zip(group.response_ids, group.masks, strict=True)
        ]
        rows = [(token_log_probs(model, prompts[place], ids), len(ids)) for ids in responses]
        now, right_before = [float(row.detach().sum()) for row, _ in rows], group.rewards.tolist()
        values = right_before, verdicts[place], now, before[place], reference[place]
        weights = definitions.surrogate_weights(method.removesuffix("_floor"), *values, 0.2)
        pull = [-gate * verdict / len(right_before) for verdict in right_before] + [0.0] * len(rows)  # Eq. 20
        for (row, tokens), weight, of_floor in zip([*cached, *rows], [*weights[0], *weights[1]], pull, strict=True):
            mean = tokens if length == "token-mean" else 1
            added = added + (BETA * weight + of_floor) * row.sum() / mean / len(groups)
    (total + added).backward()
    return flat(model), float(added.detach())
