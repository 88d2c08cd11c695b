"""CoKL in TRL's GRPOTrainer: groups, weights and loss as in VeRL, summed over tokens (Eq. 13), on one process."""

import torch
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer

from cokl import methods
from cokl.groups import ResponseGroups, SurrogateConfig, surrogate_loss
from llm_bridge.buffer.buffer import Buffer, DrawOrder


class CoKLGRPOTrainer(GRPOTrainer):
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
            cached = [zip(group.response_ids, group.masks, strict=True) for group in groups]
            streams["reference"] = self._groups(model, groups, cached, rewards)
        if "rollout" in self.method.streams():
            responses = [self._sample(model, group) for group in groups]
            texts = [[self.processing_class.decode(ids, skip_special_tokens=True) for ids in row] for row in responses]
            rewards = [[self.judge(text, g.ground_truth) for text in row] for g, row in zip(groups, texts, strict=True)]
            fresh = [[(ids, [1] * len(ids)) for ids in row] for row in responses]
            streams["rollout"] = self._groups(model, groups, fresh, torch.tensor(rewards))
        weights = self.method.weights(**streams, beta=self.coefficient, config=SurrogateConfig())
        accumulated = self.current_gradient_accumulation_steps  # of which TRL's loss is a share
        return super()._compute_loss(model, inputs) + surrogate_loss(weights, **streams) / accumulated

    def _groups(self, model, groups, responses, rewards) -> ResponseGroups:
        """Log-likelihoods (N, G) with their graph, at TRL's temperature, over the tokens that the model wrote."""
        rows = [(g.prompt_ids, *response) for g, row in zip(groups, responses, strict=True) for response in row]
        tokens = [torch.tensor([*prompt, *ids], device=model.device) for prompt, ids, _ in rows]
        written = [torch.tensor([0] * len(prompt) + [*mask], device=model.device) for prompt, _, mask in rows]
        parts = (tokens, [torch.ones_like(row) for row in tokens], written)
        batch, kept, written = (pad_sequence(part, batch_first=True) for part in parts)
        logits = model(input_ids=batch, attention_mask=kept).logits[:, :-1] / self.temperature
        log_probs = logits.log_softmax(-1).gather(-1, batch[:, 1:, None])[..., 0]
        return ResponseGroups((log_probs * written[:, 1:]).sum(-1).view(rewards.shape), rewards.to(model.device))

    @torch.no_grad()
    def _sample(self, model, group) -> list[list[int]]:
        """G fresh responses to a prompt, each up to its end token."""
        prompt = torch.tensor(group.prompt_ids, device=model.device)[None].repeat(self.num_generations, 1)
        config = self.generation_config
        out = self.accelerator.unwrap_model(model).generate(prompt, generation_config=config)[:, prompt.shape[1] :]
        ends = torch.isin(out, torch.tensor(self.eos_token_ids, device=model.device)).int()
        return [ids[before == 0].tolist() for ids, before in zip(out, ends.cumsum(-1) - ends, strict=True)]
