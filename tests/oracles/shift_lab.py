"""The whole task-shift lab as one plain loop: one network at a time, one prompt at a time, differentiated by autograd.

Written from the paper (Eqs. 1-20, Appendix E) and from what the lab's docstring says of its random numbers. It reads
the fields of a configuration and computes in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tests.oracles import scores
from tests.oracles import shift as loss_of
from tests.oracles.network import Perceptron, initial
from tests.oracles.sequence_lab import (
    BUFFER,
    CACHED,
    FIRST_SELECTION_SEED,
    INITIALISATION,
    KL_PROMPTS,
    KL_ROLLOUTS,
    LOOKS_AT,
    NEW_PROMPTS,
    NEW_ROLLOUTS,
    PRETRAINING,
    PRIOR_PROMPTS,
    UNFILTERED,
    advantages,
    stream,
)
from tests.oracles.worlds import World, two_worlds

CACHED_VERDICTS, KL_VERDICTS = 110, 111
"""Streams of this lab alone."""
CLIP = EPSILON_IS = 0.2
"""GRPO's clipping range, and that of the importance ratios; every step is on-policy."""
NORMALIZED = ("retention", "adaptation", "overall")
RAW = ("prior_correct", "new_correct", "prior_pass_at_k", "conditional_kl")
DRIFTS = ("mass_drift", "correct_drift", "incorrect_drift")


def policies(network: Perceptron, inputs: np.ndarray) -> Tensor:
    """(B, A): log-probabilities."""
    return network.log_probs(torch.tensor(inputs))


def expected_grpo(log_probs: Tensor, behavior: Tensor, size: int, verdicts: np.ndarray) -> Tensor:
    """-J_GRPO of one prompt, averaged over all groups that the behaviour policy can draw, by the verdicts on the others
    of a group.
    """
    right = torch.tensor(verdicts)
    chance_right = float(behavior.exp()[right].sum())
    ratios = (log_probs - behavior).exp()
    clipped = ratios.clamp(1 - CLIP, 1 + CLIP)
    loss = torch.zeros((), dtype=torch.float64)
    for others in itertools.product((1.0, 0.0), repeat=size - 1):
        chance = math.prod(chance_right if other else 1 - chance_right for other in others)
        for own, actions in ((1.0, right), (0.0, ~right)):
            advantage = advantages([own, *others])[0]
            terms = torch.minimum(ratios * advantage, clipped * advantage)
            loss = loss - chance * (behavior.exp() * terms)[actions].sum()
    return loss


def draw(behavior: Tensor, uniforms: np.ndarray) -> list[list[int]]:
    """An action for each uniform number (B, G)."""
    tables = behavior.exp().tolist()
    return [
        [loss_of.inverse_cdf(probs, uniform) for uniform in line] for probs, line in zip(tables, uniforms, strict=True)
    ]


def pairs(success: np.ndarray) -> list[tuple[int, bool]]:
    """Every response with each verdict that it may get."""
    return [
        (action, verdict)
        for action, share in enumerate(success)
        for verdict in (True, False)
        if (share if verdict else 1 - share) > 0
    ]


def with_verdicts(log_probs: Tensor, success: np.ndarray) -> Tensor:
    """Log-probabilities of the pairs, from those of the responses."""
    chances = [success[action] if verdict else 1 - success[action] for action, verdict in pairs(success)]
    return torch.stack(
        [log_probs[action] + math.log(chance) for (action, _), chance in zip(pairs(success), chances, strict=True)]
    )


class Prompts:
    """Training prompts of one task, a minibatch at a time."""

    def __init__(
        self, inputs: np.ndarray, verdicts: np.ndarray, size: int, choice: Any, uniforms: Any, luck: Any = None
    ) -> None:
        self.inputs, self.verdicts, self.size, self.choice, self.uniforms = inputs, verdicts, size, choice, uniforms
        self.luck = luck

    def next_minibatch(self, group_size: int) -> None:
        """Draws it."""
        self.batch = self.choice.integers(len(self.inputs), size=self.size)
        self.numbers = self.uniforms.random((self.size, group_size))
        if self.luck is not None:
            self.verdict_numbers = self.luck.random((self.size, group_size))

    def roll_out(self, network: Perceptron) -> None:
        """Remembers the policy, and what it answers."""
        self.behavior = policies(network, self.inputs[self.batch]).detach()
        self.fresh = draw(self.behavior, self.numbers)

    def now(self, network: Perceptron) -> Tensor:
        """(B, A): log-probabilities of the minibatch."""
        return policies(network, self.inputs[self.batch])

    def right(self) -> np.ndarray:
        """(B, A): what is correct in the minibatch."""
        return self.verdicts[self.batch]


