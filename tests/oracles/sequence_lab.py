"""The whole sequence lab as one plain loop: every response is listed, autograd differentiates, one network at a time.

Written from the paper (Eqs. 1-18, Appendix E) and from what the lab's docstring says of its random numbers. It reads
the fields of a configuration and computes in float64. A response is its number among all V^T of them, in the order of
`itertools.product`; a prompt's policy is then a vector of log-probabilities, as a policy over single actions is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tests.oracles import scores
from tests.oracles.network import Perceptron, initial

# The streams, by number, as the lab documents them.
TASK, INPUTS = 0, 1
INITIALISATION, PRETRAINING, PRIOR_PROMPTS, NEW_PROMPTS, BUFFER, CACHED, KL_PROMPTS, NEW_ROLLOUTS, KL_ROLLOUTS = range(
    101, 110
)

FIRST_SELECTION_SEED = 1000
LOOKS_AT = {
    "none": "",
    "reverse_kl": "fresh",
    "forward_kl": "cached",
    "correct_reverse_kl": "fresh",
    "correct_forward_kl": "cached",
    "cokl": "cached fresh",
    "cokl_without_term1": "fresh",
    "cokl_floor": "cached fresh",
    "entropy": "fresh",
    "jensen_shannon": "fresh",
}
"""Which groups of responses a method weights: those of the base model, or those that the policy has just drawn. The
other labs' oracles ask it too.
"""
UNFILTERED = ("none", "reverse_kl", "forward_kl", "entropy", "jensen_shannon")
"""Methods that keep prompts without a correct cached response; all others condition on correctness."""


METRICS = (
    "prior_correct",
    "known_share",
    "known_correct",
    "new_correct",
    "conditional_kl",
    "conditional_entropy",
    "mass_drift",
    "correct_drift",
    "incorrect_drift",
)
DIFFERENCES = ("prior_correct", "known", "others", "new_correct", "overall")


def stream(seed: int, number: int) -> np.random.Generator:
    """One purpose of one seed."""
    return np.random.default_rng([seed, number])


def listed(config: Any) -> list[tuple[int, ...]]:
    """All responses."""
    return list(itertools.product(range(config.symbols), repeat=config.length))


@dataclass
class Task:
    """One family: for each split inputs (N, D) and clusters (N,); labels (C, T, V + 1, V); verdicts (C, A) bool.

    labels: by position and last token, which is V where there is none.
    """

    inputs: dict[str, np.ndarray]
    clusters: dict[str, np.ndarray]
    labels: np.ndarray
    verdicts: np.ndarray


def task(config: Any, number: int, deciding: int | None = None) -> Task:
    """The prior task of seed s is number 2 s, its new task 2 s + 1. Its verifier reads so many tokens, or all."""
    rng = stream(number, TASK)
    count, states, symbols, length = config.clusters, config.states, config.symbols, config.length
    centers = rng.normal(size=(count, config.input_dim))
    leads_to = rng.integers(states, size=(count, states + 1, symbols))
    ranks = rng.random((count, states, symbols)).argsort(-1)
    shares = rng.dirichlet([config.concentration / symbols] * symbols, size=(count, symbols + 1))
    verdicts = np.zeros((count, symbols**length), bool)
    labels = np.zeros((count, length, symbols + 1, symbols))
    for cluster in range(count):
        visits = np.zeros_like(labels[cluster])
        for number_of_response, response in enumerate(listed(config)):
            state, right, probability = 0, True, 1.0
            contexts = list(enumerate(zip((symbols, *response), response, strict=False)))
            for position, (last, token) in contexts:
                right = right and (position >= (deciding or length) or ranks[cluster, state, token] >= config.forbidden)
                if right:
                    state = leads_to[cluster, state, token]
                probability *= shares[cluster, last + 1 if position else 0, token]
            verdicts[cluster, number_of_response] = right
            for position, (last, token) in contexts:
                visits[position, last, token] += probability * right
        for position, last in itertools.product(range(length), range(symbols + 1)):
            total = visits[position, last].sum()
            own = shares[cluster, last + 1 if position else 0] if last < symbols or not position else np.nan
            labels[cluster, position, last] = visits[position, last] / total if total > 0 else own
    rng = stream(number, INPUTS)
    inputs, clusters = {}, {}
    for split, size in (("train", config.train_inputs), ("test", config.test_inputs)):
        clusters[split] = rng.integers(count, size=size)
        noise = rng.normal(scale=config.noise, size=(size, config.input_dim))
        inputs[split] = centers[clusters[split]] + noise
    return Task(inputs, clusters, labels, verdicts)


def contexts(config: Any) -> list[tuple[int, int]]:
    """Positions with each last token they can have; V stands for none."""
    later = itertools.product(range(1, config.length), range(config.symbols))
    return [(0, config.symbols), *later]


class Network(Perceptron):
    """From a prompt, the position and the last token, in one-hot codes, to the logits of the next token."""

    def __init__(self, config: Any, parameters: Sequence[Tensor]) -> None:
        super().__init__(config, parameters)
        codes = np.zeros((len(contexts(config)), config.length + config.symbols + 1))
        for row, (position, last) in enumerate(contexts(config)):
            codes[row, position] = codes[row, config.length + last] = 1
        self.codes = torch.tensor(codes)
        numbers = {context: row for row, context in enumerate(contexts(config))}
        steps = [list(enumerate(zip((config.symbols, *y), y, strict=False))) for y in listed(config)]
        self.rows = torch.tensor([[numbers[position, last] for position, (last, _) in step] for step in steps])
        self.tokens = torch.tensor(listed(config))

    def next_token(self, inputs: np.ndarray) -> Tensor:
        """(B, S, V): log-probabilities in every context of prompts (B, D)."""
        prompts = torch.tensor(inputs)[:, None].expand(-1, len(self.codes), -1)
        return self.log_probs(torch.cat([prompts, self.codes.expand(len(inputs), -1, -1)], dim=-1))

    def responses(self, inputs: np.ndarray) -> Tensor:
        """(B, A): log-probabilities of all responses to prompts (B, D)."""
        return self.next_token(inputs)[:, self.rows, self.tokens].sum(-1)


def base_model(config: Any, seed: int, prior: Task, new: Task) -> list[Tensor]:
    """Pretrained on both tasks together, then by RL on the prior one, in expectations and without a regularizer."""
    widths = [config.input_dim + config.length + config.symbols + 1, *config.hidden, config.symbols]
    network = Network(config, initial(widths, config.init_scale, stream(seed, INITIALISATION)))
    inputs = np.concatenate([prior.inputs["train"], new.inputs["train"]])
    labels = np.concatenate([one.labels[one.clusters["train"]] for one in (prior, new)])
    positions, lasts = zip(*contexts(config), strict=True)
    rng = stream(seed, PRETRAINING)
    for _ in range(config.pretrain_steps):
        batch = rng.integers(len(inputs), size=config.pretrain_batch_size)
        targets = torch.tensor(labels[batch][:, positions, lasts])
        network.descend(-(targets * network.next_token(inputs[batch])).sum(-1).mean(), config.learning_rate)
    network = Network(config, network.parameters)
    rng = stream(seed, PRIOR_PROMPTS)
    for _ in range(config.prior_steps):
        batch = rng.integers(config.train_inputs, size=config.batch_size)
        log_probs = network.responses(prior.inputs["train"][batch])
        verdicts = prior.verdicts[prior.clusters["train"][batch]]
        losses = [expected_grpo(config, *prompt) for prompt in zip(log_probs, verdicts, strict=True)]
        network.descend(torch.stack(losses).mean(), config.learning_rate)
    return network.parameters


def advantages(rewards: Sequence[float]) -> list[float]:
    """Eq. 1, with the standard deviation over G - 1 and 1e-6 in the denominator."""
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def grpo(config: Any, log_probs: Tensor, verdicts: np.ndarray, group: Sequence[int]) -> Tensor:
    """-J_GRPO (Eqs. 2-4) of one group that the policy has just drawn: every ratio is 1, its slope the log's."""
    of_group = advantages([float(verdicts[response]) for response in group])
    terms = [a * log_probs[response] / config.length for a, response in zip(of_group, group, strict=True)]
    return -torch.stack(terms).sum() / len(group)


