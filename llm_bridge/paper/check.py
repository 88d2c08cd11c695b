"""The paper's LLM tables and the numbers its text quotes, each recomputed from the others.

A printed number stands for every number that rounds to it, either way at a half; a check holds if some choice of such
numbers satisfies it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from cokl.support.verdicts import Claim, Verdict
from llm_bridge.experiment.config import BASE, REVERSE_FAMILY
from llm_bridge.paper.numbers import MATH, Paper
from llm_bridge.report.normalize import normalize
from llm_bridge.report.result_tables import AGGREGATES, SELECTED, result_table
from llm_bridge.report.results import GRPO
from llm_bridge.report.tables import method_label

HALF_UNIT = 0.005
"""Scores are printed with two decimals."""
BEYOND_E5 = "beyond the paper: E.5 speaks of the unnormalized scores"
_SLACK = 1e-9  # of floating point
RESPONSES = {"math500": 500 * 8, "olympiad": 674 * 8}
"""Responses behind an average@8: problems of Table E.2, eight responses each. MATH-Val's 8000 give any number."""
FORWARD = ("forward_kl", "correct_forward_kl")
REGULARIZED = (*REVERSE_FAMILY, *FORWARD, "cokl")


class Range(NamedTuple):
    """All numbers that a printed one, or something computed from printed ones, may stand for."""

    low: float
    high: float

    def meets(self, other: Range) -> bool:
        """Whether the two have a number in common."""
        return self.low <= other.high + _SLACK and other.low <= self.high + _SLACK


def check_paper(paper: Paper) -> list[Claim]:
    """Every check, in the order of the paper's tables; what was measured names the exceptions first."""
    return [claim for group in _GROUPS for claim in group(paper)]


def printed(value: float, half_unit: float = HALF_UNIT) -> Range:
    """What rounds to `value`."""
    return Range(value - half_unit, value + half_unit)


def mean(*intervals: Range) -> Range:
    """Of independent numbers."""
    lows, highs = zip(*intervals, strict=True)
    return Range(sum(lows) / len(lows), sum(highs) / len(highs))


def normalized_interval(score: float, zero: float, hundred: float) -> Range:
    """100 (score - zero) / (hundred - zero) over all that the three printed numbers stand for: monotone in each, so its
    extremes are at corners. Anything, where rounding may have made the anchors differ."""
    if abs(hundred - zero) <= 2 * HALF_UNIT + _SLACK:
        return Range(-math.inf, math.inf)
    corners = [100 * (s - z) / (h - z) for s, z, h in itertools.product(*map(printed, (score, zero, hundred)))]
    return Range(min(corners), max(corners))


Scores = dict[str, dict[str, dict[str, float]]]
"""By model, method and column."""


def _nested(frame: pd.DataFrame) -> Scores:
    scores: Scores = {}
    for row in frame.to_dict("records"):
        cells = {str(name): float(value) for name, value in row.items() if name not in ("model", "method")}
        scores.setdefault(row["model"], {})[row["method"]] = cells
    return scores


def _cell(model: str, method: str, column: str) -> str:
    return f"{model}, {method_label(method)}, {column}"


def _off(row: Mapping[str, Any], column: str, interval: Range, digits: int) -> list[str]:
    """The cell of a printed `row` with what was computed, in a list; empty if that may be what is printed."""
    if interval.meets(printed(row[column])):
        return []
    computed = f"{interval.low:.{digits}f} to {interval.high:.{digits}f} computed"
    return [f"{_cell(row['model'], row['method'], column)}: {row[column]:.2f} printed, {computed}"]


def _by_model(values: Mapping[str, float], form: str) -> str:
    """Each model with its value, formatted as `form`."""
    return ", ".join(f"{model} {format(value, form)}" for model, value in values.items())


def _verdict(holds: bool) -> Verdict:
    return "held" if holds else "not held"


def _exceptions(bad: list[str], total: int, of: str, remark: str = "") -> tuple[str, Verdict]:
    """Measurement and verdict of a check over many cells."""
    parts = "; ".join(bad), f"{total - len(bad)} of {total} {of}", remark
    return "; ".join(filter(None, parts)), _verdict(not bad)


def _normalized_intervals(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, Range]]:
    """By method and column, from the raw scores of a model by method and column."""
    table = {}
    for method, row in rows.items():
        cells = {}
        for column in (*MATH, "chat_val"):
            zero, hundred = (GRPO, BASE) if column in MATH else (BASE, GRPO)
            if method in (zero, hundred):
                cells[column] = printed(100.0 * (method == hundred), 0)
            else:
                cells[column] = normalized_interval(row[column], rows[zero][column], rows[hundred][column])
        cells["math_avg"] = mean(*(cells[column] for column in MATH))
        cells["overall"] = mean(cells["math_avg"], cells["chat_val"])
        table[method] = cells
    return table


