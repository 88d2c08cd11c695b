"""The page without a browser: what it counts, what it calls things, and what it says of results that are not there."""

import html
import json
import os
import re
from datetime import datetime
from pathlib import Path

import pytest

from cokl.support.errors import InputError
from cokl.support.verdicts import Claim, Verdict
from cokl_cli.report import page
from cokl_cli.report.sections import claims, environment, headline, optima
from cokl_cli.report.sections.claims import Judged
from cokl_cli.results import finished
from tests.bandit.shift.tables import shift_table

COLOURS: list[tuple[Verdict | None, str]] = [
    ("held", "good"),
    ("not held", "bad"),
    ("undecided", "open"),
    ("depends", "open"),
    (None, "open"),
]


def test_the_page_is_small_and_asks_for_nothing(report: Path):
    text = report.read_text(encoding="utf-8")
    assert len(text) < 6e6
    assert 'src="http' not in text
    assert '<link rel="stylesheet"' not in text


def test_what_is_missing_is_named_with_its_command(results: Path, tmp_path: Path):
    missing = set(page.write(results, tmp_path / "page.html"))
    assert missing == {f"cokl bandit {name}" for name in ("sequences", "finite-group", "plasticity", "robustness")}
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f"<code>{command}</code>" in text for command in missing)


def test_no_cell_label_or_heading_is_a_code_name_nothing_or_cut(report: Path):
    """Results' own names apart, which are folders'."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", report.read_text(encoding="utf-8"), flags=re.DOTALL)
    shown = re.findall(r"<(?:td|th|label|h\d|button|dt|option)\b[^>]*>(.*?)</", text, flags=re.DOTALL)
    shown += re.findall(r"<summary>(.*?)</summary>", text.replace('<span class="source">', ""), flags=re.DOTALL)
    shown = [html.unescape(re.sub(r"<[^>]*>", "", one)).strip() for one in shown]
    names = [one for one in shown if not one.startswith(str(report.parent))]
    assert "coverage@64" in names
    assert [one for one in names if re.search(r"\b\w+_\w+\b", one)] == []
    assert [one for one in names if one.lower() in ("nan", "null", "none", "<na>", "nan ± nan")] == []
    assert [one for one in names if re.search(r"(\bEq|\bcf|\bclosest to 0|\.\.\.|…|[,:(])$", one)] == []


def test_results_that_the_page_cannot_show_are_one_line(tmp_path: Path):
    with pytest.raises(InputError, match="nothing is finished under"):
        page.write(tmp_path, tmp_path / "page.html")
    shift_table().drop(columns="prior_pass_at_k").to_parquet(tmp_path / "shift.parquet")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"/shift\.parquet lacks the column 'prior_pass_at_k'; it has"):
        page.write(tmp_path, tmp_path / "page.html")


def test_which_folders_count_and_in_which_order(tmp_path: Path):
    """The paper's settings come first, quick ones last; parts of a robustness run are no sweeps."""
    configs: dict[str, dict] = {
        "paper": {},
        "paper/theory": {},
        "quick": {},
        "robustness-paper": {"sweep": {}},
        "robustness-paper/base": {},
        "robustness-paper/learning_rate": {"coefficients": {}},
    }
    for name, config in configs.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "sweep.parquet").touch()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    (tmp_path / "robustness-paper" / "sweep.parquet").unlink()
    assert finished(tmp_path)["sweep"] == [tmp_path / name for name in ("paper", "paper/theory", "quick")]


@pytest.mark.parametrize(("verdict", "colour"), COLOURS)
def test_only_decided_claims_are_good_or_bad(verdict, colour, tmp_path: Path):
    claim = Claim("a statement", "where", "2 ± 1", verdict, ("evidence",))
    body = claims.section([("area", claim, tmp_path / "lab")], tmp_path / "report.html").body
    shown = verdict or "no verdict"
    assert f'data-verdict="{shown}"><summary><span class="verdict {colour}">{shown}</span> a statement' in body
    assert "<ul><li>2 ± 1</li><li>evidence</li></ul>" in body
    assert re.findall('<a href="(.*?)">', body) == ["lab"]


