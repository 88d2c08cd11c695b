"""The page without a browser: what it counts, what it calls things, and what it says of results that are not there."""

import html
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from cokl.support.errors import InputError
from cokl.support.verdicts import Claim, Evidence, Verdict
from cokl_cli.report import page
from cokl_cli.report.html import table
from cokl_cli.report.results import finished, sources
from cokl_cli.report.sections import claims, headline
from cokl_cli.report.sections.claims import ShownClaim
from tests.bandit.shift.tables import shift_table
from tests.cokl_cli.report.conftest import questions_asked

COLOURS: list[tuple[Verdict | None, str]] = [
    ("held", "good"),
    ("not held", "bad"),
    ("undecided", "open"),
    ("depends", "open"),
    (None, "open"),
]


def test_the_page_is_small_and_asks_for_nothing(report: Path):
    text = report.read_text(encoding="utf-8")
    assert len(text) < 2e6
    assert 'src="http' not in text
    assert '<link rel="stylesheet"' not in text


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
    claim = Claim(
        "name", "a statement", "paper", "place", Evidence("", "2 ± 1"), verdict, (Evidence("float64", "all q"),)
    )
    body = claims.section([("sweep", claim, tmp_path / "lab")], tmp_path / "report.html").body
    shown = verdict or "no verdict"
    assert f'data-verdict="{shown}"><summary><span class="verdict {colour}">{shown}</span> a statement' in body
    assert '<span class="source">Controlled experiment: place</span>' in body
    assert "<ul><li>2 ± 1</li><li>float64: all q</li></ul>" in body
    assert re.findall('<a href="(.*?)">', body) == ["lab"]


def test_a_tables_best_cells_are_those_that_are_said_to_be():
    """And no cell is for the asterisks in it."""
    frame = pd.DataFrame({"method": ["**a**", "b"], "score": ["1.0", "2.0"]})
    shown = table(frame, best=pd.DataFrame({"method": [False, False], "score": [False, True]}))
    assert re.findall(r"<td(.*?)>(.*?)</td>", shown) == [
        ("", "**a**"), ("", "1.0"), ("", "b"), (' class="best"', "2.0"),
    ]  # fmt: skip


def test_verdicts_are_counted():
    verdicts: list[Verdict | None] = ["held", "held", "not held", None]
    rows: list[ShownClaim] = [
        ("sweep", Claim("", "", "paper", "", Evidence("", ""), verdict), Path()) for verdict in verdicts
    ]
    options = re.findall(r"<option [^>]*>(.*?)</option>", claims.section(rows, Path("report.html")).body)
    assert options == ["any (4)", "held (2)", "not held (1)", "no verdict (1)"]


def test_each_result_has_its_own_claims():
    verdicts: dict[str, list[Verdict | None]] = {
        "sweep": ["held", "not held", "undecided", "depends", None],
        "shift": ["not held"],
    }
    judged: list[ShownClaim] = [
        (name, Claim("", "", "paper", "", Evidence("", ""), verdict), Path(name))
        for name in verdicts
        for verdict in verdicts[name]
    ]
    body = headline.section({name: Path(name) for name in verdicts}, judged, {}).body
    assert "<td>Controlled experiment</td><td>1 of 5</td><td>sweep</td>" in body
    assert "<td>Task shift, in miniature</td><td>0 of 1</td><td>shift</td>" in body


def test_the_page_opens_with_each_answer_then_claims_and_says_what_made_it(report: Path, results: Path):
    text = html.unescape(report.read_text(encoding="utf-8"))
    opening = text.partition('<section id="claims">')[0]
    for name, folders in finished(results).items():
        assert opening.count(sources()[name].answer(folders[0])) == 1, name
    assert re.findall('<section id="(.*?)">', text) == ["headline", "claims", "tradeoff", "sweep", "shift",
                                                        "open-questions", "llm", "optima", "cokl"]  # fmt: skip
    assert "<td>0.0.9</td><td>0123456789ab-dirty</td><td>2026-11-29</td>" in opening
    for target in re.findall('<a href="#([a-z-]+)"', opening):
        assert text.count(f'id="{target}"') == 1
    (documentation,) = re.findall('<a href="(.*?)">Documentation</a>', opening)
    assert (report.parent / documentation).is_file()
    assert re.search(r"Made by cokl \d+\.\d+\.\d+, commit [0-9a-f]{12}(-dirty)?, on 20\d\d-\d\d-\d\d\.", opening)


def test_the_demos_answer_is_the_mean_over_trained_questions_and_its_picture_has_every_run(report: Path):
    text = html.unescape(report.read_text(encoding="utf-8"))
    section = text.partition('<section id="open-questions">')[2].partition("</section>")[0]
    assert (
        "Before training 20 % right with 6.5 different right answers. "
        "CoKL at 0.03 ends at 82 % right with 8.5 different "
        "right answers; Plain RL ends at 96 % right with 4.5 different right answers."
    ) in section
    assert "One run each, of seed 0, which decides nothing." in section
    assert {"base", "none", "cokl"} == set(re.findall('data-method="(.*?)"', section))
    assert re.findall('data-said="(CoKL.*?)"', section) == [
        "CoKL, Correctness, training questions 0.82, Different right answers of 64 8.5",
        "CoKL, Correctness, training questions 0.82, KL among cached right answers [nats] 0.6",
    ]


