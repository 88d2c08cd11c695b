"""The plasticity lab: what a policy that a regularizer has trained can still learn when the reward changes."""
