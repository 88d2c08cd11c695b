"""`cokl bandit card FILE`: a regularizer of one's own beside the built-in ones, and files that cannot be used."""

import dataclasses
import html
import json
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor

from bandit.engine.tables import coverage_column, method_label
from bandit.labs import LABS
from bandit.plasticity import card
from cokl import regularizers
from cokl.support.code import with_code
from cokl.support.results import Execution
from cokl_cli.app import main
from cokl_cli.commands.card import registered_in
from cokl_cli.report.page import write
from cokl_cli.report.results import finished
from tests.bandit.plasticity.conftest import TINY
from tests.bandit.plasticity.tables import CONFIG, lab
from tests.cokl_cli.test_bad_input import refusal

HELLINGER = """
import torch
from cokl import regularizers
from cokl.groups import SurrogateWeights, required, rollout_weights

@regularizers.register
class {title}(regularizers.Regularizer):
    name, label = "{name}", "{title}"
    def value(self, policy, reference):
        return {value}
"""
VALUE = "1 - torch.exp((policy.log_probs + reference.log_probs) / 2).sum(-1)"


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """What a test registers and imports is forgotten after it; the current folder is empty, and workers are new, since
    those of an earlier test cannot import what lies there.
    """
    get_reusable_executor().shutdown()
    monkeypatch.setattr(regularizers, "_registry", dict(regularizers._registry))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield
    for name, module in list(sys.modules.items()):  # a library that is imported twice loses what was patched into it
        if Path(getattr(module, "__file__", None) or "/").resolve().is_relative_to(tmp_path):
            del sys.modules[name]


def written(name: str, value: str = VALUE, title: str = "Mine", more: str = "") -> Path:
    path = Path(f"{name}.py")
    path.write_text(HELLINGER.format(name=name, value=value, title=title) + more)
    return path


