"""Several runs of one experiment, each with a seed of its own: means and intervals over runs, and CoKL's leads.

One comparison is primary: CoKL minus correct-only replay in Overall, on the dual-anchor scale of each run itself. The
other rivals are secondary and judged together by Holm's procedure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from cokl.methods import FLOOR_SUFFIX, UNREGULARIZED, label
from cokl.support.errors import InputError
from cokl.support.statistics import markdown_table, spread_column, summarize, with_spread
from cokl.support.verdicts import Claim, Measurement, holm, judged, no_verdict, p_value, verdict_on
from llm_bridge.experiment.config import BASE
from llm_bridge.report.csv_tables import read_csv
from llm_bridge.report.normalize import normalize, with_averages
from llm_bridge.report.result_tables import main_scores
from llm_bridge.report.results import REPEATED, Results

METHOD, RIVAL, MEASURE = "cokl", "correct_forward_kl", "overall"
"""The primary comparison: which method minus which, and in what."""
_SAME_AS_RIVAL = f"{METHOD}_without_term2"
"""The same loss: compared once, where it came to the same numbers."""
_FLOOR = f"{METHOD}{FLOOR_SUFFIX}"
_ABLATION = "Ablation of the loss structure"
PARTS = (
    (f"{METHOD}_without_term1", "kept", "Without term 1 CoKL keeps less of the base's Math Avg", _ABLATION, 0.0),
    (_SAME_AS_RIVAL, "adaptation", "Without term 2 CoKL adapts less", _ABLATION, 0.0),
    (_FLOOR, MEASURE, "The correctness floor gains CoKL less than 1 point", "Batch-level correctness floor", 1.0),
)
"""Method, measure, statement, where the paper makes it, and the gain that counts as none."""
COLUMNS = {
    "math_avg": "Math Avg",
    "chat_val": "Chat",
    "kept": "Math Avg, % of base",
    "retention": "Retention",
    "adaptation": "Adaptation",
    "overall": "Overall",
    **REPEATED,
}
"""Math Avg and Chat raw; the former in percent of the run's base; both and their mean on the dual-anchor scale; and
from the same responses pass@n and majority@n, means over the math sets in percent."""


def measured(runs: Mapping[str, Results]) -> pd.DataFrame:
    """A row per run and method: run, method, and COLUMNS; NaN for what was not logged.

    runs: by name, each of one model with GRPO w/o KL among its methods; methods that not every run has are left out.
    Raises InputError for fewer than two runs, and for one that cannot be normalized.
    """
    if len(runs) < 2:
        raise InputError(f"expected at least 2 runs, got {len(runs)}")
    table = pd.concat([_of_run(name, results) for name, results in runs.items()], ignore_index=True)
    return table[table.groupby("method")["run"].transform("nunique") == len(runs)].reset_index(drop=True)


def _of_run(name: str, results: Results) -> pd.DataFrame:
    scores = main_scores(results)
    if scores["model"].nunique() != 1:
        raise InputError(f"{name}: expected one model, got {', '.join(map(str, scores['model'].unique()))}")
    raw = with_averages(scores, results.math_columns)
    try:
        scaled = normalize(scores, results.math_columns)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    base = raw.loc[raw["method"] == BASE, "math_avg"].iloc[0]
    scales = {"retention": scaled["math_avg"], "adaptation": scaled["chat_val"], "overall": scaled["overall"]}
    table = raw[["method", "math_avg", "chat_val"]].assign(run=name, kept=100 * raw["math_avg"] / base, **scales)
    answers = results.repeated.set_index("method").reindex(table["method"])
    for measure in REPEATED:
        logged = answers.reindex(columns=[f"{column}_{measure}" for column in results.math_columns])
        table[measure] = logged.mean(axis=1, skipna=False).to_numpy()
    return table[["run", "method", *COLUMNS]]


def read_runs(folder: Path) -> pd.DataFrame:
    """What `measured` gave, from runs.csv. Raises InputError for a file that is not such a table."""
    names = ("run", "method")
    return read_csv(folder / "runs.csv", names, COLUMNS, names, gaps=REPEATED)


def over_runs(table: pd.DataFrame) -> pd.DataFrame:
    """A row per method in the table's order: the mean of every column over runs, and NAME_half_width, 95%."""
    return summarize(table, ["method"], list(COLUMNS))


