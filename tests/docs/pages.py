"""The code blocks of the project's Markdown files."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = ("bash", "python", "toml")
"""Languages of blocks that a reader would type; what stands in others is shown, not typed."""

_BLOCK = re.compile(r"^( *)```([\w-]*)([^\n]*)\n(.*?)^ *```[^\S\n]*$", re.DOTALL | re.MULTILINE)
_REASON = re.compile(r"<!-- not run: ((?:(?!-->).)+) -->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced code block. title: the file that it is the content of, "" for none. reason: why it is not run."""

    language: str
    title: str
    code: str
    line: int
    reason: str


def blocks(text: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        indent, language, options, code = match.groups()
        title = re.search(r'title="([^"]+)"', options)
        reason = _REASON.search(text[: match.start()])
        code = re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language, title[1] if title else "", code, line, reason[1] if reason else ""))
    return found


def pages() -> list[Path]:
    """The Markdown files of the project, in its own history or about to be."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).is_file()]
