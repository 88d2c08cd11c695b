"""The page itself: what exists becomes sections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from bandit.config import EnvironmentConfig
from cokl.support.errors import InputError
from cokl.support.files import write_text
from cokl.support.results import git_commit, today
from cokl_cli.report.html import Section, text
from cokl_cli.report.results import finished, read, sources
from cokl_cli.report.sections import claims, headline, optima, tradeoff

TITLE = "CoKL: what was measured"


def write(results: Path, path: Path) -> None:
    """Write the page of what is under `results` to `path`.

    Of several results of one kind the first counts, as `finished` orders them. Raises InputError if `results` is no
    folder or holds nothing that the page shows.
    """
    by_name = finished(results)
    if not by_name:
        raise InputError(
            f"results: nothing is finished under {results}; `cokl bandit sweep --preset quick` takes a minute"
        )
    shown = {name: folders[0] for name, folders in by_name.items()}
    others = [folder for folders in by_name.values() for folder in folders[1:]]
    write_text(_html(_sections(shown, path), others, _documentation(path)), path)


def _sections(shown: Mapping[str, Path], page: Path) -> list[Section]:
    """In the order of the page: answers, claims, and then what they rest on."""
    judged = claims.every_claim(shown)
    sweep = shown.get("sweep")
    return [
        headline.section(shown, judged, {name: sources()[name].answer(folder) for name, folder in shown.items()}),
        claims.section(judged, page),
        *([tradeoff.section(sweep)] if sweep else []),
        *(own for name, source in sources().items() if (own := source.section(shown.get(name)))),
        optima.section(read("sweep", sweep)[1].environment if sweep else EnvironmentConfig()),
        headline.explained(),
    ]


def _documentation(page: Path) -> str:
    """A link to the documentation beside this code; "" where it is installed without."""
    root = Path(__file__).resolve().parents[2]
    for found in (root / "build" / "site" / "index.html", root / "README.md"):
        if found.is_file():
            return f'<a href="{text(claims.link(found, page))}">Documentation</a>. '
    return ""


def _html(sections: Sequence[Section], others: Sequence[Path], documentation: str) -> str:
    data = {name: value for section in sections for name, value in section.data.items()}
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    links = "".join(f'<li><a href="#{section.kind}">{text(section.title)}</a></li>' for section in sections)
    body = "".join(
        f'<section id="{section.kind}"><h2>{text(section.title)}</h2>{section.body}</section>' for section in sections
    )
    left_out = "".join(f"<li><code>cokl report --results {text(folder)}</code></li>" for folder in others)
    more = f"<aside><p>Further results, each on a page of its own:</p><ul>{left_out}</ul></aside>" if others else ""
    commit = headline.short(git_commit() or "")
    resources = files("cokl_cli.report") / "assets"
    style, script = (resources.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
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
<header>
<h1>{TITLE}</h1>
<p class="note">{documentation}Made by cokl {version("cokl")}{commit and f", commit {commit}"}, on {today()}.
± is half a 95% interval over seeds.</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{body}
{more}
</main>
<div id="tip" aria-hidden="true" hidden></div>
<script type="application/json" id="data">{embedded}</script>
<script>{script}</script>
</body>
</html>
"""
