"""Which verdicts of the sweep rest on what the paper leaves open: one assumption changed at a time, and one table.

The whole sweep comes first. Each alternative trains every method at the coefficients next to the sweep's own match, and
the base is judged on the same ones.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pandas as pd

from bandit.config import changed
from bandit.engine.runs import resolve_device
from bandit.lab import Analysis, Lab, Tables
from bandit.sweep.analysis import Scored, judge, leads_in_coverage, matched_coefficients
from bandit.sweep.config import PRESETS as SWEEPS
from bandit.sweep.config import SweepConfig
from bandit.sweep.train import planned_runs, run_sweep, train_planned
from cokl.support.files import write_parquet
from cokl.support.options import SOME, Bound, Names, Settings, at_least, require
from cokl.support.results import HERE, Execution
from cokl.support.statistics import mean_and_half_width, with_spread
from cokl.support.verdicts import MINIMUM_SEEDS, Claim, Evidence, Verdict
from figures.marks import Drawing

ALTERNATIVES: dict[str, tuple[Any, ...]] = {
    "coverage_draws": (8, 256),
    "pretrain_learning_rate": (6e-4, 2.4e-3),
    "minibatch": ("epochs",),
    "init_scale": (0.5, 2.0),
    "adam_betas": ((0.9, 0.95), (0.9, 0.99)),
    "adam_epsilon": (1e-6,),
    "center_scale": (0.75, 1.5),
    "balanced_clusters": (True,),
    "shared_environment": (True,),
}
"""Other values of every field that is declared an assumption of the sweep, k of coverage@k among them."""
MEASUREMENT = "coverage_draws"
"""Another number of draws than the paper's 64 is a different measurement of the same runs, and no other assumption."""
BASE = "base"
"""The folder, and the name, of the sweep at its defaults."""
COLUMNS = ("name", "claim", "where", "alternative", "verdict", "stands", "measured", "seeds", "lead", "lead_half_width")


