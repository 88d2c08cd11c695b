"""ASSUMPTIONS.md is what the source says now, pictures are there, and pages say of SmolLM2 what its scores say."""

from __future__ import annotations

import re
import runpy

import pandas as pd
import pytest

from tests.docs.pages import ROOT
from tests.oracles.intervals import half_width

PAGE = (ROOT / "ASSUMPTIONS.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date():
    assert runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["page"]() == PAGE


def test_every_picture_of_the_gallery_is_there():
    gallery = ROOT / "docs" / "gallery.md"
    pictures = re.findall(r"\]\((\S+\.png)\)", gallery.read_text(encoding="utf-8"))
    assert pictures
    assert [picture for picture in pictures if not (gallery.parent / picture).is_file()] == []


RUNS = pd.read_csv(ROOT / "llm_bridge/experiment/smollm2/SCORES.csv")
SCORES = RUNS.query("main == 1")
KNOWN = SCORES.pivot(index="seed", columns="method", values="known")
LEAD = KNOWN["cokl"] - KNOWN["correct_forward_kl"]
METHODS = {
    "before small talk": "base",
    "no regularizer": "grpo",
    "replay, 0.003": "correct_forward_kl",
    "CoKL, 0.01": "cokl",
    "forward KL, 0.01": "forward_kl",
    "reverse KL, 0.01": "reverse_kl",
}
"""The rows of the LLM page's tables, and what SCORES.csv calls them."""
LLM_PAGE = (ROOT / "docs/how-to/llm.md").read_text(encoding="utf-8")


def spread(values: pd.Series, sign: int = 1) -> str:
    """The mean, times `sign`, and half a 95 % t-interval."""
    return f"{sign * values.mean():.1f} ± {half_width(values):.1f}"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/faq.md", "docs/how-to/llm.md"])
def test_what_cokl_loses_to_replay_in_smollm2(page):
    assert list(LEAD.index) == [0, 1, 2, 3, 4, 5]
    words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert re.search(rf"ends {spread(LEAD, -1)} points below (replay|it) on (the )?sums that the model knew", words)


def test_both_runs_of_smollm2_and_every_method():
    assert f"Seeds 0 to 2 gave {spread(LEAD[:3], -1)} points; seeds 3 to 5" in LLM_PAGE
    assert f"another split and new draws, {spread(LEAD[3:], -1)}." in LLM_PAGE
    for name, method in METHODS.items():
        rows = SCORES[SCORES["method"] == method]
        cells = [spread(rows[column]) for column in ("known", "unknown", "chat_val", "distinct")]
        assert f"| {name} | {' | '.join(cells)} |" in LLM_PAGE
    forgotten = SCORES.query("method == 'grpo'")["known"]
    assert f"{forgotten.min():.0f} to {forgotten.max():.0f} % are still right, on six seeds" in LLM_PAGE


def test_the_full_kls_and_what_is_left_of_the_cached_answers():
    seeds = [3, 4, 5]
    for name in ("no regularizer", "replay, 0.003", "CoKL, 0.01", "forward KL, 0.01", "reverse KL, 0.01"):
        rows = SCORES[SCORES["method"] == METHODS[name]].set_index("seed").loc[seeds]
        forms = {"known": "{:.1f}", "cached_kl": "{:.2f}", "cached_log_prob": "{:+.1f}"}
        cells = [", ".join(map(form.format, rows[column])) for column, form in forms.items()]
        assert f"| {name} | {' | '.join(cells).replace('nan', 'none')} |" in LLM_PAGE
    words = " ".join(LLM_PAGE.split())
    full = KNOWN[["forward_kl", "reverse_kl"]]
    forward, reverse = full.rsub(KNOWN["cokl"], axis=0).items()
    assert not full.isna().any(axis=None)
    told = f"CoKL ends {spread(forward[1], -1)} points below forward KL on known sums, and {spread(reverse[1], -1)}"
    assert f"{told} below reverse KL. That is no claim" in words
    of_three = [spread(behind.loc[seeds], -1) for _, behind in (forward, reverse)]
    assert f"all methods start from one base, neither is told apart: {of_three[0]} and {of_three[1]}." in words
    for _, lead in full.rsub(KNOWN["correct_forward_kl"], axis=0).items():
        assert abs(lead.mean()) < half_width(lead)  # README: not told apart from replay


def test_seed_6():
    seed = RUNS.query("seed == 6").set_index("method")
    for name in ("before small talk", "replay, 0.003", "CoKL, 0.01", "forward KL, 0.01"):
        columns = ["known", "unknown", "chat_val", "distinct", "right_of_64", "different_of_64"]
        assert f"| {name} | {' | '.join(f'{value:.1f}' for value in seed.loc[METHODS[name], columns])} |" in LLM_PAGE
    behind = [seed["known"][rival] - seed["known"]["cokl"] for rival in ("correct_forward_kl", "forward_kl")]
    with_three = pd.concat([KNOWN["forward_kl"][3:] - KNOWN["cokl"][3:], pd.Series([behind[1]])])
    told = f"CoKL ends {behind[0]:.1f} points below replay and {behind[1]:.1f} below forward KL; over seeds 3 to 6"
    assert f"{told}, {spread(with_three)} below forward KL, not told apart." in " ".join(LLM_PAGE.split())
    assert with_three.mean() < half_width(with_three)


def test_what_is_learned_under_a_stricter_verifier():
    told = {"the base, before small talk": "base", **dict(list(METHODS.items())[1:4])}
    for name, method in told.items():
        rows = SCORES[SCORES["method"] == method].set_index("seed").loc[[5, 4]]
        cells = [", ".join(map("{:.1f}".format, rows[column])) for column in ("stricter_before", "stricter")]
        assert f"| {name} | {' | '.join(cells)} |" in LLM_PAGE
    for method, whose in (("forward_kl", "forward KL's answers"), ("cokl", "CoKL's")):
        before, after = RUNS.query(f"seed == 6 and method == {method!r}")[["stricter_before", "stricter"]].iloc[0]
        assert f"{before:.1f} % of {whose} did before, {after:.1f} % after" in LLM_PAGE


def test_the_full_kls_smallest_coefficient():
    last = RUNS.query("seed == 100 and reference == 2").set_index(["method", "beta"])
    both = last["known"] + last["chat_val"]
    forward, reverse = (both[name, 0.003] - both[name, 0.01] for name in ("forward_kl", "reverse_kl"))
    assert f"{forward:.1f} points higher for forward KL, {reverse:.1f} for reverse KL" in " ".join(LLM_PAGE.split())
