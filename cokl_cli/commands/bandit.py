"""Commands of `cokl bandit`: one for each lab, and the card.

Annotations are evaluated here, since the parser reads those of subclasses in other modules.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
import tyro
from tyro.extras import SubcommandApp

from bandit.config import EnvironmentConfig
from bandit.engine.runs import regularizer_classes
from bandit.lab import Lab, Tables, on_screen, write
from bandit.labs import labs
from cokl import methods
from cokl.methods import Method
from cokl.support.code import Decisive, code_of, with_code
from cokl.support.errors import InputError
from cokl.support.results import Execution
from cokl_cli.commands.card import Card
from cokl_cli.presets import FromFile, preset_among, settings_among
from cokl_cli.regularizer_check import require_trainable


@dataclass(frozen=True, kw_only=True)
class LabOptions(FromFile, Execution):
    """What every command that trains takes."""

    preset: Literal["paper", "quick"] = "paper"
    """Where all other defaults come from: the paper's settings, a smaller experiment that ends within a minute (quick),
    or another setting of the lab."""

    prefix: ClassVar[str] = ""

    @property
    def folder(self) -> Path:
        """Where results go."""
        return self.out or Path("runs") / f"{self.prefix}{self.named(self.preset)}"


@dataclass(frozen=True, kw_only=True)
class LabCommand(LabOptions):
    """A command that trains, scores and draws one lab."""

    lab: ClassVar[Lab]
    config: ClassVar[Any]

    @contextlib.contextmanager
    def results_folder(self, config: Mapping[str, Any]) -> Iterator[Path]:
        """The folder, which belongs also to the code of another package's lab and of its methods' regularizers."""
        decided_by: dict[str, Decisive] = {
            f"lab {self.lab.title}": self.lab.train,
            **regularizer_classes(self._methods()),
        }
        with super().results_folder(with_code(config, decided_by)) as folder:
            yield folder

    def _methods(self) -> Iterator[Method]:
        """The regularized ones of the configuration; another package's lab may call something else so."""
        for name in getattr(getattr(self.config, "sweep", self.config), "methods", ()):
            with contextlib.suppress(InputError):
                if methods.get(name).regularizer is not None:
                    yield methods.get(name)

    def run(self) -> int:
        """Train what is missing, then show."""
        self.show(self.train())
        return 0

    def train(self) -> Tables:
        """Train what is missing, after a look at regularizers of one's own in the lab's environment and precision.

        Where its configuration has none, as the sequences' has no environment, in the paper's.
        """
        swept = getattr(self.config, "sweep", self.config)
        environment = getattr(swept, "environment", EnvironmentConfig())
        dtype = getattr(torch, getattr(swept, "dtype", "float32"))
        for regularizer in (method.regularizer for method in self._methods()):
            if regularizer is not None and code_of(type(regularizer)):
                require_trainable(regularizer.name, environment, dtype)
        return self.lab.train(self.config, dataclasses.replace(self, out=self.folder))

    def show(self, tables: Tables) -> None:
        """Write the results and print the answer; the pictures are drawn last."""
        from figures import matplotlib_renderer, style

        analysis = self.lab.analyse({**tables, **self.lab.read_within(self.folder)}, self.config)
        write(analysis, self.lab.title, self.folder)
        print(on_screen(analysis, self.folder))
        drawings = self.lab.draw(analysis)
        pictures = {name: matplotlib_renderer.render(drawing) for name, drawing in drawings.items()}
        style.save_all(pictures, self.folder / "figures")


def command_of(name: str, preset: str = "paper", default: Any = None) -> Callable[..., LabCommand]:
    """The command of a lab: its options are the configuration's fields beside those of every lab.

    default: the configuration, if it is not the preset's. A class with its defaults and no `partial` of one, for which
    the parser would load a type checker.
    """
    lab = labs()[name]
    default = default or lab.presets[preset]
    config = (Annotated[type(default), tyro.conf.arg(name="experiment")], field(default=default))
    return dataclasses.make_dataclass(
        name.replace("-", "_"),
        [("preset", Literal[tuple(lab.presets)], field(default=preset)), ("config", *config)],
        bases=(LabCommand,),
        namespace={"__doc__": lab.summary, "lab": lab, "prefix": "" if name == "sweep" else f"{name}-"},
        frozen=True,
        kw_only=True,
    )


def laboratory(arguments: list[str]) -> SubcommandApp:
    """The commands, with the defaults of the preset and of the file named in `arguments`."""
    commands = SubcommandApp()
    for name, lab in labs().items():
        preset = preset_among(arguments, lab.presets, "paper")
        chosen = lab.presets[preset]
        if name in arguments[:2]:  # only its own file is the command's
            chosen = settings_among(arguments, chosen)
        commands.command(name=name)(command_of(name, preset, chosen))
    commands.command(name="card")(Card)
    return commands
