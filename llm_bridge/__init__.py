"""The paper's LLM experiment on VeRL, with the loss of `cokl`. Importing it loads neither VeRL nor PyTorch."""
