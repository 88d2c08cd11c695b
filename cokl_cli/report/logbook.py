"""The logbook: every claim of the paper, what came out here, and the command and time it takes.

REPRODUCTION.json is the record, an entry for each experiment; REPRODUCTION.md is made from it alone. An experiment that
is not among the results given keeps its entry, or is called "not run here".
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import read_json
from cokl.support.statistics import plain_markdown_table
from cokl_cli.report import entries
from cokl_cli.report.entries import Entry

RECORD, PAGE = "REPRODUCTION.json", "REPRODUCTION.md"
NOT_RUN = "not run here"

Record = dict[str, Any]
"""Of one experiment: command, scope, hardware, seconds (None if not recorded), commit, claims (statement, where,
verdict, measured) and table (rows of text, by column) or None."""


@dataclass(frozen=True)
class Experiment:
    """What a section of the logbook is about: its title, the command that makes its results, and what that takes."""

    title: str
    command: str
    takes: str


EXPERIMENTS = {
    "theory": Experiment("Theory", "cokl theory check", "about a minute"),
    "sweep": Experiment("Controlled experiment", "cokl reproduce", "about 10 minutes on two cores"),
    "finite_group": Experiment("Finite groups", "cokl bandit finite-group", "about 10 minutes on two idle cores"),
    "shift": Experiment("Task shift, in miniature", "cokl bandit shift", "about 7 minutes on two idle cores"),
    "sequences": Experiment("Task shift with answers of many tokens", "cokl bandit sequences", "an hour on two cores"),
    "calibration": Experiment(
        "The paper's pattern, searched for", "cokl bandit calibration", "about 12 minutes on two idle cores, estimated"
    ),
    "sequence_calibration": Experiment(
        "The paper's pattern, searched for with answers of many tokens",
        "cokl bandit calibration --cells tokens-1,tokens-3,tokens-6,tokens-12,tokens-24,tokens-6-mean,tokens-24-mean "
        "--shares 0.1,1 --betas 0.1,0.3,1,3 --steps 200",
        "20 minutes on two cores",
    ),
    "phase": Experiment("Maps of the task shift", "cokl bandit phase", "about 15 minutes on two idle cores"),
    "tables": Experiment("The paper's LLM tables, held against each other", "cokl llm check-paper", "a second"),
    "llm_repeats": Experiment(
        "The tiny LLM, several runs", "cokl llm repeats", "each run an hour on two idle cores, for all nine methods"
    ),
    "llm": Experiment("LLM experiment", "cokl llm run --preset qwen3-1.7b", "8 GPUs"),
}


_FOUND_IN = {
    "theory": "theory",
    "sweep": "sweeps",
    "finite_group": "finite_groups",
    "shift": "shifts",
    "sequences": "sequences",
    "calibration": "calibrations",
    "sequence_calibration": "calibrations",
    "phase": "phases",
    "llm_repeats": "llm_repeats",
}
"""The field of `Found` with an experiment's results."""

_REPEATED = ("sequences", "sequence_calibration", "phase")
"""Of these all results are taken, of others the first: maps differ in their knobs, sequences are run on other seeds."""


def records(roots: Iterable[Path]) -> dict[str, Record]:
    """What the folders hold, by the name of the experiment, and the check of the paper's tables, which needs none.

    Of several results of one experiment the first of the first folder counts. Raises InputError for a folder without
    results.
    """
    from cokl_cli.report.found import find

    made: dict[str, Record] = {}
    for root in roots:
        found = find(root)
        if not found.folders:
            raise InputError(f"results: there are none in {root}")
        for name, field in _FOUND_IN.items():
            folders = [folder for folder in getattr(found, field) if _belongs(folder, name)]
            if folders and name not in made:
                made[name] = _record(name, folders if name in _REPEATED else folders[:1], entries.READERS[field])
    made["tables"] = {
        "command": EXPERIMENTS["tables"].command,
        "scope": "the printed numbers",
        "hardware": "",
        "seconds": None,
        "commit": None,
        "claims": [_claim(entry) for entry in entries.paper_tables()],
        "table": None,
    }
    return made


def _belongs(folder: Path, name: str) -> bool:
    """Whether results are an experiment's: of two labs' searches, which leave the same files, each its own."""
    from bandit.calibration.config import SEQUENCE_CELLS

    if _FOUND_IN[name] != "calibrations":
        return True
    of_sequences = read_json(folder / "config.json", dict)["cells"][0] in SEQUENCE_CELLS
    return of_sequences == (name == "sequence_calibration")


