"""Questions to the tiny LLM that take many short runs: one VeRL job per seed, and tables that later jobs add to."""
