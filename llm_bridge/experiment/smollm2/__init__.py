"""SmolLM2-135M-Instruct through the paper's stages: its weights, prompts, rewards and strata.

`llm_bridge/FINDINGS.md` says what it is asked, what is compared, and what was decided after which run.

Assumption beyond the paper: the tasks are ours to choose; the paper's models and rewards are larger by far.
"""
