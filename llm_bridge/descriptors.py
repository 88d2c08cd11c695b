"""The LLM experiment and the paper's own tables as two of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cokl.support.experiment import NOT_RECORDED, Experiment, GalleryPicture, register
from cokl.support.verdicts import Claim

_SEARCH = "cokl llm run --preset tiny --paper-search"


@register
class PaperTables(Experiment):
    """The paper's printed tables, checked against each other: needs no results."""

    name, title, area = "tables", "The paper's LLM tables, checked against each other", "the paper's tables"
    command, order = "cokl llm check-paper", 150
    reruns = False

    def area_of(self, folder: Path) -> str:
        """There are no folders."""
        return self.area

    def claims(self, folder: Path) -> Sequence[Claim]:
        """What can be recomputed from the printed numbers."""
        from llm_bridge.paper.check import check_paper
        from llm_bridge.paper.numbers import read_paper

        return check_paper(read_paper())

    def record(self, folders: Sequence[Path]) -> dict[str, Any]:
        """Nothing was run."""
        return {"command": self.command, "scope": "the printed numbers", **NOT_RECORDED}


@register
class LLM(Experiment):
    """One run of the LLM experiment, which judges no claim."""

    name, title, area = "llm", "LLM experiment", "LLM experiment"
    command, order = "cokl llm run --preset qwen3-1.7b", 170
    summary = "The LLM experiment on VeRL."
    tables = ("scores.csv",)
    reruns = False
    claims_of = "shift"
    gallery = (
        GalleryPicture(
            "llm_training_dynamics",
            "The tiny language model's training",
            "the training dynamics of the LLM experiment",
            "cokl llm report --preset tiny",
        ),
        GalleryPicture(
            "llm_beta",
            "The tiny language model: the coefficient",
            "the coefficient's effect and the search over it",
            _SEARCH,
        ),
        GalleryPicture("llm_kl_batch", "The tiny language model: the KL batch", "the KL batch's effect", _SEARCH),
    )
