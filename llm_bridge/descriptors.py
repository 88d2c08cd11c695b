"""The LLM experiment, its repeated runs and the paper's own tables as three of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
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
class LLMRepeats(Experiment):
    """Several runs of the LLM experiment, each with new random draws throughout."""

    name, area = "llm_repeats", "repeated runs"
    title = "The tiny LLM at coefficient 1, where the regularizer has nearly all of the gradient"
    command, order = "cokl llm repeats", 160
    tables = ("runs.csv",)
    reruns = False

    def claims(self, folder: Path) -> Sequence[Claim]:
        """CoKL's lead over each other method, replay's first; and what the ablations and the floor change."""
        from llm_bridge.report.repeats import claims, read_runs

        return claims(read_runs(folder))

    def record(self, folders: Sequence[Path]) -> dict[str, Any]:
        """The runs and their number; they do not say how long they took."""
        from llm_bridge.report.repeats import read_runs

        runs = read_runs(folders[0])
        return {
            "command": " ".join([self.command, *runs["run"].unique()]),
            "scope": f"{runs['run'].nunique()} runs, {runs['method'].nunique() - 1} methods",
            **NOT_RECORDED,
        }

    def headline(self, folder: Path) -> dict[str, list[str]]:
        """Every method over the runs."""
        from llm_bridge.report.repeats import over_runs, read_runs, shown
        from llm_bridge.report.tables import method_label

        runs = read_runs(folder)
        table = shown(over_runs(runs))
        table["method"] = table["method"].map(method_label)
        table = table.rename(columns={"method": f"over {runs['run'].nunique()} runs"})
        return {str(title): list(cells) for title, cells in table.items()}


class LLMStudy(Experiment):
    """A study of the tiny LLM: its verdicts, and its table over the reported seeds that are whole."""

    study: str
    """Its folder in llm_bridge/experiment/studies."""
    scores_chat: bool
    """Whether its rows have a chat score, which distinguishes two studies whose tables have the same name."""
    tables = ("stages.csv",)
    reruns = False

    @property
    def _report(self) -> Any:
        return import_module(f"llm_bridge.experiment.studies.{self.study}.report")

    def holds(self, folder: Path) -> bool:
        """Whether the rows are this study's."""
        from llm_bridge.experiment.studies.study import RUNS, read_rows

        return self.scores_chat == ("chat_val" in set(read_rows(folder, RUNS)["set"]))

    def claims(self, folder: Path) -> Sequence[Claim]:
        """CoKL's leads over other methods, the primary ones first."""
        return self._report.claims(folder)

    def record(self, folders: Sequence[Path]) -> dict[str, Any]:
        """The seeds that are whole; they do not say how long they took."""
        rows = self._report.per_seed(folders[0])
        seeds = rows["seed"].nunique() if len(rows) else 0
        return {"command": self.command, "scope": f"{seeds} seeds and 2 for selection", **NOT_RECORDED}

    def headline(self, folder: Path) -> dict[str, list[str]] | None:
        """Every method over the reported seeds."""
        rows = self._report.per_seed(folder)
        return {str(title): list(cells) for title, cells in self._report.shown(rows).items()} if len(rows) else None


@register
class LLMPlasticity(LLMStudy):
    """What the tiny LLM learns once some of its correct answers are no longer accepted."""

    name, title, area = "llm_plasticity", "The tiny LLM: plasticity", "plasticity of the tiny LLM"
    command, order = "cokl llm plasticity", 165
    study, scores_chat, pools_folders = "plasticity", False, True

    def record(self, folders: Sequence[Path]) -> dict[str, Any]:
        """A command for each run, with its seeds."""
        from llm_bridge.experiment.studies.study import RUNS, read_rows

        commands = []
        for folder in folders:
            by_role = read_rows(folder, RUNS).groupby("role", sort=False)["seed"].unique()
            options = [f"--{role}-seeds {' '.join(map(str, seeds))}" for role, seeds in by_role.items()]
            commands.append(" ".join([self.command, *options]))
        return super().record(folders) | {"command": "; ".join(commands)}


@register
class LLMStrength(LLMStudy):
    """What the tiny LLM keeps of mathematics with each method at its best coefficient."""

    name, area = "llm_strength", "strength in the tiny LLM"
    title = "The tiny LLM, each method at its best of four coefficients"
    command, order = "cokl llm strength", 162
    study, scores_chat = "strength", True


@register
class LLM(Experiment):
    """One run of the LLM experiment; its claims need several."""

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
