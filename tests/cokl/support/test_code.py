"""The digest of a result's code: everything that it depends on, and nothing that only reports it."""

import sys
from typing import Any

import pytest

from cokl import regularizers
from cokl.support import code
from cokl.support.code import code_of

LABS = ["bandit.sweep.train", "bandit.shift.train", "bandit.finite_group.train"]


@pytest.mark.parametrize("root", LABS)
def test_what_results_depend_on_is_in_and_reports_are_out(root):
    """Held against what Python really loads when it imports the root."""
    import subprocess

    listed = "print(*[m for m in sys.modules if m.split('.')[0] in ('cokl', 'bandit')])"
    made = subprocess.run(
        [sys.executable, "-c", f"import sys, {root}; {listed}"], capture_output=True, text=True, check=True
    )
    loaded = {name for name in made.stdout.split() if not name.startswith("cokl.support")}
    known = {f"cokl.regularizers.{name}" for name in regularizers.names()}
    digests = code_of(root, [])
    assert loaded - known <= set(digests)
    assert {"bandit.engine.fused", "bandit.engine.networks", "cokl.policy", "cokl.regularizers.base"} <= set(digests)
    assert not {name for name in digests if name.endswith((".report", ".claims", ".score", ".run"))}
    assert not {name for name in digests if name.startswith(("cokl.support", "figures", "theory"))}


def test_changed_source_changes_its_digest_alone(monkeypatch, tmp_path):
    before = code_of("bandit.sweep.train", [])
    changed = tmp_path / "policy.py"
    honest = code._file_of
    source = honest("cokl.policy")
    assert source is not None
    changed.write_bytes(source.read_bytes() + b"\n# changed\n")
    monkeypatch.setattr(code, "_file_of", lambda name: changed if name == "cokl.policy" else honest(name))
    after = code_of("bandit.sweep.train", [])
    assert {name for name in before if before[name] != after[name]} == {"cokl.policy"}


def test_a_plug_ins_module_its_helpers_and_its_ancestors_count(monkeypatch, tmp_path):
    for folder in ("plug_in/deep", "mixed_in"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "plug_in" / "__init__.py").write_text("")
    (tmp_path / "plug_in" / "deep" / "__init__.py").write_text("from . import near\n")
    (tmp_path / "plug_in" / "deep" / "near.py").write_text("")
    (tmp_path / "plug_in" / "helper.py").write_text("factor = 2\n")
    (tmp_path / "mixed_in" / "base.py").write_text("class Base:\n    pass\n")
    (tmp_path / "plug_in" / "deep" / "own.py").write_text(
        "from cokl.regularizers.forward_kl import ForwardKL\nfrom mixed_in.base import Base\nfrom .. import helper\n\n"
        "class Own(ForwardKL, Base):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from plug_in.deep.own import Own  # type: ignore[import-not-found]

    before = code_of("bandit.shift.train", [Own])
    expected = {"plug_in.deep.own", "plug_in.deep.near", "plug_in.helper", "mixed_in.base"}
    assert expected | {"cokl.regularizers.forward_kl", "bandit.shift.train"} <= set(before)
    assert {name.partition(".")[0] for name in before} == {"bandit", "cokl", "mixed_in", "plug_in"}  # and no library
    (tmp_path / "plug_in" / "helper.py").write_text("factor = 3\n")
    after = code_of("bandit.shift.train", [Own])
    assert {name for name in before if before[name] != after[name]} == {"plug_in.helper"}


def test_a_class_typed_into_an_interpreter_counts():
    def typed(body):
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(f"class Own:\n    def value(self):\n        return {body}\n", space)
        return code_of("bandit.sweep.train", [space["Own"]])

    assert typed("1")["__main__.Own"] != typed("2")["__main__.Own"]
    assert typed("1") == typed("1")
