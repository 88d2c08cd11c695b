"""Markdown tables. Light: configurations, which the command line loads for help, import this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Iterable[object]], rule: Sequence[str] = ()) -> str:
    """A Markdown table without a newline at its end; bars in cells are escaped, and newlines become spaces.

    rule: what stands under each column's title, "---" if not given.
    """
    header, *body = [
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in row) + " |"
        for row in (columns, *rows)
    ]
    return "\n".join([header, f"|{'|'.join(rule or ['---'] * len(columns))}|", *body])
