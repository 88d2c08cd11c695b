"""The controlled experiment: an exact-objective contextual bandit and everything that trains and measures on it."""