def test_of_several_seeds_the_section_says_which_is_shown(tmp_path: Path):
    seeds = [questions_asked().assign(seed=seed) for seed in (31, 30, 32)]
    pd.concat(seeds).to_csv(tmp_path / "RUNS.csv", index=False)
    page.write(tmp_path, tmp_path / "page.html")
    section = (tmp_path / "page.html").read_text(encoding="utf-8").partition('<section id="open-questions">')[2]
    assert "One run each, of seed 31, the first of 3, which decides nothing." in section


def test_a_later_seed_that_is_not_finished_does_not_matter(tmp_path: Path):
    asked = questions_asked()
    begun = asked[asked["method"] == "base"].assign(seed=9)
    pd.concat([asked, begun]).to_csv(tmp_path / "RUNS.csv", index=False)
    page.write(tmp_path, tmp_path / "page.html")
    assert "of seed 0, the first of 2" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_number_beyond_integers_is_a_number(tmp_path: Path):
    (tmp_path / "RUNS.csv").write_text(damaged("different", str(10**30)))
    page.write(tmp_path, tmp_path / "page.html")


def damaged(column: str, cell: str) -> str:
    """The demo's table, whose first row has another `cell`."""
    rows = questions_asked().astype(str)
    rows.loc[0, column] = cell
    return rows.to_csv(index=False)


def only(query: str) -> str:
    """Its rows of a query."""
    return questions_asked().query(query).to_csv(index=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed,method\n0,none\n", "lacks the column 'beta'"),
        ("", "cannot be read"),
        ("seed,method\n0,none,1,2\n0,none,1,2,3,4\n", "cannot be read: .* saw 6$"),
        (only("step > 99"), "has no rows; expected those of finished runs$"),
        (damaged("right", "many"), ": right in row 1: expected a number from 0 to 1, got many$"),
        (damaged("right", "7"), ": right in row 1: expected a number from 0 to 1, got 7.0$"),
        (damaged("different", str(10**400)), ": different in row 1: expected a finite number, got 10000"),
        (damaged("cached_kl", "inf"), ": cached_kl in row 1: expected a finite number, got inf$"),
        (damaged("beta", ""), ": beta in row 1: expected a finite number, got nan$"),
        (damaged("method", ""), ": method in row 1: expected a method, got nan$"),
        (damaged("held_out", "perhaps"), ": held_out in row 1: expected True or False, got perhaps$"),
        (only("method != 'base'"), ": seed 0 has no rows of method base at step 0; expected some"),
        (only("method != 'base' or held_out"), ": seed 0 has no rows of method base at step 0"),
        (only("step == 0"), ": seed 0 has no rows of another method after step 0; expected some, with held_out False$"),
        (only("step == 0").replace("base", "none", 1), ": seed 0 has no rows of another method after step 0"),
    ],
)
def test_runs_of_open_questions_that_are_none_are_one_line(text, said, tmp_path: Path):
    (tmp_path / "RUNS.csv").write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        page.write(tmp_path, tmp_path / "page.html")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("column", ["different_of_32", "entropy", "cached_kl"])
def test_a_question_may_lack_what_too_few_right_answers_cannot_have(column, tmp_path: Path):
    (tmp_path / "RUNS.csv").write_text(damaged(column, ""))
    page.write(tmp_path, tmp_path / "page.html")


def test_results_without_a_chat_set_have_a_page(tmp_path: Path):
    """As the open questions leave them."""
    rows = [("base", 0.0, 21.0, 20.0, 6.0), ("grpo", 0.0, 96.0, 40.5, 4.0), ("cokl", 0.01, 82.25, 36.0, 7.5)]
    columns = ["method", "beta", "trained", "held_out", "distinct"]
    scores = pd.DataFrame(rows, columns=columns).assign(model="open-questions", main=1)
    scores.to_csv(tmp_path / "scores.csv", index=False)
    dynamics = scores[["model", "method", "distinct"]].assign(math_val=scores["trained"])
    pd.concat([dynamics.assign(step=step) for step in (0, 25)]).to_csv(tmp_path / "dynamics.csv", index=False)
    page.write(tmp_path, tmp_path / "page.html")
    opening = (tmp_path / "page.html").read_text(encoding="utf-8").partition('<section id="claims">')[0]
    assert "<strong>Trained, in one run: GRPO w/o KL 96.0; CoKL 82.2.</strong>" in opening


def test_the_language_models_table_has_its_notes_below_it(tmp_path: Path):
    """GRPO is better on one set than the base, which a normalized score hides."""
    rows = [("base", 0.0, 60.0, 70.0, 50.0, 48.0), ("grpo", 0.0, 65.0, 40.0, 30.0, 78.0)]
    columns = ["method", "beta", "math_val", "math500", "olympiad", "chat_val"]
    scores = pd.DataFrame(rows, columns=columns).assign(model="qwen3-4b", main=1)
    scores.to_csv(tmp_path / "scores.csv", index=False)
    scores[["model", "method", "math_val", "chat_val"]].assign(step=0).to_csv(tmp_path / "dynamics.csv", index=False)
    page.write(tmp_path, tmp_path / "page.html")
    tables = (tmp_path / "page.html").read_text(encoding="utf-8").partition('<section id="llm">')[2]
    assert '</div><p class="note">qwen3-4b: GRPO w/o KL lost nothing on math_val' in tables


def test_of_several_results_of_a_kind_the_first_is_shown_and_the_others_are_named(results: Path, tmp_path: Path):
    for name in ("paper", "quick"):
        shutil.copytree(results / "paper", tmp_path / name)
    page.write(tmp_path, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f">{tmp_path / 'paper'}</td>" in text
    assert f"<li><code>cokl report --results {tmp_path / 'quick'}</code></li>" in text