def test_the_card_of_ones_own(registry, monkeypatch, capsys):
    settings = dataclasses.replace(
        TINY,
        changes=TINY.changes[:1],
        methods=("none", "cokl", "reverse_kl", "card_own"),
    )
    monkeypatch.setattr(card, "config", lambda own: settings)
    label = "SquaredHellinger"
    file = written(
        "card_own", title=label, more='if __name__ == "__main__":\n    raise SystemExit("a script of mine")\n'
    )
    with pytest.raises(SystemExit) as ended:
        main(["bandit", "card", str(file), "--jobs", "2"])
    assert ended.value.code == 0
    folder = Path("runs/card-card_own")
    assert (folder / "regularizer.py").read_text() == file.read_text()
    assert f"# {label}\n" in (folder / "card.md").read_text()
    assert (folder / "card.png").read_bytes().startswith(b"\x89PNG")
    shown = pd.read_csv(folder / "card.csv", dtype=str).set_index("method").to_dict("index")
    assert set(shown) == {"Reference", "No regularizer", "CoKL", "Reverse KL", label}
    assert shown[label]["surrogate"] == "none"
    tables, config = LABS["plasticity"].read(folder)
    table = tables["plasticity"]
    rows = table[(table["role"] == "report") & (table["method"] == "none") & (table["mode"] == "sampled")]
    means = rows.drop_duplicates("seed")[["p_correct", coverage_column(table), "conditional_kl"]].mean()
    columns = ["correct", coverage_column(table).replace("_at_", "@"), "cond. KL"]
    printed = [float(shown["No regularizer"][column].split(" ")[0]) for column in columns]
    assert np.allclose(printed, means, atol=0.006)
    steps = np.array(config.evaluated_steps)
    plastic = [np.trapezoid(run["reward"], steps) / steps[-1] for _, run in rows.groupby("seed")]
    assert float(shown["No regularizer"]["plasticity"].split(" ")[0]) == pytest.approx(np.mean(plastic), abs=6e-4)
    assert finished(folder.parent) == {"card": [folder]}  # no results of the lab that trained it
    printed = capsys.readouterr().out
    regularizers._registry.pop("card_own")  # as in the process that makes a page
    write(Path("runs"), Path("runs/page.html"))
    page = html.unescape(Path("runs/page.html").read_text())
    answer = json.loads((folder / "card.json").read_text())["answers"][0]
    assert " ".join(printed.split()).startswith(answer)
    assert page.count(f"{answer}.") == 2  # at the head, and in its section
    section = page.partition('<section id="card">')[2].partition("</section>")[0]
    assert f"<td>{label}</td>" in section
    written_there = (folder / "card.md").read_text()
    for word in ("*: more than 0.01 away", "surrogate: distance of its gradient", "± is half of a 95% interval"):
        (line,) = [line for line in re.findall(r'<p class="note">(.*?)</p>', section) if line.startswith(word)]
        assert line in " ".join(written_there.split())
    assert f"{label}</button>" in section
    assert "card_own</" not in section
    assert f"{label} beside the built-in regularizers" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_changed_file_or_one_that_it_imports_does_not_get_the_old_card(registry, monkeypatch, capsys):
    settings = dataclasses.replace(TINY, changes=TINY.changes[:1], methods=("none", "cokl", "card_changed"))
    monkeypatch.setattr(card, "config", lambda own: settings)
    Path("scale_of_it.py").write_text("SCALE = 1\n")
    file = written("card_changed", "SCALE * (" + VALUE + ")", more="from scale_of_it import SCALE\n")
    registered_in(file)
    folder = Path("runs/card-card_changed")
    described = {**settings.as_dict(), "device": "cpu"}
    mine = {"card_changed": type(regularizers.get("card_changed"))}
    with Execution(out=folder).results_folder(with_code(described, mine)):
        pass
    for changed in (Path("scale_of_it.py"), file):
        before = changed.read_text()
        changed.write_text(before + "# another version\n")
        del sys.modules["card_changed"]
        regularizers._registry.pop("card_changed")
        line = refusal(capsys, "bandit", "card", str(file), "--jobs", "1")
        assert (
            f"runs/card-card_changed holds the results of another configuration (code.card_changed.{changed.stem}: "
            in line
        )
        assert line.endswith("choose another --out or remove that folder")
        changed.write_text(before)
    assert not (folder / "regularizer.py").exists()


def test_a_file_beside_it_is_not_ours(registry):
    """Of the packages that a worker imports, which has the path of the process that loaded the file."""
    ours = ("cokl", "bandit", "theory", "figures", "cokl_cli", "llm_bridge", "random")
    for name in ours:
        Path(f"{name}.py").write_text("raise RuntimeError")
    assert registered_in(written("beside").resolve()) == ("beside",)
    found = {name: PathFinder.find_spec(name, [path for path in sys.path if path]) for name in ours}
    assert [name for name, spec in found.items() if spec is None or Path(str(spec.origin)).parent == Path.cwd()] == []


def test_each_panel_and_column_is_of_its_own_numbers():
    """Of CoKL, whose coefficients 0.1 and 0.2 end at 0.98 and 0.94: at the match, 0.95, a quarter is of the first."""
    table = lab().assign(conditional_kl=1.5, reward=0.75)
    table.loc[table["mode"] == "exact", "reward"] = 0.25  # the card's plasticity is that of sampled training alone
    table["coverage_at_64"] = 10 * (1 - table["p_correct"])
    marks = card.drawing(table).marks
    ours = marks[(marks["method"] == "cokl") & (marks["x"] == 0.98)]
    expected = {"coverage_at_64": 0.2, "conditional_kl": 1.5, "plasticity": 0.75}
    assert ours.set_index("panel")["y"].to_dict() == pytest.approx(expected)
    matched = card.matched(table, CONFIG)
    rows = card.rows(matched, {"cokl": "right"})
    assert rows.set_index("method").loc["CoKL"].to_dict() == {
        "beta": "0.1 to 0.2",
        "correct": "0.950 ± 0.000",
        "coverage@64": "0.500 ± 0.000",
        "cond. KL": "1.50 ± 0.00",
        "plasticity": "0.750 ± 0.000",
        "surrogate": "right",
    }
    assert card.answer(matched, "cokl") == ("CoKL: coverage@64 0.500 ± 0.000; plasticity 0.750 ± 0.000")


