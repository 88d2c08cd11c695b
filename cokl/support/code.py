"""The code that a result depends on, as a digest of each module's source.

A result is made by a root module and all that it imports, so the modules are found by following the import statements
from there, those inside functions included, without running anything.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

OURS = ("cokl", "bandit", "theory", "llm_bridge", "figures")
_NO_MATHEMATICS = "cokl.support"


def code_of(root: str, classes: Iterable[type]) -> dict[str, str]:
    """Digests by module of all source that `root`'s results depend on, and that of the classes used in them.

    root: a module's name. All ancestors of a class count. For one in a package that is not ours, its module counts, and
    what that imports of its own package; for one that was typed into a program or an interpreter, its own source.
    """
    digests = {name: _digest(source) for name, source in _closure(root).items()}
    for ancestor in dict.fromkeys(ancestor for used in classes for ancestor in used.__mro__):
        module = ancestor.__module__
        if module in digests or module.partition(".")[0] in sys.stdlib_module_names:
            continue
        sources = {} if module == "__main__" else _closure(module)
        if sources:
            digests |= {name: _digest(source) for name, source in sources.items()}
        else:
            digests[f"{module}.{ancestor.__qualname__}"] = _digest(_source_of_class(ancestor))
    return dict(sorted(digests.items()))


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]


def _closure(root: str) -> dict[str, bytes]:
    """The source of `root` and of the modules of its package, or of ours, that it imports, by name; {} without any."""
    packages = {root.partition(".")[0], *OURS}
    sources: dict[str, bytes] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        excluded = name == _NO_MATHEMATICS or name.startswith(f"{_NO_MATHEMATICS}.")
        if name in sources or excluded or name.partition(".")[0] not in packages:
            continue
        file = _file_of(name)
        if file is None:
            continue
        sources[name] = file.read_bytes()
        parent = name if file.name == "__init__.py" else name.rpartition(".")[0]
        waiting += [parent, *_imports(ast.parse(sources[name]), parent)]
    return sources


def _file_of(name: str) -> Path | None:
    """The source file of a module; None where there is no such module, or no source."""
    top, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:
        return None
    for part in parts:  # not find_spec(name), which imports the packages above a name
        where = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(f"{spec.name}.{part}", where) if spec and where else None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    """Names that the import statements under `node` may mean; those for type checkers alone are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                above = package.split(".")[: len(package.split(".")) - child.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in child.names)
        else:
            yield from _imports(child, package)


def _source_of_class(used: type) -> bytes:
    try:
        return inspect.getsource(used).encode()
    except (OSError, TypeError):  # typed into an interpreter: no source to be had, only bytecode
        functions = [f.__code__ for f in vars(used).values() if hasattr(f, "__code__")]
        return b"".join(f.co_code + repr((f.co_names, f.co_consts)).encode() for f in functions)
