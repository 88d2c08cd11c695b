"""Every notebook runs from its first cell to its last, and prints what it is committed with.

Text is compared exactly. A number agrees within 1%, or one unit of its last printed digit, or if both are below 1e-12,
where rounding differs from machine to machine. Pictures are there or not. In a cell with the tag `draws` indented lines
are what a model that was trained by sampling answers, which one rounding can change, and are not compared.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.docs

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_each_is_on_the_site():
    listed = re.findall(r"notebooks/(\w+)\.ipynb", (NOTEBOOKS[0].parents[1] / "mkdocs.yml").read_text())
    assert sorted(listed) == [path.stem for path in NOTEBOOKS]


def printed(cell: nbformat.NotebookNode) -> list[str]:
    """What a cell has printed and shown, as text; of anything but text its kinds alone."""
    lines = "".join(output.text for output in cell.outputs if output.output_type == "stream").splitlines()
    drawn = "draws" in cell.metadata.get("tags", ())
    shown = ["\n".join(line for line in lines if not (drawn and line.startswith("    ")))]
    for output in cell.outputs:
        if output.output_type in ("display_data", "execute_result"):
            shown += [" ".join(sorted(output.data)), output.data.get("text/plain", "")]
    return shown


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def differences(committed: nbformat.NotebookNode, executed: nbformat.NotebookNode) -> Iterator[str]:
    """Where two runs of a notebook differ, cell by cell."""
    for number, (before, after) in enumerate(zip(code_cells(committed), code_cells(executed), strict=True), 1):
        old, new = printed(before), printed(after)
        if len(old) != len(new):
            yield f"cell {number}: {len(old)} outputs are {len(new)}"
        for one, other in zip(old, new, strict=False):
            if words(one) != words(other):
                yield f"cell {number}: {one!r} is {other!r}"
            for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=False):
                if not agree(a, b):
                    yield f"cell {number}: {a} is {b}"


def words(text: str) -> str:
    """A text without its numbers, whose widths move what stands beside them."""
    return " ".join(NUMBER.sub("#", text).split())


def agree(one: str, other: str) -> bool:
    """Whether two printed numbers are the same within the tolerance."""
    a, b = float(one), float(other)
    digits, _, exponent = one.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(a - b) <= max(0.01 * abs(a), 1.0001 * unit) or max(abs(a), abs(b)) < 1e-12


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.512", "0.513", True),
        ("0.512", "0.519", False),
        ("7.2", "7.3", True),
        ("7.2", "7.5", False),
        ("1.85e-8", "1.86e-8", True),
        ("1.85e-8", "1.95e-8", False),
        ("3e-14", "5e-15", True),
        ("20000", "20100", True),
        ("20000", "20300", False),
    ],
)
def test_the_tolerance(one, other, same):
    assert agree(one, other) is same


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_planted_change_of_the_outputs_is_found(path: Path):
    committed = nbformat.read(path, as_version=4)
    assert list(differences(committed, committed)) == []
    for index, cell in enumerate(code_cells(committed)):
        for at, output in enumerate(cell.outputs):
            holder, key = (output, "text") if "text" in output else (output.get("data", {}), "text/plain")
            number = next((n for n in NUMBER.findall(holder.get(key, "")) if abs(float(n)) > 1e-11), None)
            for old, new in [(number, str(1.6 * float(number) + 1))] if number else [("", "another word ")]:
                planted = copy.deepcopy(committed)
                changed = code_cells(planted)[index].outputs[at]
                (changed if key == "text" else changed.data)[key] = holder.get(key, "").replace(old, new, 1)
                assert list(differences(committed, planted)), (index, old)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path):
    notebook = nbformat.read(path, as_version=4)
    committed = copy.deepcopy(notebook)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert not list(tmp_path.iterdir()), "a notebook leaves nothing behind"
    assert list(differences(committed, notebook)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_with_the_outputs_of_one_run(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


def test_cokl_in_sixty_lines_of_plain_pytorch():
    first = code_cells(nbformat.read(NOTEBOOKS[0], as_version=4))[0]
    lines = [line for line in first.source.splitlines() if line.strip()]
    assert len(lines) <= 60
    assert [line for line in lines if line.startswith(("import", "from"))] == ["import torch"]
