"""The proofs in Coq: compiling them, what each theorem says, and which claims have one that compiled as it stands.

Run as a script (`python -m theory.proofs.machine_checked`), with the standard library alone: compiles every file,
compares the axioms of every theorem with `axioms.txt` and its statement with `statements.txt`, and exits with code 1
where something fails, 2 where Coq is missing.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from theory.claim import Evidence

SOURCES = Path(__file__).parent
FILES = (
    "FiniteSums.v",
    "Policies.v",
    "AppendixA.v",
    "AppendixB_Objective.v",
    "AppendixB_Groups.v",
    "AppendixC.v",
    "AppendixD.v",
    "AppendixB_Recovery.v",
    "Theorems.v",
)
"""The proofs, each after the files that it imports."""
PACKAGES = "coq libcoq-coquelicot libcoq-interval libcoq-mathcomp-ssreflect"
INSTALL = f"Coq 8.16 with Coquelicot, Interval and MathComp was not found (Debian 12: apt-get install {PACKAGES})"
BUILD = Path("runs/proofs")
METHOD = "proved in Coq"
_FLAGS = ("-w", "-notation-overridden,-ambiguous-paths", "-R", ".", "CoKL")


@dataclass(frozen=True)
class Proved:
    """Theorems of one Coq file that say one thing together.

    names: of the theorems. source: the paper's label, or "beyond the paper". paper: its sentence, "-" where there is
    none. ours: what the theorems state. domain: for which objects. claims: the claims of `cokl theory check` that they
    prove. part: how much of those claims, empty for all of it.
    """

    file: str
    names: tuple[str, ...]
    source: str
    paper: str
    ours: str
    domain: str
    claims: tuple[str, ...]
    part: str = ""


def theorems() -> list[Proved]:
    """The theorems of `theorems.toml`, in its order."""
    with (SOURCES / "theorems.toml").open("rb") as file:
        entries = tomllib.load(file)["theorem"]
    return [Proved(**{**entry, "names": tuple(entry["names"]), "claims": tuple(entry["claims"])}) for entry in entries]


def coq_is_installed() -> bool:
    """Whether coqc is there, with the libraries that the proofs import."""
    if shutil.which("coqc") is None:
        return False
    where = subprocess.run(["coqc", "-where"], capture_output=True, text=True, check=True).stdout.strip()
    return all((Path(where) / "user-contrib" / library).is_dir() for library in ("Coquelicot", "Interval", "mathcomp"))


def imports(file: str) -> list[str]:
    """All proofs that `file` rests on, itself last, in the order of compilation."""
    required = {file}
    for other in reversed(FILES):
        if other in required:
            lines = re.findall(r"^From CoKL Require Import ([^.]*)\.", (SOURCES / other).read_text(), re.MULTILINE)
            required.update(f"{name}.v" for line in lines for name in line.split())
    return [other for other in FILES if other in required]


def digest(file: str) -> str:
    """SHA-256 of a proof and of all that it imports."""
    return hashlib.sha256(b"".join((SOURCES / other).read_bytes() for other in imports(file))).hexdigest()


def is_compiled(file: str, build: Path) -> bool:
    """Whether `build` holds this file compiled from the source as it stands, imports included, on allowed axioms."""
    stamp = _stamp(file, build)
    return (build / f"{file}o").is_file() and stamp.is_file() and stamp.read_text() == digest(file)


def compile_proofs(build: Path, files: Iterable[str] = FILES) -> dict[str, str]:
    """Compile `files` and what they import into `build`; what is compiled already as it stands is left alone.

    Returns what is wrong by file: Coq's message, an import that fails, or axioms that `axioms.txt` does not allow.
    Raises FileNotFoundError without coqc.
    """
    build.mkdir(parents=True, exist_ok=True)
    wanted = {other for file in files for other in imports(file)}
    failures: dict[str, str] = {}
    fresh: dict[str, str] = {}
    for file in FILES:
        if file not in wanted or is_compiled(file, build):
            continue
        broken = [other for other in imports(file) if other in failures]
        if broken:
            failures[file] = f"imports {broken[0]}, which fails"
            continue
        _stamp(file, build).unlink(missing_ok=True)
        fresh[file] = digest(file)
        shutil.copyfile(SOURCES / file, build / file)
        result = run_coq(file, build)
        if result.returncode:
            failures[file] = result.stderr.strip()
            del fresh[file]
    if axioms(build, fresh) - allowed_axioms():
        for file in fresh:
            foreign = axioms(build, [file]) - allowed_axioms()
            if foreign:
                failures[file] = f"rests on {', '.join(sorted(foreign))}, which axioms.txt does not allow"
    for file in fresh.keys() - failures.keys():
        _stamp(file, build).write_text(fresh[file])
    return failures


def _stamp(file: str, build: Path) -> Path:
    return build / f"{file}.sha256"


def run_coq(file: str, build: Path) -> subprocess.CompletedProcess[str]:
    """`coqc` on one file of the folder `build`, where the compiled proofs lie. Raises FileNotFoundError without it."""
    return subprocess.run(["coqc", *_FLAGS, file], cwd=build, capture_output=True, text=True, check=False)


def prove(claims: Iterable[str], build: Path) -> dict[str, str]:
    """Compile what proves these claims, where coqc is installed; returns what is wrong by file, as `compile_proofs`."""
    wanted = set(claims)
    files = {entry.file for entry in theorems() if wanted.intersection(entry.claims)}
    return compile_proofs(build, files) if coq_is_installed() else {}


def evidence(claim: str, build: Path, failures: Mapping[str, str] | None = None) -> list[Evidence]:
    """What the proofs in `build` show of a claim: one piece for each entry of `theorems.toml` that names it.

    A proof that is not compiled as it stands shows nothing; one of `failures` is a piece that does not hold.
    """
    from theory.claim import Evidence

    wrong = failures or {}
    return [
        Evidence(
            METHOD,
            entry.domain,
            error=math.inf if entry.file in wrong else 0,
            accepted=0,
            detail=f"{entry.file}: {wrong.get(entry.file) or ', '.join(entry.names)}",
            part=entry.part,
        )
        for entry in theorems()
        if claim in entry.claims and (entry.file in wrong or is_compiled(entry.file, build))
    ]


def allowed_axioms() -> set[str]:
    """The axioms of Coq's real numbers and real analysis, and nothing else."""
    return set((SOURCES / "axioms.txt").read_text().split())


