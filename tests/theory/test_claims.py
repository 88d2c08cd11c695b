"""Every claim holds on a small budget; the table covers the paper; a wrong formula fails."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cokl.support import verdicts
from cokl.support.errors import InputError
from theory.claim import BEYOND, QUICK, Evidence, Statement, claim, largest, proved, worst_of_each, worst_over
from theory.claims import registered_claims
from theory.provers.intervals import Proof
from theory.report import (
    Checked,
    check_and_save,
    check_claims,
    claims_of,
    in_brief,
    in_short,
    shown,
    summary,
    to_json,
    to_markdown,
    to_text,
)

CLAIMS = registered_claims()
SOURCES = [
    "Eqs. 5-6",
    "Eq. 7",
    "Appendix A, boundary",
    "Eq. 8",
    "Eq. 9",
    "Eq. 10",
    "Eq. 12",
    "Eqs. 14-16",
    "Eqs. 19-20",
    "Theorem 1, clause 1",
    "Theorem 1, clause 2",
    "Theorem 1, clause 3",
    "Theorem 2, forward KL",
    "Theorem 2, reverse KL",
    "Theorem 2, limits",
    "Appendix D",
    "appb-finite-gradient",
    "appb-finite-gradient-decomposition",
    "appb-recovery-term",
    "appb-recovery-derivative",
    "appb-recovery-gradient",
    "appb-recovery-properties",
    "appb-recovery-limits",
    "appb-conditional-current-score",
    "appb-positive-count-probability",
    "appb-expected-reference-score",
    "appb-finite-objective-derivative",
    "appb-finite-optimum",
    "appb-is-z",
    "appb-is-logz-gradient",
    "appb-clipped-ratio",
    "Appendix B, clipped off-policy surrogate",
]


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_holds(name):
    evidence = CLAIMS[name].check(QUICK)
    assert evidence
    assert [piece for piece in evidence if not piece.holds] == []


def test_the_table_covers_the_paper():
    assert sum(claim.source != BEYOND for claim in CLAIMS.values()) == 45
    sources = " ".join(claim.source for claim in CLAIMS.values())
    assert [source for source in SOURCES if source not in sources] == []


def test_the_order_is_the_papers():
    """In which the logbook's record has them."""
    record = json.loads((Path(__file__).parents[2] / "REPRODUCTION.json").read_text(encoding="utf-8"))
    assert [*CLAIMS] == [claim["name"] for claim in record["theory"]["claims"]]


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="forward-decomposition"):
        claim("forward-decomposition", "")(lambda effort: [])


@pytest.mark.parametrize("error", [1e-3, float("inf"), float("nan")])
def test_evidence_fails(error):
    assert not Evidence("method", "domain", error, 1e-6).holds


def test_a_check_that_raises_has_not_shown_its_claim():
    def broken(effort):
        raise ZeroDivisionError

    (result,) = check_claims([Statement("broken", "it works", "nowhere", "paper", "nowhere", broken)], QUICK)
    assert not result.holds
    assert "ZeroDivisionError" in to_text([result])


def test_an_infinite_error_is_null_in_json():
    """Infinity is no JSON, and readers of other languages refuse it."""
    pieces = [Evidence("method", "domain", error, 1e-6) for error in (math.inf, 0.5)]
    results = check_claims([Statement("one", "1 = 2", "nowhere", "paper", "nowhere", lambda effort: pieces)], QUICK)
    (row,) = json.loads(to_json(list(results)), parse_constant=pytest.fail)
    assert [piece["error"] for piece in row["evidence"]] == [None, 0.5]


def test_a_check_without_evidence_has_not_shown_its_claim():
    (result,) = check_claims([Statement("empty", "it works", "nowhere", "paper", "nowhere", lambda effort: [])], QUICK)
    assert not result.holds