class Seed:
    """All that the runs of a seed share."""

    def __init__(self, config: Any, seed: int) -> None:
        self.config, self.seed, environment = config, seed, config.environment
        worlds = two_worlds(environment, seed)
        self.prior, self.new = worlds["prior"], worlds["new"]
        self.base = self._base_model()
        chosen = stream(seed, BUFFER).choice(environment.train_inputs, config.buffer_size, replace=False)
        self.buffer_inputs = self.prior.inputs["train"][chosen]
        self.buffer_verdicts = self.prior.correct[self.prior.clusters["train"][chosen]]
        with torch.no_grad():
            self.buffer_reference = policies(self.base, self.buffer_inputs)
        numbers = stream(seed, CACHED).random((config.buffer_size, config.reference_group_size))
        self.cached = draw(self.buffer_reference, numbers)
        numbers = stream(seed, CACHED_VERDICTS).random((config.buffer_size, config.reference_group_size))
        self.cached_verdicts = [
            self.verdicts_on(*known) for known in zip(self.cached, self.buffer_verdicts, numbers, strict=True)
        ]

    def success(self, right: np.ndarray) -> np.ndarray:
        """What share of the times each response to a prior prompt counts as correct."""
        return np.where(right, 1.0, self.config.success_of_wrong)

    def verdicts_on(self, actions: Sequence[int], right: np.ndarray, numbers: np.ndarray) -> list[bool]:
        """Of one prompt's responses."""
        shares = self.success(right)
        return [bool(number < shares[action]) for action, number in zip(actions, numbers, strict=True)]

    def _base_model(self) -> Perceptron:
        """Pretrained on both tasks together, then by RL on the prior one, in expectations, without a regularizer."""
        config, environment, tasks = self.config, self.config.environment, (self.prior, self.new)
        widths = [environment.input_dim, *config.hidden, environment.actions]
        network = Perceptron(config, initial(widths, config.init_scale, stream(self.seed, INITIALISATION)))
        inputs = np.concatenate([one.inputs["train"] for one in tasks])
        labels = np.concatenate([one.oracle[one.clusters["train"]] for one in tasks])
        rng = stream(self.seed, PRETRAINING)
        for _ in range(config.pretrain_steps):
            batch = rng.integers(len(inputs), size=config.pretrain_batch_size)
            cross_entropy = -(torch.tensor(labels[batch]) * policies(network, inputs[batch])).sum(-1).mean()
            network.descend(cross_entropy, config.learning_rate)
        network = Perceptron(config, network.parameters)
        prompts = self._prompts(self.prior, PRIOR_PROMPTS)
        for _ in range(config.prior_steps):
            prompts.next_minibatch(config.group_size)
            prompts.roll_out(network)
            network.descend(self._rl("exact", prompts, network), config.learning_rate)
        return network

    def _prompts(self, one: World, number: int) -> Prompts:
        rngs = stream(self.seed, number), stream(self.seed, NEW_ROLLOUTS)
        return Prompts(one.inputs["train"], one.correct[one.clusters["train"]], self.config.batch_size, *rngs)

    def _rl(self, mode: str, prompts: Prompts, network: Perceptron) -> Tensor:
        terms = []
        for log_probs, behavior, right, fresh in zip(
            prompts.now(network), prompts.behavior, prompts.right(), prompts.fresh, strict=True
        ):
            if mode == "exact":
                terms.append(expected_grpo(log_probs, behavior, self.config.group_size, right))
            else:
                terms.append(loss_of.grpo(log_probs, behavior, fresh, right.tolist(), CLIP))
        return torch.stack(terms).mean()

    def _regularization(
        self, mode: str, method: str, beta: float, numbers: Sequence[int], prompts: Prompts, network: Perceptron
    ) -> Tensor:
        """numbers: of the buffer's prompts in the minibatch."""
        kind = method.removesuffix("_floor")
        currents, behaviors = list(prompts.now(network)), list(prompts.behavior)
        references = [self.buffer_reference[number] for number in numbers]
        cached = [self.cached[number] for number in numbers]
        fresh, rights = prompts.fresh, prompts.right().tolist()
        if method not in UNFILTERED:
            # A response that succeeds is another one than the same response when it fails; those that never happen
            # are left out.
            luck = [self.success(right) for right in prompts.right()]
            now = zip(fresh, prompts.right(), prompts.verdict_numbers, strict=True)
            verdicts = [self.verdicts_on(*known) for known in now]
            fresh, cached = (
                [[pairs(shares).index(pair) for pair in zip(*known, strict=True)]
                 for shares, *known in zip(luck, actions, judged, strict=True)]
                for actions, judged in (
                    (fresh, verdicts), (cached, [self.cached_verdicts[number] for number in numbers])
                )
            )  # fmt: skip
            currents, behaviors, references = (
                [with_verdicts(*known) for known in zip(policy, luck, strict=True)]
                for policy in (currents, behaviors, references)
            )
            rights = [[verdict for _, verdict in pairs(shares)] for shares in luck]
        known = zip(currents, behaviors, references, cached, fresh, rights, strict=True)
        terms = [
            loss_of.value(kind, current, reference, right)
            if mode == "exact"
            else loss_of.surrogate(kind, current, behavior, reference, old, group, right, EPSILON_IS)
            for current, behavior, reference, old, group, right in known
        ]
        loss = beta * torch.stack(terms).mean()
        if method != kind:
            groups = None if mode == "exact" else (cached, fresh)
            loss = loss + loss_of.floor(currents, references, rights, groups)
        return loss

    def buffer(self, method: str) -> list[int]:
        """The prompts of the buffer that a method uses."""
        solved = [any(verdicts) for verdicts in self.cached_verdicts]
        return [number for number, one in enumerate(solved) if one or method in UNFILTERED]

    def run(self, mode: str, method: str, beta: float, size: int) -> Iterator[dict[str, Any]]:
        """Metrics by step of one run on the new task, with so many prompts of the buffer in a step (Eqs. 18 and 20)."""
        config = self.config
        network = Perceptron(config, self.base.parameters)
        buffer = self.buffer(method)
        new = self._prompts(self.new, NEW_PROMPTS)
        rngs = [stream(self.seed, number) for number in (KL_PROMPTS, KL_ROLLOUTS, KL_VERDICTS)]
        kl = Prompts(self.buffer_inputs[buffer], self.buffer_verdicts[buffer], size, *rngs)
        for done in range(config.steps + 1):
            if done % config.eval_interval == 0 or done == config.steps:
                yield {"step": done, **self.metrics(network, buffer)}
            if done == config.steps:
                return
            for prompts in [new, kl] if size else [new]:
                prompts.next_minibatch(config.group_size)
                prompts.roll_out(network)
            loss = self._rl(mode, new, network)
            if size:
                numbers = [buffer[number] for number in kl.batch]
                loss = loss + self._regularization(mode, method, beta, numbers, kl, network)
            network.descend(loss, config.new_learning_rate or config.learning_rate)

    def metrics(self, network: Perceptron, buffer: Sequence[int]) -> dict[str, float]:
        """Means over the test prompts of either task, and over these prompts of the buffer."""
        config = self.config
        means = {}
        for name, one in (("prior", self.prior), ("new", self.new)):
            right = one.correct[one.clusters["test"]].astype(float)
            right = self.success(right) if name == "prior" else right
            with torch.no_grad():
                old, now = (policies(model, one.inputs["test"]) for model in (self.base, network))
            scored = now.softmax(-1).numpy()
            mass = (scored * right).sum(-1)
            means[f"{name}_correct"] = mass.mean()
            if name == "new":
                continue
            means["prior_pass_at_k"] = (1 - (1 - mass) ** config.pass_draws).mean()
            q, log_ratios = old.exp().numpy(), (old - now).numpy()
            mass, old_mass = (now.exp().numpy() * right).sum(-1), (q * right).sum(-1)
            log_ratio, wrong_log_ratio = np.log(old_mass / mass), np.log((1 - old_mass) / (1 - mass))
            within = (q * right * log_ratios).sum(-1) - old_mass * log_ratio
            wrong_within = (q * (1 - right) * log_ratios).sum(-1) - (1 - old_mass) * wrong_log_ratio
            means["conditional_kl"] = (within / old_mass).mean()
            means["mass_drift"] = (old_mass * log_ratio + (1 - old_mass) * wrong_log_ratio).mean()
            means["correct_drift"], means["incorrect_drift"] = within.mean(), wrong_within.mean()
        with torch.no_grad():
            p = policies(network, self.buffer_inputs[buffer]).exp().numpy()
        mass = (p * self.success(self.buffer_verdicts[buffer])).sum(-1)
        means["zero_correct_rate"] = ((1 - mass) ** config.group_size).mean()
        return means


