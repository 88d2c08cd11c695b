"""Theorems proved in Coq, and what makes Python believe them."""