def expected_grpo(config: Any, log_probs: Tensor, verdicts: np.ndarray) -> Tensor:
    """Its mean over all groups of G, taken together by the verdicts on their members."""
    right = torch.tensor(verdicts)
    probs = log_probs.detach().exp()
    chances = {True: float(probs[right].sum()), False: float(probs[~right].sum())}
    terms = {verdict: (probs * log_probs)[right == verdict].sum() for verdict in (True, False)}
    loss = torch.zeros((), dtype=torch.float64)
    for pattern in itertools.product((True, False), repeat=config.group_size):
        for member, advantage in enumerate(advantages([float(verdict) for verdict in pattern])):
            others = [verdict for number, verdict in enumerate(pattern) if number != member]
            chance = math.prod(chances[verdict] for verdict in others)
            loss = loss - chance * advantage * terms[pattern[member]] / config.length / config.group_size
    return loss


def surrogate(
    method: str,
    log_probs: Tensor,
    reference: Tensor,
    verdicts: np.ndarray,
    cached: Sequence[int],
    fresh: Sequence[int],
) -> Tensor:
    """The same on one prompt's cached responses and on those that the policy has just drawn (Eqs. 11-17)."""
    loss = 0 * log_probs.sum()
    chosen, right = ([response for response in group if verdicts[response]] for group in (cached, fresh))
    if "cached" in LOOKS_AT[method]:
        for response in chosen:
            loss = loss - log_probs[response] / len(chosen)
    if method in ("cokl", "cokl_without_term1"):
        for response in right:
            loss = loss + log_probs[response] / len(right)
    if method == "reverse_kl":
        costs = (log_probs.detach() - reference)[list(fresh)].tolist()
        for number, response in enumerate(fresh):
            others = costs[:number] + costs[number + 1 :]
            loss = loss + (costs[number] - sum(others) / len(others)) * log_probs[response] / len(fresh)
    return loss


