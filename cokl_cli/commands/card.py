"""The command `cokl bandit card`. Heavy imports are inside `run`."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Annotated

import tyro

from cokl.support.errors import InputError
from cokl.support.files import read_text, write_text
from cokl.support.results import Execution, require_own


@dataclass(frozen=True)
class Card:
    """One picture and one table of a regularizer of your own beside the built-in ones. Resumes."""

    file: tyro.conf.Positional[Path]
    """Python file with a class under @regularizers.register; what a script does belongs under `if __name__ ==
    "__main__":`, which is not run."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to save in and to resume from; runs/card-NAME if not given, after the file."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes on a CPU; one per core if not given."""

    def run(self) -> int:
        """Load the file, check its surrogate, train, and write card.md, card.csv and the picture."""
        from bandit.engine.tables import method_label
        from bandit.plasticity import card
        from bandit.plasticity.train import plasticity
        from cokl.support.statistics import markdown_table
        from cokl_cli.regularizer_check import require_trainable
        from cokl_cli.report.results import CARD, CARD_FACTS
        from figures import matplotlib_renderer, style

        own = registered_in(self.file)
        for name in own:
            require_trainable(name)
        checks = {name: card.surrogate_check(name) for name in (*card.BUILT_IN, *own) if name != "none"}
        config = card.config(own)
        source = read_text(self.file)
        require_own(self.folder, ("config.json", CARD))
        if not (self.folder / "config.json").exists():
            write_text("", self.folder / CARD)  # by which the folder is known as a card's, finished or not
        table = plasticity(config, Execution(out=self.folder, jobs=self.jobs))
        write_text(source, self.folder / "regularizer.py")
        compared = card.comparable(table, config, own)
        matched = card.matched(table, compared)
        rows = card.rows(matched, checks)
        answers = [card.answer(matched, name) for name in own]
        words = card.words(own, config, compared.matched_correctness)
        text = "\n".join(fill(line, card.WIDTH) for line in (*answers, *words))
        drawing = card.drawing(table)
        picture = f"![card](card.png)\n\n{drawing.caption}\n"
        title = ", ".join(map(method_label, own))
        write_text(f"# {title}\n\n{text}\n\n{markdown_table(rows)}\n{picture}", self.folder / "card.md")
        write_text(rows.to_csv(index=False), self.folder / CARD)
        facts = {
            "answers": answers,
            "words": words,
            "labels": {name: method_label(name) for name in own},  # which only the file itself knows
        }
        write_text(json.dumps(facts, indent=2) + "\n", self.folder / CARD_FACTS)
        print(f"{text}\n\n{card.on_screen(rows, matched['p_correct'])}\n")
        style.save(matplotlib_renderer.render(drawing), self.folder, "card")
        print(f"picture: {self.folder / 'card.png'}\ntable: {self.folder / 'card.md'}")
        return 0

    @property
    def folder(self) -> Path:
        """Where the card goes."""
        return self.out or Path("runs") / f"card-{self.file.stem}"


def registered_in(file: Path) -> tuple[str, ...]:
    """Names of the regularizers that a Python file registers, which worker processes can import afterwards.

    Raises InputError for a file that cannot be run, registers none, or takes the name of one that is there. How long a
    file may take is not limited: Ctrl-C stops it, and then says that this file was being loaded.
    """
    from cokl import regularizers

    read_text(file)
    name = file.stem
    if file.suffix != ".py" or not name.isidentifier() or _is_anothers(name, file):
        raise InputError(f"{file}: expected a Python file whose name is no other module's, such as my_regularizer.py")
    before = {known: regularizers.get(known) for known in regularizers.names()}
    sys.path.append(str(file.resolve().parent))  # last, since a bandit.py beside it is not our bandit
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a taken name is refused below
            importlib.import_module(name)
    except ValueError as error:  # a class that cannot be registered, in words
        raise InputError(f"{file}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever the user's own code raises
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(f"{file}{line}: {type(error).__name__}: {error}") from error
    except KeyboardInterrupt:
        print(f"\ncokl: stopped while loading {file}", file=sys.stderr)
        raise
    own = tuple(known for known in regularizers.names() if regularizers.get(known) is not before.get(known))
    if not own:
        raise InputError(f"{file} registers no regularizer; put @regularizers.register above its class")
    if taken := [known for known in own if known in before]:
        raise InputError(f"{file}: {taken[0]!r} is the name of a built-in regularizer; give yours another name")
    return own


def _is_anothers(name: str, file: Path) -> bool:
    """Whether an import of `name` would find another module than `file`."""
    found = find_spec(name)
    return name in sys.modules or (found is not None and Path(found.origin or "").resolve() != file.resolve())
