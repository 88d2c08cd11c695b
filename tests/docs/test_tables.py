"""What is made from elsewhere is up to date, pictures are there, and pages say of SmolLM2 what its scores say."""

from __future__ import annotations

import re
import runpy

import pandas as pd
import pytest

from tests.docs.pages import ROOT
from tests.oracles.intervals import half_width

PAGE = (ROOT / "ASSUMPTIONS.md").read_text(encoding="utf-8")
MAKE = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))


def test_the_page_is_up_to_date():
    assert MAKE["page"]() == PAGE


def test_the_tables_of_scores_are_up_to_date():
    assert MAKE["with_tables"](FINDINGS, MAKE["smollm2_tables"]()) == FINDINGS
    assert len(MAKE["smollm2_tables"]()) == FINDINGS.count("<!-- table ") == FINDINGS.count("<!-- end -->")


def test_a_table_is_written_between_its_comments_and_nowhere_else():
    page = "a\n<!-- table x -->\nold\n\n| b |\n<!-- end -->\nc\n<!-- table y -->\n<!-- end -->\n"
    made = "a\n<!-- table x -->\n\n| 1 |\n\n<!-- end -->\nc\n<!-- table y -->\n\n| 2 |\n\n<!-- end -->\n"
    assert MAKE["with_tables"](page, {"x": "| 1 |", "y": "| 2 |"}) == made


def test_every_picture_of_the_gallery_is_there():
    gallery = ROOT / "docs" / "gallery.md"
    pictures = re.findall(r"\]\((\S+\.png)\)", gallery.read_text(encoding="utf-8"))
    assert pictures
    assert [picture for picture in pictures if not (gallery.parent / picture).is_file()] == []


