"""What can be said of the proofs without Coq: no gap, every theorem has its sentences, and Coq may be missing."""

import re
import shutil

import pytest

from theory.claims import registered_claims
from theory.proofs import machine_checked
from theory.proofs.machine_checked import FILES, SOURCES


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_admitted_or_assumed(file):
    text = re.sub(r"\(\*.*?\*\)", "", (SOURCES / file).read_text(), flags=re.DOTALL)
    assert not re.search(r"\b(Admitted|admit|Abort|Axiom|Axioms|Parameter|Conjecture|Unset|bypass_check)\b", text)


def test_every_theorem_has_its_sentences_once():
    stated = [
        (file, name) for file in FILES for name in re.findall(r"^Theorem (\w+)", (SOURCES / file).read_text(), re.M)
    ]
    listed = [(entry.file, name) for entry in machine_checked.theorems() for name in entry.names]
    assert len(stated) >= 80
    assert sorted(stated) == sorted(listed)
    assert all(entry.paper and entry.ours and entry.domain for entry in machine_checked.theorems())


def test_every_theorem_and_definition_has_its_printed_statement():
    pinned = (SOURCES / "statements.txt").read_text()
    for file in FILES:
        for name in re.findall(r"^(?:Definition|Fixpoint|Theorem) (\w+)", (SOURCES / file).read_text(), re.M):
            assert re.search(rf"^@?(?:\w+\.)?{name}(?: =|$)", pinned, re.M), name


def test_both_theorems_and_appendix_b_are_proved():
    proved = {name for entry in machine_checked.theorems() for name in entry.claims}
    clauses = [
        claim
        for claim in registered_claims().values()
        if re.search(r"Theorem [12]|appb-(finite|recovery|positive|conditional|cokl|logz)", claim.source)
        and claim.name not in ("cokl-definition", "finite-group-gradient-on-a-network")
    ]
    assert proved <= set(registered_claims())
    assert len(clauses) >= 20
    assert [claim.name for claim in clauses if claim.name not in proved] == []


def test_without_coq_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine_checked.main() == 2
    assert capsys.readouterr().err == f"{machine_checked.INSTALL}\n"
    assert machine_checked.prove(["full-kl-gap"], tmp_path) == {}
    assert machine_checked.evidence("full-kl-gap", tmp_path) == []


@pytest.mark.parametrize("missing", ["", "Coquelicot", "Interval", "mathcomp"])
def test_coq_counts_as_installed_with_every_library(missing, tmp_path, monkeypatch):
    for library in {"Coquelicot", "Interval", "mathcomp"} - {missing}:
        (tmp_path / "user-contrib" / library).mkdir(parents=True)
    command = tmp_path / "coqc"
    command.write_text(f"#!/bin/sh\n[ $1 = -where ] && echo {tmp_path}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine_checked.coq_is_installed() == (not missing)


def test_a_proof_that_fails_fails_its_claims(tmp_path):
    pieces = machine_checked.evidence("cokl-maximum", tmp_path, {"AppendixC.v": "a syntax error"})
    assert [(piece.holds, "a syntax error" in piece.detail) for piece in pieces] == [(False, True)]


def test_a_proof_counts_as_compiled_only_from_its_source_and_imports_as_they_stand(tmp_path, monkeypatch):
    sources, build = tmp_path / "sources", tmp_path / "build"
    shutil.copytree(machine_checked.SOURCES, sources)
    monkeypatch.setattr(machine_checked, "SOURCES", sources)
    build.mkdir()
    file, imported = "AppendixA.v", "FiniteSums.v"
    assert imported in machine_checked.imports(file)
    assert not machine_checked.is_compiled(file, build)
    (build / f"{file}.sha256").write_text(machine_checked.digest(file))
    assert not machine_checked.is_compiled(file, build)  # nothing is compiled
    (build / f"{file}o").touch()
    assert machine_checked.is_compiled(file, build)
    for changed in (imported, file):
        before = (sources / changed).read_bytes()
        (sources / changed).write_bytes(before + b"(* another proof *)")
        assert not machine_checked.is_compiled(file, build), changed
        (sources / changed).write_bytes(before)
    assert machine_checked.is_compiled(file, build)
    (build / f"{file}.sha256").unlink()
    assert not machine_checked.is_compiled(file, build)
