"""Commands of `cokl llm` that only read tables. Heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from cokl.support.files import json_rows, write_atomically, write_text
from cokl.support.options import Names, require
from cokl_cli.output import Output
from llm_bridge.experiment.config import MATH_SETS

if TYPE_CHECKING:
    import pandas as pd

    from llm_bridge.report.tables import Table


@dataclass(frozen=True)
class Normalize(Output):
    """Dual-anchor normalization of anyone's scores (E.5): math is 100 at `base` and 0 at `grpo`, chat the reverse."""

    scores: tyro.conf.Positional[Path]
    """CSV with the columns model, method, chat_val and the math columns; methods `base` and `grpo` are the anchors."""
    math_columns: Names = MATH_SETS
    """Columns of math scores; their mean is Math Avg."""
    out: Path | None = None
    """Write the normalized table to this file as well: .csv with every digit, .md with marks."""

    def run(self) -> int:
        """Print the normalized table, and write it if asked to."""
        from llm_bridge.report.normalize import normalize, reversed_anchors
        from llm_bridge.report.result_tables import result_table
        from llm_bridge.report.tables import to_markdown, to_screen

        columns, out = self.math_columns, self.out
        require(len(columns) > 0, "math-columns", "at least one column", "none")
        require(len({*columns, "chat_val"}) == len(columns) + 1, "math-columns",
                "different columns other than chat_val", ",".join(columns))  # fmt: skip
        require(out is None or out.suffix in (".csv", ".md"), "out", "a name that ends in .csv or .md", out)
        scores = self._scores()
        table = result_table("normalized", normalize(scores, columns), reversed_anchors(scores, columns))
        print(to_screen(table), end="")
        if out is not None:
            if out.suffix == ".csv":
                write_atomically(out, lambda path: table.frame.to_csv(path, index=False))
            else:
                write_text(to_markdown(table), out)
            print(f"written to {out}")
        return 0

    def outcome(self) -> list[dict[str, Any]]:
        """The normalized table, every digit."""
        from llm_bridge.report.normalize import normalize

        return json_rows(normalize(self._scores(), self.math_columns))

    def _scores(self) -> pd.DataFrame:
        from llm_bridge.report.csv_tables import read_csv

        key = ("model", "method")
        return read_csv(self.scores, key, (*self.math_columns, "chat_val"), key)


@dataclass(frozen=True)
class Tables(Output):
    """The paper's own tables, the normalized one computed from the raw one."""

    out: Path | None = None
    """Folder to write them into as well, as text, Markdown and CSV."""

    def run(self) -> int:
        """Print the tables, and write them if asked to."""
        from llm_bridge.report.tables import to_screen, write_tables

        tables = self._tables()
        print("\n".join(map(to_screen, tables)))
        if self.out is not None:
            write_tables(tables, self.out)
            print(f"tables: {self.out}/tables.txt, .md and a CSV file each")
        return 0

    def outcome(self) -> dict[str, list[dict[str, Any]]]:
        """Every table's rows by its name."""
        return {table.name: json_rows(table.frame) for table in self._tables()}

    def _tables(self) -> list[Table]:
        from llm_bridge.paper.numbers import paper_tables, read_paper

        return paper_tables(read_paper())
