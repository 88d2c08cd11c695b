"""`conditional_kl.py BUFFER REFERENCE MODEL ...`: how far models are from a reference on its correct responses.

For each model two numbers in nats: CoKL's KL (Eq. 8) among a prompt's different correct responses, averaged over the
prompts that have several; and the change of these responses' total log-probability, averaged over all prompts.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from cokl.responses.buffer import Buffer, model_fingerprint

buffer = Buffer.load(Path(sys.argv[1]), model_fingerprint(Path(sys.argv[2]))).filtered()


@torch.inference_mode()
def log_probs(folder):
    """(K,) for each prompt with K different correct responses, summed over the tokens that the policy wrote."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    for group in buffer.groups:
        rows = zip(group.response_ids, group.masks, group.rewards, strict=True)
        different = {tuple(ids.tolist()): mask.nonzero()[0] for ids, mask, right in rows if right}
        sums = []
        for ids, written in different.items():
            tokens = torch.tensor([[*group.prompt_ids.tolist(), *ids]])
            logits = model(tokens).logits[0, -len(ids) - 1 : -1] / buffer.temperature
            sums.append(logits.log_softmax(-1)[written, torch.tensor(ids)[written]].sum())
        yield torch.stack(sums)


reference = list(log_probs(sys.argv[2]))
for folder in sys.argv[3:]:
    pairs = list(zip(reference, log_probs(folder), strict=True))
    mass = [new.logsumexp(0) - old.logsumexp(0) for old, new in pairs]
    several = [(old.log_softmax(0), new.log_softmax(0)) for old, new in pairs if len(old) > 1]
    kl = [(old.exp() * (old - new)).sum() for old, new in several]
    print(f"{folder}: KL {torch.tensor(kl).mean():.3f} over {len(kl)} prompts")
    print(f"    log-probability {torch.tensor(mass).mean():+.3f} over {len(mass)} prompts", flush=True)
