"""The page itself: what exists becomes sections, what does not a line with the command that makes it."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import plotly.io

from cokl.support.errors import InputError
from cokl.support.experiment import Experiment
from cokl.support.files import read_parquet, write_text
from cokl_cli.experiments import experiments, finished
from cokl_cli.report.sections import claims, environment, headline, optima
from figures.page import Section, color, darkened, table, text
from figures.style import METHOD_STYLES
from llm_bridge.section import paper

TITLE = "CoKL: what was measured"
ROWS = 50
"""Of a table that has no section of its own, so many are shown."""
LIBRARY = "plotly-cartesian.min.js"
"""plotly.js with the plots that the page has and no others: a third of the whole, which takes a browser two seconds."""


def write(results: Path, path: Path) -> list[Experiment]:
    """Write the page of everything under `results` to `path`; returns the experiments that are missing from it.

    Raises InputError if `results` is no folder or holds nothing that the page shows.
    """
    by_name = finished(results)
    if not by_name:
        raise InputError(
            f"results: nothing is finished under {results}; `cokl bandit sweep --preset quick` takes a minute"
        )
    missing = [one for name, one in experiments().items() if name not in by_name and one.tables and one.summary]
    write_text(_html(_sections(by_name, path, len(missing)), missing), path)
    return missing


def _sections(by_name: dict[str, list[Path]], page: Path, missing: int) -> list[Section]:
    """In the order of the page: what the claims rest on comes after them."""
    judged = claims.judged(by_name)
    own = {
        name: [section for folder in by_name[name] if (section := _section(experiment, folder))]
        for name, experiment in experiments().items()
        if name in by_name
    }
    return [
        headline.section(by_name, judged, missing),
        *own.pop("sweep", []),
        claims.section(judged, page),
        optima.section(by_name.get("sweep", [])),
        *(section for members in own.values() for section in members),
        *([] if "llm" in by_name else [Section("paper-tables", "The paper's LLM tables", paper())]),
        environment.section(folder for folders in by_name.values() for folder in folders),
    ]


def _section(experiment: Experiment, folder: Path) -> Section | None:
    """The experiment's own section, or else the first rows of its tables, folded; None without tables of rows."""
    own: Section | None = experiment.section(folder)
    if own is not None:
        return own
    tables = {name: read_parquet(folder / name) for name in experiment.tables if name.endswith(".parquet")}
    blocks = (
        f"<details><summary>{text(name)}: the first {min(len(rows), ROWS)} of {len(rows)} rows</summary>"
        f"{table(rows.head(ROWS))}</details>"
        for name, rows in tables.items()
    )
    kind = experiment.name.replace("_", "-")
    return Section(kind, experiment.title, "".join(blocks), folder.name) if tables else None


def _html(sections: list[Section], missing: list[Experiment]) -> str:
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
