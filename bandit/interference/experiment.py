"""The measured interference as one of the experiments."""

from __future__ import annotations

from bandit.interference.config import PRESETS
from cokl.support.experiment import Experiment, GalleryPicture, register


@register
class Interference(Experiment):
    """How much of CoKL's deficit against replay follows from the direction that replay adds."""

    name, title, area = "interference", "Drift under interference", "interference"
    command, order = "cokl bandit interference", 90
    summary = "Measure what grad log Z adds along CoKL's and replay's training, and predict the deficit. Resumes."
    presets = PRESETS
    tables = ("interference.parquet",)
    assumed_modules = ("bandit.interference.run",)
    gallery = (GalleryPicture("interference", "CoKL's deficit against replay, predicted and measured"),)
