"""The list of claims on the page: each with its verdict's colour, and each choice with its number."""

import re
from pathlib import Path

import pytest

from cokl.support.verdicts import Claim, Verdict
from cokl_cli.report.sections.claims import Judged, section

COLOURS: list[tuple[Verdict | None, str]] = [
    ("held", "good"),
    ("not held", "bad"),
    ("undecided", "open"),
    ("depends", "open"),
    (None, "open"),
]


@pytest.mark.parametrize(("verdict", "colour"), COLOURS)
def test_only_decided_claims_are_good_or_bad(verdict, colour, tmp_path: Path):
    claim = Claim("a statement", "where", "2 ± 1", verdict, ("evidence",))
    tables = tuple(tmp_path / "lab" / name for name in ("table.parquet", "other.parquet"))
    body = section([("area", claim, tables)], tmp_path / "report.html").body
    shown = verdict or "no verdict"
    assert f'data-verdict="{shown}"><summary><span class="verdict {colour}">{shown}</span> a statement' in body
    assert "<ul><li>2 ± 1</li><li>evidence</li></ul>" in body
    assert re.findall('<a href="(.*?)">', body) == ["lab/table.parquet", "lab/other.parquet"]


def test_areas_and_verdicts_are_counted():
    verdicts: list[tuple[str, Verdict | None]] = [
        ("one", "held"), ("one", "held"), ("other", "not held"), ("one", None)
    ]  # fmt: skip
    rows: list[Judged] = [(area, Claim("", "", "", verdict), ()) for area, verdict in verdicts]
    options = re.findall(r"<option [^>]*>(.*?)</option>", section(rows, Path("report.html")).body)
    assert options == [
        "everything (4)", "one (3)", "other (1)", "any (4)", "held (2)", "not held (1)", "no verdict (1)"
    ]  # fmt: skip