def draw(config: Any, network: Network, inputs: np.ndarray, uniforms: np.ndarray) -> list[list[int]]:
    """A response for each line of uniforms (B, G, T): its number, token by token from the cumulated probabilities."""
    numbers = {context: row for row, context in enumerate(contexts(config))}
    order = {response: number for number, response in enumerate(listed(config))}
    tables = network.next_token(inputs).detach().exp().numpy()
    groups = []
    for table, lines in zip(tables, uniforms, strict=True):
        group = []
        for line in lines:
            response: list[int] = []
            for position, uniform in enumerate(line):
                share, token = 0.0, -1
                row = table[numbers[position, response[-1] if response else config.symbols]]
                while share <= uniform and token < config.symbols - 1:
                    token += 1
                    share += row[token]
                response.append(token)
            group.append(order[tuple(response)])
        groups.append(group)
    return groups


class Seed:
    """All that the runs of a seed share."""

    def __init__(self, config: Any, seed: int) -> None:
        self.config, self.seed = config, seed
        self.prior = task(config, 2 * seed, config.deciding)
        self.new = task(config, 2 * seed + 1)
        self.base = Network(config, base_model(config, seed, self.prior, self.new))
        chosen = stream(seed, BUFFER).choice(config.train_inputs, config.buffer_size, replace=False)
        self.buffer_inputs = self.prior.inputs["train"][chosen]
        self.buffer_verdicts = self.prior.verdicts[self.prior.clusters["train"][chosen]]
        size = (config.buffer_size, config.reference_group_size, config.length)
        self.cached = draw(config, self.base, self.buffer_inputs, stream(seed, CACHED).random(size))
        with torch.no_grad():
            self.buffer_reference = self.base.responses(self.buffer_inputs)

    def buffer(self, method: str) -> list[int]:
        """The prompts of the buffer that a method uses."""
        solved = [self.buffer_verdicts[number][group].any() for number, group in enumerate(self.cached)]
        return [number for number, one in enumerate(solved) if one or method in UNFILTERED]

    def run(self, method: str, beta: float, prompts: int) -> Iterator[dict[str, Any]]:
        """Metrics by step of one run on the new task, with so many prompts of the buffer in a step (Eq. 18)."""
        config = self.config
        network = Network(config, self.base.parameters)
        buffer = self.buffer(method)
        new_rng, kl_rng = stream(self.seed, NEW_PROMPTS), stream(self.seed, KL_PROMPTS)
        new_uniforms, kl_uniforms = stream(self.seed, NEW_ROLLOUTS), stream(self.seed, KL_ROLLOUTS)
        rate = config.new_learning_rate or config.learning_rate
        group = (config.group_size, config.length)
        for done in range(config.steps + 1):
            if done % config.eval_interval == 0 or done == config.steps:
                yield {"step": done, **self.metrics(network)}
            if done == config.steps:
                return
            batch = new_rng.integers(config.train_inputs, size=config.batch_size)
            inputs = self.new.inputs["train"][batch]
            verdicts = self.new.verdicts[self.new.clusters["train"][batch]]
            policies = network.responses(inputs)
            groups = draw(config, network, inputs, new_uniforms.random((config.batch_size, *group)))
            terms = [grpo(config, *prompt) for prompt in zip(policies, verdicts, groups, strict=True)]
            loss = torch.stack(terms).mean()
            if prompts:
                chosen = [buffer[number] for number in kl_rng.integers(len(buffer), size=prompts)]
                inputs = self.buffer_inputs[chosen]
                policies, references = network.responses(inputs), self.buffer_reference[chosen]
                known = list(zip(policies, references, self.buffer_verdicts[chosen], strict=True))
                groups = draw(config, network, inputs, kl_uniforms.random((prompts, *group)))
                cached = [self.cached[number] for number in chosen]
                drawn = zip(known, cached, groups, strict=True)
                terms = [surrogate(method, *prompt, old, fresh) for prompt, old, fresh in drawn]
                loss = loss + beta * torch.stack(terms).mean()
            network.descend(loss, rate)

    def metrics(self, network: Network) -> dict[str, float]:
        """Means over the test prompts of either task."""
        means = {}
        for name, one in (("prior", self.prior), ("new", self.new)):
            right = one.verdicts[one.clusters["test"]]
            with torch.no_grad():
                old, now = (model.responses(one.inputs["test"]).numpy() for model in (self.base, network))
            q, p = np.exp(old), np.exp(now)
            mass, old_mass = (p * right).sum(-1), (q * right).sum(-1)
            means[f"{name}_correct"] = mass.mean()
            if name == "new":
                continue
            known = old_mass >= 7 / 8
            means["known_share"], means["known_correct"] = known.mean(), (mass * known).mean()
            log_ratio = np.log(old_mass / mass)
            wrong_log_ratio = np.log((1 - old_mass) / (1 - mass))
            within = (q * right * (old - now)).sum(-1) - old_mass * log_ratio
            wrong_within = (q * ~right * (old - now)).sum(-1) - (1 - old_mass) * wrong_log_ratio
            given_right = p * right / mass[:, None]
            means["conditional_kl"] = (within / old_mass).mean()
            means["conditional_entropy"] = -(given_right * (now - np.log(mass)[:, None])).sum(-1).mean()
            means["mass_drift"] = (old_mass * log_ratio + (1 - old_mass) * wrong_log_ratio).mean()
            means["correct_drift"], means["incorrect_drift"] = within.mean(), wrong_within.mean()
        return means


