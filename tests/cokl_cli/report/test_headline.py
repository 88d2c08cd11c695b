"""The head of the page counts every claim once."""

from cokl.support.verdicts import Claim, Verdict
from cokl_cli.report.sections import headline


def test_claims_with_too_few_seeds_are_counted_as_open():
    verdicts: list[Verdict | None] = ["held", "held", "held", "not held", "undecided", "depends", None, None]
    body = headline.section({}, [("area", Claim("", "", "", verdict), None) for verdict in verdicts], 0).body
    assert "<b>3</b>claims held, 3 of them in the paper&#x27;s printed tables, where nothing was run" in body
    assert "<td>area</td><td></td><td></td><td>3 of 8</td>" in body
    assert "<b>1</b>not held; undecided, depending on the setting, or on too few seeds: 4<" in body
