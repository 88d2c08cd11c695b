"""All claims, in the order of the paper. Importing this package registers them."""

from theory.claims import (  # noqa: F401, I001  the order of the paper
    decomposition,
    objective,
    decoupling,
    gap,
    finite_group,
    off_policy,
    other_regularizers,
)
