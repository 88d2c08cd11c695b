"""CoKL in TRL's GRPOTrainer: the same groups, weights and surrogate loss as in VeRL, on one process."""

import torch
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer

from cokl import methods
from cokl.groups import ResponseGroups, SurrogateConfig, surrogate_loss
from cokl.responses.buffer import Buffer, DrawOrder


class CoKLTrainer(GRPOTrainer):
    """GRPO plus beta times a regularizer of responses to a buffer's prompts.

    judge: (text, ground truth) -> 0 or 1. method_name: as `cokl.methods.get` knows it, without a reference policy.
    """

    def __init__(self, *args, buffer: Buffer, judge, method_name="cokl", coefficient=1.0, kl_prompts=4, **kwargs):
        super().__init__(*args, **kwargs)
        self.method, self.judge = methods.get(method_name), judge
        self.buffer = buffer.filtered() if self.method.filtered else buffer
        self.order = DrawOrder(len(self.buffer), self.args.seed)
        self.coefficient, self.kl_prompts = coefficient, kl_prompts

    def _compute_loss(self, model, inputs):
        groups = [self.buffer.groups[index] for index in self.order.draw(self.kl_prompts)]
        streams = dict.fromkeys(("reference", "rollout"))
        if "reference" in self.method.streams():
            rewards = torch.tensor([group.rewards.tolist() for group in groups])
            streams["reference"] = self._groups(model, groups, [group.response_ids for group in groups], rewards)
        if "rollout" in self.method.streams():
            responses = [self._sample(model, group) for group in groups]
            texts = [[self.processing_class.decode(ids, skip_special_tokens=True) for ids in row] for row in responses]
            rewards = [[self.judge(text, g.ground_truth) for text in row] for g, row in zip(groups, texts, strict=True)]
            streams["rollout"] = self._groups(model, groups, responses, torch.tensor(rewards))
        weights = self.method.weights(**streams, beta=self.coefficient, config=SurrogateConfig())
        accumulated = self.current_gradient_accumulation_steps  # of which TRL's loss is a share
        return super()._compute_loss(model, inputs) + surrogate_loss(weights, **streams) / accumulated

    def _groups(self, model, groups, responses, rewards) -> ResponseGroups:
        """Sequence log-likelihoods (N, G) with their graph."""
        pairs = [(g.prompt_ids, ids) for g, row in zip(groups, responses, strict=True) for ids in row]
        tokens = [torch.tensor([*prompt, *ids], device=model.device) for prompt, ids in pairs]
        batch = pad_sequence(tokens, batch_first=True)
        kept = pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
        log_probs = model(input_ids=batch, attention_mask=kept).logits[:, :-1].log_softmax(-1)
        chosen = log_probs.gather(-1, batch[:, 1:, None])[..., 0]
        answers = [chosen[row, len(prompt) - 1 : len(prompt) + len(ids) - 1] for row, (prompt, ids) in enumerate(pairs)]
        sums = torch.stack([answer.sum() for answer in answers])
        return ResponseGroups(sums.view(rewards.shape), rewards.to(model.device))

    @torch.no_grad()
    def _sample(self, model, group) -> list[list[int]]:
        """G fresh responses to a prompt, each up to its end token."""
        prompt = torch.tensor(group.prompt_ids, device=model.device)[None].repeat(self.num_generations, 1)
        config = self.generation_config
        out = self.accelerator.unwrap_model(model).generate(prompt, generation_config=config)[:, prompt.shape[1] :]
        end = self.processing_class.eos_token_id
        return [ids[: ids.index(end) + 1] if end in ids else ids for ids in out.tolist()]
