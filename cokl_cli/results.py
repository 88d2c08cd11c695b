"""Which finished results there are under a folder, and the claims that they allow to be judged."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bandit.lab import Analysis, Tables
from bandit.labs import labs
from cokl.support.errors import InputError
from cokl.support.results import read_config
from cokl.support.verdicts import Claim, withheld

THEORY, LLM = "theory", "llm"
TITLES = {THEORY: "Theory", LLM: "The LLM experiment"}
COMMANDS = {THEORY: "cokl theory check", LLM: "make llm"}
_MARKS = {THEORY: ("claims.json",), LLM: ("scores.csv",)}
CARD = "card.csv"
"""In the folder of a regularizer's card, whose runs of the plasticity lab have too few seeds for verdicts."""


def titles() -> dict[str, str]:
    """Every kind of results by name, in the order of the page: the labs, the theory, the LLM experiment."""
    return {name: lab.title for name, lab in labs().items()} | TITLES


def command(name: str) -> str:
    """What makes results of this kind at the paper's settings."""
    return COMMANDS.get(name, f"cokl bandit {name}")


def finished(root: Path) -> dict[str, list[Path]]:
    """The folders under `root`, itself among them, with finished results of each kind that has any.

    Neither a card's folder counts nor the parts of a robustness run. The paper's settings come before quick ones, and
    shallow folders before deep ones. Raises InputError if `root` is not a folder.
    """
    if not root.is_dir():
        raise InputError(f"results: {root} is not a folder; `cokl bandit sweep --preset quick` makes results in runs/")
    found = {}
    for name in titles():
        marks = _MARKS.get(name) or tuple(f"{table}.parquet" for table in labs()[name].results)
        folders = {path.parent for path in root.rglob(marks[0])}
        own = [folder for folder in folders if all((folder / mark).is_file() for mark in marks) and _whole(folder)]
        if own:
            found[name] = sorted(
                own, key=lambda folder: ("quick" in str(folder.relative_to(root)), len(folder.parts), str(folder))
            )
    return found


def _whole(folder: Path) -> bool:
    around = folder.parent / "config.json"
    part = around.is_file() and "sweep" in read_config(around.parent)  # of a robustness run
    return not part and not (folder / CARD).is_file()


@cache
def read(name: str, folder: Path) -> tuple[Tables, Any, Analysis]:
    """The tables, configuration and analysis of a lab's finished results. Raises InputError."""
    lab = labs()[name]
    tables, config = lab.read(folder)
    return tables, config, lab.analyse(tables, config)


def claims(name: str, folder: Path) -> Sequence[Claim]:
    """Every claim that finished results of this kind allow to be judged."""
    if name == THEORY:
        from theory.report import judged

        return judged(folder)
    if name == LLM:  # one run has no interval
        return ()
    analysis = read(name, folder)[2]
    return withheld(analysis.claims, analysis.seeds)
