"""A bridge that cannot be tested is not passed over."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import pytest
{line}
def test_it():
    pytest.importorskip("{module}")
"""
BROKEN = "import libcudart_that_is_not_there"


@pytest.mark.parametrize(
    ("variables", "module"), [({}, "verl"), ({"LLM_TESTS": "1"}, "absent"), ({"LLM_TESTS": "1"}, "verl")]
)
@pytest.mark.parametrize("line", ["", "pytest.importorskip('verl')"], ids=["in a test", "at the top"])
def test_what_cannot_be_imported_fails(tmp_path, variables, module, line):
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "verl.py").write_text(BROKEN)
    (tmp_path / "test_it.py").write_text(TEST.format(line=line, module=module))
    environment = {name: value for name, value in os.environ.items() if name != "LLM_TESTS"} | variables
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment | {"PYTHONPATH": str(tmp_path)}, check=False)
    assert done.returncode in (1, 2)  # a failure, or an error while collecting