def leads(table: pd.DataFrame) -> pd.DataFrame:
    """CoKL minus other methods, paired by run: method, every column's mean and half-width, and `verdict`.

    The verdict is on Overall: "held" where CoKL has more, "not held" where less, "undecided", or "" below four runs;
    for the primary rival by its own interval, for the others by Holm's procedure. Left out are CoKL with the floor
    and, where its numbers are the primary rival's, CoKL without term 2, whose loss is the same. Empty without CoKL.
    """
    by_run = {method: rows.set_index("run") for method, rows in table.groupby("method", sort=False)}
    columns, runs = list(COLUMNS), table["run"].nunique()
    same = {RIVAL, _SAME_AS_RIVAL} <= set(by_run) and by_run[RIVAL][columns].equals(by_run[_SAME_AS_RIVAL][columns])
    left_out = {METHOD, _FLOOR, BASE} | ({_SAME_AS_RIVAL} if same else set())
    rivals = [name for name in by_run if name not in left_out]
    if METHOD not in by_run or not rivals:
        return pd.DataFrame()
    differences = [(by_run[METHOD][columns] - by_run[rival][columns]).assign(method=rival) for rival in rivals]
    found = over_runs(pd.concat(differences))
    pairs = list(zip(found[MEASURE], found[f"{MEASURE}_half_width"], strict=True))
    verdicts = [verdict_on(*pair, runs) or "" for pair in pairs]
    secondary = [index for index, rival in enumerate(rivals) if rival != RIVAL and verdicts[index]]
    for index, sure in zip(secondary, holm([p_value(*pairs[index], runs) for index in secondary]), strict=True):
        verdicts[index] = verdicts[index] if sure else "undecided"
    return found.assign(verdict=verdicts)


def claims(table: pd.DataFrame) -> list[Claim]:
    """CoKL's lead over each other method, replay's first; and what the ablations and the floor change."""
    judged_leads = []
    for lead in sorted(leads(table).to_dict("records"), key=lambda lead: lead["method"] != RIVAL):
        statement = f"CoKL has a higher Overall than {label(lead['method'])}"
        where = _ABLATION if METHOD in lead["method"] else "Main Results, main table"
        difference = with_spread(lead[MEASURE], lead[f"{MEASURE}_half_width"], 1)
        corrected = "the primary comparison" if lead["method"] == RIVAL else "Holm over all but the primary"
        measured_as = f"{difference} points over {table['run'].nunique()} runs; {corrected}"
        judged_leads.append(Claim(statement, where, measured_as, lead["verdict"] or None))
    return [*judged_leads, *parts(table)]


def parts(table: pd.DataFrame) -> list[Claim]:
    """What CoKL's terms and the floor do, a claim for each that was trained; no comparison is corrected for others."""
    claims = []
    for part, column, statement, where, margin in PARTS:
        by_method = {name: rows.set_index("run")[column] for name, rows in table.groupby("method")}
        if {METHOD, part} <= set(by_method):
            what = f"{COLUMNS[column]} of {label(METHOD)} minus {label(part)}"
            difference = by_method[METHOD] - by_method[part]
            claims.append(judged(statement, where, [Measurement.of("all runs", what, difference, margin=margin)]))
    return claims


def render(table: pd.DataFrame) -> str:
    """The page: what GRPO lost in each run, the methods, and CoKL's leads."""
    runs = table["run"].nunique()
    lost = 100 - table.loc[table["method"].isin(UNREGULARIZED), "kept"]
    parts = [
        "# Repeated runs",
        f"{runs} runs, a seed of its own for everything random in each. After ± is half the width of a 95% t-interval "
        f"over runs. GRPO w/o KL lost {lost.min():.0f} to {lost.max():.0f}% of the base's Math Avg. Retention, "
        "Adaptation and Overall are on the dual-anchor scale of each run itself.",
        markdown_table(shown(over_runs(table))),
    ]
    compared = leads(table)
    if len(compared):
        parts += [
            "## CoKL minus other methods, paired by run",
            f"Primary: {RIVAL}, in Overall; the others' verdicts are Holm's over all but the primary. "
            + (no_verdict(runs) or "*held*: CoKL has more; *not held*: less."),
            markdown_table(shown(compared)),
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `over_runs` or `leads` as text, "mean ± half-width" under the titles of COLUMNS."""
    columns = {title: spread_column(frame, name) for name, title in COLUMNS.items()}
    verdict = {"verdict": frame["verdict"]} if "verdict" in frame and frame["verdict"].any() else {}
    return pd.DataFrame({"method": frame["method"], **columns, **verdict})
