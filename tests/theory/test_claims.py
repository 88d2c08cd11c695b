"""Every claim holds on a small budget; the table covers the paper; a wrong formula fails."""

import json
import math
from dataclasses import asdict

import pytest

from theory.claim import BEYOND, QUICK, Evidence, Statement, claim
from theory.claims import registered_claims
from theory.formulas import Formulas
from theory.report import check_claims, judged, to_json, to_markdown, to_text

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


class Recording(Formulas):
    """The formulas, with a note of those that were asked for."""

    used: set[str]

    def __getattribute__(self, name):
        if not name.startswith("__") and name != "used":
            self.used.add(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("name", CLAIMS)
def test_claim_holds(name):
    Recording.used = set()
    evidence = CLAIMS[name].check(Recording(), QUICK)
    assert evidence
    assert Recording.used or name == "correctness-parameterization", "judges no formula; that one judges Policy"
    assert [piece for piece in evidence if not piece.holds] == []


def test_the_table_covers_the_paper():
    assert sum(claim.source != BEYOND for claim in CLAIMS.values()) == 45
    sources = " ".join(claim.source for claim in CLAIMS.values())
    assert [source for source in SOURCES if source not in sources] == []


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="forward-decomposition"):
        claim("forward-decomposition", "")(lambda formulas, effort: [])


@pytest.mark.parametrize("error", [1e-3, float("inf"), float("nan")])
def test_evidence_fails(error):
    assert not Evidence("method", "domain", error, 1e-6).holds


def test_a_check_that_raises_has_not_shown_its_claim():
    def broken(formulas, effort):
        raise ZeroDivisionError

    (result,) = check_claims([Statement("broken", "it works", "nowhere", broken)], Formulas(), QUICK)
    assert not result.holds
    assert "ZeroDivisionError" in to_text([result])


def test_an_infinite_error_is_null_in_json():
    """Infinity is no JSON, and readers of other languages refuse it."""
    pieces = [Evidence("method", "domain", error, 1e-6) for error in (math.inf, 0.5)]
    results = check_claims([Statement("one", "1 = 2", "nowhere", lambda formulas, effort: pieces)], Formulas(), QUICK)
    (row,) = json.loads(to_json(list(results)), parse_constant=pytest.fail)
    assert [piece["error"] for piece in row["evidence"]] == [None, 0.5]


def test_a_check_without_evidence_has_not_shown_its_claim():
    (result,) = check_claims(
        [Statement("empty", "it works", "nowhere", lambda formulas, effort: [])], Formulas(), QUICK
    )
    assert not result.holds


def test_reports_say_the_same(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # the text is wrapped to the terminal, and a word of it must not be
    results = list(check_claims([CLAIMS["cokl-definition"], CLAIMS["cokl-maximum"]], Formulas(), QUICK))
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
        {"claim": name, "statement": "S", "source": "W", "holds": holds, "seconds": 1.5, "evidence": evidence}
        for name, holds, evidence in (("no-such-claim", False, pieces), ("another", True, pieces[1:]))
    ]
    (tmp_path / "claims.json").write_text(json.dumps(rows))
    wrong, right = judged(tmp_path)
    assert (wrong.statement, wrong.where, wrong.verdict) == ("no-such-claim: S", "W", "not held")
    assert wrong.measured.startswith("not held by enumeration: all groups")
    assert [line.partition(":")[0] for line in wrong.evidence] == ["float64"]
    assert (right.verdict, right.evidence) == ("held", ())
