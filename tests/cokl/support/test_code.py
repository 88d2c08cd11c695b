"""Which modules of a plug-in decide its numbers, and that a change in any of them, and in no other, is seen."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cokl import regularizers
from cokl.support.code import code_of, with_code

FILES = {
    "plug_in/__init__.py": "",
    "plug_in/mine.py": """
import json, torch
from cokl.policy import Policy
from . import tables
from .parts.scale import SCALE
import beside
class Mine:
    def value(self):
        from plug_in.late import now
""",
    "plug_in/tables.py": "ROWS = 3",
    "plug_in/parts/__init__.py": "",
    "plug_in/parts/scale.py": "SCALE = 1",
    "plug_in/late.py": "now = 1",
    "plug_in/plots.py": "import plug_in.mine",
    "beside.py": "try:\n    import absent_library\nexcept ImportError:\n    pass\n",
    "unrelated.py": "",
}
DECISIVE = {"plug_in", "plug_in.mine", "plug_in.tables", "plug_in.parts.scale", "plug_in.late", "beside"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in {"plug_in", "beside", *(name for name in sys.modules if name.startswith("plug_in."))}:
        sys.modules.pop(name, None)


def test_a_class_is_its_module_and_what_that_imports_of_its_own(folder):
    assert set(code_of(importlib.import_module("plug_in.mine").Mine)) == DECISIVE


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".py")])
def test_a_change_is_seen_in_what_decides_and_nowhere_else(folder, name):
    mine = importlib.import_module("plug_in.mine").Mine
    before = code_of(mine)
    assert code_of(mine) == before
    path = folder / name
    path.write_text(path.read_text() + "\nCHANGED = 1\n")
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    changed = {one for one, there in code_of(mine).items() if before.get(one) != there}
    assert changed == ({module} & DECISIVE)


def test_a_base_class_of_another_package_and_a_file_by_its_path_count(folder, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "heir.py").write_text("from plug_in.mine import Mine\nclass Heir(Mine): pass\n")
    monkeypatch.syspath_prepend(elsewhere)
    heir = importlib.import_module("heir")
    try:
        assert set(code_of(heir.Heir)) == {*DECISIVE, "heir"}
        assert set(code_of(folder / "plug_in" / "tables.py")) == {"tables"}
    finally:
        del sys.modules["heir"]


def test_the_toolkits_own_classes_add_nothing_to_a_configuration():
    classes = {name: type(regularizers.get(name)) for name in regularizers.names()}
    assert with_code({"seeds": 1}, classes) == {"seeds": 1}


@pytest.mark.parametrize(("typed", "same"), [(False, True), (True, False)])
def test_a_scripts_class_is_its_file_and_a_typed_one_is_never_the_same(tmp_path, typed, same):
    mine = "class Mine:\n    def value(self): return 1\n"
    source = f"import json\nfrom cokl.support.code import code_of\n{mine}print(json.dumps(code_of(Mine)))"
    script = tmp_path / "script.py"
    script.write_text(source)

    def ran() -> dict[str, str]:
        command = [sys.executable, *(["-"] if typed else [str(script)])]
        done = subprocess.run(
            command, input=source, text=True, capture_output=True, check=True, cwd=Path(__file__).parents[3]
        )
        return json.loads(done.stdout)

    first, second = ran(), ran()
    assert set(first) == {"__main__"}
    assert (first == second) == same
