"""The whole plasticity lab as one plain loop: one network, autograd, and what is reported as loops over rows.

Written from the lab's docstrings, which also say what each random stream draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tests.oracles import scores
from tests.oracles import shift as loss_of
from tests.oracles.network import Perceptron
from tests.oracles.sequence_lab import FIRST_SELECTION_SEED, LOOKS_AT, UNFILTERED
from tests.oracles.single_task import SingleTask, stream

NARROWED, MOVED, CACHE, SAMPLED_BATCHES, SAMPLED_ROLLOUTS, NEW_BATCHES, NEW_ROLLOUTS = range(200, 207)
CLIP = 0.2
GROUP = ("phase", "method", "cached")
START = (*GROUP, "beta")
NEW = ("change", "mode")
OTHERS = ("entropy", "forward_kl", "reverse_kl", "jensen_shannon")
MEASURED = ("p_correct", "plasticity", "start", "to_half", "never")

Start = tuple[str, str, int, float]


def draw(log_probs: Tensor, uniforms: np.ndarray) -> list[list[int]]:
    """An action for each uniform number (B, G)."""
    return [
        [loss_of.inverse_cdf(one.exp().tolist(), uniform) for uniform in line]
        for one, line in zip(log_probs.detach(), uniforms, strict=True)
    ]


def policy_gradient(currents: Tensor, groups: list[list[int]], rewards: np.ndarray) -> Tensor:
    """-J_GRPO on groups that the policy has just drawn; rewards (B, A) may be any numbers."""
    losses = [
        loss_of.grpo(log_probs, log_probs.detach(), group, reward.tolist(), CLIP)
        for log_probs, group, reward in zip(currents, groups, rewards, strict=True)
    ]
    return torch.stack(losses).mean()


class Seed(SingleTask):
    """What the policies of a seed share: the task, the reference and its cached responses."""

    def __init__(self, config: Any, seed: int) -> None:
        super().__init__(config, seed)
        numbers = stream(seed, CACHE).random((config.environment.train_inputs, max(config.cached)))
        self.cache = draw(self.old["train"], numbers)

    def starts(self) -> list[Start]:
        """Every policy of phase 1."""
        config = self.config
        made: list[Start] = [("reference", "reference", 0, 0.0)]
        for method in config.methods:
            made += [("exact", method, 0, beta) for beta in (sorted(config.betas) if method != "none" else [0.0])]
        for method in config.sampled_methods:
            sizes = config.cached if "cached" in LOOKS_AT[method] else (0,)
            betas = sorted(config.sampled_betas) if method != "none" else [0.0]
            made += [("sampled", method, size, beta) for size, beta in itertools.product(sizes, betas)]
        return made

    def phase_1(self, start: Start) -> Perceptron:
        """The final network."""
        phase, method, size, beta = start
        network = self.start()
        if phase == "exact":
            for _, network in self.train_exactly(method, beta):  # noqa: B007
                pass
        if phase != "sampled":
            return network
        config, count = self.config, self.config.environment.train_inputs
        batches, rollouts = stream(self.seed, SAMPLED_BATCHES), stream(self.seed, SAMPLED_ROLLOUTS)
        for _ in range(config.steps):
            batch = batches.integers(count, size=config.prompts)
            currents, rights = self.log_probs(network, batch), self.right["train"][batch]
            fresh = draw(currents, rollouts.random((config.prompts, config.group_size)))
            loss = policy_gradient(currents, fresh, rights)
            for place, current, group, right in zip(batch, currents, fresh, rights.tolist(), strict=True):
                cached = self.cache[place][:size]
                skipped = size and method not in UNFILTERED and not any(right[action] for action in cached)
                if method != "none" and not skipped:
                    known = current, current.detach(), self.old["train"][place], cached or [0], group, right
                    loss = loss + beta * loss_of.surrogate(method, *known, 0.2) / config.prompts
            network.descend(loss, config.learning_rate)
        return network

    def reward(self, stage: str, network: Perceptron) -> np.ndarray:
        """(C, A): the reward of each action in each cluster; network: of phase 1."""
        clusters, correct = self.world.clusters["train"], self.world.correct
        with torch.no_grad():
            own = self.log_probs(network, slice(None)).exp().numpy()
        kind, *sizes = stage.split("-")
        table = np.zeros(correct.shape)
        chance = {number: stream(self.seed, number).random(correct.shape) for number in (NARROWED, MOVED)}
        for cluster, right in enumerate(correct):
            actions, here = np.flatnonzero(right), clusters == cluster
            liked = self.old["train"].exp().numpy()[here].mean(0)
            if kind in ("narrowed", "chain", "moved"):
                eligible = np.flatnonzero(~right) if kind == "moved" else actions
                numbers = chance[MOVED if kind == "moved" else NARROWED][cluster]
                table[cluster, sorted(eligible, key=lambda action: numbers[action])[: int(sizes[0])]] = 1
            elif kind == "repaired":
                most = liked if sizes else own[here].mean(0)
                table[cluster, actions] = 1
                table[cluster, max(actions, key=lambda action: most[action])] = 0
            else:
                table[cluster, actions] = 0.2
                table[cluster, sorted(actions, key=lambda action: liked[action])[: len(actions) // 2]] = 1
        return table

    def phase_2(self, first: Perceptron, change: str, mode: str) -> Iterator[dict[str, Any]]:
        """The expected reward on the first test inputs at the evaluated steps, of every stage of a change."""
        config, count = self.config, self.config.environment.train_inputs
        batches, rollouts = stream(self.seed, NEW_BATCHES), stream(self.seed, NEW_ROLLOUTS)
        kind, *sizes = change.split("-")
        network = first
        for stage in [f"chain-{size}" for size in sizes] if kind == "chain" else [change]:
            table, network = self.reward(stage, first), Perceptron(config, network.parameters)
            for done in range(config.new_steps + 1):
                if done in config.evaluated_steps:
                    shown = slice(config.evaluated_inputs)
                    with torch.no_grad():
                        probs = self.log_probs(network, shown, "test").exp().numpy()
                    rewards = (probs * table[self.world.clusters["test"][shown]]).sum(-1)
                    measured = {"reward": rewards.mean(), "below_half": (rewards < 0.5).mean()}
                    yield {"change": stage, "mode": mode, "step": done, **measured}
                if done == config.new_steps:
                    break
                batch = batches.integers(count, size=config.prompts)
                uniforms = rollouts.random((config.prompts, config.group_size))
                rewards, currents = table[self.world.clusters["train"][batch]], self.log_probs(network, batch)
                if mode == "exact":
                    loss = -(currents.exp() * torch.tensor(rewards)).sum(-1).mean()
                else:
                    loss = policy_gradient(currents, draw(currents, uniforms), rewards)
                network.descend(loss, config.learning_rate)


def table(config: Any) -> pd.DataFrame:
    """A row per policy, change, mode and evaluated step of phase 2, in no order."""
    selection = range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + config.selection_seeds)
    lines: list[scores.Row] = []
    matched: set[tuple[Any, ...]] = set()
    for number in (*selection, *range(config.first_seed, config.first_seed + config.seeds)):
        seed, role = Seed(config, number), "selection" if number in selection else "report"
        if role == "report":
            matched = {tuple(line[name] for name in START) for line in match(lines, config)}
        for start in seed.starts():
            network = seed.phase_1(start)
            facts = {"seed": number, "role": role, **dict(zip(START, start, strict=True)), **seed.metrics(network)}
            near = start[0] == "reference" or (start[0] == "exact" and (start[1] == "none" or start in matched))
            for change in config.changes if role == "report" and near else config.changes[:1]:
                for mode in ("sampled",) if start[0] == "sampled" else ("sampled", "exact"):
                    lines += [facts | row for row in seed.phase_2(network, change, mode)]
    return pd.DataFrame(lines)


def match(rows: Sequence[scores.Row], config: Any) -> list[scores.Row]:
    """The neighbouring coefficients between which the selection seeds' correctness crosses the target, weighted."""
    lines = []
    policies = {(row["seed"], *(row[name] for name in START)): row for row in scores.select(rows, role="selection")}
    for group, members in scores.grouped(policies.values(), GROUP).items():
        target = config.sampled_matched_correctness if group[0] == "sampled" else config.matched_correctness
        means = {
            beta: scores.mean([row["p_correct"] for row in same])
            for (beta,), same in scores.grouped(members, ("beta",)).items()
        }
        betas = sorted(means)
        weights = {min(betas, key=lambda beta: abs(means[beta] - target)): 1.0}
        for below, above in itertools.pairwise(betas):
            low, high = sorted((means[below], means[above]))
            if low <= target <= high and low < high:
                share = (target - means[below]) / (means[above] - means[below])
                weights = {below: 1 - share, above: share}
                break
        reached = sum(weight * means[beta] for beta, weight in weights.items())
        lines += [
            {**dict(zip(GROUP, group, strict=True)), "beta": beta, "weight": weight, "reached": reached}
            for beta, weight in weights.items()
        ]
    return lines


