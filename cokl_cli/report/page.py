"""The page itself: what exists becomes sections, what does not a line with the command that makes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import plotly.io

from cokl.support.errors import InputError
from cokl.support.files import write_text
from cokl_cli.assumptions import page as assumptions_page
from cokl_cli.report.found import Found, find
from cokl_cli.report.section import Section, color, darkened, text
from cokl_cli.report.sections import (
    claims,
    environment,
    finite_group,
    llm,
    optima,
    phase,
    sequences,
    shift,
    tradeoff,
)
from figures.style import METHOD_STYLES

TITLE = "CoKL: what was measured"
LIBRARY = "plotly-cartesian.min.js"
"""plotly.js with the plots that the page has and no others: a third of the whole, which takes a browser two seconds."""


@dataclass(frozen=True)
class Missing:
    """A section that has no results yet: its title, and the command that makes them."""

    title: str
    command: str


def write(results: Path, path: Path) -> list[Missing]:
    """Write the page of everything under `results` to `path`; returns what is missing from it.

    Raises InputError if `results` is no folder or holds nothing that the page shows.
    """
    found = find(results)
    if not found.folders:
        raise InputError(
            f"results: nothing is finished under {results}; `cokl bandit sweep --preset quick` takes a minute"
        )
    parts = _parts(found, path)
    write_text(_html([part for part in parts if isinstance(part, Section)], _missing(parts)), path)
    return _missing(parts)


def _missing(parts: list[Section | Missing]) -> list[Missing]:
    return [part for part in parts if isinstance(part, Missing)]


def _parts(found: Found, page: Path) -> list[Section | Missing]:
    """In the order of the page."""

    def each(folders: list[Path], make: Callable[[Path], Section], title: str, command: str) -> list[Section | Missing]:
        return [make(folder) for folder in folders] or [Missing(title, command)]

    return [
        *each(found.sweeps, tradeoff.section, "Correctness against diversity", "cokl bandit sweep"),
        claims.section(found, page),
        *([] if found.theory else [Missing("Claims of the theory", "cokl theory check")]),
        optima.section(found.sweeps),
        *each(found.shifts, shift.section, "Forgetting under task shift", "cokl bandit shift"),
        *each(found.sequences, sequences.section, "Answers of many tokens", "cokl bandit sequences"),
        *each(found.phases, phase.section, "Phase maps", "cokl bandit phase"),
        *each(found.finite_groups, finite_group.section, "Finite groups", "cokl bandit finite-group"),
        *each(found.llm, llm.section, "The LLM experiment", "cokl llm run"),
        *([] if found.llm else [Section("paper-tables", "The paper's LLM tables", llm.paper())]),
        environment.assumptions(assumptions_page()),
        environment.section(found),
    ]


def _html(sections: list[Section], missing: list[Missing]) -> str:
    data: dict[str, dict] = {"sweeps": {}}
    plots: dict[str, Any] = {}
    for section in sections:
        plots |= {name: json.loads(plotly.io.to_json(figure)) for name, figure in section.plots.items()}
        for name, value in section.data.items():
            data[name] = {**data.get(name, {}), **value}
    shades = {color(method): darkened(color(method)) for method in METHOD_STYLES}
    embedded = json.dumps({**data, "plots": plots, "dark": shades}, separators=(",", ":")).replace("</", "<\\/")
    kinds = [(kind, list(members)) for kind, members in groupby(sections, key=lambda section: section.kind)]
    links = "".join(f'<li><a href="#{kind}">{text(members[0].title)}</a></li>' for kind, members in kinds)
    absent = "".join(f"<li>{text(one.title)}: <code>{text(one.command)}</code></li>" for one in missing)
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
        options = "".join(f'<option value="{place}">{text(one.source)}</option>' for place, one in enumerate(members))
        choice = f'<label class="choice">Results <select data-choose="{kind}">{options}</select></label>'
    blocks = "".join(
        f'<div class="member" data-member="{kind}"{" hidden" if place else ""}>'
        f"{f'<p class=note>Results: {text(one.source)}</p>' if one.source else ''}{one.body}</div>"
        for place, one in enumerate(members)
    )
    return f'<section id="{kind}"><h2>{text(members[0].title)}</h2>{choice}{blocks}</section>'
