"""The LLM experiment as one of the experiments."""

from __future__ import annotations

from cokl.support.experiment import Experiment, GalleryPicture, register

_SEARCH = "cokl llm run --preset tiny --paper-search"


@register
class LLM(Experiment):
    """One run of the LLM experiment, which judges no claim."""

    name, title, area = "llm", "LLM experiment", "LLM experiment"
    command, order = "cokl llm run --preset qwen3-1.7b", 170
    summary = "The LLM experiment on VeRL."
    tables = ("scores.csv",)
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