def test_the_answer_names_cokl_and_replay_and_no_rival_that_is_far():
    table = lab().assign(conditional_kl=1.5, reward=0.75)
    table["coverage_at_64"] = 10 * (1 - table["p_correct"])
    replay = table.query("method == 'cokl'").assign(method="correct_forward_kl", coverage_at_64=0.25)
    mine = table.query("method == 'cokl'").assign(method="mine", coverage_at_64=0.125)
    both = pd.concat([table, replay, mine], ignore_index=True)
    assert card.answer(card.matched(both, CONFIG), "mine") == (
        "mine: coverage@64 0.125 ± 0.000, CoKL's 0.500 ± 0.000, Replay's 0.250 ± 0.000; "
        "plasticity 0.750 ± 0.000, CoKL's 0.750 ± 0.000, Replay's 0.750 ± 0.000"
    )
    far = both.assign(p_correct=both["p_correct"].where(both["method"] != "cokl", 0.3))
    assert card.answer(card.matched(far, CONFIG), "mine") == (
        "mine: coverage@64 0.125 ± 0.000, Replay's 0.250 ± 0.000; plasticity 0.750 ± 0.000, Replay's 0.750 ± 0.000"
    )


def test_the_widest_card_fits_a_screen_of_80_columns():
    own = "A regularizer whose label is longer than any that is built in"
    row = {"beta": "0.01 to 0.03*", "correct": "0.930 ± 0.010", "coverage@64": "0.500 ± 0.123",
           "cond. KL": "10.50 ± 0.12", "plasticity": "0.750 ± 0.100"}  # fmt: skip
    built_in = [method_label(name) for name in card.BUILT_IN]
    shown = pd.DataFrame([{"method": name, **row, "surrogate": "right, 1.2%"} for name in (*built_in, own)])
    text = card.on_screen(shown, pd.Series(0.93, shown.index))
    assert max(map(len, text.splitlines())) <= 80
    table, surrogates = text.split("\n\n")
    assert " ".join(line.partition("0.01")[0].strip() for line in table.splitlines()[-4:]) == own
    assert table.count(" 0.930 ") == table.count("0.500 ± 0.123") == len(shown)
    assert " ".join(surrogates.split()).count("right, 1.2%") == len(shown)


def test_the_others_are_interpolated_where_your_own_ends():
    """CoKL ends at 0.98 and 0.94: within that range the match stays, outside it moves to CoKL's nearest end."""
    for wanted, expected in ((0.95, 0.95), (0.6, 0.94), (0.99, 0.98)):
        settings = dataclasses.replace(CONFIG, matched_correctness=wanted)
        assert card.comparable(lab(), settings, ("cokl",)).matched_correctness == pytest.approx(expected, abs=1e-12)
    settings = card.comparable(lab(), dataclasses.replace(CONFIG, matched_correctness=0.6), ("cokl",))
    assert card.answer(card.matched(lab(), settings), "cokl").startswith("CoKL: coverage@64")


def test_of_several_of_ones_own_the_one_that_reaches_least_sets_the_match():
    """CoKL reaches 0.95, and `mine` 0.88 at most."""
    ours = lab().query("method == 'cokl'")
    mine = ours.assign(method="mine", p_correct=ours["p_correct"] - 0.1)
    both = pd.concat([lab(), mine], ignore_index=True)
    moved = card.comparable(both, CONFIG, ("cokl", "mine"))
    assert moved.matched_correctness == pytest.approx(0.88, abs=1e-12)