def runs(rows: Sequence[scores.Row]) -> list[scores.Row]:
    """A row per run of phase 2: the mean reward over its steps, by trapezoids, and what else is said of the curve."""
    lines = []
    for curve in scores.grouped(rows, ("seed", *START, *NEW)).values():
        steps, rewards = ([row[name] for row in curve] for name in ("step", "reward"))
        area, crossed = 0.0, float(steps[-1]) if rewards[0] < 0.5 else 0.0
        for (left, low), (right, high) in itertools.pairwise(zip(steps, rewards, strict=True)):
            area += (right - left) * (low + high) / 2
            if low < 0.5 <= high and crossed == steps[-1]:
                crossed = left + (right - left) * (0.5 - low) / (high - low)
        made = {"start": rewards[0], "end": rewards[-1], "never": curve[-1]["below_half"], "to_half": crossed}
        lines.append({**curve[-1], **made, "plasticity": area / steps[-1]})
    return lines


def at_match(
    scored: Sequence[scores.Row], chosen: Sequence[scores.Row], names: Sequence[str], role: str = "report"
) -> list[scores.Row]:
    """Weighted sums over the coefficients of the match, a row per seed, group, change and mode."""
    lines = []
    for group, weights in scores.grouped(chosen, GROUP).items():
        of = scores.select(scored, role=role, **dict(zip(GROUP, group, strict=True)))
        for (seed, change, mode), same in scores.grouped(of, ("seed", *NEW)).items():
            at = {row["beta"]: row for row in same}
            if any(weight["beta"] not in at for weight in weights):
                continue
            own = {"seed": seed, **dict(zip(GROUP, group, strict=True)), "change": change, "mode": mode}
            for name in names:
                own[name] = sum(weight["weight"] * at[weight["beta"]][name] for weight in weights)
            lines.append(own)
    return lines


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; ties have the mean of theirs."""
    return [
        sum(other < value for other in values) + (1 + sum(other == value for other in values)) / 2 for value in values
    ]


def correlation(ones: Sequence[float], others: Sequence[float]) -> float:
    """Pearson's."""
    centred = [[value - scores.mean(values) for value in values] for values in (ones, others)]
    products = [
        sum(a * b for a, b in zip(*pair, strict=True)) for pair in itertools.combinations_with_replacement(centred, 2)
    ]
    return float(products[1] / (products[0] * products[2]) ** 0.5)