def table(config: Any) -> pd.DataFrame:
    """A row per evaluated step of every run of the lab, and one of each seed's base model per mode, as the lab sorts
    them: by seed, mode, method as configured after the base model, KL prompts, coefficient and step.
    """
    reported = range(config.first_seed, config.first_seed + config.seeds)
    selection = range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + config.selection_seeds)
    modes = ("exact", "sampled") if config.mode == "both" else (config.mode,)
    lines = []
    for number in (*reported, *selection):
        seed = Seed(config, number)
        role = "selection" if number in selection else "report"
        for mode in modes:
            own = {"seed": number, "mode": mode, "role": role}
            base = {"method": "base", "beta": 0.0, "kl_prompts": 0, "step": 0}
            lines.append(own | base | seed.metrics(seed.base, range(config.buffer_size)))
            for method in config.methods:
                looks_at = LOOKS_AT[method].split()
                prompts = max(1, config.kl_groups // len(looks_at)) if looks_at else 0
                settings = {(prompts, beta) for beta in (config.betas if looks_at else [0.0])}
                if role == "report" and method in config.kl_sweep_methods:
                    settings |= {(size, 1.0) for size in config.kl_sweep}
                for size, beta in sorted(settings):
                    run = {"method": method, "beta": beta, "kl_prompts": size}
                    lines += [own | run | row for row in seed.run(mode, method, beta, size)]
    return pd.DataFrame(lines)


def final_tables(rows: Sequence[Any]) -> dict[str, list[scores.Row]]:
    """What the lab reports of its table's rows, by the name of the file."""
    scored = scores.scored(rows)
    for row in scored:
        row["drift"] = sum(row[name] for name in DRIFTS)
        within = row["correct_drift"] + row["mass_drift"]
        row["correct_share"] = row["correct_drift"] / within if within else math.nan
    run, best = list(scores.RUN), scores.chosen(scored)
    last = [
        {**row, **choice}
        for choice in best
        for row in scores.select(
            scores.final(scores.select(scored, role="report")), **{name: choice[name] for name in run}
        )
    ]
    search = scores.summary(
        scores.told(scores.searched(scores.final(scored)), "selection"),
        ["mode", "role", "method", "beta", "kl_prompts"],
        (*RAW, *NORMALIZED),
    )
    choices = [(one["mode"], one["method"], one["beta"]) for one in best]
    for line in search:
        line["best"] = (line["mode"], line["method"], line["beta"]) in choices
    batches = []
    for group in scores.grouped(
        scores.final(scores.select(scored, role="report")), ("mode", "method", "beta")
    ).values():
        if len({row["kl_prompts"] for row in group}) > 1:
            batches += group
    order = {id(row): number for number, row in enumerate(scored)}
    batches.sort(key=lambda row: (row["kl_prompts"], order[id(row)]))
    return {
        "table1_normalized": scores.summary(last, [*run, "edge"], NORMALIZED),
        "beta_search": search,
        "kl_batch": scores.summary(batches, run, (*RAW[:2], *NORMALIZED)),
        "decomposition": scores.summary(
            [row for row in last if row["method"] != "base"], run, ("conditional_kl", *DRIFTS, "drift", "correct_share")
        ),
    }
