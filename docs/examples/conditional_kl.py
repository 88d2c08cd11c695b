"""How far models are from a reference on the correct responses that it gave: two numbers for each, in nats.

KL among a prompt's different cached correct responses, the part of Eq. 8 that shows there, averaged over the prompts
that have several; and the change of these responses' total log-probability, averaged over all prompts.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from cokl.support.errors import InputError
from llm_bridge.buffer.groups import Buffer, model_fingerprint


@torch.inference_mode()
def log_probs(folder):
    """(K,) for each prompt with K different correct responses, summed over the tokens that the policy wrote."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").to(device)
    for group in buffer.groups:
        rows = zip(group.response_ids, group.masks, group.rewards, strict=True)
        different = {tuple(ids.tolist()): mask.nonzero()[0] for ids, mask, right in rows if right}
        sums = []
        for ids, written in different.items():
            tokens = torch.tensor([[*group.prompt_ids.tolist(), *ids]], device=device)
            logits = model(tokens, logits_to_keep=len(ids) + 1, use_cache=False).logits[0, :-1] / buffer.temperature
            sums.append(logits.log_softmax(-1)[written, torch.tensor(ids)[written]].sum().cpu())
        yield torch.stack(sums)


parser = argparse.ArgumentParser(description=__doc__)
for name, nargs in (("buffer", None), ("reference", None), ("model", "+")):
    parser.add_argument(name, type=Path, nargs=nargs)
given = parser.parse_args()
try:
    buffer = Buffer.load(given.buffer, model_fingerprint(given.reference)).filtered()
except InputError as error:
    parser.error(str(error))
reference = list(log_probs(given.reference))
for folder in given.model:
    pairs = list(zip(reference, log_probs(folder), strict=True))
    mass = [new.logsumexp(0) - old.logsumexp(0) for old, new in pairs]
    several = [(old.log_softmax(0), new.log_softmax(0)) for old, new in pairs if len(old) > 1]
    kl = [(old.exp() * (old - new)).sum() for old, new in several]
    print(f"{folder}: KL {torch.tensor(kl).mean():.3f} over {len(kl)} prompts")
    print(f"    log-probability {torch.tensor(mass).mean():+.3f} over {len(mass)} prompts", flush=True)
