"""All claims, in the order of the paper. Importing this package registers them."""

from theory.claims import decomposition, objective, decoupling  # noqa: F401
