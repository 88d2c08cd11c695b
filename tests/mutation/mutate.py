"""Mutation testing with mutmut, a part at a time: `python tests/mutation/mutate.py PART`, which `make mutation` calls.

It works in build/mutation/PART, goes on where it was stopped, and writes what came out into result.json: figures, and
every mutant that no test notices, with its verdict, which stays with it from one run to the next. Mutants of a function
whose source has changed are tried again; with --again, so are those that survived without a verdict.

Not mutated: what stands outside functions (constants, class attributes), and functions compiled by Numba.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

# mutmut reads its settings from the current folder when it is imported, so functions import it, after `prepare`.
ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).resolve().with_name("result.json")
PACKAGES = ("cokl", "bandit", "theory", "llm_bridge", "figures", "cokl_cli", "benchmarks")


class Part(NamedTuple):
    """What is mutated together: the files of a package, less some, and the tests that concern them."""

    package: str
    files: str
    left_out: tuple[str, ...]
    tests: tuple[str, ...]


PARTS = {
    "cokl": Part("cokl", "cokl/*", ("cokl/support/*",), ("tests/cokl", "--ignore=tests/cokl/support")),
    "support": Part(
        "cokl",
        "cokl/support/*",
        (),
        ("tests/cokl/support", "tests/docs/test_tables.py"),
    ),
    "theory": Part(
        "theory",
        "theory/*",
        ("theory/proofs/*",),  # what holds these needs Coq: `make proofs-test`
        (
            "tests/theory",
            "tests/cokl/regularizers/test_optimal_mass.py",
            "tests/cokl_cli/test_theory.py",
        ),
    ),
    "bandit": Part("bandit", "bandit/*", (), ("tests/bandit",)),
}
TRANSPARENT = {"property", "cached_property", "contextmanager", "cache", "claim"}
"""Decorators whose functions are mutated beneath them; mutmut alone passes over every decorated function."""

UNJUDGED = "not yet judged"


def decorators_stay_outside() -> None:
    """Make mutmut mutate functions under TRANSPARENT decorators: these stay on the function that picks the mutant."""
    import libcst as cst
    from mutmut.mutation import file_mutation

    skips = file_mutation.MutationVisitor._skip_node_and_children
    arrange = file_mutation.function_trampoline_arrangement

    def is_transparent(function: cst.FunctionDef) -> bool:
        names = [d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator for d in function.decorators]
        ends = [name.attr.value if isinstance(name, cst.Attribute) else name.value for name in names]
        return set(ends) <= TRANSPARENT

    def skip(visitor: Any, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef) and is_transparent(node):
            node = node.with_changes(decorators=[])
        return skips(visitor, node)

    def arrangement(function: cst.FunctionDef, mutants: Any, class_name: str | None) -> Any:
        if not is_transparent(function):
            return arrange(function, mutants, class_name)
        declared, nodes, assigned, names = arrange(function.with_changes(decorators=[]), mutants, class_name)
        nodes = [nodes[0].with_changes(decorators=[*function.decorators, *nodes[0].decorators]), *nodes[1:]]
        if class_name:  # the list of mutants is whole before a decorator of the class makes an object of it
            own = "".join(line.replace(f"= {class_name}.", "= ") for line in cst.Module(assigned).code.splitlines(True))
            nodes, assigned = [*nodes, *cst.parse_module(own).body], []
        return declared, nodes, assigned, names

    file_mutation.MutationVisitor._skip_node_and_children = skip
    file_mutation.function_trampoline_arrangement = arrangement


def without_crashes_and_words() -> None:
    """Leave out None for a value or an argument, and a missing one that is needed: any test that gets there fails.

    They are two mutants of three, cost as much as the others and would flatter the share. Keywords and last arguments
    are still taken away, since those may have defaults. Strings stay as they are: they are words for people, whose
    change means nothing, or names of columns and files, whose change ends in a crash.
    """
    import libcst as cst
    from mutmut.mutation import mutators

    remove = mutators.operator_arg_removal

    def defaults(call: cst.Call) -> Iterator[cst.Call]:
        for place, mutated in enumerate(made for made in remove(call) if len(made.args) < len(call.args)):
            if call.args[place].keyword or place == len(call.args) - 1:
                yield mutated

    mutators.mutation_operators[:] = [
        (kind, defaults if operator is remove else operator)
        for kind, operator in mutators.mutation_operators
        if operator not in (mutators.operator_assignment, mutators.operator_string)
    ]


def quick_tests_first() -> None:
    """Make mutmut try a mutant's tests from the quickest on: most mutants fall to the first."""
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state

    arguments = PytestRunner._pytest_args_regular_run

    def sorted_arguments(runner: PytestRunner, tests: Iterable[str]) -> list[str]:
        return arguments(runner, sorted(tests, key=lambda test: (state().duration_by_test.get(test, 0.0), test)))

    PytestRunner._pytest_args_regular_run = sorted_arguments


