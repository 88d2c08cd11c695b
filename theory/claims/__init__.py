"""All claims, in the order of the paper. Importing this package registers them."""

from theory.claims import decomposition, objective  # noqa: F401