RUNS = pd.read_csv(ROOT / "llm_bridge/experiment/smollm2/SCORES.csv")
SCORES = RUNS.query("main == 1")
KNOWN = SCORES.pivot(index="seed", columns="method", values="known")
ALL_SEEDS = RUNS.query("main == 1 or seed == 6").pivot(index="seed", columns="method", values=["known", "chat_val"])
LEAD = ALL_SEEDS["known", "cokl"] - ALL_SEEDS["known", "correct_forward_kl"]
METHODS = {
    "before small talk": "base",
    "no regularizer": "grpo",
    "replay, 0.003": "correct_forward_kl",
    "CoKL, 0.01": "cokl",
    "forward KL, 0.01": "forward_kl",
    "reverse KL, 0.01": "reverse_kl",
}
"""The rows of the findings' tables, and what SCORES.csv calls them."""
FINDINGS = (ROOT / "llm_bridge/FINDINGS.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def spread(values: pd.Series, sign: int = 1, digits: int = 1) -> str:
    """The mean, times `sign`, and half a 95 % t-interval."""
    return f"{sign * values.mean():.{digits}f} ± {half_width(values):.{digits}f}"


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_what_cokl_loses_to_replay_in_smollm2():
    assert list(LEAD.index) == [0, 1, 2, 3, 4, 5, 6]
    planned, later = spread(LEAD[:6], -1), spread(LEAD[3:], -1)  # seeds 0 to 5, and 3 to 6
    words = one_line(README)
    assert f"CoKL ends {planned} points below replay on the sums that it knew, over the six seeds of" in words
    assert f"; {later} over the four that ran after it was written |" in words
    words = one_line(FINDINGS)
    assert re.search(rf"CoKL ends {later} points below (replay|it) on (the )?sums that (it|the model) knew", words)
    assert f"it is {planned}" in words


def test_every_seed_and_both_runs_of_smollm2():
    words = one_line(FINDINGS)
    assert (
        f"which the rule names, it is {spread(LEAD[:6], -1)}; over all seven {spread(LEAD, -1)}, and CoKL is" in words
    )
    assert (LEAD < 0).all()
    assert f"Seeds 0 to 2 gave {spread(LEAD[:3], -1)} points below replay; seeds 3 to 5" in words
    assert f"another split and new draws, {spread(LEAD[3:6], -1)}." in words
    for name, method in METHODS.items():
        rows = SCORES[SCORES["method"] == method]
        cells = [spread(rows[column]) for column in ("known", "unknown", "chat_val", "distinct")]
        assert f"| {name} | {' | '.join(cells)} |" in FINDINGS
    alone, cokl = (SCORES.query(f"method == '{name}'")["known"] for name in ("grpo", "cokl"))
    told = f"still answers {alone.min():.0f} to {alone.max():.0f} % of the known sums, and CoKL {cokl.min():.0f}"
    assert f"{told} to {cokl.max():.0f} %" in words


def test_what_more_prompts_keep_on_seeds_1_and_2():
    of_base = RUNS.query("seed in (1, 2) and reference == 2 and beta == 0.01").to_dict("records")
    runs = {(run["seed"], run["method"], run["kl_groups"]): run for run in of_base}
    few, many, replay = runs[1, "cokl", 4], runs[1, "cokl", 16], runs[1, "correct_forward_kl", 2]
    words, readme = one_line(FINDINGS), one_line(README)
    kept = f"it keeps {many['known']:.1f} % of the known sums on seed 1, where it kept {few['known']:.1f} % with 2"
    assert f"{kept}, and replay, with 2 and at the same coefficient, {replay['known']:.1f} %." in words
    few_2, many_2, replay_2 = runs[2, "cokl", 4], runs[2, "cokl", 16], runs[2, "correct_forward_kl", 2]
    kept = f"On seed 2 it keeps {many_2['known']:.1f} % with 8, where it kept {few_2['known']:.1f} % with 2"
    assert f"{kept}, and replay, with 2, {replay_2['known']:.1f} %." in words
    gained, lacking = many_2["known"] - few_2["known"], replay_2["known"] - many_2["known"]
    told = f"CoKL with 8 prompts is {gained:.1f} points above CoKL with 2, still {lacking:.1f} behind replay with 2"
    assert f"{told}, and further behind both full KLs" in words
    full = [runs[2, name, 4]["known"] for name in ("forward_kl", "reverse_kl")]
    assert min(full) > replay_2["known"]  # "further behind both full KLs"
    assert f"only {100 * many_2['zero_correct']:.1f} % of its fresh groups had no right answer" in words
    assert abs(many["known"] - replay["known"]) < 1
    told = f"{few['known']:.1f} and {few_2['known']:.1f} % of the old sums with 2 prompts"
    told += f", and {many['known']:.1f} and {many_2['known']:.1f} % with 8."
    assert f"{told} Replay kept {replay['known']:.1f} and {replay_2['known']:.1f} % with 2." in readme
    assert min(many["known"] - few["known"], many_2["known"] - few_2["known"]) > 5
    without = [f"{100 * run['zero_correct']:.1f}" for run in (few, many)]
    assert (
        "With 2 prompts {} % of fresh groups had no right answer, in the mean over steps, with 8 {} %".format(*without)
        in words
    )
    assert f"reward is {few['chat_val'] - many['chat_val']:.1f} points lower" in words
    for seed, again in ((1, few), (2, few_2)):  # scores have four decimals
        (first,) = RUNS.query("seed == @seed and reference == 1 and method == 'cokl'").to_dict("records")
        for column in ("known", "unknown", "distinct"):
            assert again[column] == pytest.approx(first[column], abs=6e-5)
        lower = first["chat_val"] - again["chat_val"]
        assert lower == pytest.approx(0, abs=6e-5) if seed == 1 else f"on seed 2, {lower:.4f} points lower." in words
    assert "the run with 4 groups is the first one's again, equal in every score but for small talk's reward" in words
    known = RUNS.query("main == 1").pivot(index="seed", columns="method", values="known")
    assert known["cokl"].idxmin() == 1  # CoKL's worst


def test_what_cokl_keeps_more_than_plain_rl_and_the_score_over_both_tasks():
    gained = {name: ALL_SEEDS[name, "cokl"][:6] - ALL_SEEDS[name, "grpo"][:6] for name in ("known", "chat_val")}
    for page in (README, FINDINGS):
        words = one_line(page)
        assert re.search(rf"{spread(gained['known'])} points (more )?of (an old task|known sums)", words)
        assert f"differs by {spread(gained['chat_val'])}" in words
    both = LEAD / 2 + (ALL_SEEDS["chat_val", "cokl"] - ALL_SEEDS["chat_val", "correct_forward_kl"]) / 2
    told = f"{spread(both[:6], -1)} points below replay over seeds 0 to 5 and {spread(both[3:], -1)} over seeds 3 to 6"
    assert told in one_line(FINDINGS)
    assert (both < 0).all()


def test_the_score_on_the_papers_scale():
    """Of 100: the model before on the old task and plain RL on the new one. Of 0: the reverse. Means over seeds."""
    six = ALL_SEEDS.loc[:5]
    kept, learned = (
        100 * (six[name].sub(six[name, low].mean())) / (six[name, high].mean() - six[name, low].mean())
        for name, low, high in (("known", "grpo", "base"), ("chat_val", "base", "grpo"))
    )
    score = (kept + learned) / 2
    cokl, replay = score["cokl"], score["correct_forward_kl"]
    told = f"CoKL's score is {cokl.mean():.1f} and replay's {replay.mean():.1f}: {spread(cokl - replay, -1)} below"
    assert told in one_line(FINDINGS)


def test_the_number_of_right_forms_and_what_cokl_loses_do_not_go_together():
    first = RUNS.query("reference == 1")
    forms = first.query("method == 'base'").set_index("seed")["distinct"]
    chosen = first.query("seed == 100").set_index(["method", "beta"])["known"]
    lost = pd.concat([LEAD, pd.Series({100: chosen["cokl", 0.01] - chosen["correct_forward_kl", 0.003]})])
    assert len(lost) == 8
    told = f"r = {forms.corr(lost):.2f}"
    assert told in FINDINGS
    forms = forms.drop(100)
    assert f"give {forms.min():.1f} to {forms.max():.1f} different right answers of 8" in one_line(FINDINGS)


def test_the_full_kls_and_what_is_left_of_the_cached_answers():
    seeds = [3, 4, 5]
    for name in ("no regularizer", "replay, 0.003", "CoKL, 0.01", "forward KL, 0.01", "reverse KL, 0.01"):
        rows = SCORES[SCORES["method"] == METHODS[name]].set_index("seed").loc[seeds]
        forms = {"known": "{:.1f}", "cached_kl": "{:.2f}", "cached_log_prob": "{:+.1f}"}
        cells = [", ".join(map(form.format, rows[column])) for column, form in forms.items()]
        assert f"| {name} | {' | '.join(cells).replace('nan', 'none')} |" in FINDINGS
    words = one_line(FINDINGS)
    full = KNOWN[["forward_kl", "reverse_kl"]]
    forward, reverse = full.rsub(KNOWN["cokl"], axis=0).items()
    assert not full.isna().any(axis=None)
    told = f"CoKL ends {spread(forward[1], -1)} points below forward KL on known sums, and {spread(reverse[1], -1)}"
    assert f"{told} below reverse KL. That is no claim" in words
    of_three = [spread(behind.loc[seeds], -1) for _, behind in (forward, reverse)]
    assert f"where all start from one, it is {of_three[0]} and {of_three[1]}" in words
    behind = [lead for _, lead in full.rsub(KNOWN["correct_forward_kl"], axis=0).items()]
    assert f"Replay minus forward KL is {spread(behind[0])}, minus reverse KL {spread(behind[1])}: not told" in words
    for lead in behind:
        assert abs(lead.mean()) < half_width(lead)


def test_seed_6():
    seed = RUNS.query("seed == 6").set_index("method")
    for name in ("before small talk", "replay, 0.003", "CoKL, 0.01", "forward KL, 0.01"):
        columns = ["known", "unknown", "chat_val", "distinct", "right_of_64", "different_of_64"]
        assert f"| {name} | {' | '.join(f'{value:.1f}' for value in seed.loc[METHODS[name], columns])} |" in FINDINGS
    behind = [seed["known"][rival] - seed["known"]["cokl"] for rival in ("correct_forward_kl", "forward_kl")]
    with_three = pd.concat([KNOWN["forward_kl"][3:] - KNOWN["cokl"][3:], pd.Series([behind[1]])])
    told = f"CoKL ends {behind[0]:.1f} points below replay and {behind[1]:.1f} below forward KL; over seeds 3 to 6"
    assert f"{told}, {spread(with_three)} below forward KL, not told apart." in one_line(FINDINGS)
    assert with_three.mean() < half_width(with_three)


def test_what_is_learned_under_a_stricter_verifier():
    for name, method in list(METHODS.items())[:4]:
        rows = SCORES[SCORES["method"] == method].set_index("seed").loc[[5, 4]]
        cells = [", ".join(map("{:.1f}".format, rows[column])) for column in ("stricter_before", "stricter")]
        assert f"| {name} | {' | '.join(cells)} |" in FINDINGS
    for method, whose in (("forward_kl", "forward KL's answers"), ("cokl", "CoKL's")):
        before, after = RUNS.query(f"seed == 6 and method == {method!r}")[["stricter_before", "stricter"]].iloc[0]
        assert f"{before:.1f} % of {whose} did before, {after:.1f} % after" in one_line(FINDINGS)


def test_the_coefficients_on_the_selection_seed():
    words, runs = one_line(FINDINGS), RUNS.query("seed == 100").set_index(["reference", "method", "beta"])
    both = runs["known"] + runs["chat_val"]
    forward, reverse = (both[2, name, 0.003] - both[2, name, 0.01] for name in ("forward_kl", "reverse_kl"))
    assert f"the {forward:.1f} and {reverse:.1f} by which 0.003 is higher for forward and reverse KL" in words
    apart = both[1, "reverse_kl", 0.01] - both[2, "reverse_kl", 0.01]
    assert f"differ by {apart:.1f} points for reverse KL at 0.01" in words
    assert f"the {both[1, 'cokl', 0.01] - both[1, 'cokl', 0.003]:.1f} points between CoKL's best two are noise" in words
    seed_0 = RUNS.query("seed == 0").set_index(["reference", "method", "beta"])["known"]
    leads = [
        [known[1, "correct_forward_kl", beta] - known[1, "cokl", 0.01] for known in (runs["known"], seed_0)]
        for beta in (0.01, 0.003)
    ]
    equal, own = leads
    assert (
        f"replay keeps {equal[0]:.1f} points more of the known sums than CoKL on this seed and {equal[1]:.1f}" in words
    )
    assert f"at their own coefficients {own[0]:.1f} and {own[1]:.1f}." in words
