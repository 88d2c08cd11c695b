"""The section on what made the results: the last record of each folder."""

import json
from pathlib import Path

from cokl_cli.report.sections.environment import section


def test_of_several_records_the_last_is_shown_and_the_others_are_counted(tmp_path: Path):
    """A folder that is named twice is shown once, and one without records not at all."""
    records = [{"versions": {"torch": torch}, "git_commit": f"{torch}-commit"} for torch in ("one", "two", "three")]
    for name, kept in (("resumed", records), ("once", records[:1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "environment.json").write_text(json.dumps(kept))
        (tmp_path / name / "config.json").write_text(json.dumps({"seeds": len(name)}))
    body = section([tmp_path / name for name in ("resumed", "none", "once", "resumed")]).body
    resumed, once = body.split("<details>")[1:]
    assert f"<summary>{tmp_path / 'resumed'}</summary><p>2 earlier environment(s) are in the file.</p>" in resumed
    assert "<td>versions torch</td><td>three</td>" in resumed
    assert "<td>git_commit</td><td>three-commit</td>" in resumed
    assert "one" not in resumed.replace("environment", "")
    assert "&quot;seeds&quot;: 7" in resumed
    assert "earlier" not in once
    assert "<td>git_commit</td><td>one-commit</td>" in once