def normalization(paper: Paper) -> Iterator[Claim]:
    """The normalized table from the raw one."""
    normalized, exact = _nested(paper.normalized), _nested(normalize(paper.raw, MATH))
    bad, total, widest, digits = [], 0, (0.0, ""), 0
    for model, rows in _nested(paper.raw).items():
        for method, cells in _normalized_intervals(rows).items():
            for column, interval in cells.items():
                value = normalized[model][method][column]
                total += 1
                digits += abs(exact[model][method][column] - value) <= HALF_UNIT + _SLACK
                widest = max(widest, ((interval.high - interval.low) / 2, _cell(model, method, column)))
                bad += _off({"model": model, "method": method, column: value}, column, interval, 2)
    remark = (
        f"{digits} are what the printed raw scores give, to the digit; rounding of the raw scores "
        f"leaves a cell open by up to ±{widest[0]:.2f} ({widest[1]})"
    )
    yield Claim(
        "Every normalized cell and average follows from the raw scores, within rounding",
        "Tables dual-anchor-original-results, dual-anchor-normalized-results; E.5",
        *_exceptions(bad, total, "cells", remark),
    )


def averages(paper: Paper) -> Iterator[Claim]:
    """Math Avg. and Overall of each table from its own cells."""
    for name in ("raw", "normalized", "ablation", "floor"):
        bad, total = [], 0
        for row in getattr(paper, name).to_dict("records"):
            parts = {"math_avg": MATH} if name in ("raw", "normalized") else {}
            for column, of in (parts | {"overall": ("math_avg", "chat_val")}).items():
                total += 1
                bad += _off(row, column, mean(*(printed(row[part]) for part in of)), 3)
        yield Claim(f"Averages of the {name} table", f"table {name}", *_exceptions(bad, total, "averages"))


def representable(paper: Paper) -> Iterator[Claim]:
    """Whether a raw score is a correctly rounded average@8 over its benchmark; if not, a truncated one."""
    for column, responses in RESPONSES.items():
        bad, rounded_only = [], 0
        for row in paper.raw.to_dict("records"):
            low, high = printed(row[column])
            below = math.floor(high * responses / 100 + _SLACK)
            if below >= low * responses / 100 - _SLACK:
                rounded_only += not truncated(row[column], responses)
                continue
            cut = ", the latter if cut off" if truncated(row[column], responses) else ""
            bad.append(
                f"{_cell(row['model'], row['method'], column)}: {row[column]:.2f} printed, neighbours are "
                f"{below}/{responses} = {100 * below / responses:.4f} and {100 * (below + 1) / responses:.4f}{cut}"
            )
        others = len(paper.raw) - len(bad)
        remark = f"cutting off instead of rounding would change {rounded_only} of the other {others}" if bad else ""
        yield Claim(
            f"Every {column} score is a rounded share of {responses} responses, ties either way",
            "Table dual-anchor-original-results; E.2; average@8",
            *_exceptions(bad, len(paper.raw), "scores", remark),
        )


