"""docs/examples/trl_cokl.py: TRL's GRPOTrainer with the regularizer takes a step of the right gradient."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("trl")  # in a folder of its own: with a current TRL beside it VeRL does not start

import datasets
from trl import GRPOConfig

from llm_bridge.buffer.buffer import Buffer, CachedGroup
from tests.llm_bridge.toy import make_model, make_tokenizer

pytestmark = pytest.mark.trl

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "trl_cokl.py"


def example():
    specification = importlib.util.spec_from_file_location("trl_cokl", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def cached(tokenizer) -> Buffer:
    def group(number: int) -> CachedGroup:
        message = [{"role": "user", "content": str(number)}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        responses = [np.array(tokenizer(f"\\boxed{{{number + wrong}}}")["input_ids"]) for wrong in (0, 1)]
        return CachedGroup(
            prompt=message,
            data_source="math_train",
            ground_truth=str(number),
            prompt_ids=np.array(tokenizer(text)["input_ids"]),
            response_ids=responses,
            rewards=np.array([1, 0]),
            masks=[np.array([1, 0] + [1] * (len(ids) - 2)) for ids in responses],
        )

    return Buffer((group(3), group(4)), "toy")


@pytest.fixture
def make(tmp_path):
    def trainer(method_name: str, coefficient: float):
        torch.manual_seed(0)
        tokenizer = make_tokenizer()
        config = GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, num_generations=2, use_cpu=True,
            max_completion_length=6, report_to=[], save_strategy="no", learning_rate=1e-3, disable_tqdm=True,
            bf16=False, gradient_checkpointing=False, max_grad_norm=0.0, temperature=0.7,
        )  # fmt: skip
        return example().CoKLGRPOTrainer(
            model=make_model(tokenizer),
            reward_funcs=lambda completions, **columns: [float(len(str(answer)) % 2) for answer in completions],
            args=config,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["1 2", "3 4"] * 4}),
            processing_class=tokenizer,
            buffer=cached(tokenizer),
            judge=lambda text, truth: float(truth in text),
            method_name=method_name,
            coefficient=coefficient,
            kl_prompts=2,
        )

    return trainer


def test_it_is_short():
    assert len(EXAMPLE.read_text().splitlines()) <= 60


def test_a_step_with_both_streams_moves_the_model(make):
    trainer = make("cokl", 1.0)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    assert trainer.state.global_step == 1
    assert any(not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))


@pytest.mark.parametrize(("method", "sign"), [("correct_forward_kl", 1), ("cokl_without_term1", -1)])
def test_the_added_gradient_is_that_of_the_correct_responses(make, method, sign):
    """Beta times the mean, over prompts, of the mean negative log-likelihood of correct responses, at TRL's
    temperature: replay's of cached ones, without the masked token; minus that of fresh ones, which are the same here.
    """
    gradients = []
    for coefficient in (0.0, 0.7):
        trainer = make(method, coefficient)
        trainer._sample = lambda model, group: [ids.tolist() for ids in group.response_ids]
        seen: dict[str, list] = {}
        step = trainer.training_step

        def look(model, inputs, items, step=step, seen=seen, trainer=trainer):
            step(model, inputs, items)
            seen["gradient"] = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            raise StopIteration

        trainer.training_step = look
        torch.manual_seed(1)
        with pytest.raises(StopIteration):
            trainer.train()
        gradients.append(torch.cat([gradient.flatten() for gradient in seen["gradient"]]))
    model = make(method, 0.0).model.train()
    loss = torch.zeros(())
    for group in trainer.buffer.groups:
        tokens = torch.tensor([*group.prompt_ids, *group.response_ids[0]])[None]
        logits = (model(tokens).logits[0, len(group.prompt_ids) - 1 : -1] / 0.7).log_softmax(-1)
        chosen = logits.gather(-1, tokens[0, len(group.prompt_ids) :, None])[:, 0]
        masked = chosen[1] if method == "correct_forward_kl" else 0
        loss = loss - (chosen.sum() - masked) / len(trainer.buffer.groups)
    expected = 0.7 * sign * torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(gradients[1] - gradients[0], expected, rtol=1e-3, atol=1e-5)