@dataclass(frozen=True)
class RobustnessConfig(Settings):
    """The sweep whose verdicts are put to the test."""

    sweep: SweepConfig
    """The sweep at its defaults, with all its coefficients."""
    neighbours: Annotated[int, at_least(0)] = 1
    """Coefficients of the grid on either side of each method's matched one that are trained under an alternative."""
    fields: Annotated[
        Names, SOME, Bound(lambda name: name in ALTERNATIVES, f"some of {', '.join(ALTERNATIVES)}", each=True)
    ] = tuple(ALTERNATIVES)
    """Which assumptions to vary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rivals = set(self.sweep.methods) - {"none", "cokl"}
        told = ",".join(self.sweep.methods)
        require("cokl" in self.sweep.methods and bool(rivals), "methods", "cokl and another regularizer", told)


PRESETS = {
    "paper": RobustnessConfig(SWEEPS["paper"]),
    "quick": RobustnessConfig(
        dataclasses.replace(SWEEPS["quick"], methods=("none", "entropy", "cokl"), betas=(0.1, 0.3), eval_interval=250),
        neighbours=0,
        fields=("coverage_draws", "init_scale", "center_scale"),
    ),
}


class Alternative(NamedTuple):
    """Another value of a field of the sweep."""

    field: str
    value: Any

    @property
    def name(self) -> str:
        """Of its folder, and in the table."""
        value = "-".join(map(str, self.value)) if isinstance(self.value, tuple) else self.value
        return f"{self.field}-{value}"


def alternatives(config: RobustnessConfig) -> list[Alternative]:
    """What is tried, one at a time."""
    return [Alternative(field, value) for field in config.fields for value in ALTERNATIVES[field]]


def train(config: RobustnessConfig, execution: Execution = HERE) -> dict[str, pd.DataFrame]:
    """Train the sweep in FOLDER/base and each alternative in FOLDER/NAME; a row per claim and alternative, COLUMNS.

    stands: whether the verdict is the base's. lead: CoKL's in coverage over the next best, a mean over seeds. Below
    four seeds verdicts are empty and nothing stands or falls. Raises InputError as `run_sweep` does.
    """
    with execution.results_folder({**config.as_dict(), "device": resolve_device(config.sweep.device)}) as folder:
        base = run_sweep(config.sweep, dataclasses.replace(execution, out=folder / BASE))
        near = _near_the_match(base, config)
        kept = [_is_near(method, beta, near) for method, beta in zip(base["method"], base["beta"], strict=True)]
        sweeps = {BASE: base[kept]}
        betas = tuple(sorted({beta for some in near.values() for beta in some})) or config.sweep.betas
        chosen = {"coefficients": {method: list(some) for method, some in near.items()}}
        for one in alternatives(config):
            alternative = dataclasses.replace(changed(config.sweep, {one.field: one.value}), betas=betas)
            runs = [run for run in planned_runs(alternative) if _is_near(run.method.name, run.beta, near)]
            here = dataclasses.replace(execution, out=folder / one.name)
            sweeps[one.name] = train_planned(alternative, runs, here, True, chosen)
        table = compare(sweeps)
        write_parquet(table, folder / "robustness.parquet")
    return {"robustness": table}


def _near_the_match(table: pd.DataFrame, config: RobustnessConfig) -> dict[str, tuple[float, ...]]:
    """For each regularized method its matched coefficient and its neighbours of the grid on either side."""
    grid = sorted(config.sweep.betas)
    places = {method: grid.index(beta) for method, beta in matched_coefficients(table).items()}
    count = config.neighbours
    return {method: tuple(grid[max(0, at - count) : at + count + 1]) for method, at in places.items()}


def _is_near(method: str, beta: float, near: dict[str, tuple[float, ...]]) -> bool:
    return method in ("reference", "none") or beta in near.get(method, ())


def compare(sweeps: Tables) -> pd.DataFrame:
    """A row per claim and sweep, with COLUMNS; the sweep called "base" is what the others are compared with.

    name, claim and where are the base's: under another number of draws a claim's name has another k.
    """
    lines = []
    scores = {alternative: Scored.of(table) for alternative, table in sweeps.items()}
    at_base = judge(scores[BASE])
    for alternative, scored in scores.items():
        seeds = scored.table["seed"].nunique()
        lead, half_width = mean_and_half_width(next(iter(leads_in_coverage(scored).values()), pd.Series(dtype=float)))
        for claim, base in zip(judge(scored), at_base, strict=True):
            enough = seeds >= MINIMUM_SEEDS and claim.verdict and base.verdict
            verdict, stands = (claim.verdict, claim.verdict == base.verdict) if enough else ("", None)
            said = (base.name, base.statement, base.place)
            row = (*said, alternative, verdict, stands, claim.primary.line, seeds, lead, half_width)
            lines.append(dict(zip(COLUMNS, row, strict=True)))
    return pd.DataFrame(lines).astype({"stands": "boolean"})


def analyse(tables: Tables, config: RobustnessConfig) -> Analysis:
    """How many verdicts stand, and of each claim in how many alternatives it does, and where not."""
    table = tables["robustness"]
    remeasured = {one.name for one in alternatives(config) if one.field == MEASUREMENT}
    no_assumption = {BASE, *remeasured}
    assumed = table[~table["alternative"].isin(no_assumption)]
    stand, judged = int(assumed["stands"].sum()), int(assumed["stands"].notna().sum())
    same_measure = table[~table["alternative"].isin(remeasured)]
    leads = same_measure.drop_duplicates("alternative").sort_values("lead")
    known, without = leads.dropna(subset="lead"), leads.loc[leads["lead"].isna(), "alternative"]
    ends = [with_spread(*pair, 3) for pair in zip(known["lead"], known["lead_half_width"], strict=True)]
    led = f"CoKL's lead in coverage is {ends[0]} to {ends[-1]}" if ends else "CoKL has no lead in coverage to compare"
    if ends and len(without):
        led += f", and has none to compare under {', '.join(without)}"
    claims = []
    for name, of_claim in table.groupby("name", sort=False):
        statement, place = of_claim[["claim", "where"]].iloc[0]
        others = of_claim[~of_claim["alternative"].isin(no_assumption)]
        fallen = of_claim[~of_claim["stands"].fillna(True)]
        away = others[~others["stands"].fillna(True)]["alternative"]
        named = [
            f"{row.verdict} with {row.alternative}"
            + (", which is another measurement" if row.alternative in remeasured else "")
            for row in fallen.itertuples()
        ]
        at_base, there = of_claim.loc[of_claim["alternative"] == BASE, ["verdict", "measured"]].iloc[0]
        stands = f"{len(others) - len(away)} of {len(others)}" if at_base else ""
        measured = f"the base's verdict, {at_base}, stands in {stands} alternatives" if stands else there
        held: Verdict = "not held" if len(away) else "held"
        claims.append(
            Claim(
                str(name),
                f"Under every alternative assumption the same verdict: {statement}",
                "beyond",
                f"beyond the paper: what it leaves open; {place}",
                Evidence("", "; ".join([measured, *named])),
                held,
            )
        )
    rows = []
    for alternative, judgements in table.groupby("alternative", sort=False):
        stands = f"{judgements['stands'].sum()} of {judgements['stands'].notna().sum()}"
        lead = with_spread(judgements["lead"].iloc[0], judgements["lead_half_width"].iloc[0], 3)
        rows.append((alternative, stands if alternative != BASE else "", lead))
    title = "Every claim under every alternative, at the coefficients next to the match"
    return Analysis(
        answer=f"{stand} of {judged} verdicts stand; {led}",
        seeds=int(table["seeds"].min()),
        claims=claims,
        tables={"robustness": table},
        captions={"robustness": f"{title}."},
        titles={"robustness": title},
        readable=lambda rows: rows[["claim", "alternative", "verdict", "measured"]],
        screen=pd.DataFrame(rows, columns=["alternative", "verdicts that stand", "CoKL's lead in coverage"]),
        notes=[
            "Each alternative changes one assumption of the sweep and trains every method at the coefficients next to "
            "the sweep's own match. Other numbers of draws than 64 measure something else, and count apart."
        ],
    )


def draw(analysis: Analysis) -> dict[str, Drawing]:
    """No pictures: its table is all."""
    return {}


LAB = Lab(
    title="What the controlled experiment's verdicts rest on",
    summary="Vary each assumption of the sweep, one at a time, and say of each verdict whether it stands. Resumes.",
    presets=PRESETS,
    results={"robustness": COLUMNS},
    train=train,
    analyse=analyse,
    draw=draw,
)