def _record(name: str, folders: list[Path], read: Callable[[Path], Iterator[Entry]]) -> Record:
    """Of one experiment, whose results are in these folders."""
    found = list(chain.from_iterable(read(folder) for folder in folders))
    if name in _REPEATED:
        found = [dataclasses.replace(entry, statement=f"{entry.statement} ({entry.area})") for entry in found]
    record: Record = {"command": EXPERIMENTS[name].command, "scope": "", "hardware": "", "commit": None, "table": None}
    if name == "theory":
        rows = read_json(folders[0] / "claims.json", list)
        record |= {
            "scope": f"{len(rows)} statements, of the paper and beyond it",
            "seconds": round(sum(row["seconds"] for row in rows), 1),
        }
    elif name == "llm_repeats":
        from llm_bridge.report.repeats import read_runs

        runs = read_runs(folders[0])
        record |= {
            "command": " ".join([EXPERIMENTS[name].command, *runs["run"].unique()]),
            "scope": f"{runs['run'].nunique()} runs, {runs['method'].nunique() - 1} methods",
            "seconds": None,
            "table": _over_runs(runs),
        }
    else:
        config = read_json(folders[0] / "config.json", dict)
        environment = read_json(folders[0] / "environment.json", list)[-1]
        times = [read_json(path, list) for folder in folders if (path := folder / "seconds.json").is_file()]
        record |= {
            "command": _command(name, config),
            "scope": _scope(config),
            "hardware": f"{environment['cpu']}, {environment['cpu_count']} cores, torch "
            f"{environment['versions']['torch']}",
            "seconds": round(sum(chain.from_iterable(times)), 1) if len(times) == len(folders) else None,
            "commit": environment["git_commit"],
        }
    if name == "sweep":
        record["table"] = _matched(folders[0])
    return {**record, "claims": [_claim(entry) for entry in found]}


def _claim(entry: Entry) -> dict[str, Any]:
    return {
        "statement": entry.statement,
        "where": entry.source,
        "verdict": entry.verdict,
        "measured": entry.measured,
    }


def _scope(config: Mapping[str, Any]) -> str:
    """In a few words: how many seeds, steps and what else was varied."""
    config = config.get("experiment", config)
    called = {"cells": "settings", "shares": "shares", "methods": "methods", "betas": "coefficients"}
    counts = ", ".join(
        f"{len(config[name])} {label if len(config[name]) != 1 else label[:-1]}"
        for name, label in called.items()
        if name in config
    )
    selection = f" and {config['selection_seeds']} for selection" if "selection_seeds" in config else ""
    return f"{config['seeds']} seeds{selection}, {counts}, {config['steps']} steps"


def _command(name: str, config: dict[str, Any]) -> str:
    """The command whose settings are those of `config`, as far as its presets and flags say them."""
    command = EXPERIMENTS[name].command.partition(" --")[0]  # its flags follow from the configuration
    differing = {preset: _differences(_plain(known), config) for preset, known in _presets(name).items()}
    preset = min(differing, key=lambda preset: len(differing[preset]))
    flags = "" if preset == "paper" else f" --preset {preset}"
    for path, value in differing[preset].items():
        many = isinstance(value, list)
        joined = (" " if path in _SPACED else ",").join(map(str, value)) if many else str(value)
        flags += f" --{path.replace('_', '-')} {joined}"
    return command + flags


_SPACED = ("hidden", "adam_betas", "zipf_exponents")
"""Flags whose values stand beside each other; others are lists with commas."""


def _presets(name: str) -> Mapping[str, Any]:
    from bandit.calibration.config import CALIBRATION_PRESETS
    from bandit.finite_group.config import PRESETS as FINITE_GROUP_PRESETS
    from bandit.phase.config import EXPERIMENTS as PHASE_PRESETS
    from bandit.sequences.config import SEQUENCE_PRESETS
    from bandit.shift.config import SHIFT_PRESETS
    from bandit.sweep.config import PRESETS

    presets: dict[str, Mapping[str, Any]] = {
        "sweep": PRESETS,
        "finite_group": FINITE_GROUP_PRESETS,
        "shift": SHIFT_PRESETS,
        "sequences": SEQUENCE_PRESETS,
        "calibration": CALIBRATION_PRESETS,
        "sequence_calibration": CALIBRATION_PRESETS,
        "phase": {  # whose knobs decide its mode
            preset: {"experiment": {name: value for name, value in experiment.as_dict().items() if name != "mode"}}
            for preset, experiment in PHASE_PRESETS.items()
        },
    }
    return presets[name]


def _plain(config: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(config, default=lambda value: value.as_dict()))
    return values


