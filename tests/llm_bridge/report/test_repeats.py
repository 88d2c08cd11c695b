"""Means over repeated runs, on scores written down here: what is paired, what is judged, what is refused."""

from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from cokl.support.errors import InputError
from cokl_cli.commands.llm_report import Repeats
from llm_bridge import tiny
from llm_bridge.report.repeats import claims, leads, measured, over_runs, read_runs, render
from llm_bridge.report.results import Results, save_results

SETS = ("one", "two")


def results(cokl: tuple[float, float], replay: tuple[float, float], shift: float = 0.0, other: float = 50.0) -> Results:
    """Math Avg and chat of CoKL and replay in a run whose anchors are (80, 20) and (40, 60), all moved by `shift`.

    The sets differ by two points about their mean.
    """
    scores = {
        "base": (80, 20),
        "grpo": (40, 60),
        "correct_forward_kl": replay,
        "reverse_kl": (other, other),
        "cokl": cokl,
    }
    rows = [
        {
            "model": "tiny", "method": method, "beta": 0, "kl_prompts": 0, "main": 1,
            "one": math + shift - 1, "two": math + shift + 1, "chat_val": chat + shift,
        }
        for method, (math, chat) in scores.items()
    ]  # fmt: skip
    answers = [
        {"model": "tiny", "method": method, "one_pass_at_n": 90.0, "two_pass_at_n": 70.0 if method == "cokl" else 50.0,
         "one_majority": 60.0, "two_majority": 40.0}
        for method in scores
    ]  # fmt: skip
    return Results(pd.DataFrame(rows), repeated=pd.DataFrame(answers), math_columns=SETS)


def runs(*pairs: tuple[tuple[float, float], tuple[float, float]], **options) -> pd.DataFrame:
    return measured({f"run{place}": results(*pair, shift=place, **options) for place, pair in enumerate(pairs)})


def test_scores_are_normalized_in_each_run_and_averaged_over_runs():
    table = runs(((70, 30), (60, 40)), ((60, 50), (60, 40)))
    ours = table[table["method"] == "cokl"].set_index("run")
    assert ours["math_avg"].tolist() == [70, 61]
    assert ours["kept"].tolist() == pytest.approx([100 * 70 / 80, 100 * 61 / 81])
    assert ours["retention"].tolist() == pytest.approx([75, 50])  # (70 - 40) / (80 - 40)
    assert ours["adaptation"].tolist() == pytest.approx([25, 75])
    assert ours["overall"].tolist() == pytest.approx([50, 62.5])
    assert ours["pass_at_n"].tolist() == [80, 80]
    assert ours["majority"].tolist() == [50, 50]
    mean = over_runs(table).set_index("method").loc["cokl"]
    assert mean["overall"] == pytest.approx(56.25)
    assert mean["overall_half_width"] == pytest.approx(stats.t.ppf(0.975, 1) * 6.25)  # the two are 6.25 off the mean


def test_leads_are_paired_by_run():
    found = leads(runs(((70, 30), (60, 40)), ((60, 50), (60, 40)))).set_index("method")
    assert found.index.tolist() == ["grpo", "correct_forward_kl", "reverse_kl"]  # as the tables order them
    assert found.loc["correct_forward_kl", "retention"] == pytest.approx((75 - 50 + 50 - 50) / 2)
    assert found.loc["correct_forward_kl", "overall"] == pytest.approx((50 - 50 + 62.5 - 50) / 2)
    assert found.loc["correct_forward_kl", "pass_at_n"] == pytest.approx(10)
    assert (found["verdict"] == "").all()  # two runs


def test_below_four_runs_claims_have_no_verdict():
    few = runs(((70, 30), (60, 40)), ((60, 50), (60, 40)))
    assert {claim.verdict for claim in claims(few)} == {None}


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [((2, 3, 2, 3), "held"), ((-2, -3, -2, -3), "not held"), ((2, -3, 2, -1), "undecided")],
)
def test_the_primary_verdict_is_on_overall_against_replay(gains, verdict):
    found = leads(runs(*(((60 + gain, 40 + gain), (60, 40)) for gain in gains), other=50.3))
    verdicts = found.set_index("method")["verdict"]
    assert verdicts["correct_forward_kl"] == verdict
    page = render(runs(*(((60 + gain, 40 + gain), (60, 40)) for gain in gains)))
    assert "4 runs" in page
    row = [line for line in page.splitlines() if line.startswith("| correct_forward_kl ")][-1]
    assert row.rstrip("| ").endswith(f"| {verdict}")
    assert "GRPO w/o KL lost 48 to 50%" in page  # 40 of 80 to 83