def table(config: Any) -> pd.DataFrame:
    """A row per evaluated step of every run of the lab, and one of each seed's base model, as the lab sorts them:
    by seed, method as configured after the base model, coefficient and step.
    """
    reported = range(config.first_seed, config.first_seed + config.seeds)
    selection = range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + config.selection_seeds)
    lines = []
    for number in (*reported, *selection):
        seed = Seed(config, number)
        own = {"seed": number, "mode": "sampled", "role": "selection" if number in selection else "report"}
        base = {"method": "base", "beta": 0.0, "kl_prompts": 0, "step": 0}
        lines.append(own | base | seed.metrics(seed.base))
        for method in config.methods:
            looks_at = LOOKS_AT[method].split()
            prompts = (config.kl_prompts or max(1, config.kl_groups // len(looks_at))) if looks_at else 0
            for beta in sorted(config.betas) if looks_at else [0.0]:
                run = {"method": method, "beta": beta, "kl_prompts": prompts}
                lines += [own | run | row for row in seed.run(method, beta, prompts)]
    return pd.DataFrame(lines)


def final_tables(rows: Sequence[Any]) -> dict[str, list[scores.Row]]:
    """What the lab reports of its table's rows, by the name of the file."""
    return {
        "differences": differences(rows),
        "levels": scores.summary(scores.final(rows), ("role", *scores.RUN), METRICS),
    }


def differences(rows: Sequence[scores.Row]) -> list[scores.Row]:
    """CoKL minus each other regularizer in points, at every coefficient and at what each chose."""
    runs: dict[tuple[str, float], dict[int, scores.Row]] = {}
    merits: dict[str, dict[float, list[float]]] = {}
    for row in scores.final(rows):
        if row["method"] in ("base", "none"):
            continue
        share, known, prior, new = (
            row[name] for name in ("known_share", "known_correct", "prior_correct", "new_correct")
        )
        parts = [prior, known / share if share else None, (prior - known) / (1 - share) if share < 1 else None, new]
        if row["role"] == "selection":
            merit = (prior if parts[1] is None else parts[1]) + new
            merits.setdefault(row["method"], {}).setdefault(row["beta"], []).append(merit)
        else:
            values = dict(zip(DIFFERENCES, [*parts, (prior + new) / 2], strict=True))
            runs.setdefault((row["method"], row["beta"]), {})[row["seed"]] = values
    best = {one: max(means, key=lambda beta: scores.mean(means[beta])) for one, means in merits.items()}
    pairs = [(method, "chosen", beta, best["cokl"]) for method, beta in best.items()]
    pairs += [(method, f"{beta:g}", beta, beta) for method, beta in runs]
    lines = []
    for method, at, beta, own in pairs:
        if method != "cokl":
            theirs, ours = runs[method, beta], runs["cokl", own]
            line: scores.Row = {"method": method, "at": at}
            for name in DIFFERENCES:
                apart = [100 * (ours[s][name] - theirs[s][name]) for s in theirs if theirs[s][name] is not None]
                line[name] = scores.mean(apart) if apart else math.nan
                line[f"{name}_half_width"] = scores.half_width(apart) if apart else math.nan
            lines.append(line)
    return lines
