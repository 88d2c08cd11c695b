"""Write ASSUMPTIONS.md, what the paper leaves open, from the source: `python docs/make_tables.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cokl", "bandit", "llm_bridge", "theory", "cokl_cli")
HEAD = """# What the paper leaves open

Each row is a configuration field. Made from the code: `python docs/make_tables.py`.

| field | default | what it decides | what changes with it |
|---|---|---|---|"""


def page() -> str:
    """A row for each field that is declared with `assumption`, then what modules' docstrings state."""
    sources = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources}
    rows = [row for module in modules.values() for row in _fields(module)]
    fixed = [
        f"- `{'.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')}`: {_one_line(words)}"
        for path, module in modules.items()
        for paragraph in (ast.get_docstring(module) or "").split("\n\n")
        for opening, _, words in [paragraph.partition(":")]
        if opening == "Assumption beyond the paper"
    ]
    return "\n".join([HEAD, *rows, "", "Fixed in the code, not configurable:", "", *fixed]) + "\n"


def _fields(module: ast.Module) -> Iterator[str]:
    """Rows of the fields `name: type = assumption(default, "effect")`, which their docstrings follow."""
    for owner in (node for node in ast.walk(module) if isinstance(node, ast.ClassDef)):
        for field, after in pairwise(owner.body):
            match field, after:
                case (
                    ast.AnnAssign(
                        target=ast.Name(id=name),
                        value=ast.Call(func=ast.Name(id="assumption"), args=[default, ast.Constant(value=effect)]),
                    ),
                    ast.Expr(value=ast.Constant(value=decided)),
                ):
                    shown = ast.unparse(default).strip("'")
                    cells = [f"`{owner.name}.{name}`", f"`{shown}`", _one_line(decided), effect]
                    yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    (ROOT / "ASSUMPTIONS.md").write_text(page(), encoding="utf-8")