def axioms(build: Path, files: Iterable[str] = FILES) -> set[str]:
    """What the theorems of `files`, compiled in `build`, rest on together, by Coq's `Print Assumptions`.

    Coq is asked once, about the tuple of all of them: one by one it goes through its library each time. A line that is
    no axiom with its type ("f is assumed to be guarded.") is returned whole: no list allows it.
    Raises RuntimeError where Coq does not know a theorem.
    """
    entries = [entry for entry in theorems() if entry.file in set(files)]
    if not entries:
        return set()
    modules = {entry.file.removesuffix(".v") for entry in entries}
    named = [f"@{entry.file.removesuffix('.v')}.{name}" for entry in entries for name in entry.names]
    (build / "PrintAssumptions.v").write_text(
        f"From CoKL Require {' '.join(sorted(modules))}.\nDefinition every_theorem := (tt, {', '.join(named)}).\n"
        "Print Assumptions every_theorem.\n"
    )
    result = run_coq("PrintAssumptions.v", build)
    if result.returncode:
        raise RuntimeError(result.stderr.strip())
    lines = re.findall(r"^(?!Axioms:$|Closed under the global context$)\S.*", result.stdout, re.MULTILINE)
    return {re.sub(r"^([\w.']+)(?:\s*:.*)?$", r"\1", line) for line in lines}


def statements(build: Path) -> str:
    """Every definition and theorem of the files compiled in `build`, as Coq prints them, section variables closed.

    Raises RuntimeError where Coq does not know one.
    """
    modules = [file.removesuffix(".v") for file in FILES]
    named = [
        f"Check @{module}.{name}." if kind == "Theorem" else f"Print {module}.{name}."
        for module in modules
        for kind, name in re.findall(
            r"^(Definition|Fixpoint|Theorem) (\w+)", (SOURCES / f"{module}.v").read_text(), re.MULTILINE
        )
    ]
    (build / "PrintStatements.v").write_text(
        "From mathcomp Require Import all_ssreflect.\nRequire Import Reals.\n"
        "From Coquelicot Require Import Coquelicot.\n"
        f"From CoKL Require Import {' '.join(modules)}.\nOpen Scope R_scope.\n"
        "Set Printing Width 110.\nSet Printing Depth 1000.\n" + "\n".join(named) + "\n"
    )
    result = run_coq("PrintStatements.v", build)
    if result.returncode:
        raise RuntimeError(result.stderr.strip())
    return re.sub(r"\n+Arguments .*(?:\n  .*)*", "", result.stdout)


def statement_changes(build: Path) -> str:
    """How the statements of `build` differ from `statements.txt`, as a unified diff; empty where they do not."""
    pinned = (SOURCES / "statements.txt").read_text().splitlines(keepends=True)
    printed = statements(build).splitlines(keepends=True)
    return "".join(difflib.unified_diff(pinned, printed, "statements.txt", "as Coq prints them"))


def main() -> int:
    """Compile the proofs, compare their axioms. Returns the exit code."""
    if not coq_is_installed():
        print(INSTALL, file=sys.stderr)
        return 2
    failures = compile_proofs(BUILD)
    for file, message in failures.items():
        print(f"{file}: {message}", file=sys.stderr)
    if failures:
        return 1
    assumed = axioms(BUILD)
    if assumed - allowed_axioms():
        print(f"axioms.txt does not allow: {', '.join(sorted(assumed - allowed_axioms()))}", file=sys.stderr)
        return 1
    changes = statement_changes(BUILD)
    if changes:
        print(f"The statements are not those of statements.txt:\n{changes}", file=sys.stderr)
        return 1
    count = sum(len(entry.names) for entry in theorems())
    print(
        f"{count} theorems in {len(FILES)} files proved, their statements those of statements.txt; "
        f"they rest on {', '.join(sorted(assumed))}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
