"""The command `cokl report`. Heavy imports are inside `run`."""

from __future__ import annotations

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
        """Write the page; print where it is."""
        from cokl_cli.report.page import write

        path = self.out or self.results / "report.html"
        write(self.results, path)
        print(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB), a page for your browser")
        return 0