def prepare(name: str) -> Path:
    """The folder that mutmut works in: links to the packages and tests, and its settings."""
    part, folder = PARTS[name], ROOT / "build" / "mutation" / name
    folder.mkdir(parents=True, exist_ok=True)
    for linked in (*PACKAGES, "tests", "pyproject.toml"):
        if not (folder / linked).exists():
            (folder / linked).symlink_to(ROOT / linked)
    settings = {
        "source_paths": part.package,
        "only_mutate": part.files,
        "do_not_mutate": "\n    ".join(part.left_out),
        "also_copy": "\n    ".join(package for package in PACKAGES if package != part.package),
        "pytest_add_cli_args_test_selection": "\n    ".join(part.tests),
        "pytest_add_cli_args": "\n    ".join(["--hypothesis-profile=mutation", "-pno:cacheprovider", "-pno:xdist"]),
        "process_isolation": "forkserver",
        "on_dependency_change": "ignore",
        "timeout_multiplier": 4.0,
        "timeout_constant": 15.0,  # seconds, times the multiplier; a busy machine has made quick tests wait for twenty
    }
    lines = [
        f"{key} =\n    {value}" if "\n" in str(value) else f"{key} = {value}"
        for key, value in settings.items()
        if value
    ]
    (folder / "setup.cfg").write_text("[mutmut]\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return folder


def drop_half_written() -> None:
    """Let mutmut make anew what it was writing when it was killed: it would take half a file for a whole one."""
    from mutmut.utils.file_utils import walk_mutatable_files

    for mutated in (Path("mutants") / path for path in walk_mutatable_files()):
        known = mutated.with_name(f"{mutated.name}.meta")
        try:
            json.loads(known.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known.unlink(missing_ok=True)
            mutated.unlink(missing_ok=True)


def only_a_sample(size: int) -> None:
    """Make mutmut try the sample alone: a larger one later holds a smaller one and goes on from it."""
    import mutmut.__main__ as mutmut

    collect = mutmut.collect_source_file_mutation_data

    def sampled(*, mutant_names: Any) -> Any:
        mutants, data = collect(mutant_names=mutant_names)
        chosen = sample(size)
        return [mutant for mutant in mutants if mutant[1] in chosen], data

    mutmut.collect_source_file_mutation_data = sampled


def sample(size: int) -> set[str]:
    """The names of `size` mutants drawn from all of the part, by the digest of their names; all if there are fewer."""
    names = [name for _, data in outcomes() for name in data.exit_code_by_key]
    return set(sorted(names, key=lambda name: sha256(name.encode()).digest())[:size])


def identity(mutant: str, path: Path) -> tuple[str, str]:
    """Where a mutant is and what it changes, in words that stay when other lines of its function move."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    changed = [line for line in get_diff_for_mutant(mutant, path=path).splitlines()[2:] if line[:1] in "+-"]
    words = " ".join(f"{line[0]} {' '.join(line[1:].split())}" for line in changed if "__mutmut_" not in line)
    return mutant.partition("__mutmut_")[0].replace("x_", "").replace("xǁ", "").replace("ǁ", "."), words


def recorded() -> dict[str, Any]:
    """What result.json says so far, by part."""
    found: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    return found


def verdicts_of(record: dict[str, Any]) -> dict[tuple[str, str], str]:
    survivors = [survivor for entry in record.values() for survivor in entry["survivors"]]
    return {(survivor["function"], survivor["change"]): survivor["verdict"] for survivor in survivors}


def outcomes() -> Iterator[tuple[Path, Any]]:
    """Every mutated file, with what mutmut knows about its mutants."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.utils.file_utils import walk_mutatable_files

    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        yield path, data


def status_of(code: int | None) -> str:
    from mutmut.stats import status_by_exit_code

    return status_by_exit_code[code]


def forget_unjudged(known: dict[tuple[str, str], str]) -> None:
    """Let those that survived be tried once more, unless a verdict says why they do."""
    for path, data in outcomes():
        for mutant, code in data.exit_code_by_key.items():
            survived = status_of(code) not in ("killed", "timeout", "not checked")
            if survived and known.get(identity(mutant, path), UNJUDGED) == UNJUDGED:
                data.exit_code_by_key[mutant] = None
        data.save()


def summarise(known: dict[tuple[str, str], str], size: int) -> dict[str, Any]:
    """Figures and survivors of the sample so far; a mutant that never ends is noticed too, and counts as killed.

    share_killed is of all that were tried, those judged equivalent too; interval_95 is Wilson's for the share among all
    mutants of the part, for a sample that was tried whole.
    """
    from scipy.stats import binomtest

    counts: Counter[str] = Counter()
    survivors, chosen = [], sample(size)
    for path, data in outcomes():
        for mutant, code in data.exit_code_by_key.items():
            status = status_of(code) if mutant in chosen else "not sampled"
            counts[status] += 1
            if status not in ("killed", "timeout", "not checked", "not sampled"):
                function, change = identity(mutant, path)
                verdict = known.get((function, change), UNJUDGED)
                survivors.append({"function": function, "change": change, "status": status, "verdict": verdict})
    killed = counts["killed"] + counts["timeout"]
    tried = counts.total() - counts["not checked"] - counts["not sampled"]
    interval = binomtest(killed, tried).proportion_ci(method="wilson") if tried else (0.0, 1.0)
    return {
        "mutmut": version("mutmut"),
        "mutants": counts.total(),
        **dict(sorted(counts.items())),
        "share_killed": round(killed / max(tried, 1), 4),
        "interval_95": [round(float(end), 4) for end in interval],
        "verdicts": dict(Counter(survivor["verdict"].partition(":")[0] for survivor in survivors)),
        "survivors": sorted(survivors, key=lambda survivor: (survivor["function"], survivor["change"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--sample", type=int, default=sys.maxsize, metavar="N", help="N mutants drawn at random (all)")
    parser.add_argument("--again", action="store_true", help="try those without a verdict that survived once more")
    parser.add_argument("--summarise", action="store_true", help="run nothing, write what is known so far")
    options = parser.parse_args()
    folder = prepare(options.part)
    os.chdir(folder)
    drop_half_written()
    decorators_stay_outside()
    without_crashes_and_words()
    quick_tests_first()
    only_a_sample(options.sample)
    os.environ["PYTHONPATH"] = str(folder / "mutants")  # commands that tests start see the mutants, too
    if options.again:
        forget_unjudged(verdicts_of(recorded()))
    try:
        if not options.summarise:
            from mutmut.__main__ import _run

            _run((), 1)
    finally:
        record = recorded()  # only now: verdicts may have been written while this ran
        record[options.part] = summarise(verdicts_of(record), options.sample)
        text = json.dumps(dict(sorted(record.items())), indent=1, ensure_ascii=False)
        RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
