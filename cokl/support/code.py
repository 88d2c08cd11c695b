"""The code of other packages that decides numbers, by which a results folder is compared beside its configuration.

Assumption beyond the paper: a class is what its modules say. These are its own, its base classes' and what they import
of their own package, or of modules that lie beside it, as an `import` statement anywhere in them names it. The toolkit
itself and installed libraries are not compared; environment.json has their versions and the commit. Nor are data files
that a module reads, environment variables and what is imported by a computed name.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

TOOLKIT = ("bandit", "cokl", "cokl_cli", "figures", "llm_bridge", "theory")
_ELSEWHERE = {*TOOLKIT, *sys.stdlib_module_names} - {"__main__"}
_INSTALLED = {"site-packages", "dist-packages"}


Decisive = type | Callable[..., Any] | Path
"""A class, a function, or a file of either."""


def with_code(config: Mapping[str, Any], decided_by: Mapping[str, Decisive]) -> dict[str, Any]:
    """A configuration (JSON values), with the hashes of what else decides its numbers, under "code".

    decided_by: by what people call them. What is the toolkit's own adds nothing.
    """
    found = {name: code for name, thing in decided_by.items() if (code := code_of(thing))}
    return {**config, "code": {**config.get("code", {}), **found}} if found else dict(config)


def code_of(thing: Decisive) -> dict[str, str]:
    """Each module that decides what `thing` is, with a hash of its source; {} for what is the toolkit's.

    A source that cannot be read, such as that of a class typed into an interpreter, is different each time.
    """
    hashes: dict[str, str] = {}
    if isinstance(thing, Path):
        waiting: dict[str, Path | None] = {thing.stem: thing}
        owners: tuple[Any, ...] = ()
    else:
        thing = thing.func if isinstance(thing, partial) else thing
        owners = inspect.getmro(thing) if isinstance(thing, type) else (thing,)
        waiting = {owner.__module__: None for owner in owners}
    while waiting:
        name, given = waiting.popitem()
        if name not in hashes and (given or _top(name) not in _ELSEWHERE):
            path = given or _file(name)
            source = path.read_bytes() if path else _typed([one for one in owners if one.__module__ == name])
            hashes[name] = hashlib.sha256(source).hexdigest()[:12]
            if path:
                waiting |= dict.fromkeys(_own_imports(source, name, path))
    return dict(sorted(hashes.items()))


def _own_imports(source: bytes, name: str, path: Path) -> Iterator[str]:
    """Modules that a module's source imports, of its own package, of its distribution, or from beside it."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    folder, root = _folder(name, path), _top(name)
    for imported in _imported(source, package):
        top = _top(imported)
        if top in _ELSEWHERE:
            continue
        if top != root:
            there = _file(top)
            beside = there and not _INSTALLED & set(folder.parts) and _folder(top, there) == folder
            if not (beside or _distributions(top) & _distributions(root)):
                continue
        if _file(imported):
            yield imported


def _imported(source: bytes, package: str) -> Iterator[str]:
    """What the `import` statements of a source may name: modules, and names in them, which are modules or not."""
    with suppress(SyntaxError, ValueError):  # an extension module's bytes
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    parts = alias.name.split(".")
                    yield from (".".join(parts[: count + 1]) for count in range(len(parts)))
            elif isinstance(node, ast.ImportFrom):
                with suppress(ImportError):  # a relative one that failed, and was excepted
                    base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in node.names)


def _file(name: str) -> Path | None:
    """Of a module, loaded or not; None for what is no module or has no file."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        where = getattr(loaded, "__file__", None)
    else:
        where = None
        with suppress(ImportError, ValueError, AttributeError):
            spec = importlib.util.find_spec(name)
            where = spec.origin if spec else None
    return Path(where) if where and Path(where).is_file() else None


def _folder(name: str, path: Path) -> Path:
    """The folder from which a module is imported."""
    return path.resolve().parents[name.count(".") + (path.stem == "__init__")]


def _top(name: str) -> str:
    return name.partition(".")[0]


def _distributions(top: str) -> set[str]:
    """The installed distributions that a top-level module belongs to."""
    return set(_every_distribution().get(top, ()))


_every_distribution = cache(packages_distributions)


def _typed(owners: list[Any]) -> bytes:
    """The source of classes' functions, or of a function, which a notebook has and an interpreter has not."""
    members = [one for owner in owners for one in (vars(owner).values() if isinstance(owner, type) else [owner])]
    try:
        return "".join(inspect.getsource(one) for one in members if inspect.isfunction(one)).encode()
    except (OSError, TypeError):
        return uuid.uuid4().bytes
