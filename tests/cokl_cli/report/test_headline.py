"""The head of the page counts every claim once."""

import os
from datetime import datetime
from pathlib import Path

from cokl.support.verdicts import Claim, Verdict
from cokl_cli.report.sections import headline
from cokl_cli.report.sections.claims import Judged


def test_claims_with_too_few_seeds_are_counted_as_open():
    verdicts: list[Verdict | None] = ["held", "held", "held", "not held", "undecided", "depends", None, None]
    body = headline.section({}, [("area", Claim("", "", "", verdict), ()) for verdict in verdicts], 0).body
    assert "<b>3</b>claims held, 3 of them in the paper&#x27;s printed tables, where nothing was run" in body
    assert "<td>area</td><td></td><td></td><td>3 of 8</td>" in body
    assert "<b>1</b>not held; undecided, depending on the setting, or on too few seeds: 4<" in body


def test_each_result_has_its_own_claims_and_the_time_of_its_own_table(tmp_path):
    """Two sweeps and a lab with the same verdicts in other numbers, and a check without data, which has no folder."""
    finished: dict[str, list[Path]] = {}
    judged: list[Judged] = [("tables", Claim("", "", "", "held"), ())]
    results: list[tuple[str, str, int, list[Verdict]]] = [
        ("sweep", "paper", 3, ["held", "held"]),
        ("sweep", "quick", 4, ["held", "not held", "undecided"]),
        ("shift", "lab", 5, ["not held"]),
    ]
    for name, folder, day, verdicts in results:
        table = tmp_path / folder / f"{name}.parquet"
        table.parent.mkdir()
        table.touch()
        os.utime(table, (datetime(2026, 1, day, 6, 7).timestamp(),) * 2)
        finished.setdefault(name, []).append(table.parent)
        judged += [(name, Claim("", "", "", verdict), (table,)) for verdict in verdicts]
    body = headline.section(finished, judged, 0).body
    for folder, day, counted in (("paper", 3, "2 of 2"), ("quick", 4, "1 of 3"), ("lab", 5, "0 of 1")):
        assert f"<td>{folder}</td><td>0{day} January 2026, 06:07</td><td>{counted}</td>" in body
    assert "<td>tables</td><td></td><td></td><td>1 of 1</td>" in body
