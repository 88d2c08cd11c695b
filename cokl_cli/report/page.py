"""The page itself: what exists becomes sections, what does not a line with the command that makes it."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from cokl.support.errors import InputError
from cokl.support.files import write_text
from cokl_cli.report.sections import claims, environment, headline, optima, tradeoff
from cokl_cli.results import LLM, THEORY, command, finished, read, titles
from figures.matplotlib_renderer import render
from figures.page import Section, color, darkened, folded, picture, text
from figures.style import METHOD_STYLES
from llm_bridge.section import paper
from llm_bridge.section import section as llm_section

TITLE = "CoKL: what was measured"
LIBRARY = "plotly-cartesian.min.js"
"""plotly.js with the plots that the page has and no others: a third of the whole, which takes a browser two seconds."""


def write(results: Path, path: Path) -> list[str]:
    """Write the page of everything under `results` to `path`; returns the commands that would add to it.

    Raises InputError if `results` is no folder or holds nothing that the page shows.
    """
    by_name = finished(results)
    if not by_name:
        raise InputError(
            f"results: nothing is finished under {results}; `cokl bandit sweep --preset quick` takes a minute"
        )
    missing = [name for name in titles() if name not in by_name]
    write_text(_html(_sections(by_name, path, len(missing)), missing), path)
    return [command(name) for name in missing]


def _sections(by_name: dict[str, list[Path]], page: Path, missing: int) -> list[Section]:
    """In the order of the page: what the claims rest on comes after them."""
    judged = claims.judged(by_name)
    labs = [(name, folder) for name, folders in by_name.items() if name not in (THEORY, LLM) for folder in folders]
    return [
        headline.section(by_name, judged, missing),
        *(tradeoff.section(folder) for folder in by_name.get("sweep", [])),
        claims.section(judged, page),
        optima.section(by_name.get("sweep", [])),
        *(_lab(name, folder) for name, folder in labs),
        *(llm_section(folder) for folder in by_name.get(LLM, [])),
        *([] if LLM in by_name else [Section("paper-tables", "The paper's LLM tables", paper())]),
        environment.section(folder for folders in by_name.values() for folder in folders),
    ]


def _lab(name: str, folder: Path) -> Section:
    """A lab's notes, pictures and tables."""
    from bandit.labs import labs

    lab = labs()[name]
    tables, config, analysis = read(name, folder)
    notes = "".join(f"<p>{text(note)}</p>" for note in analysis.notes if note)
    pictures = "".join(picture(render(drawing)) for drawing in lab.draw(tables, config).values())
    shown = {key: analysis.tables[key] for key in analysis.captions}
    return Section(name, lab.title, notes + pictures + folded(shown, analysis.readable, analysis.captions), folder.name)


def _html(sections: list[Section], missing: list[str]) -> str:
    data: dict[str, dict] = {"sweeps": {}}
    for section in sections:
        for name, value in section.data.items():
            data[name] = {**data.get(name, {}), **value}
    shades = {color(method): darkened(color(method)) for method in METHOD_STYLES}
    embedded = json.dumps({**data, "dark": shades}, separators=(",", ":")).replace("</", "<\\/")
    kinds = [(kind, list(members)) for kind, members in groupby(sections, key=lambda section: section.kind)]
    links = "".join(f'<li><a href="#{kind}">{text(members[0].title)}</a></li>' for kind, members in kinds)
    absent = "".join(f"<li>{text(titles()[name])}: <code>{text(command(name))}</code></li>" for name in missing)
    not_here = f'<aside><p>Not here yet:</p><ul id="missing">{absent}</ul></aside>' if missing else ""
    resources = files("cokl_cli.report") / "assets"
    names = ("page.css", "page.js", LIBRARY)
    style, script, library = (resources.joinpath(name).read_text(encoding="utf-8") for name in names)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">To the results</a>
<header>
<h1>{TITLE}</h1>
<button type="button" id="theme">Theme: as the system's</button>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main id="main">
{"".join(_group(kind, members) for kind, members in kinds)}
{not_here}
</main>
<script>{library}</script>
<script type="application/json" id="data">{embedded}</script>
<script>{script}</script>
</body>
</html>
"""


def _group(kind: str, members: list[Section]) -> str:
    """The sections of one kind, of which one is shown at a time where there are several."""
    choice = ""
    if len(members) > 1:
        options = "".join(f'<option value="{number}">{text(one.source)}</option>' for number, one in enumerate(members))
        choice = (
            f'<label class="choice">Results <select id="choose-{kind}" data-choose="{kind}">{options}</select></label>'
        )
    blocks = "".join(
        f'<div class="member" data-member="{kind}"{" hidden" if number else ""}>'
        f"{f'<p class=note>Results: {text(one.source)}</p>' if one.source else ''}{headline.explained(one.body)}</div>"
        for number, one in enumerate(members)
    )
    return f'<section id="{kind}"><h2>{text(members[0].title)}</h2>{choice}{blocks}</section>'
