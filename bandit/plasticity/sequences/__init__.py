"""Plasticity where an answer is a sequence of tokens: the two phases of `bandit.plasticity` in the sequence lab."""
