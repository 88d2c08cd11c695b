"""What an experiment is to everything that iterates over experiments: commands, rerun, page, logbook, assumptions.

An experiment is one folder with a module `experiment`, which registers one subclass of `Experiment`. Beside it, by
name: `config` with PRESETS, `run` with a function called as the folder is, `report` with `write`, `figures` with
`draw_all`, `section` with `section`. Light: whatever imports PyTorch or draws is imported inside the methods.
Annotations are evaluated here, since the parser reads those of subclasses in other modules.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import tyro

from cokl.support.errors import InputError
from cokl.support.files import read_json, read_parquet
from cokl.support.options import from_json
from cokl.support.verdicts import Claim

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where an experiment's results go, and who computes them."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to save in and to resume from; runs/NAME-PRESET if not given, runs/PRESET for the sweep."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes on a CPU; one per core if not given."""
    backend: Literal["loky", "ray"] = "loky"
    """Processes of this machine, or a Ray cluster: the one RAY_ADDRESS names, or else one started here."""
    keep_going: bool = False
    """Resume from results that other code has left in the folder; otherwise such a folder is refused."""

    @contextmanager
    def results_folder(self) -> Iterator[Path]:
        """Where results go while a command runs: `out`, or a temporary folder that is deleted at the end."""
        if self.out is not None:
            yield Path(self.out)
        else:
            with TemporaryDirectory() as temporary:
                yield Path(temporary)


HERE = Execution()
"""On this machine, on all of its cores, and nothing kept."""


NOT_RECORDED: dict[str, Any] = {"hardware": "", "seconds": None, "commit": None}
"""Of `Experiment.record`, where no results folder says it."""


@dataclass(frozen=True)
class GalleryPicture:
    """A picture that the gallery shows, with or without its file in figures/rendered.

    name: of the file, without its ending. counterpart: in the paper. command: draws it; the experiment's own if "".
    """

    name: str
    title: str
    counterpart: str = ""
    command: str = ""