def _differences(preset: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Fields of both whose values differ, by their innermost names, with the values of `config`."""
    found: dict[str, Any] = {}
    for field, value in preset.items():
        if isinstance(value, dict):
            found |= _differences(value, config.get(field, {}))
        elif field != "device" and field in config and config[field] != value:
            found[field] = config[field]
    return found


def _matched(folder: Path) -> dict[str, list[str]] | None:
    """The controlled experiment at matched correctness, as the README shows it."""
    from bandit.sweep.score import matched_table, read_sweep

    table = read_sweep(folder)
    shown, kl = matched_table(table, digits=3), matched_table(table, digits=2)["conditional_kl"]
    coverage = next(column for column in map(str, shown) if column.startswith("coverage_at_"))
    columns = {
        "at the coefficient whose correctness is closest to 0.96": shown["method"],
        "β": shown["beta"],
        "correctness": shown["p_correct"],
        coverage.replace("_at_", "@"): shown[coverage],
        "conditional KL (nats)": kl,
    }
    return {name: list(values) for name, values in columns.items()}


def _over_runs(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Every method of repeated runs of the LLM experiment, as the README shows it."""
    from llm_bridge.report.repeats import over_runs, shown
    from llm_bridge.report.tables import method_label

    table = shown(over_runs(runs))
    table["method"] = table["method"].map(method_label)
    table = table.rename(columns={"method": f"over {runs['run'].nunique()} runs"})
    return {str(title): list(cells) for title, cells in table.items()}


def render(book: Mapping[str, Record]) -> str:
    """The page of a record. What is not in the record is listed as not run here."""
    parts = [_HEAD, "## At a glance", _table(["experiment", "scope", "hardware", "time", "outcome"], _glance(book))]
    for name, experiment in EXPERIMENTS.items():
        parts.append(f"## {experiment.title}")
        if name not in book:
            parts.append(f"{NOT_RUN.capitalize()}. `{experiment.command}` makes it: {experiment.takes}.")
            if name in ("shift", "llm"):
                rows = [[statement, where, NOT_RUN, ""] for statement, where in _paper_claims()]
                parts.append(_table(_COLUMNS, rows))
            continue
        record = book[name]
        made = f"Made by `{record['command']}`"
        parts.append(f"{made}{_time(record, ' in ')}{_commit(record)}.")
        rows = [[c["statement"], c["where"], c["verdict"], _primary(c["measured"])] for c in record["claims"]]
        parts.append(_table(_COLUMNS, rows))
        if record["table"]:
            table = record["table"]
            spread = "standard deviation over seeds" if name == "sweep" else "half the width of a 95% t-interval"
            parts += [f"Mean ± {spread}:", _table(list(table), zip(*table.values(), strict=True))]
    return "\n\n".join(parts) + "\n"


_COLUMNS = ["claim", "where", "verdict", "primary measurement"]

_HEAD = f"""# Reproduction

What the paper claims, and what came out here. Made by `cokl logbook` from the results of the commands below;
[{RECORD}]({RECORD}) is the same for programs. The arguments are in the findings on [the labs](bandit/FINDINGS.md), [the
theory](theory/FINDINGS.md) and [the tables](llm_bridge/paper/FINDINGS.md); here are the verdicts.

A verdict is that of the primary measurement and speaks of the environment in its section alone: *held*, *not held*,
*undecided*, or *depends*, where other measurements are decided the other way. Of the theory, *held* says that each
check of the statement came out, on the domain that is given; "machine-checked" alone is the statement itself on its
whole domain. Unless said otherwise, after ± is half the width of a 95% t-interval over seeds. Below four seeds there is
*no verdict*. Times are those of the clock, on a machine that other work may have shared."""


def _glance(book: Mapping[str, Record]) -> Iterator[list[str]]:
    for name, experiment in EXPERIMENTS.items():
        if name not in book:
            yield [experiment.title, "", "", "", f"{NOT_RUN} ({experiment.takes})"]
            continue
        record = book[name]
        counts = Counter(claim["verdict"] for claim in record["claims"])
        beyond = Counter(claim["verdict"] for claim in record["claims"] if "beyond" in claim["where"])
        outcome = ", ".join(
            f"{number} {verdict}" + (f" ({beyond[verdict]} of them beyond the paper)" if beyond[verdict] else "")
            for verdict, number in counts.items()
        )
        yield [experiment.title, record["scope"], record["hardware"], _time(record) or "not recorded", outcome]


def _time(record: Record, before: str = "") -> str:
    seconds = record["seconds"]
    if seconds is None:
        return ""
    return before + (f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes")


def _commit(record: Record) -> str:
    return f", commit {record['commit'][:12]}" if record["commit"] else ""


def _primary(measured: list[str]) -> str:
    """The first measurement; of a theorem's evidence a machine-checked proof before others."""
    best = next((line for line in measured if line.startswith("machine-checked")), measured[0])
    others = len(measured) - 1
    return best + (f" (and {others} more)" if others else "")


def _paper_claims() -> list[tuple[str, str]]:
    from bandit.shift.claims import PAPER_CLAIMS

    return list(PAPER_CLAIMS.values())


def _table(columns: list[str], rows: Iterable[Iterable[str]]) -> str:
    return plain_markdown_table(columns, rows, rule=[" --- "] * len(columns))
