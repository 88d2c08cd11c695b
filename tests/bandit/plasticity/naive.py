"""Both phases as a researcher would write them: one network, autograd, a loop over steps and none of our code.

The random streams are those that `bandit.plasticity.rewards` and `bandit.engine.environment` document, by number.
"""

import itertools

import numpy as np
import torch
from torch import nn

ENVIRONMENT, INPUTS, INITIALISATION, PRETRAINING_BATCHES, RL_BATCHES = range(5)
NARROWED, MOVED, CACHE, SAMPLED_BATCHES, SAMPLED_ROLLOUTS, NEW_BATCHES, NEW_ROLLOUTS = range(200, 207)


def rng(seed, stream):
    return np.random.default_rng([seed, stream])


class Naive:
    """One seed of a configuration, whose fields alone are read."""

    def __init__(self, config, seed):
        self.config, self.seed = config, seed
        e = config.environment
        generator = rng(seed, ENVIRONMENT)
        centers = generator.normal(scale=e.center_scale, size=(e.clusters, e.input_dim))
        self.correct = np.zeros((e.clusters, e.actions), bool)
        oracle = np.full((e.clusters, e.actions), (1 - e.correct_mass) / (e.actions - e.correct_actions))
        first, last = e.zipf_exponents
        for cluster, exponent in enumerate(np.linspace(first, last, e.clusters)):
            zipf = np.arange(1, e.correct_actions + 1) ** -exponent
            chosen = generator.choice(e.actions, e.correct_actions, replace=False)
            oracle[cluster, chosen] = e.correct_mass * generator.dirichlet(e.concentration * zipf / zipf.sum())
            self.correct[cluster, chosen] = True
        generator = rng(seed, INPUTS)
        (self.inputs, self.clusters), (self.test_inputs, self.test_clusters) = (
            self._inputs(centers, generator, count) for count in (e.train_inputs, e.test_inputs)
        )
        self.base = self._network(rng(seed, INITIALISATION))
        batches = rng(seed, PRETRAINING_BATCHES)

        def cross_entropy():
            batch = batches.integers(e.train_inputs, size=config.batch_size)
            labels = torch.tensor(oracle[self.clusters[batch]])
            return -(labels * self.base(self.inputs[batch]).log_softmax(-1)).sum(-1).mean()

        self._descend(self.base, cross_entropy, config.pretrain_steps)
        with torch.no_grad():
            self.reference = self.base(self.inputs).softmax(-1)

    def _inputs(self, centers, generator, count):
        clusters = generator.integers(len(centers), size=count)
        noise = generator.normal(scale=self.config.environment.noise, size=(count, centers.shape[1]))
        return torch.tensor(centers[clusters] + noise), clusters

    def _network(self, generator):
        e = self.config.environment
        layers = []
        for fan_in, fan_out in itertools.pairwise((e.input_dim, *self.config.hidden, e.actions)):
            numbers = generator.uniform(-1, 1, size=(fan_in + 1, fan_out)) / np.sqrt(fan_in)
            linear = nn.Linear(fan_in, fan_out, dtype=torch.float64)
            with torch.no_grad():
                linear.weight.copy_(torch.tensor(numbers[:-1].T))
                linear.bias.copy_(torch.tensor(numbers[-1]))
            layers += [linear, nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def _descend(self, net, loss, steps, after=lambda done: None):
        optimizer = torch.optim.Adam(net.parameters(), lr=self.config.learning_rate)
        after(0)
        for done in range(1, steps + 1):
            optimizer.zero_grad()
            loss().backward()
            nn.utils.clip_grad_norm_(net.parameters(), self.config.max_gradient_norm)
            optimizer.step()
            after(done)

    def phase_1(self, phase, method, beta, cached):
        """The final network."""
        net = self._network(rng(self.seed, INITIALISATION))
        net.load_state_dict(self.base.state_dict())
        if phase == "reference":
            return net
        config, count = self.config, len(self.inputs)
        batches = rng(self.seed, RL_BATCHES if phase == "exact" else SAMPLED_BATCHES)
        rollouts = rng(self.seed, SAMPLED_ROLLOUTS)
        numbers = rng(self.seed, CACHE).random((count, max(config.cached)))
        cache = draw(self.reference, numbers)[:, :cached]

        def exact():
            batch = batches.integers(count, size=config.batch_size)
            pi, ref = net(self.inputs[batch]).softmax(-1), self.reference[batch]
            right = torch.tensor(self.correct[self.clusters[batch]])
            mass = (pi * right).sum(-1)
            given = ref * right / (ref * right).sum(-1, keepdim=True)
            added = {
                "none": 0 * mass,
                "reverse_kl": (pi * (pi / ref).log()).sum(-1),
                "correct_forward_kl": -(given * pi.log()).sum(-1),
                "cokl": -(given * (pi / mass[:, None]).log()).sum(-1),
            }
            return (-mass + beta * added[method]).mean()

        def sampled():
            batch = batches.integers(count, size=config.prompts)
            logits = net(self.inputs[batch])
            right = torch.tensor(self.correct[self.clusters[batch]]).double()
            uniforms = rollouts.random((config.prompts, config.group_size))
            loss = 0
            for log_pi, ref, reward, u, kept in zip(
                logits.log_softmax(-1), self.reference[batch], right, uniforms, cache[batch], strict=True
            ):
                drawn = draw(log_pi.detach().exp()[None], u[None])[0]
                loss = loss + grpo(log_pi, reward, drawn)
                good_fresh, good_kept = drawn[reward[drawn] == 1], kept[reward[kept] == 1]
                if method in ("cokl", "correct_forward_kl") and len(good_kept):
                    loss = loss - beta * log_pi[good_kept].mean()
                    if method == "cokl" and len(good_fresh):
                        loss = loss + beta * log_pi[good_fresh].mean()
                if method == "reverse_kl":
                    costs = (log_pi - ref.log())[drawn].detach()
                    others = (costs.sum() - costs) / (len(costs) - 1)
                    loss = loss + beta * ((costs - others) * log_pi[drawn]).mean()
            return loss / config.prompts

        self._descend(net, exact if phase == "exact" else sampled, config.steps)
        return net

    def rewards(self, stage, net):
        """(C, A): the reward of each action in each cluster after phase 1."""
        with torch.no_grad():
            own = net(self.inputs).softmax(-1)
        kind, *sizes = stage.split("-")
        table = np.zeros(self.correct.shape)
        chance = {stream: rng(self.seed, stream).random(self.correct.shape) for stream in (NARROWED, MOVED)}
        for cluster, right in enumerate(self.correct):
            here, actions = self.clusters == cluster, np.flatnonzero(right)
            liked = self.reference[here].mean(0)
            if kind in ("narrowed", "chain", "moved"):
                eligible = np.flatnonzero(~right) if kind == "moved" else actions
                numbers = chance[MOVED if kind == "moved" else NARROWED][cluster, eligible]
                table[cluster, eligible[np.argsort(numbers)[: int(sizes[0])]]] = 1
            elif kind == "repaired":
                most = liked if sizes else own[here].mean(0)
                table[cluster, actions] = 1
                table[cluster, max(actions, key=lambda action: most[action])] = 0
            else:
                table[cluster, actions] = 0.2
                table[cluster, sorted(actions, key=lambda action: liked[action])[: len(actions) // 2]] = 1
        return table

    def phase_2(self, net, change, mode):
        """Rows of (stage, step, mean new reward, share of inputs below one half); `net` is trained on."""
        config = self.config
        batches, rollouts = rng(self.seed, NEW_BATCHES), rng(self.seed, NEW_ROLLOUTS)
        kind, *sizes = change.split("-")
        stages = [f"chain-{size}" for size in sizes] if kind == "chain" else [change]
        tables = {stage: self.rewards(stage, net) for stage in stages}  # repaired looks at phase 1's policy
        rows = []
        for stage, table in tables.items():

            def loss(table=table):
                batch = batches.integers(len(self.inputs), size=config.prompts)
                uniforms = rollouts.random((config.prompts, config.group_size))
                rewards = torch.tensor(table[self.clusters[batch]])
                log_pi = net(self.inputs[batch]).log_softmax(-1)
                if mode == "exact":
                    return -(log_pi.exp() * rewards).sum(-1).mean()
                groups = draw(log_pi.detach().exp(), uniforms)
                return sum(map(grpo, log_pi, rewards, groups)) / config.prompts

            def evaluate(done, stage=stage, table=table):
                if done in config.evaluated_steps:
                    shown = slice(config.evaluated_inputs)
                    with torch.no_grad():
                        probs = net(self.test_inputs[shown]).softmax(-1).numpy()
                    rewards = (probs * table[self.test_clusters[shown]]).sum(-1)
                    rows.append((stage, done, rewards.mean(), (rewards < 0.5).mean()))

            self._descend(net, loss, config.new_steps, evaluate)
        return rows

    def correctness(self, net):
        """On all test inputs."""
        with torch.no_grad():
            probs = net(self.test_inputs).softmax(-1).numpy()
        return (probs * self.correct[self.test_clusters]).sum(-1).mean()


def draw(probs, uniforms):
    """(N, G) actions by inversion of the cumulated probabilities (N, A), uniforms (N, G)."""
    cumulated = np.cumsum(probs.numpy(), axis=-1)
    return torch.tensor(
        np.stack([np.searchsorted(row, u * row[-1], side="right") for row, u in zip(cumulated, uniforms, strict=True)])
    )


def grpo(log_pi, rewards, actions):
    """The on-policy loss of one group: minus the mean of advantage times log-likelihood."""
    drawn = rewards[actions]
    advantages = (drawn - drawn.mean()) / (drawn.std() + 1e-6)
    return -(advantages * log_pi[actions]).mean()
