"""All claims, in the order of the paper. They are read here alone, since importing this package registers them."""

from theory.claim import CLAIMS, Statement  # noqa: I001  below is the order of the paper
from theory.claims import (  # noqa: F401
    decomposition,
    objective,
    decoupling,
    gap,
    finite_group,
    off_policy,
    other_regularizers,
)


def registered_claims() -> dict[str, Statement]:
    """All claims by name, in the order of the paper."""
    return dict(CLAIMS)