def test_reports_say_the_same(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # the text is wrapped to the terminal, and a word of it must not be
    results = list(check_claims([CLAIMS["cokl-definition"], CLAIMS["cokl-maximum"]], QUICK))
    table = json.loads(to_json(results))
    assert [row["claim"] for row in table] == ["cokl-definition", "cokl-maximum"]
    assert all(row["holds"] for row in table)
    assert [piece["outcome"] for piece in table[1]["evidence"]] == ["held"]
    for text in (to_text(results, every_evidence=True), to_markdown(results)):
        assert "2 of 2 claims hold" in text
        assert "convex program: 2 references" in text


def test_the_logbooks_verdicts_are_those_of_the_stored_check(tmp_path):
    """One claim that came out and one that did not, with two kinds of evidence in their order."""
    pieces = [asdict(Evidence("enumeration", "all groups", math.inf, 0)) | {"error": None}]
    pieces += [asdict(Evidence("float64", "pairs", 0.0, 0.1))]
    rows = [
        {"claim": name, "statement": "S", "source": "W", "origin": origin, "holds": holds, "evidence": evidence}
        for name, origin, holds, evidence in (
            ("no-such-claim", "beyond", False, pieces),
            ("another", "paper", True, pieces[1:]),
        )
    ]
    (tmp_path / "claims.json").write_text(json.dumps(rows))
    wrong, right = claims_of(tmp_path)
    assert (wrong.name, wrong.statement, wrong.place) == ("no-such-claim", "no-such-claim: S", "W")
    assert (wrong.verdict, wrong.origin, right.origin) == ("not held", "beyond", "paper")
    assert wrong.primary.kind == "not held by enumeration"
    assert wrong.primary.text.startswith("all groups, ")
    assert [one.kind for one in wrong.secondary] == ["float64"]
    assert (right.verdict, right.secondary) == ("held", ())


def test_kinds_of_evidence_are_said_once_with_proofs_first():
    """A proof of the whole statement makes those of its parts superfluous."""
    part, whole = shown(COQ), shown(replace(COQ, part=""))
    loops, measured = verdicts.Evidence("loops", "all"), verdicts.Evidence("float64", "pairs")
    assert in_brief([measured, part, loops, measured]) == "proved in Coq in part (the limits), float64, loops"
    assert in_brief([measured, part, whole]) == "proved in Coq, float64"


COQ = Evidence("proved in Coq", "all q", 0, 0, "A.v: one; two", "the limits")
"""Whose detail has the mark that once parted it."""


def test_what_a_proof_in_coq_covers_is_a_field_and_is_said():
    assert shown(COQ).line == "proved in Coq in part (the limits): all q, by A.v: one; two"
    assert shown(replace(COQ, part="")).line == "proved in Coq: all q, by A.v: one; two"
    refused = "not held by proved in Coq: all q, largest error infinite, of 0 accepted; A.v: one; two; the limits"
    assert shown(replace(COQ, error=math.inf)).line == refused


def test_a_check_of_a_version_that_stored_less_is_one_line(tmp_path):
    (result,) = check_claims([CLAIMS["cokl-definition"]], QUICK)
    for field in ("origin", "part"):
        (row,) = json.loads(to_json([result]))
        (row if field == "origin" else row["evidence"][0]).pop(field)
        (tmp_path / "claims.json").write_text(json.dumps([row]))
        with pytest.raises(InputError, match=f"lacks '{field}'\\); remove it and run the same command again"):
            claims_of(tmp_path)


def test_where_a_claim_is_in_the_paper_is_told_in_short():
    told = {name: in_short(CLAIMS[name]) for name in ("log-mass-gradient", "clipped-ratio", "entropy-optimum")}
    assert told == {
        "log-mass-gradient": "Appendix B, log mass gradient",
        "clipped-ratio": "Eqs. 14-16, clipped ratio",
        "entropy-optimum": "beyond the paper, entropy optimum",
    }


def test_who_makes_a_claim_is_what_its_source_says():
    assert {one.origin for one in CLAIMS.values()} == {"paper", "beyond"}
    for one in CLAIMS.values():
        assert (one.origin == "beyond") == ("beyond" in one.source), one.name


def counted(pieces: dict[str, list[float]]) -> list[Checked]:
    """Claims whose pieces of evidence have these errors, of which up to 0.1 is accepted; each took 1.25 s more."""
    return [
        Checked(
            Statement(name, f"what {name} says", "Eq. 7", "paper", "Eq. 7", lambda *_: []),
            [Evidence("float64", "pairs", error, 0.1) for error in errors],
            1.25 * place,
        )
        for place, (name, errors) in enumerate(pieces.items(), 1)
    ]


def test_the_summary_counts_claims_pieces_and_seconds():
    results = counted({"a": [0.0, 0.1], "b": [0.0, 0.2, 0.3], "c": [0.05]})
    assert summary(results) == "2 of 3 claims hold (6 pieces of evidence, 8 s)"
    assert to_text(results).splitlines()[-1] == summary(results)
    assert to_markdown(results).splitlines()[2] == f"{summary(results)}. Made by `cokl theory check`."
    rows = json.loads(to_json(results))
    assert [(row["claim"], row["holds"], row["seconds"]) for row in rows] == [
        ("a", True, 1.25), ("b", False, 2.5), ("c", True, 3.75),
    ]  # fmt: skip
    assert [piece["outcome"] for piece in rows[1]["evidence"]] == ["held", "not held", "not held"]
    assert rows[1]["evidence"][1] == {
        "method": "float64", "domain": "pairs", "error": 0.2, "accepted": 0.1, "detail": "", "part": "",
        "outcome": "not held",
    }  # fmt: skip


def test_the_environment_has_the_seconds_of_all_claims(monkeypatch, tmp_path):
    """On a clock of which each check takes one tick more than the one before."""
    ticks = iter([0.0, 1.0, 10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr("theory.report.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    names = ("cokl-definition", "cokl-gradient", "replay-identity")
    results = check_and_save(names, "quick", tmp_path)
    assert [result.seconds for result in results] == [1.0, 2.0, 3.0]
    (environment,) = json.loads((tmp_path / "environment.json").read_text())
    assert environment["seconds"] == 6.0


def test_the_largest_error_is_nan_wherever_one_is():
    nan = math.nan
    for errors in ((nan, 1.0), (1.0, nan), (1.0, nan, 2.0)):
        assert math.isnan(largest(*errors))
        assert math.isnan(worst_over(errors, lambda error: error))
    assert largest(1.0, 3.0, 2.0) == worst_over((1.0, 3.0, 2.0), lambda error: error) == 3.0
    assert worst_of_each([(1.0, 5.0), (2.0, nan)], lambda case: case)[0] == 2.0


def test_a_proof_that_is_refuted_is_infinitely_wrong_and_undecided_boxes_are_counted():
    done, left, wrong = Proof(5, 0, False), Proof(7, 2, False, [(0.0, 1.0)]), Proof(3, 0, True, [(0.0, 1.0)])
    assert (proved("all q", {"a": done, "b": done}).error, proved("all q", {"a": done}).detail) == (0, "5 boxes")
    assert proved("all q", {"a": done, "b": left, "c": left}).error == 4
    assert proved("all q", {"a": done, "b": wrong}).error == math.inf
    assert not proved("all q", {"a": done, "b": wrong}).holds
    with pytest.raises(ValueError, match="an empty list proves nothing"):
        proved("all q", {})