def test_secondary_verdicts_are_holms():
    """Overall differences of p about 0.045 against two rivals: each decided alone, neither among two."""
    gains = (0.8, 1.5, 2.6, 3.8)
    overall = [100 * gain / 40 for gain in gains]
    assert 0.03 < stats.ttest_1samp(overall, 0).pvalue < 0.05
    pairs = [((50 + gain, 50 + gain), (50, 50)) for gain in gains]
    found = leads(runs(*pairs)).set_index("method")["verdict"]
    assert found.to_dict() == {"grpo": "undecided", "correct_forward_kl": "held", "reverse_kl": "undecided"}


def test_a_method_that_one_run_lacks_is_left_out():
    whole, part = results((70, 30), (60, 40)), results((70, 30), (60, 40))
    part = Results(part.scores[part.scores["method"] != "reverse_kl"], math_columns=SETS)
    table = measured({"a": whole, "b": part})
    assert set(table["method"]) == {"base", "grpo", "correct_forward_kl", "cokl"}
    assert table[table["run"] == "b"]["pass_at_n"].isna().all()


def test_what_cannot_be_compared_is_refused():
    one = results((70, 30), (60, 40))
    with pytest.raises(InputError, match="expected at least 2 runs, got 1"):
        measured({"a": one})
    with pytest.raises(InputError, match=r"b: tiny: no row for the anchor method grpo"):
        measured({"a": one, "b": Results(one.scores[one.scores["method"] != "grpo"], math_columns=SETS)})
    two = pd.concat([one.scores, one.scores.assign(model="other")])
    with pytest.raises(InputError, match="b: expected one model, got tiny, other"):
        measured({"a": one, "b": Results(two, math_columns=SETS)})


def test_the_page_that_is_kept_is_what_its_rows_say():
    kept = Path(tiny.__file__).parent / "repeated"
    rows = read_runs(kept)
    assert rows.groupby("run")["method"].nunique().tolist() == [10] * 5  # nine methods and the base
    assert render(rows) == (kept / "results.md").read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(over_runs(rows), pd.read_csv(kept / "methods.csv"))
    pd.testing.assert_frame_equal(leads(rows), pd.read_csv(kept / "leads.csv"))


def test_without_term_2_cokl_is_replay_and_compared_once():
    table = runs(*(((60 + gain, 40 + gain), (60, 40)) for gain in (2, 3, 2, 3)))
    again = table[table["method"] == "correct_forward_kl"].assign(method="cokl_without_term2")
    pd.testing.assert_frame_equal(leads(pd.concat([table, again])), leads(table))
    other = leads(pd.concat([table, again.assign(overall=again["overall"] + 1)]))  # a run of its own, after all
    assert other["method"].tolist() == [*leads(table)["method"], "cokl_without_term2"]


def test_each_math_set_is_scaled_by_itself():
    """80 % of what GRPO lost is kept in the one set and 20 % in the other; of the averages it would be 30 %."""
    scores = {"base": (90, 70, 20), "grpo": (80, 20, 60), "cokl": (88, 30, 40)}
    frame = pd.DataFrame.from_dict(scores, "index", columns=[*SETS, "chat_val"]).rename_axis("method").reset_index()
    run = Results(frame.assign(model="tiny", beta=0, kl_prompts=0, main=1), math_columns=SETS)
    ours = measured({"a": run, "b": run}).set_index("method").loc["cokl"]
    assert ours["retention"].tolist() == pytest.approx([50, 50])
    assert ours["overall"].tolist() == pytest.approx([50, 50])


def test_the_command_reads_runs_and_writes_tables(tmp_path, capsys):
    folders = [tmp_path / name for name in "ab"]
    for place, folder in enumerate(folders):
        save_results(results((70 + place, 30), (60, 40)), folder / "results")
    command = Repeats(tuple(folders), SETS, tmp_path / "out")
    assert command.run() == 0
    assert "| cokl " in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "out" / "runs.csv")["run"].nunique() == 2
    assert len(command.outcome()["leads"]) == 3
    with pytest.raises(InputError, match="runs: expected different folders"):
        Repeats((folders[0], folders[0]), SETS).run()
