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
from tests.oracles.sequence_lab import FIRST_SELECTION_SEED
from tests.oracles.single_task import SingleTask, stream

NARROWED, MOVED, NEW_BATCHES, NEW_ROLLOUTS = 200, 201, 205, 206
CLIP = 0.2
START = ("method", "beta")
NEW = ("change", "mode")
OTHERS = ("entropy", "forward_kl", "reverse_kl", "jensen_shannon")
MEASURED = ("p_correct", "plasticity", "start", "to_half", "never")

Start = tuple[str, float]


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
    """What the policies of a seed share: the task and the reference."""

    def starts(self) -> list[Start]:
        """Every policy that phase 2 starts from."""
        made: list[Start] = [("reference", 0.0)]
        for method in self.config.methods:
            made += [(method, beta) for beta in (sorted(self.config.betas) if method != "none" else [0.0])]
        return made

    def phase_1(self, start: Start) -> Perceptron:
        """The final network."""
        network = self.start()
        if start[0] != "reference":
            for _, network in self.train_exactly(*start):  # noqa: B007
                pass
        return network

    def reward(self, change: str, network: Perceptron) -> np.ndarray:
        """(C, A): the reward of each action in each cluster; network: of phase 1."""
        clusters, correct = self.world.clusters["train"], self.world.correct
        with torch.no_grad():
            own = self.log_probs(network, slice(None)).exp().numpy()
        kind, *sizes = change.split("-")
        table = np.zeros(correct.shape)
        chance = {number: stream(self.seed, number).random(correct.shape) for number in (NARROWED, MOVED)}
        for cluster, right in enumerate(correct):
            actions, here = np.flatnonzero(right), clusters == cluster
            liked = self.old["train"].exp().numpy()[here].mean(0)
            if kind in ("narrowed", "moved"):
                eligible = np.flatnonzero(~right) if kind == "moved" else actions
                numbers = chance[MOVED if kind == "moved" else NARROWED][cluster]
                table[cluster, sorted(eligible, key=lambda action: numbers[action])[: int(sizes[0])]] = 1
            elif kind == "repaired":
                most = own[here].mean(0)
                table[cluster, actions] = 1
                table[cluster, max(actions, key=lambda action: most[action])] = 0
            else:
                table[cluster, actions] = 0.2
                table[cluster, sorted(actions, key=lambda action: liked[action])[: len(actions) // 2]] = 1
        return table

    def phase_2(self, first: Perceptron, change: str, mode: str) -> Iterator[dict[str, Any]]:
        """The expected reward on the first test inputs at the evaluated steps."""
        config, count = self.config, self.config.environment.train_inputs
        batches, rollouts = stream(self.seed, NEW_BATCHES), stream(self.seed, NEW_ROLLOUTS)
        table, network = self.reward(change, first), Perceptron(config, first.parameters)
        for done in range(config.new_steps + 1):
            if done in config.evaluated_steps:
                shown = slice(config.evaluated_inputs)
                with torch.no_grad():
                    probs = self.log_probs(network, shown, "test").exp().numpy()
                rewards = (probs * table[self.world.clusters["test"][shown]]).sum(-1)
                measured = {"reward": rewards.mean(), "below_half": (rewards < 0.5).mean()}
                yield {"change": change, "mode": mode, "step": done, **measured}
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
    first = "narrowed-2" if "narrowed-2" in config.changes else config.changes[0]
    for number in (*selection, *range(config.first_seed, config.first_seed + config.seeds)):
        seed, role = Seed(config, number), "selection" if number in selection else "report"
        if role == "report":
            matched = {tuple(line[name] for name in START) for line in match(lines, config)}
        for start in seed.starts():
            network = seed.phase_1(start)
            facts = {"seed": number, "role": role, **dict(zip(START, start, strict=True)), **seed.metrics(network)}
            near = start[0] in ("reference", "none") or start in matched
            for change in config.changes if role == "report" and near else [first]:
                for mode in ("sampled", "exact"):
                    lines += [facts | row for row in seed.phase_2(network, change, mode)]
    return pd.DataFrame(lines)


def match(rows: Sequence[scores.Row], config: Any) -> list[scores.Row]:
    """The neighbouring coefficients between which the selection seeds' correctness crosses the target, weighted."""
    lines = []
    policies = {(row["seed"], *(row[name] for name in START)): row for row in scores.select(rows, role="selection")}
    target = config.matched_correctness
    for (method,), members in scores.grouped(policies.values(), ("method",)).items():
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
            {"method": method, "beta": beta, "weight": weight, "reached": reached} for beta, weight in weights.items()
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
    """Weighted sums over the coefficients of the match, a row per seed, method, change and mode."""
    lines = []
    for (method,), weights in scores.grouped(chosen, ("method",)).items():
        of = scores.select(scored, role=role, method=method)
        for (seed, change, mode), same in scores.grouped(of, ("seed", *NEW)).items():
            at = {row["beta"]: row for row in same}
            if any(weight["beta"] not in at for weight in weights):
                continue
            own = {"seed": seed, "method": method, "change": change, "mode": mode}
            for name in names:
                own[name] = sum(weight["weight"] * at[weight["beta"]][name] for weight in weights)
            lines.append(own)
    return lines


def final_tables(rows: Sequence[scores.Row], config: Any) -> dict[str, list[scores.Row]]:
    """What the lab reports of its table's rows, by the name of the file."""
    scored, chosen = runs(rows), match(rows, config)
    matched = at_match(scored, chosen, MEASURED)
    primary = scores.select(scored, role="report", change="narrowed-2", mode="sampled")
    coverage = f"coverage_at_{config.coverage_draws}"
    return {
        "at_match": scores.summary(matched, ("change", "mode", "method"), MEASURED),
        "coefficients": scores.summary(primary, START, ("p_correct", "plasticity", coverage, "conditional_kl")),
        "match": chosen,
        "each_seed": matched,
    }


def best_rival(scored: Sequence[scores.Row], chosen: Sequence[scores.Row]) -> str:
    """The paper's other regularizer that the selection seeds find most plastic after the first change, in samples."""
    of = scores.select(at_match(scored, chosen, ("plasticity",), "selection"), change="narrowed-2", mode="sampled")
    means = {
        method: scores.mean([row["plasticity"] for row in same])
        for (method,), same in scores.grouped(of, ("method",)).items()
        if method in OTHERS
    }
    return max(means, key=lambda method: means[method])


def differences(rows: Sequence[scores.Row], config: Any) -> dict[tuple[str, str, str], list[float]]:
    """CoKL's plasticity minus another's for each seed: by whom it is compared with, "rival", "replay" or "reference",
    change and mode; and replay's minus the rival's, "conditioning".
    """
    scored, chosen = runs(rows), match(rows, config)
    matched = at_match(scored, chosen, ("plasticity",))
    rival, replay = best_rival(scored, chosen), "correct_forward_kl"
    pairs = {
        "rival": ("cokl", rival),
        "replay": ("cokl", replay),
        "reference": ("cokl", "reference"),
        "conditioning": (replay, rival),
    }
    found = {}
    changes = {row["change"]: None for row in scored}
    for (name, both), change, mode in itertools.product(pairs.items(), changes, ("sampled", "exact")):
        ours, theirs = (
            {row["seed"]: row["plasticity"] for row in scores.select(matched, method=one, change=change, mode=mode)}
            for one in both
        )
        found[name, change, mode] = [ours[seed] - theirs[seed] for seed in ours]
    return found
