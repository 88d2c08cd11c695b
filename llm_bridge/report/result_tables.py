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

ABLATION = ("cokl", "cokl_without_term1", "cokl_without_term2")
_AGGREGATES = ("math_avg", "chat_val", "overall")


def result_tables(results: Results) -> list[Table]:
    """All tables of the paper's LLM experiment, empty ones included: their notes say what is missing."""
    main = main_scores(results)
    normalized, notes = _normalized(main, results.math_columns)
    zero_correct = results.zero_correct[results.zero_correct["groups"] > 0]
    share = 100 * zero_correct["zero_correct_groups"] / zero_correct["groups"]
    counted = zero_correct[["model", "method", "groups"]]
    return [
        raw_table(with_averages(main, results.math_columns)),
        normalized_table(normalized, notes),
        ablation_table(normalized),
        floor_table(normalized),
        plain_table("zero_correct", counted.assign(zero_correct=share, at_least_one=100 - share)),
        plain_table("cost", results.costs),
        plain_table("repeated", results.repeated),
        sweep_table(results, "beta"),
        sweep_table(results, "kl_prompts"),
    ]


def main_scores(results: Results) -> pd.DataFrame:
    """The row of each model's method in its main setting: base and GRPO w/o KL first, the others as they come."""
    main = results.scores[results.scores["main"] == 1]
    order = main["method"].map({BASE: 0, GRPO: 1}).fillna(2)
    models = main["model"].map({model: position for position, model in enumerate(main["model"].unique())})
    return main.assign(_model=models, _order=order).sort_values(["_model", "_order"], kind="stable", ignore_index=True)


def sweep(results: Results, parameter: str) -> pd.DataFrame:
    """The raw scores, with averages and `parameter` ("beta" or "kl_prompts"), of each method that was swept over it.

    They are of the main setting and those that differ from it in that parameter alone, by increasing parameter.
    """
    fixed = "kl_prompts" if parameter == "beta" else "beta"
    main = results.scores.loc[results.scores["main"] == 1, ["model", "method", fixed]]
    rows = results.scores.merge(main, on=["model", "method", fixed])
    swept = rows.groupby(["model", "method"])[parameter].transform("nunique") > 1
    settings = [part.sort_values(parameter) for _, part in rows[swept].groupby(["model", "method"], sort=False)]
    rows = pd.concat(settings, ignore_index=True) if settings else rows.iloc[:0]
    averaged = with_averages(rows, results.math_columns)
    averaged.insert(2, parameter, rows[parameter])
    return averaged


def raw_table(scores: pd.DataFrame) -> Table:
    """scores: the output of `with_averages`. Marks among regularized methods, as the paper's caption says."""
    return Table(
        "raw", "Original evaluation results", scores, tuple(scores.columns[2:]), anchors=(BASE, GRPO),
        notes=() if len(scores) else ("no scores of a main setting",),
    )  # fmt: skip


def normalized_table(normalized: pd.DataFrame, notes: Sequence[str] = ()) -> Table:
    """normalized: the output of `normalize`. Marks among post-training methods, GRPO w/o KL included."""
    return Table(
        "normalized", "Dual-anchor normalized results", normalized, tuple(normalized.columns[2:]), anchors=(BASE,),
        notes=tuple(notes),
    )  # fmt: skip


def ablation_table(normalized: pd.DataFrame) -> Table:
    """CoKL without either term, on each model that has an ablation."""
    return _selection("ablation", "Ablation of CoKL's terms, normalized", normalized, ABLATION)


def floor_table(normalized: pd.DataFrame) -> Table:
    """CoKL with and without the batch-level correctness floor."""
    wanted = ("cokl", f"cokl{FLOOR_SUFFIX}")
    return _selection("floor", "Batch-level correctness floor, normalized", normalized, wanted)


_PLAIN = {
    "zero_correct": ("Current-policy rollout groups without a correct response", "no groups were counted"),
    "cost": ("Wall-clock time of the first training step", "no step was timed"),
    "repeated": (
        "From the same responses: one of them correct (pass@n), and the most frequent answer correct (majority@n)",
        "no evaluation was logged",
    ),
}


def plain_table(name: str, frame: pd.DataFrame) -> Table:
    """A table without marks: model, method, and what `name` says.

    zero_correct: [groups], zero_correct and at_least_one in percent (E.4). cost: first_step_seconds and mean_length
    (F.1). repeated: of each mathematical set SET_pass_at_n and SET_majority in percent.
    """
    title, missing = _PLAIN[name]
    return Table(name, title, frame, notes=() if len(frame) else (missing,))


def sweep_table(results: Results, parameter: str) -> Table:
    """The search over "beta" or "kl_prompts"; marks among the settings of a model's method."""
    frame = sweep(results, parameter)
    name, title = ("beta_search", "Search over beta") if parameter == "beta" else ("kl_batch", "Size of the KL batch")
    return Table(
        name, f"{title}, original scores", frame, _AGGREGATES, within=("model", "method"),
        notes=() if len(frame) else (f"no method has scores for two values of {parameter}",),
    )  # fmt: skip


def _normalized(main: pd.DataFrame, math_columns: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Normalized scores of the models that have both anchors, and a note for each that has not."""
    parts: list[pd.DataFrame] = []
    notes: list[str] = []
    for _, rows in main.groupby("model", sort=False):
        try:
            parts.append(normalize(rows, math_columns))
        except InputError as error:
            notes.append(str(error))
        else:
            notes += reversed_anchors(rows, math_columns)
    empty = with_averages(main.iloc[:0], math_columns)
    return (pd.concat(parts, ignore_index=True) if parts else empty), notes


def _selection(name: str, title: str, normalized: pd.DataFrame, wanted: Sequence[str]) -> Table:
    """The aggregates of the `wanted` methods, on the models that have more than one of them."""
    rows = normalized[normalized["method"].isin(wanted)]
    counts = rows.groupby("model")["method"].transform("nunique")
    chosen = rows[counts > 1][["model", "method", *_AGGREGATES]].reset_index(drop=True)
    notes = [
        f"{model}: no normalized scores of {', '.join(name for name in wanted if name not in set(part['method']))}"
        for model, part in rows.groupby("model", sort=False)
        if part["method"].nunique() < len(wanted)
    ]
    if rows.empty:
        notes = [f"no normalized scores of {', '.join(wanted)}"]
    return Table(name, title, chosen, _AGGREGATES, notes=tuple(notes))