def test_areas_and_verdicts_are_counted():
    verdicts: list[tuple[str, Verdict | None]] = [
        ("one", "held"), ("one", "held"), ("other", "not held"), ("one", None)
    ]  # fmt: skip
    rows: list[Judged] = [(area, Claim("", "", "", verdict), Path()) for area, verdict in verdicts]
    options = re.findall(r"<option [^>]*>(.*?)</option>", claims.section(rows, Path("report.html")).body)
    assert options == [
        "everything (4)", "one (3)", "other (1)", "any (4)", "held (2)", "not held (1)", "no verdict (1)"
    ]  # fmt: skip


def test_each_result_has_its_own_claims_and_the_time_when_it_was_begun(tmp_path: Path):
    """Two sweeps and a lab with the same verdicts in other numbers; the cards count every claim once."""
    by_name: dict[str, list[Path]] = {}
    judged: list[Judged] = []
    results: list[tuple[str, str, int, list[Verdict | None]]] = [
        ("sweep", "paper", 3, ["held", "held"]),
        ("sweep", "quick", 4, ["held", "not held", "undecided", "depends", None]),
        ("shift", "lab", 5, ["not held"]),
    ]
    for name, folder, day, verdicts in results:
        config = tmp_path / folder / "config.json"
        config.parent.mkdir()
        config.touch()
        os.utime(config, (datetime(2026, 1, day, 6, 7).timestamp(),) * 2)
        by_name.setdefault(name, []).append(config.parent)
        judged += [(name, Claim("", "", "", verdict), config.parent) for verdict in verdicts]
    body = headline.section(by_name, judged, 0).body
    for folder, day, counted in (("paper", 3, "2 of 2"), ("quick", 4, "1 of 5"), ("lab", 5, "0 of 1")):
        assert f"<td>{folder}</td><td>0{day} January 2026, 06:07</td><td>{counted}</td>" in body
    assert "<b>3</b>claims held<" in body
    assert "<b>2</b>not held; undecided, depending on the setting, or on too few seeds: 3<" in body


def test_of_several_environments_the_last_is_shown_and_the_others_are_counted(tmp_path: Path):
    """A folder that is named twice is shown once, and one without records not at all."""
    records = [{"versions": {"torch": torch}, "git_commit": f"{torch}-commit"} for torch in ("one", "two", "three")]
    for name, kept in (("resumed", records), ("once", records[:1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "environment.json").write_text(json.dumps(kept))
        (tmp_path / name / "config.json").write_text(json.dumps({"seeds": len(name)}))
    body = environment.section([tmp_path / name for name in ("resumed", "none", "once", "resumed")]).body
    resumed, once = body.split("<details>")[1:]
    assert f"<summary>{tmp_path / 'resumed'}</summary><p>2 earlier environment(s) are in the file.</p>" in resumed
    assert "<td>versions torch</td><td>three</td>" in resumed
    assert "<td>git commit</td><td>three-commit</td>" in resumed
    assert "&quot;seeds&quot;: 7" in resumed
    assert "earlier" not in once


def test_networks_are_shown_at_their_references_correctness(results: Path):
    """Final correctness as the sweep was made; its reference is right one time in ten, with 12 of 200 actions."""
    made = optima.section([results / "paper"])
    data = made.data["optima"]
    assert data["q"][data["networks_q"]] == 0.1
    assert "q is their reference's, 0.100." in made.body
    assert "here\n0.06." in made.body
    shown = {name: dict(zip(one["beta"], one["correctness"], strict=True)) for name, one in data["networks"].items()}
    assert shown["cokl"] == pytest.approx({0.001: 0.975, 0.01: 0.965, 0.1: 0.955}, abs=1e-3)
    assert shown["none"] == pytest.approx({0.0: 0.98}, abs=1e-3)
