"""`python -m llm_bridge.open_questions FOLDER --seeds 100 none cokl=0.01,0.03`: the experiment's runs, as one table.

FOLDER/RUNS.csv gets a row for each run, question and measurement; tradeoff.png draws their trade-off.
Runs that are in FOLDER are not trained again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cokl import methods
from cokl.support.errors import InputError
from cokl.support.results import Execution
from figures.matplotlib_renderer import render
from figures.style import save
from llm_bridge.open_questions import analysis, figures
from llm_bridge.open_questions.experiment import AFTERWARDS, conduct, require_memory, smollm2_in
from llm_bridge.open_questions.loop import Settings
from llm_bridge.open_questions.questions import built_in, fingerprint


def settings_of(spec: str, seeds: list[int], steps: int, prompts: int) -> list[Settings]:
    """The runs of "METHOD=BETA,BETA", or "none", of so many steps and prompts a step each.

    Raises:
        InputError: an unknown method, or coefficients that are no numbers above 0.
    """
    name, _, coefficients = spec.partition("=")
    method = methods.get(name).name
    try:
        betas = [float(beta) for beta in coefficients.split(",")] if coefficients else [0.0]
    except ValueError:
        raise InputError(f"{spec}: expected METHOD=BETA,BETA, such as cokl=0.01,0.03") from None
    if (min(betas) > 0) != bool(methods.get(name).streams()):
        raise InputError(f"{spec}: expected coefficients above 0 for a regularizer, and none for plain RL")
    return [Settings(method, beta, seed, steps, prompts) for seed in seeds for beta in betas]


def seeds_of(text: str) -> list[int]:
    """Seeds separated by commas. Raises ArgumentTypeError, which the parser tells, for anything else."""
    seeds = text.split(",")
    if not all(seed.isdecimal() for seed in seeds):
        raise argparse.ArgumentTypeError(f"expected seeds separated by commas, such as 10,11, got {text!r}")
    return [int(seed) for seed in seeds]


def main() -> None:
    """Train what is missing and write the table."""
    parser = argparse.ArgumentParser(prog="python -m llm_bridge.open_questions", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("methods", nargs="+", metavar="METHOD=BETA,BETA")
    parser.add_argument("--seeds", type=seeds_of, default=[0], metavar="SEED,SEED", help="such as 10,11,12")
    parser.add_argument("--steps", type=int, default=Settings.steps, help=f"of a run; {Settings.steps} by default")
    parser.add_argument(
        "--prompts", type=int, default=Settings.prompts, help=f"of a step; {Settings.prompts} by default"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--narrowed", action="store_true", help=f"{AFTERWARDS} more steps, in which only names from N on are right"
    )
    given = parser.parse_args()
    try:
        if given.steps < 1:
            raise InputError(f"--steps {given.steps}: expected 1 or more")
        if given.prompts < 1:
            raise InputError(f"--prompts {given.prompts}: expected 1 or more")
        size = given.steps, given.prompts
        runs = [settings for spec in given.methods for settings in settings_of(spec, given.seeds, *size)]
        asked = built_in()
        require_memory(4.0 * given.jobs)
        afterwards = AFTERWARDS if given.narrowed else 0
        told = {
            "questions": fingerprint(asked),
            "settings": str(Settings(steps=given.steps, prompts=given.prompts)),
            "afterwards": afterwards,
        }
        with Execution(out=given.folder, jobs=given.jobs).results_folder(told) as folder:
            rows = conduct(folder, smollm2_in(folder), asked, runs, Execution(jobs=given.jobs), afterwards)
            analysis.save(rows, folder)
            paths = analysis.means(rows)
            print(paths[paths["step"] == paths["step"].max()].round(3).to_string(index=False))
            print(save(render(figures.tradeoff(paths)), folder, "tradeoff")[-1])
    except InputError as error:
        print(f"open_questions: error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