def truncated(score: float, responses: int) -> bool:
    """Whether some number of correct responses, as a percentage cut off after two decimals, prints as `score`."""
    hundredths = round(100 * score)
    correct = -(-hundredths * responses // 10_000)  # the fewest whose percentage reaches the score
    return 10_000 * correct // responses == hundredths


def marks(paper: Paper) -> Iterator[Claim]:
    """Bold and underlined cells; the floor's table marks only the best."""
    cell = ["model", "method", "column"]
    for name in ("raw", "normalized", "ablation", "floor"):
        table = result_table(name, getattr(paper, name))
        marked = table.frame[["model", "method"]].join(table.marks().drop(columns=["model", "method"]))
        long = marked.melt(["model", "method"], var_name="column", value_name="mark")
        wanted = long[long["mark"].isin(["best"] if name == "floor" else ["best", "second"])]
        ours = {tuple(row): mark for *row, mark in wanted[[*cell, "mark"]].to_numpy().tolist()}
        theirs_frame = paper.marks[paper.marks["table"] == name]
        theirs = {tuple(row): mark for *row, mark in theirs_frame[[*cell, "mark"]].to_numpy().tolist()}
        bad = [
            f"{_cell(*key)}: marked {theirs.get(key, 'not at all')}, is {ours.get(key, 'neither')}"
            for key in sorted(ours.keys() | theirs.keys())
            if ours.get(key) != theirs.get(key)
        ]
        yield Claim(
            f"Best and second-best marks of the {name} table",
            f"table {name} and its caption",
            *_exceptions(bad, len(ours), "marks"),
        )


def _ranked(scores: Mapping[str, float]) -> list[str]:
    return sorted(scores, key=scores.__getitem__, reverse=True)


def _gains(table: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """By model: CoKL's Overall minus that of the strongest baseline, and that baseline."""
    gains = {}
    for model, rows in _nested(table).items():
        overall = {method: rows[method]["overall"] for method in (GRPO, *REVERSE_FAMILY, *FORWARD)}
        strongest = _ranked(overall)[0]
        gains[model] = (rows["cokl"]["overall"] - overall[strongest], strongest)
    return gains


def _quoted(
    paper: Paper, quote: str, measured: Mapping[str, float], agrees: Callable[[str, float], bool], unit: str = "",
    digits: int = 2,
) -> tuple[list[str], int]:  # fmt: skip
    """The quoted numbers that do not agree with what the tables say of a model, and how many are quoted."""
    rows = paper.quotes[paper.quotes["quote"] == quote]
    pairs = list(zip(rows["model"], rows["value"], strict=True))
    bad = [
        f"{model}: {value:.{digits}f}{unit} quoted, {measured[model]:.2f}{unit} in the table"
        for model, value in pairs
        if not agrees(model, value)
    ]
    return bad, len(pairs)


def text_on_gains(paper: Paper) -> Iterator[Claim]:
    """Main Results and E.5."""
    tables = {"normalized": _gains(paper.normalized), "raw": _gains(paper.raw)}
    normalized = {model: gain for model, (gain, _) in tables["normalized"].items()}
    quotes = _quoted(
        paper, "gain_over_strongest_baseline", normalized, lambda model, value: abs(normalized[model] - value) <= _SLACK
    )
    yield Claim(
        "CoKL's Overall is higher than the strongest baseline's by the quoted points",
        "Main Results",
        *_exceptions(*quotes, "gains"),
    )
    for kind, gains in tables.items():
        yield Claim(
            f"CoKL has the highest {kind} Overall at every scale",
            "Main Results",
            ", ".join(f"{model} {gain:+.2f} over {method_label(name)}" for model, (gain, name) in gains.items()),
            _verdict(all(gain > 0 for gain, _ in gains.values())),
        )
    drops = _math_drops(paper)
    by_drop = sorted(drops, key=lambda model: -drops[model][0])
    for kind, gains in tables.items():
        ordered = [gains[model][0] for model in by_drop]
        yield Claim(
            f"The more GRPO w/o KL forgets, the larger CoKL's advantage in {kind} Overall",
            "E.5: most pronounced under high forgetting pressure" if kind == "raw" else BEYOND_E5,
            ", ".join(f"{model} {gains[model][0]:+.2f} at a drop of {drops[model][0]:.1f}%" for model in by_drop),
            _verdict(all(one > other for one, other in itertools.pairwise(ordered))),
        )
    for kind, table in (("raw", paper.raw), ("normalized", paper.normalized)):
        overall = {
            model: {method: rows[method]["overall"] for method in ("cokl", "correct_forward_kl")}
            for model, rows in _nested(table).items()
        }
        leads = {model: overall[model]["cokl"] - overall[model]["correct_forward_kl"] for model in by_drop}
        apart = [abs(lead) for lead in leads.values()]
        yield Claim(
            f"The less GRPO w/o KL forgets, the closer CoKL's {kind} Overall to correct-only replay's",
            "E.5: naturally reduces toward correct-only replay when forgetting is mild" if kind == "raw" else BEYOND_E5,
            ", ".join(f"{model} {lead:+.2f} at a drop of {drops[model][0]:.1f}%" for model, lead in leads.items()),
            _verdict(all(one > other for one, other in itertools.pairwise(apart))),
        )


def _math_drops(paper: Paper) -> dict[str, tuple[float, Range]]:
    """By model: how much of the base's raw Math Avg. GRPO w/o KL loses, in percent, and what rounding allows."""
    drops = {}
    for model, rows in _nested(paper.raw).items():
        score = {method: rows[method]["math_avg"] for method in (BASE, GRPO)}
        base, grpo = printed(score[BASE]), printed(score[GRPO])
        low, high = 100 * (1 - grpo.high / base.low), 100 * (1 - grpo.low / base.high)
        drops[model] = (100 * (1 - score[GRPO] / score[BASE]), Range(low, high))
    return drops


def text_on_forgetting(paper: Paper) -> Iterator[Claim]:
    """E.5 and Main Results."""
    drops = _math_drops(paper)
    lost = {model: drop for model, (drop, _) in drops.items()}
    quotes = _quoted(
        paper, "math_drop_of_grpo_percent", lost,
        lambda model, value: drops[model][1].meets(printed(value, 0.05)), "%", digits=1,
    )  # fmt: skip
    measured = ", ".join(f"{model} {drop:.2f}%" for model, drop in lost.items())
    yield Claim(
        "GRPO w/o KL loses the quoted share of the base's raw Math Avg.", "E.5",
        *_exceptions(*quotes, "shares", measured),
    )  # fmt: skip
    scores = _nested(paper.normalized)
    groups = {
        "all": REGULARIZED,
        "without full reverse KL": ("correct_reverse_kl", *FORWARD, "cokl"),
        "forward KLs and CoKL": (*FORWARD, "cokl"),
    }
    for kind, table in (("raw", _nested(paper.raw)), ("normalized", scores)):
        spreads: dict[str, dict[str, float]] = {}
        for label, names in groups.items():
            overall = {model: [rows[name]["overall"] for name in names] for model, rows in table.items()}
            spreads[label] = {model: max(values) - min(values) for model, values in overall.items()}
        largest = list(table)[-1]
        worst = min(REGULARIZED, key=lambda name: table[largest][name]["overall"])
        listed = (f"{label}: {_by_model(by_model, '.2f')}" for label, by_model in spreads.items())
        yield Claim(
            f"All regularized methods converge at {largest}: their {kind} Overall spreads least there",
            "E.5" if kind == "raw" else BEYOND_E5,
            f"{method_label(worst)} has {table[largest][worst]['overall']:.2f}; "
            f"highest minus lowest: {'; '.join(listed)}",
            _verdict(min(spreads["all"], key=lambda model: spreads["all"][model]) == largest),
        )
    retention = {
        model: (min(rows[name]["math_avg"] for name in FORWARD), max(rows[name]["math_avg"] for name in REVERSE_FAMILY))
        for model, rows in scores.items()
    }
    yield Claim(
        "The forward-KL variants retain more math than the reverse-KL variants at every scale",
        "Main Results",
        ", ".join(f"{model}: at least {low:.2f}, at most {high:.2f}" for model, (low, high) in retention.items()),
        _verdict(all(low > high for low, high in retention.values())),
    )


def text_on_normalization(paper: Paper) -> Iterator[Claim]:
    """Whether raw and normalized tables tell the same."""
    raw, normalized = _nested(paper.raw), _nested(paper.normalized)
    for column, name in (("math_avg", "Math Avg."), ("overall", "Overall")):
        bad = []
        for model in raw:
            first, second = (_ranked({m: table[model][m][column] for m in REGULARIZED}) for table in (raw, normalized))
            if first != second:
                orders = (" > ".join(map(method_label, order)) for order in (first, second))
                bad.append("{}: raw {}; normalized {}".format(model, *orders))
        yield Claim(
            f"Raw and normalized {name} put the regularized methods in the same order",
            "beyond the paper: E.5 assesses robustness and claims no equal order",
            *_exceptions(bad, len(raw), "scales"),
        )


def ablations(paper: Paper) -> Iterator[Claim]:
    """The ablation and floor tables against the main one and the text."""
    main, ablation, floor = (_nested(table) for table in (paper.normalized, paper.ablation, paper.floor))
    for name, table in (("ablation", ablation), ("floor", floor)):
        bad = [
            f"{_cell(model, 'cokl', column)}: {rows['cokl'][column]:.2f} there, "
            f"{main[model]['cokl'][column]:.2f} in the main table"
            for model, rows in table.items()
            for column in AGGREGATES
            if rows["cokl"][column] != main[model]["cokl"][column]
        ]
        yield Claim(
            f"CoKL's rows of the {name} table are the main table's",
            f"table {name}",
            *_exceptions(bad, len(table) * len(AGGREGATES), "cells"),
        )
    ((model, rows),) = ablation.items()
    full, without1, without2 = (rows[name] for name in SELECTED["ablation"])
    replay = {column: main[model]["correct_forward_kl"][column] for column in AGGREGATES}
    yield Claim(
        "w/o term 2 is correct-only forward KL, to every printed digit",
        "Ablation: removing the second term reduces to Correct-only Forward-KL",
        " and ".join(" / ".join(f"{value:.2f}" for value in row.values()) for row in (without2, replay)),
        _verdict(without2 == replay),
    )
    yield Claim(
        "w/o term 1 loses the math ability, and w/o term 2 is worse than CoKL on chat",
        "Ablation",
        f"math {without1['math_avg']:.2f} against {full['math_avg']:.2f}; "
        f"chat {without2['chat_val']:.2f} against {full['chat_val']:.2f}",
        _verdict(
            without1["math_avg"] < min(full["math_avg"], without2["math_avg"])
            and without2["chat_val"] < full["chat_val"]
        ),
    )
    for claim, column, holds in (
        ("gives no consistent gain in retention", "math_avg", lambda changes: min(changes) <= 0),
        ("restricts adaptation at every scale", "chat_val", lambda changes: max(changes) < 0),
        ("reduces the Overall at every scale", "overall", lambda changes: max(changes) < 0),
    ):
        change = {model: rows["cokl_floor"][column] - rows["cokl"][column] for model, rows in floor.items()}
        yield Claim(
            f"The floor {claim}",
            "Batch-Level Correctness Floor",
            _by_model(change, "+.2f"),
            _verdict(holds(change.values())),
        )


def zero_correct(paper: Paper) -> Iterator[Claim]:
    """E.4."""
    table = {model: rows["cokl"] for model, rows in _nested(paper.zero_correct).items()}
    sums = {model: row["zero_correct"] + row["at_least_one"] for model, row in table.items()}
    bad = [f"{model}: {total:.2f}%" for model, total in sums.items() if abs(total - 100) > 2 * HALF_UNIT + _SLACK]
    yield Claim(
        "Groups with and without a correct response are all groups", "E.4", *_exceptions(bad, len(table), "models")
    )
    rates = {model: row["zero_correct"] for model, row in table.items()}
    quotes = _quoted(paper, "zero_correct_percent", rates, lambda model, value: rates[model] == value, "%")
    yield Claim("The quoted rates of zero-correct groups are the table's", "E.4", *_exceptions(*quotes, "rates"))
    yield Claim(
        "Most groups use both terms, and the rate of zero-correct groups falls with the model's size",
        "E.4",
        ", ".join(f"{model} {rate:.2f}%" for model, rate in rates.items()),
        _verdict(max(rates.values()) < 50 and all(one > other for one, other in itertools.pairwise(rates.values()))),
    )


def costs(paper: Paper) -> Iterator[Claim]:
    """F.1."""
    (table,) = _nested(paper.cost).values()
    seconds = {method: row["first_step_seconds"] for method, row in table.items()}
    others = [seconds[method] for method in (*REVERSE_FAMILY, *FORWARD)]
    yield Claim(
        "CoKL's first step takes at most 10% longer than the slowest other KL method's",
        "F.1: remains comparable",
        f"{seconds['cokl']:.1f} s, the others {min(others):.1f} to {max(others):.1f}; "
        f"{100 * (seconds['cokl'] / max(others) - 1):.1f}% above the slowest of them, "
        f"{100 * (seconds['cokl'] / min(others) - 1):.1f}% above the fastest and "
        f"{100 * (seconds['cokl'] / seconds[GRPO] - 1):.1f}% above GRPO w/o KL",
        _verdict(seconds["cokl"] <= 1.1 * max(others)),
    )
    lengths = [row["mean_length"] for method, row in table.items() if method != GRPO]
    yield Claim(
        "Steps with math data have longer responses than GRPO w/o KL's",
        "F.1",
        f"{table[GRPO]['mean_length']:.0f} against {min(lengths):.0f} to {max(lengths):.0f} tokens",
        _verdict(min(lengths) > table[GRPO]["mean_length"]),
    )


def reward_validation(paper: Paper) -> Iterator[Claim]:
    """F.2, whose ratings are not public: its intervals alone."""
    printed_numbers, parts, inside = paper.quotes.set_index("quote")["value"], [], []
    for quote, chance in (("reward_correlation", 0.0), ("reward_agreement_percent", 50.0)):
        estimate, low, high = (float(printed_numbers[f"{quote}{end}"]) for end in ("", "_low", "_high"))
        parts.append(f"{estimate:g} in [{low:g}, {high:g}], chance {chance:g}")
        inside.append(chance < low <= estimate <= high)
    yield Claim(
        "The chat reward agrees with an independent evaluator: the printed intervals exclude chance",
        "F.2",
        f"Spearman's correlation {parts[0]}; percent of preferred responses {parts[1]}; nothing was rated here",
        _verdict(all(inside)),
    )


_GROUPS: tuple[Callable[[Paper], Iterator[Claim]], ...] = (
    normalization, averages, representable, marks, text_on_gains, text_on_forgetting, text_on_normalization, ablations,
    zero_correct, costs, reward_validation,
)  # fmt: skip
