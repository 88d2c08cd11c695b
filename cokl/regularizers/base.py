"""The contract of a regularizer: one mathematical object with an exact, a sampled and a population face."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights
from cokl.policy import CorrectSet, Policy
from cokl.support.errors import InputError, told_of_users_code

Stream = Literal["reference", "rollout"]
FloatArray = npt.NDArray[np.float64]


class Regularizer:
    """A penalty D on the current policy, minimised with weight beta beside the RL objective: max Z - beta * D.

    To add one, put a file in this package with a registered subclass that sets `name` and `label` and defines `value`.
    The other faces have defaults: the logit gradient comes from autograd, the optimum from a search; the surrogate is
    unknown.

    Attributes:
        name: how it is called in tables and on the command line.
        label: how it is called in figures.
        conditional: whether it compares correctness-conditioned distributions. If so, prompts without a correct
            reference response are filtered from its buffer (E.3).
        streams: the responses that its sampled surrogate weights: "reference", drawn from pi_ref and cached, and
            "rollout", drawn from the current policy, in this order. Empty if no surrogate is known.
        compares_with_reference: whether its surrogate needs the rollouts' log-likelihoods under the reference.
    """

    name: str
    label: str
    conditional: bool = False
    streams: tuple[Stream, ...] = ()
    compares_with_reference: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, label={self.label!r})"

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        """Exact value D(policy).

        Args:
            policy: contexts (...).
            reference: the same contexts and correct sets.

        Returns:
            (...), in nats: summed over the action axis, not over contexts. The range in a class's docstring is that of
            exact numbers, which rounding may leave by its own size: 0.001 and more in bfloat16.
        """
        raise NotImplementedError("define value(self, policy, reference), one number per context")

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        """Gradient of each context's value with respect to that context's logits.

        Args:
            policy: contexts (...) over A actions.
            reference: the same contexts and correct sets.

        Returns:
            (..., A), which sums to zero over actions.

        Raises:
            InputError: a `value` that is no tensor of one number per context, or does not depend on the policy.
        """
        with torch.enable_grad():
            logits = policy.logits.detach().requires_grad_()
            values: object = self.value(Policy(logits, policy.correct), reference)
            return torch.autograd.grad(self._one_per_context(values, logits.shape[:-1]).sum(), logits)[0]

    def _one_per_context(self, values: object, contexts: torch.Size) -> Tensor:
        """`values`, checked. A mean or sum over contexts would change the coefficient; a constant has no gradient."""
        if not isinstance(values, Tensor) or values.shape != contexts:
            returned = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise InputError(
                f"{self.name}: value returned {returned}, expected shape {tuple(contexts)}, that of policy.log_probs "
                "without its last axis, so one number per context; sum over the actions alone, dim=-1"
            )
        if not values.requires_grad:
            raise InputError(
                f"{self.name}: the gradient of value does not reach the policy; compute it from policy.log_probs or "
                "policy.logits, without detach, item or numpy"
            )
        return values

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        """Stop-gradient weights of the sampled surrogate (Eqs. 11 and 17), for a class that declares `streams`.

        Args:
            reference: (N, G_ref), groups drawn from pi_ref.
            rollout: (N, G), groups drawn from the behaviour policy.
            config: the choices that the paper leaves open.

        Returns:
            (N, G) for each stream that it uses, None for the other. Weights carry their sign: minimising
            `surrogate_loss` minimises the regularizer.

        Raises:
            ValueError: groups that it needs are missing.
        """
        raise NotImplementedError

    @property
    def has_closed_form(self) -> bool:
        """Whether the class defines its optimum, so that `optimal_mass` does not search."""
        return type(self)._optimal_mass is not Regularizer._optimal_mass

    @overload
    def optimal_mass(self, q: float, beta: float, correct_fraction: float | None = None) -> float: ...

    @overload
    def optimal_mass(
        self, q: FloatArray, beta: float | FloatArray, correct_fraction: float | FloatArray | None = None
    ) -> FloatArray: ...

    @overload
    def optimal_mass(
        self, q: float, beta: FloatArray, correct_fraction: float | FloatArray | None = None
    ) -> FloatArray: ...

    def optimal_mass(
        self, q: float | FloatArray, beta: float | FloatArray, correct_fraction: float | FloatArray | None = None
    ) -> float | FloatArray:
        """Total correctness Z* that maximises Z - beta * D over all policies (Theorems 1 and 2). Arrays broadcast.

        Without a closed form it is searched, to some 1e-8, among the policies with the conditionals of one reference,
        drawn once, of 8 actions. Nothing says that the best policy is among these; `cokl theory optimum` says what
        certifies a number.

        Args:
            q: correctness of the reference, in (0, 1).
            beta: coefficient, > 0.
            correct_fraction: correct actions over all actions, in (0, 1); needed only where the optimum depends on the
                size of the action space.

        Returns:
            Z*, in [0, 1], elementwise: a float for floats.

        Raises:
            InputError: an argument out of its range, which it names, or a value that fails with 8 actions.
        """
        q, beta = np.asarray(q, dtype=np.float64), np.asarray(beta, dtype=np.float64)
        if not np.all((q > 0) & (q < 1)):
            raise InputError(f"q: expected the reference's correctness in (0, 1), got {q}")
        if not np.all((beta > 0) & np.isfinite(beta)):
            raise InputError(f"beta: expected a finite coefficient > 0, got {beta}")
        fraction = None if correct_fraction is None else np.asarray(correct_fraction, dtype=np.float64)
        if fraction is not None and not np.all((fraction > 0) & (fraction < 1)):
            raise InputError(f"correct_fraction: expected correct actions over all actions in (0, 1), got {fraction}")
        q, beta = np.broadcast_arrays(q, beta)
        with np.errstate(over="ignore"):  # 1 / beta is infinite for a subnormal beta, where the optimum is its limit
            mass = self._optimal_mass(q, beta, fraction)
        return mass if mass.ndim else float(mass)

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        """`optimal_mass` for arguments in range; q and beta have the same shape."""
        with told_of_users_code(self.name, "value with 8 actions, among which an optimum is searched"):
            return _searched(self, q, beta)


def _searched(regularizer: Regularizer, q: FloatArray, beta: FloatArray) -> FloatArray:
    """Z* (...) on a grid of log-odds around the best of the grid before, ever finer, for all q and beta (...) at once.

    The last grid's step is 1e-8; at log-odds of 40, where the first ends, 1 - Z is below float64's resolution.
    """
    correct = CorrectSet.from_mask(torch.arange(8) < 3)
    base = torch.from_numpy(np.random.default_rng(0).normal(size=8))
    own = Policy(base, correct)
    base = base - (own.log_mass - own.log_incorrect_mass) * correct.mask  # half of its mass is correct

    def at(log_odds: FloatArray) -> Policy:
        logits = base + torch.tensor(log_odds)[..., None] * correct.mask
        return Policy(logits, CorrectSet.from_mask(correct.mask.expand(logits.shape)))

    centre, reach = np.zeros((*q.shape, 1)), 40.0
    given = np.broadcast_to((np.log(q) - np.log1p(-q))[..., None], (*q.shape, 81))
    for _ in range(6):
        grid = centre + np.linspace(-reach, reach, 81)
        policy = at(grid)
        gain = policy.mass.numpy() - beta[..., None] * regularizer.value(policy, at(given)).detach().numpy()
        best = np.nan_to_num(gain, nan=-np.inf).argmax(-1, keepdims=True)
        centre, reach = np.take_along_axis(grid, best, axis=-1), reach / 40
    mass: FloatArray = 1 / (1 + np.exp(-centre[..., 0]))
    return mass


def positive_root(a: FloatArray | float, b: FloatArray, c: FloatArray) -> FloatArray:
    """The positive root of a z^2 + b z - c = 0, elementwise, without cancellation for either sign of b.

    Args:
        a: above 0, a number or (...).
        b: (...), of either sign.
        c: (...), above 0.

    Returns:
        (...), above 0.

    Examples:
        >>> positive_root(1.0, np.array([1.0]), np.array([6.0]))
        array([2.])
    """
    half_root = np.hypot(b / 2, np.sqrt(a * c))  # of the discriminant, which overflows long before its root does
    return np.where(b > 0, c / (np.abs(b) / 2 + half_root), (half_root - b / 2) / a)
