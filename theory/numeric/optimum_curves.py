"""Z*(beta) three ways: closed forms, certified convex programs, and tabular policies trained by gradient."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from cokl import regularizers
from cokl.policy import CorrectSet, Policy
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
    parts = []
    for method in METHODS:
        regularizer = regularizers.get(method)
        for q, fraction in correct_fractions.items():
            mass = np.broadcast_to(np.asarray(regularizer.optimal_mass(q, BETAS, fraction)), BETAS.shape)
            parts.append(pd.DataFrame({"method": method, "q": q, "kind": "closed form", "beta": BETAS, "mass": mass}))
        masses = {
            seed: q
            for seed, (q, fraction) in enumerate(correct_fractions.items())
            if method != "entropy" or fraction == CORRECT / ACTIONS
        }
        if masses:
            parts.append(_computed(regularizer, masses))
    return pd.concat(parts, ignore_index=True)


def _computed(regularizer: regularizers.Regularizer, masses: dict[int, float]) -> pd.DataFrame:
    """The certified and the tabular optima for each seed of a reference and its q, all trained as one stack."""
    references = {
        seed: tabular_reference(np.full(len(COMPUTED_BETAS), q), ACTIONS, CORRECT, seed) for seed, q in masses.items()
    }
    certified = [
        _certified(regularizer.name, Reference(reference.probs[0].numpy(), CORRECT), float(beta))
        for reference in references.values()
        for beta in COMPUTED_BETAS
    ]
    betas = np.tile(COMPUTED_BETAS, len(masses))
    correct = CorrectSet.from_mask((torch.arange(ACTIONS) < CORRECT).expand(len(betas), -1))
    stacked = Policy(torch.cat([reference.logits for reference in references.values()]), correct)
    trained = train_tabular(regularizer, stacked, torch.from_numpy(betas)).mass.numpy()
    q = np.repeat(list(masses.values()), len(COMPUTED_BETAS))
    return pd.concat(
        pd.DataFrame({"method": regularizer.name, "q": q, "kind": kind, "beta": betas, "mass": mass})
        for kind, mass in (("certified", certified), ("tabular", trained))
    )


def _certified(method: str, reference: Reference, beta: float) -> float:
    certificate = maximise(method, reference, beta)
    if not certificate.worst <= _CERTIFIED:  # NaN is no certificate
        return np.nan
    return float(certificate.solution[0] if method == "cokl" else certificate.solution[:CORRECT].sum())
