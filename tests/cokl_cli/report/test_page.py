"""The page without a browser: its size, its library, and what it says of results that are not there."""

from pathlib import Path

import pandas as pd
import pytest
from plotly.offline import get_plotlyjs_version

from cokl.support.errors import InputError
from cokl_cli.report import page
from tests.bandit.shift.tables import shift_table
from theory.report import check_and_save


def test_the_bundled_library_is_of_the_version_that_python_writes_for():
    bundled = (Path(page.__file__).parent / "assets" / page.LIBRARY).read_text(encoding="utf-8")
    assert f"v{get_plotlyjs_version()}" in bundled[:200]


def test_the_page_is_small_and_asks_for_nothing(report: Path):
    text = report.read_text(encoding="utf-8")
    assert len(text) < 6e6
    assert 'src="http' not in text
    assert '<link rel="stylesheet"' not in text


def test_what_is_missing_is_named_with_its_command(results: Path, tmp_path: Path):
    missing = {one.command for one in page.write(results, tmp_path / "page.html")}
    assert missing == {
        f"cokl bandit {name}"
        for name in (
            "sequences",
            "finite-group",
            "plasticity",
            "robustness",
        )
    }
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f"<code>{command}</code>" in text for command in missing)


def test_a_folder_without_results_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="nothing is finished under"):
        page.write(tmp_path, tmp_path / "page.html")


@pytest.mark.parametrize(
    ("name", "of_an_older_version", "lacks"),
    [
        ("shift.parquet", shift_table().drop(columns="prior_pass_at_k"), "prior_pass_at_k"),
        ("sequences.parquet", shift_table(), "new_pass_at_k, conditional_entropy, entropy, new_kl"),
    ],
)
def test_a_table_of_an_older_version_is_one_line(
    name: str, of_an_older_version: pd.DataFrame, lacks: str, tmp_path: Path
):
    of_an_older_version.to_parquet(tmp_path / name)
    with pytest.raises(InputError, match=rf"/{name} lacks {lacks}: another version of cokl wrote it"):
        page.write(tmp_path, tmp_path / "page.html")


def test_a_finished_theory_check_says_what_made_it(tmp_path: Path):
    check_and_save(("cokl-definition",), "quick", tmp_path / "theory")
    page.write(tmp_path, tmp_path / "page.html")
    said = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "&quot;effort&quot;: &quot;quick&quot;" in said
