"""What every study is: the runs of one seed in one VeRL job, their rows, and seeds whose rows are not made again."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import hold, read_parquet, write_atomically, write_parquet, write_text
from llm_bridge.bring_buffer import bring_buffer
from llm_bridge.experiment.config import PRESETS, LLMConfig
from llm_bridge.experiment.jobs import several_job
from llm_bridge.experiment.logged import read_metrics
from llm_bridge.experiment.stages import Experiment, run_verl
from llm_bridge.experiment.studies.answers import sample
from llm_bridge.experiment.studies.config import Role, StudyConfig
from llm_bridge.experiment.studies.reward import compute_score
from llm_bridge.experiment.supervise import one_job_at_a_time
from llm_bridge.rewards.judge import Judge
from llm_bridge.tiny.language import RIGHT

RUNS, STEPS = "stages.csv", "steps.csv"
"""A row for each finished run and set of prompts, and for each of its steps."""
KEY = ["seed", "stage", "method", "beta"]
METRICS, DONE = "metrics.jsonl", "done"
"""In a run's folder: VeRL's log, and what a finished run leaves."""
STALL = 1800.0
"""Seconds without a line of output after which a job is ended as hung."""


@dataclass(frozen=True)
class Run:
    """One training run: a stage with a method. What stage 0 names is scored without being trained."""

    stage: int
    method: str
    beta: float = 0.0

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.stage}-{self.method}-{self.beta:g}"


class Study(ABC):
    """One study with its configuration. The folder of a seed has start/, what its runs start from, and theirs."""

    config: StudyConfig
    render: Callable[[Path], str]
    """The page of the rows that are in a folder."""
    right: float = RIGHT
    """Probability that a demonstration of the last quarter of pretraining is right."""

    def __init__(self, config: StudyConfig) -> None:
        self.config = config
        self.roles: dict[int, Role] = {seed: role for role, seeds in config.seeds.items() for seed in seeds}

    def settings(self, seed: int) -> LLMConfig:
        """What the bridge's jobs read: the tiny preset with this study's numbers."""
        config = self.config
        return replace(
            PRESETS["tiny"],
            seed=seed,
            math_batch=config.batch,
            group_size=config.group_size,
            reference_group_size=config.cached,
            math_learning_rate=config.learning_rate,
            max_response_length=config.max_response_length,
            pretraining_steps=config.pretraining_steps,
            reward_function=f"pkg://{compute_score.__module__}:{compute_score.__name__}",
            loggers=("console", "file"),
            **self.own_settings(),
        )

    @abstractmethod
    def own_settings(self) -> dict[str, Any]:
        """Fields of LLMConfig for this study's other numbers, so that a results folder tells two of them apart."""

    @abstractmethod
    def runs(self, seed: int, rows: pd.DataFrame) -> list[Run]:
        """Those of a seed. rows: of all finished runs. Raises InputError where rows that choose are missing."""

    @abstractmethod
    def steps(self, run: Run) -> int:
        """How many a run has."""

    @abstractmethod
    def options(self, run: Run, start: Path) -> dict[str, Any]:
        """VeRL's options of a run beside its steps and folders, as the trainer `several` reads them."""

    @abstractmethod
    def score(self, run: Run, model: Path, start: Path) -> Iterable[dict[str, Any]]:
        """Rows of a finished run, one per set of prompts, with the column `set`. model: a Hugging Face folder."""

    def continued(self, run: Run) -> Run | None:
        """The run from whose weights this one starts; None for the starting model."""
        return None

    def make_start(self, seed: int, folder: Path) -> None:
        """Write FOLDER/model, the tiny experiment's sets, responses.parquet, and, last, buffer.parquet.

        The buffer's prompts are the first of the math training set, which is in random order.
        """
        if (folder / "buffer.parquet").is_file():
            return
        settings, model = self.settings(seed), folder / "model"
        if not (model / "tokenizer_config.json").is_file():
            from llm_bridge.tiny.make import make_tiny

            make_tiny(folder, settings.pretraining_steps, seed, self.right)
        prompts, responses = folder / "math_train.parquet", folder / "responses.parquet"
        asked = [list(prompt) for prompt in read_parquet(prompts)["prompt"].head(settings.buffer_prompts)]
        drawn = sample(model, asked, self.config.cached, settings.max_response_length, seed)
        write_parquet(drawn, responses)
        bring_buffer(prompts, responses, str(model), Judge(compute_score)).save(folder / "buffer.parquet")

    def end_of(self, run: Run, folder: Path) -> Path:
        """The actor's last checkpoint of a run in a seed's folder."""
        return folder / run.name / "checkpoints" / f"global_step_{self.steps(run)}" / "actor"

    def run(self, root: Path, seeds: Sequence[int], keep_going: bool) -> None:
        """Train what `seeds` lack, a seed at a time, and write ROOT/{stages.csv, steps.csv, results.md} after each.

        Rows that are in ROOT already are not made again. Raises InputError for a folder of another experiment, with
        rows of other seeds or of other code, for seeds that need others first, and for a job that fails or hangs.
        """
        for seed, role in read_rows(root, RUNS)[["seed", "role"]].drop_duplicates().itertuples(index=False):
            if self.roles.get(seed) != role:
                raise InputError(
                    f"{root} has rows of seed {seed}, {role}, which is none of this study's: choose another --out, or "
                    "take the same --selection-seeds and --reported-seeds"
                )
        methods = [("cokl", None, None), ("reverse_kl", None, None)]
        Experiment(self.settings(0), root, keep_going=keep_going).open(methods)
        for seed in self.roles:
            if seed in seeds:
                self._train_missing(seed, root)
                write_text(self.render(root), root / "results.md")

    def _train_missing(self, seed: int, root: Path) -> None:
        folder = root / f"seed-{seed}"
        runs = self.runs(seed, read_rows(root, RUNS))
        self.collect(seed, runs, folder, root)  # what an interrupted job has finished
        missing = [run for run in runs if run not in scored_runs(root, seed)]
        before = [self.continued(run) for run in missing]
        needed = [run for run in runs if run in missing or run in before]
        if missing:
            self.train(seed, needed, folder)
            self.collect(seed, needed, folder, root)

    def train(self, seed: int, runs: Sequence[Run], folder: Path) -> None:
        """Train what is not done of a seed's runs, in one VeRL job. FOLDER/RUN/metrics.jsonl is VeRL's log of each.

        Raises InputError if the job fails or hangs.
        """
        start = folder / "start"
        folder.mkdir(parents=True, exist_ok=True)
        with hold(folder / "running.lock", f"{folder} is being worked on by another process") as own:
            self.make_start(seed, start)
            trained = [run for run in runs if run.stage]
            if all((folder / run.name / DONE).is_file() for run in trained):
                return
            print(f"{time.strftime('%H:%M:%S')}  seed {seed}: {len(trained)} runs", flush=True)
            write_text(json.dumps([self._described(run, folder) for run in trained], indent=1), folder / "runs.json")
            settings = replace(self.settings(seed), own_data=str(start))
            job = several_job(settings, folder, start / "model", folder / "runs.json")
            with one_job_at_a_time() as cluster:
                run_verl(settings, job, folder / METRICS, STALL, (own, cluster))

    def collect(self, seed: int, runs: Sequence[Run], folder: Path, root: Path) -> None:
        """Add the finished runs of a seed to ROOT/stages.csv and ROOT/steps.csv, replacing older rows of theirs."""
        scored, logged = [], []
        for run in runs:
            known = {"seed": seed, "role": self.roles[seed], **asdict(run)}
            trained = (folder / run.name / DONE).is_file()
            if trained or (run.stage == 0 and (folder / "start" / "model").is_dir()):
                model = self.end_of(run, folder) / "huggingface" if trained else folder / "start" / "model"
                scored += [known | row for row in self.score(run, model, folder / "start")]
            for step, data in read_metrics(folder / run.name).items() if trained else ():
                accuracy, share = data["critic/score/mean"], data.get("cokl/gradient_share")
                logged.append({**known, "step": step, "accuracy": accuracy, "gradient_share": share})
        for name, new in ((RUNS, scored), (STEPS, logged)):
            if new:
                _add(pd.DataFrame(new), root / name)

    def _described(self, run: Run, folder: Path) -> dict[str, Any]:
        """A run as the trainer `several` reads it."""
        place, before = folder / run.name, self.continued(run)
        own = self.options(run, folder / "start")
        options = {
            "trainer.v1.trainer_mode": "cokl_rewarded" if "cokl" in own else "rewarded",
            "trainer.total_training_steps": self.steps(run),
            "trainer.save_freq": self.steps(run),
            "trainer.default_local_dir": str(place / "checkpoints"),
            "trainer.test_freq": -1,
            **own,
        }
        weights = str(self.end_of(before, folder)) if before else ""
        return {"options": options, "weights": weights, "metrics": str(place / METRICS), "done": str(place / DONE)}


def _add(new: pd.DataFrame, path: Path) -> None:
    table = new
    if path.is_file():
        old = pd.read_csv(path)
        ours = old.set_index(KEY).index.isin(new.set_index(KEY).index)
        table = pd.concat([old[~ours], new], ignore_index=True)
    order = [name for name in (*KEY, "set", "step") if name in table]
    write_atomically(path, partial(table.sort_values(order).to_csv, index=False, float_format="%.6g"))


def read_rows(root: Path, name: str) -> pd.DataFrame:
    """ROOT/NAME; an empty table if there is none."""
    return pd.read_csv(root / name) if (root / name).is_file() else pd.DataFrame(columns=[*KEY, "role", "set", "step"])


def scored_runs(root: Path, seed: int) -> set[Run]:
    """The runs of a seed that have their rows."""
    rows = read_rows(root, RUNS)
    rows = rows[rows["seed"] == seed]
    return {Run(int(stage), str(method), float(beta)) for _, stage, method, beta in rows[KEY].to_numpy().tolist()}