def final_tables(rows: Sequence[scores.Row], config: Any) -> dict[str, list[scores.Row]]:
    """What the lab reports of its table's rows, by the name of the file."""
    scored, chosen = runs(rows), match(rows, config)
    matched = at_match(scored, chosen, MEASURED)
    primary = scores.select(scored, role="report", change="narrowed-2", mode="sampled")
    coverage = f"coverage_at_{config.coverage_draws}"
    ranking = []
    for name in ("p_correct", coverage, f"{coverage}_correct", "conditional_kl"):
        by_seed = [
            correlation(*(ranks([row[of] for row in one]) for of in (name, "plasticity")))
            for one in scores.grouped(scores.select(primary, phase="exact"), ("seed",)).values()
        ]
        half = scores.half_width(by_seed)
        ranking.append(
            {"predictor": name, "rank_correlation": scores.mean(by_seed), "rank_correlation_half_width": half}
        )
    unsampled = [row for row in matched if row["phase"] != "sampled"]
    return {
        "at_match": scores.summary(unsampled, ("change", "mode", "method"), MEASURED),
        "cached": scores.summary(scores.select(matched, phase="sampled"), ("method", "cached"), MEASURED),
        "coefficients": scores.summary(primary, START, ("p_correct", "plasticity", coverage, "conditional_kl")),
        "match": chosen,
        "ranking": ranking,
        "each_seed": matched,
    }


def best_rival(scored: Sequence[scores.Row], chosen: Sequence[scores.Row], phase: str) -> str:
    """The paper's other regularizer that the selection seeds find most plastic after the first change, in samples."""
    of = scores.select(
        at_match(scored, chosen, ("plasticity",), "selection"), phase=phase, change="narrowed-2", mode="sampled"
    )
    means = {
        method: scores.mean([row["plasticity"] for row in same])
        for (method,), same in scores.grouped(of, ("method",)).items()
        if method in OTHERS
    }
    return max(means, key=lambda method: means[method])


def differences(rows: Sequence[scores.Row], config: Any) -> dict[tuple[str, ...], list[float]]:
    """CoKL's plasticity minus another's for each seed: by change, mode, phase, CoKL's cache and whom it is compared
    with, "rival", "replay" or "reference"; and replay's minus the rival's, "conditioning".
    """
    scored, chosen = runs(rows), match(rows, config)
    matched = at_match(scored, chosen, ("plasticity",))
    replay = "correct_forward_kl"
    found: dict[tuple[str, ...], list[float]] = {}

    def of(method: str, change: str, mode: str, phase: str, cached: int = 0) -> dict[int, float]:
        same = scores.select(matched, method=method, change=change, mode=mode, phase=phase, cached=cached)
        return {row["seed"]: row["plasticity"] for row in same}

    rival = best_rival(scored, chosen, "exact")
    pairs = {
        "rival": ("cokl", rival, "exact"),
        "replay": ("cokl", replay, "exact"),
        "reference": ("cokl", "reference", "reference"),
        "conditioning": (replay, rival, "exact"),
    }
    changes = {row["change"]: None for row in scored}
    for (name, (one, other, phase)), change, mode in itertools.product(pairs.items(), changes, ("sampled", "exact")):
        ours, theirs = of(one, change, mode, "exact"), of(other, change, mode, phase)
        found[name, change, mode] = [ours[seed] - theirs[seed] for seed in ours]
    for name, other in (("rival", best_rival(scored, chosen, "sampled")), ("replay", replay)):
        for size in config.cached:
            ours = of("cokl", "narrowed-2", "sampled", "sampled", size)
            own = size if "cached" in LOOKS_AT[other] else 0
            theirs = of(other, "narrowed-2", "sampled", "sampled", own)
            found[name, "narrowed-2", "sampled", str(size)] = [ours[seed] - theirs[seed] for seed in ours]
    return found
