"""The command `cokl report`. Heavy imports are inside `run`."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HtmlReport:
    """Everything that was measured as one interactive HTML page, which opens from disk without a network."""

    results: Path = Path("runs")
    """Folder with finished experiments, searched with all its subfolders."""
    out: Path | None = None
    """The page; RESULTS/report.html if not given."""

    def run(self) -> int:
        """Write the page; print where it is and which commands would add to it."""
        from cokl_cli.report.page import write

        path = self.out or self.results / "report.html"
        missing = ", ".join(f"`{one}`" for one in write(self.results, path))
        print(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB), a page for your browser")
        if missing:
            more = f"more would be in it after {missing}; with `--preset quick` a lab takes a minute"
            print(textwrap.fill(more, 80, break_on_hyphens=False))
        return 0
