"""docs/gallery.md: every picture, its caption and the command that draws it; `python -m cokl_cli.gallery` writes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cokl.support.experiment import GalleryPicture
from cokl.support.statistics import plain_markdown_table
from cokl_cli.experiments import experiments
from figures.style import read_captions

_ROOT = Path(__file__).parents[1]
RENDERED, PAGE = _ROOT / "figures" / "rendered", _ROOT / "docs" / "gallery.md"


_NOT_RUN = "<!-- not run: trains for minutes, or draws what did; tests/cokl_cli/test_gallery.py parses it -->"


def entries() -> list[GalleryPicture]:
    """Every experiment's pictures, each with the command that draws it."""
    return [
        replace(picture, command=picture.command or experiment.command)
        for experiment in experiments().values()
        for picture in experiment.gallery
    ]


def page(rendered: Path = RENDERED) -> str:
    """The gallery as Markdown: the pictures that are in `rendered`, then the commands of those that are not."""
    captions = read_captions(rendered)
    known = entries()
    here = [entry for entry in known if (rendered / f"{entry.name}.png").exists()]
    parts = ["# Gallery", "Each picture is drawn by the command under it. Captions and their numbers are made with it."]
    for entry in here:
        counterpart = f"Its counterpart in the paper: {entry.counterpart}." if entry.counterpart else ""
        caption = captions.get(entry.name, "")
        parts += [f"## {entry.title}", f"![{entry.title}](../figures/rendered/{entry.name}.png)", caption, counterpart]
        parts += [f"{_NOT_RUN}\n```bash\n{entry.command}\n```"]
    absent = [entry for entry in known if entry not in here]
    if absent:
        parts += ["## Not among these pictures", "Drawn with the results of an experiment of your own:"]
        rows = ((entry.title, f"`{entry.command}`", entry.counterpart) for entry in absent)
        parts += [plain_markdown_table(("picture", "command", "its counterpart in the paper"), rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
