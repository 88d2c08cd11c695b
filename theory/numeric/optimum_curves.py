"""Z*(beta) three ways: closed forms, certified convex programs, and tabular policies trained by gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch

from cokl import regularizers
from theory.numeric.tabular import tabular_reference, train_tabular
from theory.provers.convex import Reference, maximise

METHODS = ("entropy", "forward_kl", "reverse_kl", "jensen_shannon", "cokl")
BETAS = np.logspace(-3.4, 1, 200)
COMPUTED_BETAS = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
ACTIONS, CORRECT = 20, 5
_CERTIFIED = 1e-8


def optimum_curves(correct_fractions: dict[float, float]) -> pd.DataFrame:
    """A row per method, q, beta and kind, "closed form", "certified" or "tabular", with the optimal correctness mass.

    correct_fractions: for each q, correct actions over all actions, where entropy's closed form is taken. Certified and
    tabular optima are on `ACTIONS` actions, `CORRECT` of them correct, so entropy has them for that share alone. mass
    is NaN where a convex program has no certificate. Columns: method, q, kind, beta, mass.
    """
    parts = [
        pd.DataFrame({"method": method, "q": q, "kind": kind, "beta": betas, "mass": masses})
        for method in METHODS
        for place, (q, fraction) in enumerate(correct_fractions.items())
        for kind, betas, masses in _ways(method, q, fraction, seed=place)
    ]
    return pd.concat(parts, ignore_index=True)


def _ways(method: str, q: float, fraction: float, seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    regularizer = regularizers.get(method)
    yield "closed form", BETAS, np.asarray(regularizer.optimal_mass(q, BETAS, fraction)) + 0 * BETAS
    if method == "entropy" and fraction != CORRECT / ACTIONS:
        return
    reference = tabular_reference(np.full(len(COMPUTED_BETAS), q), ACTIONS, CORRECT, seed=seed)
    certified = []
    for beta in COMPUTED_BETAS:
        certificate = maximise(method, Reference(reference.probs[0].numpy(), CORRECT), float(beta))
        mass = certificate.solution[0] if method == "cokl" else certificate.solution[:CORRECT].sum()
        certified.append(mass if certificate.worst <= _CERTIFIED else np.nan)
    yield "certified", COMPUTED_BETAS, np.array(certified)
    trained = train_tabular(regularizer, reference, torch.from_numpy(COMPUTED_BETAS))
    yield "tabular", COMPUTED_BETAS, trained.mass.numpy()
