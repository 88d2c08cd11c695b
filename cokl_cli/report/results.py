"""Which kinds of results there are, what each shows of itself, and where under a folder they lie."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pandas import read_csv

from bandit.lab import Analysis, Lab, Tables
from bandit.labs import labs
from bandit.sweep.config import REPLAY
from cokl.support.errors import InputError
from cokl.support.files import read_json
from cokl.support.results import read_config
from cokl.support.verdicts import Claim, Evidence, withheld
from llm_bridge.open_questions.analysis import RUNS

if TYPE_CHECKING:
    from cokl_cli.report.html import Section

CARD = "card.csv"
"""In the folder of a regularizer's card, whose runs of the plasticity lab have too few seeds for verdicts."""
CARD_FACTS = "card.json"
"""There, once it is finished: its answers, what explains its table, and what one's own regularizers are called."""


class Source(ABC):
    """A kind of results, as the page sees it."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Of its sections."""

    @property
    @abstractmethod
    def command(self) -> str:
        """What makes its results at the paper's settings."""

    @property
    @abstractmethod
    def marks(self) -> tuple[str, ...]:
        """Files that finished results hold."""

    @abstractmethod
    def claims(self, folder: Path) -> Sequence[Claim]:
        """Every claim that finished results allow to be judged."""

    @abstractmethod
    def answer(self, folder: Path) -> str:
        """A sentence with what came out of finished results."""

    @property
    @abstractmethod
    def anchor(self) -> str:
        """The section of the page that shows them."""

    @abstractmethod
    def section(self, folder: Path | None) -> Section | None:
        """Of the page: what finished results show, or what there is to show without any (None)."""


class Judged(Source):
    """A kind of results that has claims, and so a section in the logbook. evidence: what is shown there of a claim."""

    evidence: ClassVar[str] = "primary measurement"

    @abstractmethod
    def scope(self, config: Mapping[str, Any], claims: int) -> str:
        """How much was run, in a few words, with so many claims judged."""

    @abstractmethod
    def made_by(self, config: Mapping[str, Any]) -> str:
        """The command whose settings are those of `config`."""

    def brief(self, evidence: Sequence[Evidence]) -> str:
        """What the logbook's table shows of a claim's evidence, of which the first is primary."""
        return evidence[0].text


@dataclass(frozen=True)
class LabResults(Judged):
    """Of a lab, by its name on the command line."""

    name: str
    lab: Lab

    @property
    def title(self) -> str:
        return self.lab.title

    @property
    def command(self) -> str:
        return f"cokl bandit {self.name}"

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(f"{table}.parquet" for table in self.lab.results)

    def claims(self, folder: Path) -> Sequence[Claim]:
        analysis = read(self.name, folder)[2]
        return withheld(analysis.claims, analysis.seeds)

    def answer(self, folder: Path) -> str:
        return f"{read(self.name, folder)[2].answer}."

    @property
    def anchor(self) -> str:
        return self.name

    def section(self, folder: Path | None) -> Section | None:
        """The lab's answer, notes, pictures and tables; nothing without results."""
        from cokl_cli.report.html import Section, chart, folded, text

        if folder is None:
            return None
        analysis = read(self.name, folder)[2]
        notes = "".join(f"<p>{text(note)}</p>" for note in (f"{analysis.answer}.", *analysis.notes) if note)
        pictures = "".join(chart(drawing, name) for name, drawing in self.lab.draw(analysis).items())
        shown = {key: analysis.tables[key] for key in analysis.captions}
        tables = folded(shown, analysis.readable, analysis.titles, analysis.captions)
        return Section(self.name, self.title, notes + pictures + tables)

    def scope(self, config: Mapping[str, Any], claims: int) -> str:
        """How many seeds, methods, coefficients and steps, as far as the configuration says it."""
        config = {**config, **config.get("sweep", {})}  # which a robustness run changes
        counts = []
        for name, words in (("seeds", "seeds"), ("methods", "methods"), ("betas", "coefficients"), ("steps", "steps")):
            if name in config:
                count = len(config[name]) if isinstance(config[name], list) else config[name]
                counts.append(f"{count} {words if count != 1 else words[:-1]}")
            if name == "seeds" and config.get("selection_seeds"):
                counts[0] += f" and {config['selection_seeds']} for selection"
        return ", ".join(counts)

    def made_by(self, config: Mapping[str, Any]) -> str:
        """As far as the lab's presets and flags say it."""
        made = {preset: json.loads(json.dumps(known.as_dict())) for preset, known in self.lab.presets.items()}
        differing = {preset: _differing(known, config) for preset, known in made.items()}
        preset = min(differing, key=lambda one: len(differing[one]))
        flags = "" if preset == "paper" else f" --preset {preset}"
        for option, value in differing[preset].items():
            joined = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            flags += f" --{option.replace('_', '-')} {joined}"
        return ("cokl reproduce" if self.name == "sweep" else self.command) + flags