def test_one_whose_runs_all_diverge_is_not_comparable_and_moves_nothing():
    table = lab().query("method != 'cokl'")
    assert card.comparable(table, CONFIG, ("cokl",)) == CONFIG
    assert card.answer(card.matched(table, CONFIG), "cokl").startswith("CoKL is not comparable")


def test_a_method_that_ends_far_from_the_match_is_not_compared():
    table = lab()
    for ends in (table, table.assign(p_correct=table["p_correct"] / 2)):  # 0.94 and 0.98, 0.47 and 0.49
        matched = card.matched(ends, dataclasses.replace(CONFIG, matched_correctness=0.6))
        assert str(card.rows(matched, {}).set_index("method").loc["CoKL", "beta"]).endswith("*")
        assert card.answer(matched, "cokl").startswith("CoKL is not comparable")


SURROGATE = """
    streams = ("rollout",)
    def surrogate_weights(self, reference, rollout, config):
        rollout = required(rollout, "rollout")
        size = rollout.rewards.shape[-1]
        return SurrogateWeights(None, {scale} * (rollout.log_probs.detach() + 1) / size)
"""


@pytest.mark.parametrize(("scale", "says"), [("1", "right, "), ("1.3", "WRONG, "), ("-1", "WRONG, ")])
def test_a_surrogate_is_checked_against_the_exact_gradient(scale, says, registry):
    """Of the negative entropy, whose gradient is E[(log pi + 1) grad log pi]."""
    file = written("ent", "(policy.probs * policy.log_probs).sum(-1)", more=SURROGATE.format(scale=scale))
    registered_in(file)
    assert card.surrogate_check("ent").startswith(says)


@pytest.mark.parametrize("name", [name for name in card.BUILT_IN if name != "none"])
def test_the_built_in_surrogates_are_right(name):
    assert card.surrogate_check(name).startswith("right, ")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("missing", None, "cannot read missing.py"),
        ("empty", "", "empty.py registers no regularizer; put @regularizers.register above its class"),
        ("syntax_error", "def f(:\n", "syntax_error.py, line 1: SyntaxError"),
        ("raises", "1 / 0\n", "raises.py: ZeroDivisionError: division by zero"),
        ("random", "", "expected a Python file whose name is no other module's"),
        ("forward_kl", HELLINGER.format(name="forward_kl", title="Mine", value=VALUE), "name of a built-in"),
        (
            "no_value",
            "from cokl import regularizers\nfrom cokl.regularizers import Regularizer\n@regularizers.register\n"
            'class Mine(Regularizer):\n    name, label = "no_value", "Mine"\n',
            "no_value: NotImplementedError in its value at an ordinary policy: define value(self, policy, reference)",
        ),
        (
            "no_regularizer",
            'from cokl import regularizers\n@regularizers.register\nclass Mine:\n    name, label = "mine", "Mine"\n',
            "expected a class that inherits from regularizers.Regularizer",
        ),
        ("scalar", HELLINGER.format(name="scalar", title="Mine", value=f"({VALUE}).mean()"), "one number per context"),
        ("detached", HELLINGER.format(name="detached", title="Mine", value=f"({VALUE}).detach()"), "does not reach"),
        (
            "infinite",
            HELLINGER.format(name="infinite", title="Mine", value=f"({VALUE}) / 0"),
            "infinite: value is not finite",
        ),
        (
            "closed_form",
            HELLINGER.format(name="closed_form", title="Mine", value=VALUE)
            + "    def logit_gradient(self, policy, reference):\n        return policy.log_probs * 0\n",
            "closed_form: logit_gradient is not the gradient of its value",
        ),
    ],
)
def test_a_file_without_a_card_is_one_line(name, text, says, registry, capsys):
    if text is not None:
        Path(f"{name}.py").write_text(text)
    assert says in refusal(capsys, "bandit", "card", f"{name}.py")
