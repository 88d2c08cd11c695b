"""The maps of the structure of correctness as one of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bandit.structure.config import PRESETS, StructureConfig
from cokl.support.experiment import Experiment, GalleryPicture, register
from cokl.support.files import json_rows, read_json, read_result
from cokl.support.options import from_json
from cokl.support.verdicts import Claim, withheld


@register
class Structure(Experiment):
    """Where CoKL retains as much as replay."""

    name, title, area = "structure", "The structure of correctness", "structure"
    command, order = "cokl bandit structure", 65
    summary = "Map where CoKL retains as much as replay: a verifier that errs, deciding tokens, the reference. Resumes."
    presets = PRESETS
    tables = ("structure.parquet",)
    pools_folders = True
    assumed_modules = ("bandit.structure.config",)
    gallery = tuple(
        GalleryPicture(
            f"structure_{name}", f"CoKL minus replay: {title}; two runs", command=f"cokl bandit structure --map {name}"
        )
        for name, title in (
            ("success", "a verifier that errs"),
            ("tokens", "tokens that decide"),
            ("reference", "the paper's reference"),
        )
    )

    def outcome(self, config: StructureConfig, folder: Path) -> dict[str, Any]:
        """Where the page is, and every setting."""
        import pandas as pd

        return {"page": folder / "results.md", "settings": json_rows(pd.read_csv(folder / "settings.csv"))}

    def claims(self, folder: Path) -> Sequence[Claim]:
        """Where retention is equal, and the predictions."""
        from bandit.structure.report import judge
        from bandit.structure.run import lab_of
        from bandit.structure.score import summarize

        config = from_json(StructureConfig, read_json(folder / "config.json", dict))
        rows = read_result(folder / "structure.parquet", (*lab_of(config).columns, "cell"))
        return withheld(judge(summarize(rows, config)), config.seeds)