class Experiment:
    """One experiment: its configuration, its results folder, and what is read from there.

    name: the command's, with hyphens for underscores. title: of its section in the logbook. area: its results in a
    list of claims. command: makes the results at the paper's settings. summary: the command's help; "" for an
    experiment whose results another one's command makes. presets: configurations by name, "paper" and "quick". order:
    where it stands among the others. tables: files that its results folder holds, the first of which marks a finished
    one. reruns: whether `cokl rerun` can recompute it. pools_folders: whether the logbook takes the claims of all
    its folders or the first one's. assumed_configs, assumed_modules: what states assumptions in its fields and its
    module docstrings. spread: what stands after ± in its headline table. claims_of: the experiment whose claims of the
    paper it shares. measured_as: what `brief` gives. gallery: pictures of docs/gallery.md.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    area: ClassVar[str]
    command: ClassVar[str]
    summary: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Any]] = {}
    order: ClassVar[int] = 100
    tables: ClassVar[tuple[str, ...]] = ()
    reruns: ClassVar[bool] = True
    pools_folders: ClassVar[bool] = False
    assumed_configs: ClassVar[tuple[type, ...]] = ()
    assumed_modules: ClassVar[tuple[str, ...]] = ()
    spread: ClassVar[str] = "half the width of a 95% t-interval"
    claims_of: ClassVar[str] = ""
    gallery: ClassVar[tuple[GalleryPicture, ...]] = ()
    measured_as: ClassVar[str] = "primary measurement"

    @property
    def folder_prefix(self) -> str:
        """What its results folders' names begin with in runs/, before the preset's."""
        return f"{self.name.replace('_', '-')}-"

    def train(self, config: Any, execution: Execution) -> Any:
        """Compute what is missing and save it in `execution.out`; returns what `report` and `figures` take.

        By the function of the module `run` that is called as the folder is. Raises InputError for a configuration or a
        folder that cannot be used.
        """
        return getattr(self._beside("run"), type(self).__module__.split(".")[-2])(config, execution)

    def report(self, trained: Any, config: Any, folder: Path) -> str:
        """Write tables and pages into `folder`, by `write` of the module `report`; returns what the screen shows."""
        screen: str = self._beside("report").write(trained, config, folder)
        return screen

    def figures(self, trained: Any, config: Any, folder: Path) -> Mapping[str, Any]:
        """A picture by its file name, for `figures.style.save_all`: `draw_all` of the module `figures`."""
        module = self._beside("figures")
        return module.draw_all(trained, config) if module else {}

    def outcome(self, config: Any, folder: Path) -> Any:
        """What a finished run gives to a program, as JSON values."""
        return {"folder": folder, **{Path(name).stem: folder / name for name in self.tables}}

    def holds(self, folder: Path) -> bool:
        """Whether a folder that holds the first table is this experiment's."""
        return True

    def settings(self, stored: dict[str, Any]) -> Mapping[str, Any]:
        """What a results folder's config.json says, as fields of the presets' class."""
        return stored

    def area_of(self, folder: Path) -> str:
        """What the claims of one results folder are about."""
        return f"{self.area}, {folder.name}"

    def claims(self, folder: Path) -> Sequence[Claim]:
        """Every claim that the results allow to be judged."""
        return ()

    def brief(self, measured: Sequence[str]) -> str:
        """What the logbook's page says of a claim's measurements, whose record has all: `measured_as` is its title."""
        return measured[0].removeprefix("primary: ")

    def paper_claims(self) -> Sequence[tuple[str, str]]:
        """Statement and source of the paper's claims that it judges, for the logbook where it was not run."""
        return ()

    def section(self, folder: Path) -> Any:
        """Its section of the page, a `figures.page.Section`, by `section` of the module `section`; None without one."""
        module = self._beside("section")
        return module.section(folder) if module else None

    def rerun(self, folder: Path, again: Path, execution: Execution) -> Path:
        """Recompute the results of `folder` into `again`; returns the folder with the new tables."""
        config = from_json(type(self.presets["paper"]), read_json(folder / "config.json", dict))
        self.train(config, replace(execution, out=again))
        return again

    def comparable(self, path: Path) -> "pd.DataFrame":
        """One of its tables, to be compared with a rerun's."""
        return read_parquet(path)

    def headline(self, folder: Path) -> dict[str, list[str]] | None:
        """The table that the logbook shows, rows of text by column, or None."""
        return None

    def _beside(self, name: str) -> Any:
        """The module `name` in the experiment's folder; None where there is none."""
        package = type(self).__module__.rpartition(".")[0]
        path = f"{package}.{name}"
        return import_module(path) if package and find_spec(path) else None

    def stored_presets(self) -> Mapping[str, dict[str, Any]]:
        """The presets as a results folder's config.json has them, by name."""
        as_json = {name: json.dumps(config, default=lambda value: value.as_dict()) for name, config in
                   self.presets.items()}  # fmt: skip
        return {name: json.loads(text) for name, text in as_json.items()}

    def record(self, folders: Sequence[Path]) -> dict[str, Any]:
        """What the logbook says of these results besides their claims.

        command (one for each different configuration), scope, hardware,
        seconds (None if a folder does not say), commit (None likewise).
        """
        configs = [read_json(folder / "config.json", dict) for folder in folders]
        environment = read_json(folders[0] / "environment.json", list)[-1]
        times = [read_json(path, list) for folder in folders if (path := folder / "seconds.json").is_file()]
        return {
            "command": "; ".join(dict.fromkeys(map(self._command_for, configs))),
            "scope": _scope(configs[0]),
            "hardware": f"{environment['cpu']}, {environment['cpu_count']} cores, torch "
            f"{environment['versions']['torch']}",
            "seconds": round(sum(chain.from_iterable(times)), 1) if len(times) == len(folders) else None,
            "commit": environment["git_commit"],
        }

    def _command_for(self, config: dict[str, Any]) -> str:
        """The command whose settings are those of `config`, as far as its presets and flags say them."""
        command = self.command.partition(" --")[0]  # its flags follow from the configuration
        differing = {name: _differences(preset, config) for name, preset in self.stored_presets().items()}
        preset = min(differing, key=lambda name: len(differing[name]))
        flags = "" if preset == "paper" else f" --preset {preset}"
        for option, value in differing[preset].items():
            separator = " " if option in _SPACED else ","
            joined = separator.join(map(str, value)) if isinstance(value, list) else str(value)
            flags += f" --{option.replace('_', '-')} {joined}"
        return command + flags


_E = TypeVar("_E", bound=Experiment)
_REGISTERED: dict[str, Experiment] = {}

_SPACED = ("hidden", "adam_betas", "zipf_exponents")
"""Flags whose values stand beside each other; others are lists with commas."""


def register(experiment: type[_E]) -> type[_E]:
    """Make an experiment known under its name, as a class decorator. Raises InputError for a name that is taken."""
    known = _REGISTERED.get(experiment.name)
    if known is not None and type(known).__qualname__ != experiment.__qualname__:
        raise InputError(f"experiment: {experiment.name!r} is registered already, by {type(known).__module__}")
    _REGISTERED[experiment.name] = experiment()
    return experiment


def registered() -> dict[str, Experiment]:
    """Every registered experiment by its name, in their order."""
    return dict(sorted(_REGISTERED.items(), key=lambda item: item[1].order))


def _scope(config: Mapping[str, Any]) -> str:
    """In a few words: how many seeds, steps and what else was varied."""
    config = config.get("experiment", config)
    counted = {"cells": "settings", "shares": "shares", "methods": "methods", "betas": "coefficients"}
    counts = [
        f"{len(config[name])} {label if len(config[name]) != 1 else label[:-1]}"
        for name, label in counted.items()
        if config.get(name)
    ]
    selection = f" and {config['selection_seeds']} for selection" if "selection_seeds" in config else ""
    seeds = [f"{config['seeds']} seeds{selection}"] if "seeds" in config else []
    steps = [f"{config['steps']} steps"] if "steps" in config else []
    return ", ".join([*seeds, *counts, *steps])


def _differences(preset: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Fields of both whose values differ, by their innermost names, with the values of `config`."""
    differing: dict[str, Any] = {}
    for field, value in preset.items():
        if isinstance(value, dict):
            differing |= _differences(value, config.get(field, {}))
        elif field != "device" and field in config and config[field] != value:
            differing[field] = config[field]
    return differing