def _differing(preset: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of both whose values differ, by their innermost names, with the values of `config`."""
    differing: dict[str, Any] = {}
    for field, value in preset.items():
        if isinstance(value, dict):
            differing |= _differing(value, config.get(field, {}))
        elif field != "device" and field in config and config[field] != value:
            differing[field] = config[field]
    return differing


class Theory(Judged):
    """Of a check of the paper's statements, which the page has among its claims alone."""

    title = "Theory"
    command = "cokl theory check"
    marks = ("claims.json",)
    evidence = "evidence"

    def claims(self, folder: Path) -> Sequence[Claim]:
        from theory.report import claims_of

        return claims_of(folder)

    def answer(self, folder: Path) -> str:
        claims = self.claims(folder)
        return f"{sum(claim.verdict == 'held' for claim in claims)} of {len(claims)} statements hold."

    @property
    def anchor(self) -> str:
        return "claims"

    def section(self, folder: Path | None) -> Section | None:
        return None

    def scope(self, config: Mapping[str, Any], claims: int) -> str:
        return f"{claims} statements, of the paper and beyond it"

    def made_by(self, config: Mapping[str, Any]) -> str:
        return self.command + (" --effort quick" if config["effort"] == "quick" else "")

    def brief(self, evidence: Sequence[Evidence]) -> str:
        """Its kinds."""
        from theory.report import in_brief

        return in_brief(evidence)


class RegularizerCard(Source):
    """Of a card, whose seeds are too few for verdicts."""

    title = "A regularizer of your own"
    command = "cokl bandit card"
    marks = (CARD_FACTS, CARD)

    def claims(self, folder: Path) -> Sequence[Claim]:
        return ()

    def answer(self, folder: Path) -> str:
        return ". ".join(_card_facts(folder)["answers"]) + "."

    @property
    def anchor(self) -> str:
        return "card"

    def section(self, folder: Path | None) -> Section | None:
        """The card's answer, picture and table, and what explains the table; nothing without one."""
        from bandit.plasticity.card import drawing
        from cokl_cli.report.html import Section, chart, table, text

        if folder is None:
            return None
        facts, drawn = _card_facts(folder), drawing(labs()["plasticity"].read(folder)[0]["plasticity"])
        labels = drawn.marks["method"].map(facts["labels"]).fillna(drawn.marks["label"])
        shown = chart(replace(drawn, marks=drawn.marks.assign(label=labels)), "card")
        rows = table(read_csv(folder / CARD, dtype=str, keep_default_na=False))
        notes = "".join(f'<p class="note">{text(line)}</p>' for line in facts["words"])
        return Section(self.anchor, self.title, f"<p>{text(self.answer(folder))}</p>{shown}{rows}{notes}")


def _card_facts(folder: Path) -> dict[str, Any]:
    again = "run the command of this card again"
    return dict(read_json(folder / CARD_FACTS, {"answers": [str], "words": [str], "labels": {str: str}}, again))


class LanguageModel(Source):
    """Of the LLM experiment, of which there is one run: it has no interval, and judges no claim."""

    title = "The LLM experiment"
    command = "make llm"
    marks = ("scores.csv",)

    def claims(self, folder: Path) -> Sequence[Claim]:
        return ()

    def answer(self, folder: Path) -> str:
        from cokl_cli.report import language_model

        return language_model.answer(folder)

    @property
    def anchor(self) -> str:
        return "llm"

    def section(self, folder: Path | None) -> Section | None:
        """Without results the paper's own tables."""
        from cokl_cli.report import language_model
        from cokl_cli.report.html import Section

        return (
            language_model.section(folder)
            if folder
            else Section("llm", "The paper's LLM tables", language_model.paper())
        )


class OpenQuestions(Source):
    """Of the demo, and of the open questions' own command: one seed is shown, which judges no claim."""

    title = "Open questions, in a language model"
    command = "make demo"
    marks = (RUNS,)

    def claims(self, folder: Path) -> Sequence[Claim]:
        return ()

    def answer(self, folder: Path) -> str:
        from cokl_cli.report import open_questions

        return open_questions.answer(folder)

    @property
    def anchor(self) -> str:
        return "open-questions"

    def section(self, folder: Path | None) -> Section | None:
        """The answer and the picture; nothing without runs."""
        from cokl_cli.report import open_questions
        from cokl_cli.report.html import Section

        return Section(self.anchor, self.title, open_questions.body(folder)) if folder else None


def sources() -> dict[str, Source]:
    """Every kind of results by name, in the order of the page."""
    of_labs: dict[str, Source] = {name: LabResults(name, lab) for name, lab in labs().items()}
    return of_labs | {
        "card": RegularizerCard(),
        "theory": Theory(),
        "open-questions": OpenQuestions(),
        "llm": LanguageModel(),
    }


def finished(root: Path) -> dict[str, list[Path]]:
    """The folders under `root`, itself among them, with finished results of each kind that has any.

    A card's folder counts as a card alone; the parts of a robustness run and replay's within a sweep's do not count.
    The paper's settings come before quick ones, and shallow folders before deep ones. Raises InputError if `root` is
    not a folder.
    """
    if not root.is_dir():
        raise InputError(f"results: {root} is not a folder; `cokl bandit sweep --preset quick` makes results in runs/")
    found = {}
    for name, source in sources().items():
        folders = {path.parent for path in root.rglob(source.marks[0])}
        own = [folder for folder in folders if all((folder / mark).is_file() for mark in source.marks)]
        if whole := [folder for folder in own if name == "card" or _whole(folder)]:
            found[name] = sorted(
                whole, key=lambda folder: ("quick" in str(folder.relative_to(root)), len(folder.parts), str(folder))
            )
    return found


def _whole(folder: Path) -> bool:
    around = folder.parent / "config.json"
    part = around.is_file() and ("sweep" in read_config(around.parent) or folder.name == REPLAY)
    return not part and not (folder / CARD).is_file()


@cache
def read(name: str, folder: Path) -> tuple[Tables, Any, Analysis]:
    """The tables, configuration and analysis of a lab's finished results, read and scored once. Raises InputError."""
    lab = labs()[name]
    tables, config = lab.read(folder)
    return tables, config, lab.analyse(tables, config)
