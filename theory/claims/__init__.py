"""All claims, in the order of the paper. Importing this package registers them."""

from theory.claims import decomposition, objective, decoupling, gap, finite_group, other_regularizers  # noqa: F401
