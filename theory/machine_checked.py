"""The proofs in Coq: compiling them, what each theorem says, and which claims have one that compiled as it stands.

Run as a script (`python -m theory.machine_checked`), with the standard library alone: compiles every file, compares the
axioms of every theorem with the committed list, and exits with code 1 where something fails, 2 where Coq is missing.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "proofs"
FILES = (
    "FiniteSums.v",
    "Policies.v",
    "AppendixA.v",
    "AppendixB_Objective.v",
    "AppendixB_Groups.v",
    "AppendixC.v",
    "AppendixD.v",
    "AppendixB_Recovery.v",
    "FDivergences.v",
    "Theorems.v",
)
"""The proofs, each after the files that it imports."""
PACKAGES = "coq libcoq-coquelicot libcoq-interval libcoq-mathcomp-ssreflect"
INSTALL = f"coqc was not found: the proofs need Coq 8.16 or later (Debian, Ubuntu: apt-get install {PACKAGES})"
BUILD = Path("runs/proofs")
_FLAGS = ("-w", "-notation-overridden,-ambiguous-paths", "-R", ".", "CoKL")


@dataclass(frozen=True)
class Proved:
    """Theorems of one Coq file that say one thing together.

    names: of the theorems. source: the paper's label, or "beyond the paper". paper: its sentence, "-" where it has none.
    ours: what the theorems state. domain: for which objects. claims: the claims of `cokl theory check` that they prove.
    part: how much of those claims, empty for all of it.
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
    return shutil.which("coqc") is not None


def imports(file: str, sources: Path = SOURCES) -> list[str]:
    """All proofs that `file` rests on, itself last, in the order of compilation."""
    required = {file}
    for other in reversed(FILES):
        if other in required:
            lines = re.findall(r"^From CoKL Require Import ([^.]*)\.", (sources / other).read_text(), re.MULTILINE)
            required.update(f"{name}.v" for line in lines for name in line.split())
    return [other for other in FILES if other in required]


def digest(file: str, sources: Path = SOURCES) -> str:
    """SHA-256 of a proof and of all that it imports."""
    return hashlib.sha256(b"".join((sources / other).read_bytes() for other in imports(file, sources))).hexdigest()


def is_compiled(file: str, build: Path) -> bool:
    """Whether `build` holds this file compiled from the source as it stands, imports included."""
    stamp = build / f"{file}.sha256"
    return (build / f"{file}o").is_file() and stamp.is_file() and stamp.read_text() == digest(file)


def compile_proofs(build: Path, files: tuple[str, ...] = FILES) -> dict[str, str]:
    """Compile `files` and what they import into `build`; what is compiled already is left alone.

    Returns Coq's message by file for the files that fail; a file whose import fails is not tried, and fails too.
    Raises FileNotFoundError without coqc.
    """
    build.mkdir(parents=True, exist_ok=True)
    wanted = {other for file in files for other in imports(file)}
    failures: dict[str, str] = {}
    for file in FILES:
        if file not in wanted or is_compiled(file, build):
            continue
        broken = [other for other in imports(file) if other in failures]
        if broken:
            failures[file] = f"imports {broken[0]}, which fails"
            continue
        shutil.copyfile(SOURCES / file, build / file)
        (build / f"{file}.sha256").unlink(missing_ok=True)
        stamp = digest(file)
        result = run_coq(file, build)
        if result.returncode:
            failures[file] = result.stderr.strip()
        else:
            (build / f"{file}.sha256").write_text(stamp)
    return failures


def run_coq(file: str, build: Path) -> subprocess.CompletedProcess[str]:
    """`coqc` on one file of the folder `build`, in which the compiled proofs lie. Raises FileNotFoundError without it."""
    return subprocess.run(["coqc", *_FLAGS, file], cwd=build, capture_output=True, text=True, check=False)


def allowed_axioms() -> set[str]:
    """The axioms of Coq's real numbers and real analysis, and nothing else."""
    return set((SOURCES / "axioms.txt").read_text().split())


def axioms(build: Path) -> set[str]:
    """What the theorems rest on together, by Coq's `Print Assumptions`; needs all proofs compiled in `build`.

    Coq is asked once, about the tuple of all theorems: one by one it goes through its library each time.
    Raises RuntimeError where Coq does not know a theorem.
    """
    named = [f"@{entry.file.removesuffix('.v')}.{name}" for entry in theorems() for name in entry.names]
    modules = " ".join(file.removesuffix(".v") for file in FILES)
    (build / "PrintAssumptions.v").write_text(
        f"From CoKL Require {modules}.\nDefinition every_theorem := ({', '.join(named)}).\n"
        "Print Assumptions every_theorem.\n"
    )
    result = run_coq("PrintAssumptions.v", build)
    if result.returncode:
        raise RuntimeError(result.stderr.strip())
    return set(re.findall(r"^([\w.]+)(?=\s*:|$)", result.stdout.replace("Axioms:\n", ""), re.MULTILINE))


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
    used = axioms(BUILD)
    foreign = used - allowed_axioms()
    if foreign:
        print(f"the theorems rest on {', '.join(sorted(foreign))}, which axioms.txt does not allow", file=sys.stderr)
        return 1
    count = sum(len(entry.names) for entry in theorems())
    print(f"{count} theorems in {len(FILES)} files proved; they rest on {', '.join(sorted(used))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
