"""The LLM bridge: the paper's language-model experiment on VeRL. Imports `cokl`, never `bandit` or `theory`."""
