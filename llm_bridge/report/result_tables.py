"""The paper's tables from an experiment's results; what is missing is said in a note, and the rest is shown."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from cokl.methods import FLOOR_SUFFIX
from cokl.support.errors import InputError
from llm_bridge.experiment.config import BASE
from llm_bridge.report.normalize import normalize, reversed_anchors, with_averages
from llm_bridge.report.results import GRPO, Results
from llm_bridge.report.tables import Table

AGGREGATES = ("math_avg", "chat_val", "overall")
SELECTED = {
    "ablation": ("cokl", "cokl_without_term1", "cokl_without_term2"),
    "floor": ("cokl", f"cokl{FLOOR_SUFFIX}"),
}
"""The methods of tables that compare CoKL with its variants, by the table's name."""
_TABLES = {
    "raw": ("Original evaluation results", "no scores of a main setting"),
    "normalized": ("Dual-anchor normalized results", "no scores of a main setting"),
    "ablation": ("Ablation of CoKL's terms, normalized", f"no normalized scores of {', '.join(SELECTED['ablation'])}"),
    "floor": ("Batch-level correctness floor, normalized", f"no normalized scores of {', '.join(SELECTED['floor'])}"),
    "zero_correct": ("Current-policy rollout groups without a correct response", "no groups were counted"),
    "cost": ("Wall-clock time of the first training step", "no step was timed"),
    "beta": ("Search over beta, original scores", "no method has scores for two values of beta"),
    "kl_prompts": ("Size of the KL batch, original scores", "no method has scores for two values of kl_prompts"),
}
"""The title, and what is said of a table without rows."""
_SEARCHES = {"beta": "beta_search", "kl_prompts": "kl_batch"}
"""The tables in which a method competes with itself, called otherwise than what they vary."""
_ANCHORS = {"raw": (BASE, GRPO), "normalized": (BASE,)}
"""What is not marked: the paper's captions exclude all but the regularized, and all but the post-training methods."""


def result_tables(results: Results) -> list[Table]:
    """All tables of the paper's LLM experiment, empty ones included: their notes say what is missing."""
    main = main_scores(results)
    normalized, notes = _normalized(main, results.math_columns)
    zero_correct = results.zero_correct[results.zero_correct["groups"] > 0]
    share = 100 * zero_correct["zero_correct_groups"] / zero_correct["groups"]
    counted = zero_correct[["model", "method", "groups"]]
    return [
        result_table("raw", with_averages(main, results.math_columns)),
        result_table("normalized", normalized, notes),
        *(result_table(name, normalized) for name in SELECTED),
        result_table("zero_correct", counted.assign(zero_correct=share, at_least_one=100 - share)),
        result_table("cost", results.costs),
        *(result_table(parameter, sweep(results, parameter)) for parameter in _SEARCHES),
    ]


def main_scores(results: Results) -> pd.DataFrame:
    """The row of each model's method in its main setting: base and GRPO w/o KL first, the others as they come."""
    main = results.scores[results.scores["main"] == 1]
    order = main["method"].map({BASE: 0, GRPO: 1}).fillna(2)
    models = pd.factorize(main["model"])[0]
    return main.assign(_model=models, _order=order).sort_values(["_model", "_order"], kind="stable", ignore_index=True)


def sweep(results: Results, parameter: str) -> pd.DataFrame:
    """The raw scores, with averages and `parameter` ("beta" or "kl_prompts"), of each method that was swept over it.

    They are of the main setting and those that differ from it in that parameter alone, by increasing parameter.
    """
    fixed = "kl_prompts" if parameter == "beta" else "beta"
    main = results.scores.loc[results.scores["main"] == 1, ["model", "method", fixed]]
    rows = results.scores.merge(main, on=["model", "method", fixed])
    methods = rows.groupby(["model", "method"], sort=False)
    swept = rows.assign(_method=methods.ngroup())[methods[parameter].transform("nunique") > 1]
    swept = swept.sort_values(["_method", parameter], ignore_index=True)
    averaged = with_averages(swept, results.math_columns)
    averaged.insert(2, parameter, swept[parameter])
    return averaged


def result_table(name: str, frame: pd.DataFrame, notes: Sequence[str] = ()) -> Table:
    """One of the tables: what it is called, which numbers compete, and a note where it has no rows.

    name, and what the frame has beside model and method: raw, what `with_averages` gives; normalized, ablation and
    floor, what `normalize` gives, of which the last two select; zero_correct, [groups], zero_correct and at_least_one
    in percent (E.4); cost, first_step_seconds and mean_length (F.1); beta and kl_prompts, what `sweep` gives.
    """
    title, missing = _TABLES[name]
    if name in SELECTED:
        frame, notes = _selection(frame, SELECTED[name])
    searched = name in _SEARCHES
    return Table(
        _SEARCHES.get(name, name),
        title,
        frame,
        ranked=AGGREGATES if searched else tuple(frame.columns[2:]) if "overall" in frame else (),
        within=("model", "method") if searched else ("model",),
        anchors=_ANCHORS.get(name, ()),
        notes=tuple(notes) if len(frame) or notes else (missing,),
    )


def _normalized(main: pd.DataFrame, math_columns: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Normalized scores of the models that have both anchors, and a note for each that has not."""
    parts, notes = [with_averages(main.iloc[:0], math_columns)], []
    for _, rows in main.groupby("model", sort=False):
        try:
            parts.append(normalize(rows, math_columns))
            notes += reversed_anchors(rows, math_columns)
        except InputError as error:
            notes.append(str(error))
    return pd.concat(parts, ignore_index=True), notes


def _selection(normalized: pd.DataFrame, wanted: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """The aggregates of the `wanted` methods, on the models that have more than one of them; and who lacks which."""
    rows = normalized[normalized["method"].isin(wanted)]
    counts = rows.groupby("model")["method"].transform("nunique")
    notes = [
        f"{model}: no normalized scores of {', '.join(name for name in wanted if name not in set(part['method']))}"
        for model, part in rows.groupby("model", sort=False)
        if part["method"].nunique() < len(wanted)
    ]
    return rows[counts > 1][["model", "method", *AGGREGATES]].reset_index(drop=True), notes
