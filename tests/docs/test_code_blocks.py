"""What the documentation says to type works as written, in an empty folder, page by page from top to bottom."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, RUN, Block, blocks, pages

pytestmark = pytest.mark.docs

RUNNABLE = [page for page in pages() if any(b.language in RUN and not b.reason for b in blocks(page.read_text()))]


def test_pages_are_found():
    names = {str(page.relative_to(ROOT)) for page in pages()}
    assert {"README.md", "docs/how-to/regularizer.md", "theory/README.md"} <= names


def test_an_unrun_block_is_seen_with_its_reason():
    text = '<!-- not run: needs a GPU -->\n```bash\ncokl fly\n```\n\n```python title="a.py"\nprint(1)\n```\n'
    assert blocks(text) == [
        Block("bash", "", "cokl fly\n", 2, "needs a GPU"),
        Block("python", "a.py", "print(1)\n", 6, ""),
    ]


def test_a_reason_is_that_of_the_comment_right_above_a_block():
    """Another comment there is no reason, and takes none from a block further up."""
    text = "<!-- not run: needs a GPU -->\n```bash\ncokl fly\n```\n\n<!-- a note -->\n```bash\ncokl land\n```\n"
    assert [block.reason for block in blocks(text)] == ["needs a GPU", ""]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is(page: Path):
    """A block without a language, or an indented one, would escape being run."""
    text = page.read_text()
    assert [block.line for block in blocks(text) if not block.language] == []
    paragraphs = text.split("\n\n")
    escaped = [
        p for p in paragraphs if p.startswith(("    cokl ", "    make ", "    python ", "    pip ", "    .venv"))
    ]
    assert escaped == []


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page: Path, tmp_path: Path):
    environment = installed_beside(tmp_path)
    for block in blocks(page.read_text()):
        if block.language not in RUN:
            continue
        if block.title:
            (tmp_path / block.title).write_text(block.code)
        if block.title == "pyproject.toml":
            declare_entry_points(tmp_path, tomllib.loads(block.code))
        elif block.language == "toml":
            tomllib.loads(block.code)
        if block.reason or block.language == "toml" or (block.title and block.language == "python"):
            continue  # a titled file is run by the command that follows it, or imported
        code = block.code.replace(".venv/bin/", "")
        command = ["bash", "-euo", "pipefail", "-c", code] if block.language == "bash" else [sys.executable, "-c", code]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        where = f"{page.relative_to(ROOT)}:{block.line}"
        assert ran.returncode == 0, f"{where}\n{block.code}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"


def installed_beside(folder: Path) -> dict[str, str]:
    """An environment in which the commands are those of this interpreter and `folder` is on Python's path."""
    commands = str(Path(sys.executable).parent)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(paths)}


def declare_entry_points(folder: Path, project: dict) -> None:
    """What `pip install .` would record of the page's package, without touching the environment under test."""
    info = folder / f"{project['project']['name'].replace('-', '_')}-{project['project']['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['project']['name']}\nVersion: 0.1\n")
    groups = project["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_the_version_is_said_the_same_everywhere():
    import cokl

    cited = next(line for line in (ROOT / "CITATION.cff").read_text().splitlines() if line.startswith("version:"))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {cokl.__version__, cited.split()[1], version("cokl")} == {declared}
