"""Phase diagrams: over two knobs of the task-shift lab, which method wins Overall, by how much, and why.

Every cell is a task-shift experiment of its own, with each method's coefficient chosen on the cell's selection seeds.
So are the winner, the runner-up, and CoKL's rival, the best method that is no variant of CoKL; leads are those of the
reported seeds, so that picking a maximum biases none of them. Which cells CoKL leads or trails in is decided with
Holm's correction over the cells of a map. A cell where GRPO forgets or learns next to nothing has no Overall.

Assumption beyond the paper: the knob of reference correctness is the number of RL steps on the prior task, since it
leaves the tasks as they are; each cell reports the base model's measured correctness. The knob of G is the size of
every group: GRPO's, the regularizer's rollouts and its cached responses.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from bandit.config import changed
from bandit.engine.two_tasks.config import Mode
from bandit.shift.config import ShiftConfig
from cokl.support.errors import InputError
from cokl.support.options import Coefficients, Names, Settings, separated

Preset = Literal["paper", "quick"]


class Knob(NamedTuple):
    """A setting of the lab: how figures call it, which fields take its value, and its values in each preset."""

    label: str
    fields: tuple[str, ...]
    paper: tuple[float, ...]
    quick: tuple[float, ...]

    def apply(self, config: ShiftConfig, value: Any) -> ShiftConfig:
        """The lab with this value."""
        if self.fields == ("hidden",):
            value = (value,) * len(config.hidden)
        return changed(config, dict.fromkeys(self.fields, value))


KNOBS: dict[str, Knob] = {
    "reference_correctness": Knob("RL steps on the prior task", ("prior_steps",), (0, 40, 80, 200), (40, 200)),
    "correct_modes": Knob("correct actions per cluster", ("correct_actions",), (2, 4, 8, 16), (2, 8)),
    "cluster_overlap": Knob("overlap of the clusters", ("cluster_overlap",), (0.0, 0.3, 0.6, 0.9), (0.3, 0.9)),
    "correct_overlap": Knob("overlap of the correct sets", ("correct_overlap",), (0.0, 0.25, 0.5, 0.75), (0.0, 0.5)),
    "group_size": Knob("G, responses per group", ("group_size", "reference_group_size"), (2, 4, 8, 16), (2, 8)),
    "width": Knob("width of the network", ("hidden",), (16, 32, 64, 128), (32, 128)),
    "buffer_size": Knob("prompts in the buffer", ("buffer_size",), (8, 32, 128, 512), (16, 512)),
    "correct_mass": Knob("correctness of the oracles", ("correct_mass",), (0.03, 0.1, 0.2, 0.4), (0.05, 0.2)),
}
"""What a diagram can be drawn over."""


def _plain(value: float) -> float:
    """A whole number as int, so that it can count something. Raises InputError for inf and nan."""
    if not math.isfinite(value):
        raise InputError(f"values of a knob: expected finite numbers, got {value}")
    return int(value) if value == int(value) else value


@dataclass(frozen=True)
class Diagram:
    """A map over two knobs: their values, and the experiment in which they are set."""

    x: str
    y: str
    x_values: tuple[float, ...]
    y_values: tuple[float, ...]
    experiment: ShiftConfig

    @property
    def name(self) -> str:
        """How its files are called."""
        return f"{self.x}-{self.y}"

    def cells(self) -> list[tuple[float, float, ShiftConfig]]:
        """Every pair of values and its experiment. Raises InputError for a value that the lab does not take."""
        return [
            (x, y, KNOBS[self.y].apply(KNOBS[self.x].apply(self.experiment, x), y))
            for x in map(_plain, self.x_values)
            for y in map(_plain, self.y_values)
        ]


def diagram(
    x: str,
    y: str,
    mode: Mode,
    experiment: ShiftConfig,
    preset: Preset,
    x_values: tuple[float, ...] = (),
    y_values: tuple[float, ...] = (),
) -> Diagram:
    """The map over two knobs of an experiment, at the preset's values where none are given. Raises InputError for an
    unknown knob, and for an experiment without "none" or without selection seeds, which the scores need.
    """
    from bandit.shift.report import require_scores  # loads PyTorch, which the command line does without

    for name in (x, y):
        if name not in KNOBS:
            raise InputError(f"knobs: {name!r} is not in the list; known: {', '.join(KNOBS)}")
    if x == y:
        raise InputError(f"knobs: expected two different ones, got {x} twice")
    experiment = dataclasses.replace(experiment, mode=mode)
    require_scores(experiment.methods, experiment.selection_seeds)
    return Diagram(x, y, x_values or getattr(KNOBS[x], preset), y_values or getattr(KNOBS[y], preset), experiment)


METHODS = (
    "none",
    "reverse_kl",
    "forward_kl",
    "correct_reverse_kl",
    "correct_forward_kl",
    "jensen_shannon",
    "cokl",
    "cokl_floor",
)
"""What competes for a cell: CoKL w/o term 2 is correct-only forward KL, and w/o term 1 no regularizer at all."""

EXPERIMENTS: dict[Preset, ShiftConfig] = {
    "paper": ShiftConfig(
        methods=METHODS,
        betas=(0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        seeds=5,
        selection_seeds=2,
        steps=300,
        eval_interval=300,
        kl_sweep_methods=(),
    ),
    "quick": ShiftConfig(
        methods=("none", "reverse_kl", "forward_kl", "correct_forward_kl", "cokl"),
        betas=(0.1, 1.0),
        seeds=4,
        selection_seeds=1,
        steps=80,
        eval_interval=80,
        pretrain_steps=200,
        new_learning_rate=3e-3,
        kl_sweep_methods=(),
    ),
}
"""What every cell trains: the lab with fewer steps, coefficients and seeds, and no KL-batch sweep."""


_Numbers = Annotated[tuple[float, ...], separated(float, "VALUE")]


@dataclass(frozen=True)
class MapsConfig(Settings):
    """Which maps to draw, and what every cell trains."""

    knobs: Names = ()
    """Two of reference_correctness, correct_modes, cluster_overlap, correct_overlap, group_size, width, buffer_size and
    correct_mass; if not given the first two in expectations and, but for the quick preset, cluster_overlap with
    group_size in samples."""
    mode: Mode = "exact"
    """For knobs of your own: expectations over the action space, or sampled groups of responses."""
    x_values: _Numbers = ()
    """Values of the first knob; the preset's if not given."""
    y_values: _Numbers = ()
    """Values of the second knob; the preset's if not given."""
    methods: Names = METHODS
    """What competes, none (GRPO w/o KL) among it."""
    betas: Coefficients = EXPERIMENTS["paper"].betas
    """Coefficients of every method."""
    seeds: int = EXPERIMENTS["paper"].seeds
    """Reported seeds of a cell."""
    steps: int = EXPERIMENTS["paper"].steps
    """Optimizer steps on the new task."""
    preset: tyro.conf.Suppress[Preset] = "paper"
    """Whose values the knobs take, and whose selection seeds a cell has."""

    def diagrams(self) -> list[Diagram]:
        """The maps. Raises InputError for knobs that are not in the list, or values without knobs."""
        changes = {name: getattr(self, name) for name in ("methods", "betas", "seeds", "steps")}
        experiment = dataclasses.replace(EXPERIMENTS[self.preset], **changes, eval_interval=self.steps)
        if len(self.knobs) == 2:
            return [diagram(*self.knobs, self.mode, experiment, self.preset, self.x_values, self.y_values)]
        if self.knobs or self.x_values or self.y_values:
            raise InputError(
                f"knobs: expected two names of {', '.join(KNOBS)}, got {','.join(self.knobs) or 'none'}; values need "
                "their knobs"
            )
        maps = [  # in expectations what a reference gives, and in samples what an update does
            diagram("reference_correctness", "correct_modes", "exact", experiment, self.preset),
            diagram("cluster_overlap", "group_size", "sampled", experiment, self.preset),
        ]
        return maps[:1] if self.preset == "quick" else maps


PRESETS = {
    name: MapsConfig(methods=config.methods, betas=config.betas, seeds=config.seeds, steps=config.steps, preset=name)
    for name, config in EXPERIMENTS.items()
}
