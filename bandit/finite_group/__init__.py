"""The finite-group lab: sampled surrogates with G responses per group beside the exact objective, their limit."""
