"""Commands of `cokl llm` that only read tables. Heavy imports are inside `run`."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from cokl.support.files import json_rows, write_atomically, write_text
from cokl.support.options import Names, require
from cokl_cli.output import Output
from llm_bridge.experiment.config import MATH_SETS

if TYPE_CHECKING:
    import pandas as pd

    from cokl.support.verdicts import Claim
    from llm_bridge.report.tables import Table
    from llm_bridge.rewards.validation import Validation


@dataclass(frozen=True)
class Normalize(Output):
    """Dual-anchor normalization of anyone's scores (E.5): math is 100 at `base` and 0 at `grpo`, chat the reverse."""

    scores: tyro.conf.Positional[Path]
    """CSV with the columns model, method, chat_val and the math columns; methods `base` and `grpo` are the anchors."""
    math_columns: Names = MATH_SETS
    """Columns of math scores; their mean is Math Avg."""
    out: Path | None = None
    """Write the normalized table to this file as well: .csv with every digit, .md or .tex with marks."""

    def run(self) -> int:
        """Print the normalized table, and write it if asked to."""
        from llm_bridge.report.normalize import normalize, reversed_anchors
        from llm_bridge.report.result_tables import result_table
        from llm_bridge.report.tables import to_latex, to_markdown, to_screen

        columns, out = self.math_columns, self.out
        require(len(columns) > 0, "math-columns", "at least one column", "none")
        require(len({*columns, "chat_val"}) == len(columns) + 1, "math-columns",
                "different columns other than chat_val", ",".join(columns))  # fmt: skip
        render = {".md": to_markdown, ".tex": to_latex}
        require(out is None or out.suffix in (".csv", *render), "out", "a name that ends in .csv, .md or .tex", out)
        scores = self._scores()
        table = result_table("normalized", normalize(scores, columns), reversed_anchors(scores, columns))
        print(to_screen(table), end="")
        if out is not None:
            if out.suffix == ".csv":
                write_atomically(out, lambda path: table.frame.to_csv(path, index=False))
            else:
                write_text(render[out.suffix](table), out)
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
class ValidateReward(Output):
    """How a reward agrees with independent ratings (F.2): correlations and pairwise agreement, with intervals."""

    ratings: tyro.conf.Positional[Path]
    """CSV with a row per response: prompt, reward, rating and, if known, length."""
    resamples: int = 10_000
    """Bootstrap resamples of the prompts."""
    seed: int = 0
    """Of the bootstrap's random numbers."""

    def run(self) -> int:
        """Print the statistics."""
        from llm_bridge.rewards.validation import render

        require(self.resamples >= 100, "resamples", "at least 100", self.resamples)
        require(self.seed >= 0, "seed", "at least 0", self.seed)
        print(render(self._validation()))
        return 0

    def outcome(self) -> dict[str, Any]:
        """Every statistic with its interval."""
        return asdict(self._validation())

    def _validation(self) -> Validation:
        from llm_bridge.report.csv_tables import read_csv
        from llm_bridge.rewards.validation import validate

        ratings = read_csv(self.ratings, ("prompt",), ("reward", "rating"), (), optional=("length",))
        return validate(ratings, self.resamples, self.seed)


@dataclass(frozen=True)
class CheckPaper(Output):
    """Check the paper's LLM tables and the numbers that its text quotes against each other."""

    def run(self) -> int:
        """Print every check; what does not hold is a finding about the paper, not a failure of the command."""
        claims = self._claims()
        for claim in claims:
            claimed = f"{claim.statement} ({claim.where})"
            print(textwrap.fill(claimed, 110, initial_indent=f"{claim.verdict:10}", subsequent_indent=" " * 10))
            print(textwrap.fill(claim.measured, 110, initial_indent=" " * 12, subsequent_indent=" " * 12))
        print(f"{sum(claim.verdict == 'held' for claim in claims)} of {len(claims)} held")
        return 0

    def outcome(self) -> list[dict[str, Any]]:
        """Every check: its statement, where the paper says so, what was measured, and the verdict."""
        return [asdict(claim) for claim in self._claims()]

    def _claims(self) -> list[Claim]:
        from llm_bridge.paper.check import check_paper
        from llm_bridge.paper.numbers import read_paper

        return check_paper(read_paper())


@dataclass(frozen=True)
class Tables(Output):
    """The LLM experiment's tables and figures from its results; the paper's own tables if no results are given."""

    results: tyro.conf.Positional[Path | None] = None
    """Folder with scores.csv and, where measured, dynamics.csv, zero_correct.csv and costs.csv."""
    math_columns: Names = MATH_SETS
    """Columns of scores.csv that hold math scores."""
    out: Path | None = None
    """Folder for the files (default: RESULTS/report; the paper's tables are written only if it is given)."""

    def run(self) -> int:
        """Print the tables, write them, and draw."""
        from llm_bridge.report.tables import to_screen, write_tables

        tables = self._tables()
        print("\n".join(map(to_screen, tables)))
        folder = self.out or (self.results and self.results / "report")
        if folder is not None:
            write_tables(tables, folder)
            print(f"tables: {folder}/tables.txt, .md, .tex and a CSV file each")
        if folder is not None and self.results is not None:
            from figures import style
            from llm_bridge.report.figures import draw
            from llm_bridge.report.results import read_results

            print(style.save_all(draw(read_results(self.results, self.math_columns)), folder))
        return 0

    def outcome(self) -> dict[str, list[dict[str, Any]]]:
        """Every table's rows by its name."""
        return {table.name: json_rows(table.frame) for table in self._tables()}

    def _tables(self) -> list[Table]:
        from llm_bridge.paper.numbers import paper_tables, read_paper
        from llm_bridge.report.result_tables import result_tables
        from llm_bridge.report.results import read_results

        if self.results is None:
            return paper_tables(read_paper())
        return result_tables(read_results(self.results, self.math_columns))
