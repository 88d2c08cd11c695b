"""Commands of `cokl llm` that only read tables. Light: heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from cokl.options import Names


@dataclass(frozen=True)
class Normalize:
    """Dual-anchor normalization of anyone's scores (E.5): math is 100 at `base` and 0 at `grpo`, chat the reverse."""

    scores: tyro.conf.Positional[Path]
    """CSV with the columns model, method, chat_val and the math columns; methods `base` and `grpo` are the anchors."""
    math_columns: Names = ("math_val", "math500", "olympiad")
    """Columns of math scores; their mean is Math Avg."""
    out: Path | None = None
    """Write the normalized table to this file as well: .csv with every digit, .md or .tex with marks."""

    def run(self) -> int:
        """Print the normalized table, and write it if asked to."""
        from cokl.errors import InputError
        from cokl.files import write_atomically, write_text
        from cokl.options import require
        from llm_bridge.csv_tables import read_csv
        from llm_bridge.normalize import normalize, reversed_anchors
        from llm_bridge.report import normalized_table
        from llm_bridge.tables import to_latex, to_markdown, to_screen

        require(len(self.math_columns) > 0, "math-columns", "at least one column", "none")
        require(len(set(self.math_columns)) == len(self.math_columns), "math-columns", "different names",
                ",".join(self.math_columns))  # fmt: skip
        scores = read_csv(self.scores, ("model", "method"), (*self.math_columns, "chat_val"), ("model", "method"))
        table = normalized_table(
            normalize(scores, self.math_columns), reversed_anchors(scores, self.math_columns)
        )
        print(to_screen(table), end="")
        if self.out is None:
            return 0
        if self.out.suffix == ".csv":
            write_atomically(self.out, lambda path: table.frame.to_csv(path, index=False))
        elif self.out.suffix in (".md", ".tex"):
            write_text((to_markdown if self.out.suffix == ".md" else to_latex)(table), self.out)
        else:
            raise InputError(f"out: expected a name that ends in .csv, .md or .tex, got {self.out}")
        print(f"written to {self.out}")
        return 0
