"""KL(pi_ref+ || pi_theta+) in nats, over a prompt's different cached correct responses: BUFFER REFERENCE MODEL ..."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from cokl.responses.buffer import Buffer, model_fingerprint

file, reference, *models = sys.argv[1:]
expected: list[torch.Tensor] = []
for folder in [reference, *models]:
    model, found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), []
    for group in Buffer.load(Path(file), model_fingerprint(reference)).groups:
        prompt, sums = group.prompt_ids.tolist(), []
        for ids in sorted({tuple(group.response_ids[row].tolist()) for row in group.rewards.nonzero()[0]}):
            with torch.no_grad():
                steps = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].log_softmax(1)
            sums.append(steps[range(len(ids)), list(ids)].sum())
        found += [torch.stack(sums).log_softmax(0)] if len(sums) > 1 else []
    expected = expected or found
    kls = torch.tensor([(p.exp() * (p - q)).sum() for p, q in zip(expected, found, strict=True)])
    print(f"{folder}: {kls.mean():.3f} over {len(kls)} prompts with two such responses or more")
