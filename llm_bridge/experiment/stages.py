"""The stages of an experiment: data, math stage, buffer, chat stage with each method, evaluation.

Each stage is done when its result is there, and starting again resumes from what is there: VeRL's last checkpoint in
the training stages, the last saved chunk in the buffer. Every job is a process of its own, watched for progress.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cokl import methods
from cokl.support.errors import InputError
from cokl.support.files import read_json, write_parquet, write_text
from cokl.support.results import differences
from llm_bridge.data.config import DataConfig
from llm_bridge.experiment import disk, jobs
from llm_bridge.experiment.config import BASE, REVISIONS, LLMConfig
from llm_bridge.experiment.lock import hold
from llm_bridge.experiment.logged import final_scores
from llm_bridge.experiment.supervise import one_job_at_a_time, run_watched

if TYPE_CHECKING:
    from omegaconf import DictConfig

EXECUTION = (
    "trainer.logger",
    "trainer.project_name",
    "trainer.experiment_name",
    "trainer.save_freq",
    "trainer.max_actor_ckpt_to_keep",
)
"""Overrides that change how a run is shown and saved, not what it computes."""

_ELSEWHERE = ("loggers", "accelerators", "nodes")
"""Settings in which two commands on one experiment may differ."""

ChatRun = tuple[str, float | None, int | None]
"""A method's name, and the coefficient and the response groups per update where they are not the configuration's."""


@dataclass(frozen=True)
class Experiment:
    """An experiment in a folder of its own.

    overrides: VeRL options in Hydra's syntax, for every job, after ours. stall: seconds without a line of output after
    which a job is ended as hung. keep: what is left on disk of a run that is finished and evaluated. push: the user or
    organization on the hub that final models are uploaded to; none if empty.
    """

    config: LLMConfig
    root: Path
    overrides: tuple[str, ...] = ()
    data_dir: Path | None = None
    stall: float = 3600.0
    data: DataConfig = DataConfig()
    keep: disk.Keep = "model"
    push: str = ""

    def open(self) -> None:
        """Record the configuration in the folder. Raises InputError if it holds another experiment."""
        stored = self.root / "config.json"
        kept = [override for override in self.overrides if override.lstrip("+~").split("=")[0] not in EXECUTION]
        config = self.config.as_dict() | dict.fromkeys(_ELSEWHERE) | {"overrides": kept}
        config = json.loads(json.dumps(config))
        if not stored.is_file():
            write_text(json.dumps(config, indent=2) + "\n", stored)
        elif differing := "; ".join(differences(read_json(stored, dict), config)):
            raise InputError(f"{self.root} holds another experiment ({differing}); choose another --out or remove it")

    def fetched(self) -> LLMConfig:
        """The configuration with folders in place of the hub's models, which are fetched at their pinned commits unless
        they are in the cache. Raises InputError where one cannot be had.
        """
        from cokl.responses.buffer import model_folder

        def folder(model: str, revision: str) -> str:
            return str(model_folder(model, revision or REVISIONS.get(model, "")).absolute()) if model else ""

        return replace(
            self.config,
            model=folder(self.config.model, self.config.model_revision),
            reward_model=folder(self.config.reward_model, self.config.reward_model_revision),
        )

    @property
    def reference(self) -> Path:
        """The model after the math stage: the chat stage's start and its reference."""
        return jobs.math_job(self.config, self.root, "").model

    def prepare(self) -> None:
        """The data sets, unless they are the user's own, and for the tiny experiment the starting model."""
        from llm_bridge.data.prepare import check_own, prepare

        data = self.root / "data"
        if self.config.own_data:
            names = ("math_train", "chat_train", *self.config.evaluation_sets)
            check_own(jobs.prompts_file(self.config, self.root, "").parent, names)
            if self.config.model:
                return
        if self.config.model:
            if not (data / "manifest.json").is_file():
                _say("data")
            prepare(data, self.data_dir, self.data)  # which leaves what is there and of this configuration
        elif not (data / "model" / "tokenizer_config.json").is_file():
            from llm_bridge.tiny.make import make_tiny

            _say("data, tokenizer and starting model")
            make_tiny(data, self.config.pretraining_steps, self.config.seed)

    def train_math(self) -> None:
        """The math stage, from the starting model."""
        self.prepare()
        config = self.fetched()
        self._train(jobs.math_job(config, self.root, config.model or self.root / "data" / "model"), BASE)

    def fill_buffer(self) -> None:
        """The reference-correct buffer, from the math-stage model.

        Raises InputError for an older model's buffer, and for a job that fails, hangs or leaves none.
        """
        from cokl.responses.buffer import Buffer, model_fingerprint

        path = self.root / "buffer.parquet"
        self.train_math()
        if path.is_file():
            Buffer.load(path, model_fingerprint(self.reference))
            return
        self.draw_buffer_prompts()
        self.run(jobs.buffer_job(self.config, self.root, self.reference))
        if not path.is_file():
            raise InputError(f"the buffer job ended without a buffer; see {self.root / 'buffer' / 'log.txt'}")

    def train_chat(self, method_name: str, beta: float | None = None, kl_groups: int | None = None) -> None:
        """The chat stage with one method."""
        self.train_math()
        regularized = bool(methods.get(method_name).streams())
        if regularized:
            self.fill_buffer()
        job = jobs.chat_job(self.fetched(), self.root, self.reference, method_name, beta, kl_groups)
        self._require_same_reference(job)
        description = {
            "method": method_name,
            "beta": (self.config.beta(method_name) if beta is None else beta) if regularized else 0.0,
            "kl_prompts": jobs.kl_prompts(self.config, method_name, kl_groups),
            "main": beta is None and kl_groups is None,
        }
        write_text(json.dumps(description) + "\n", job.folder / "run.json")
        self._train(job, job.folder.name)

    def evaluate(self, name: str) -> None:
        """average@n of "base" or of a trained variant, in a job of its own. Raises InputError if it is not trained."""
        job = jobs.math_job(self.config, self.root, "")
        if name != BASE:
            job = jobs.Job(f"chat/{name}", self.root / "chat" / name, (), self.config.chat_steps, {})
        if not job.done:
            raise InputError(f"{name}: there is no trained model in {job.folder}; train it first")
        model = job.model if any(job.model.glob("*")) else self.exported(name)
        self.run(jobs.evaluation_job(self.fetched(), self.root, name, model))

    def check(self, runs: Sequence[ChatRun]) -> list[tuple[jobs.Job, DictConfig]]:
        """The math stage and what the chat runs need, in order, done or not, as `composed` gives them."""
        planned = [jobs.math_job(self.config, self.root, self.config.model or self.root / "data" / "model")]
        if any(methods.get(method_name).streams() for method_name, _, _ in runs):
            planned.append(jobs.buffer_job(self.config, self.root, self.reference))
        planned += [jobs.chat_job(self.config, self.root, self.reference, *run) for run in runs]
        return self.composed(planned)

    def composed(self, planned: Sequence[jobs.Job]) -> list[tuple[jobs.Job, DictConfig]]:
        """Jobs with this experiment's overrides, and VeRL's configuration of each. Raises InputError for settings and
        overrides that VeRL or the joint loss would refuse, before any work.
        """
        overridden = [replace(job, overrides=(*job.overrides, *self.overrides)) for job in planned]
        checked = [(job, jobs.compose(job)) for job in overridden]
        from omegaconf import OmegaConf

        from llm_bridge.trainer.options import check_settings

        for job, composed in checked:
            if OmegaConf.select(composed, "cokl.method"):
                try:
                    check_settings(composed, self.config.reference_group_size)
                except InputError as error:
                    raise InputError(f"{job.name}: {error}") from error
        return checked

    def exported(self, name: str) -> Path:
        """The folder of a final model, "base" or a chat run's, in bfloat16."""
        return self.root / "models" / name

    def _train(self, job: jobs.Job, name: str) -> None:
        """Train, evaluate what a run that died after its last checkpoint has left unevaluated, and keep the model."""
        self.run(job)
        if not final_scores(self.config, self.root, name):
            self.evaluate(name)
        model = self.exported(name)
        if not model.is_dir():
            disk.export(job, model)
        disk.prune(job, self.keep)
        pushed = model.with_name(f"{name}.pushed")
        if self.push and not pushed.is_file():
            repository = f"{self.push}/{self.root.name}-{name}"
            disk.push(model, repository)
            write_text(f"{repository}\n", pushed)

    def _require_same_reference(self, job: jobs.Job) -> None:
        """Refuse to resume a chat run that started from another math-stage model."""
        from cokl.responses.buffer import model_fingerprint

        current, stored = model_fingerprint(self.reference), job.folder / "reference.txt"
        if not stored.is_file():
            write_text(current + "\n", stored)
        elif stored.read_text(encoding="utf-8").strip() != current:
            raise InputError(f"{job.folder} started from another math-stage model; remove that folder to train again")

    def _require_same_ranks(self, job: jobs.Job) -> None:
        """Refuse to resume from a checkpoint on another number of accelerators, whose shards FSDP could not load."""
        ranks = self.config.nodes * self.config.accelerators
        actor = job.folder / "checkpoints" / f"global_step_{job.last_step}" / "actor"
        saved = {path.name.split("_")[3] for path in actor.glob("model_world_size_*_rank_0.pt")}
        if saved and str(ranks) not in saved:
            raise InputError(
                f"{job.name}: its checkpoint was saved by {saved.pop()} accelerators and this command has {ranks}, "
                f"which its shards do not fit; resume with as many, or remove {job.folder} to train it again"
            )

    def draw_buffer_prompts(self) -> None:
        """Buffer prompts: a seeded draw from the math training set (E.3)."""
        import pandas as pd

        rows = pd.read_parquet(jobs.prompts_file(self.config, self.root, "math_train"))
        count = min(self.config.buffer_prompts, len(rows))
        drawn = rows.sample(n=count, random_state=self.config.seed).reset_index(drop=True)
        write_parquet(drawn, self.root / "buffer" / "prompts.parquet")

    def run(self, job: jobs.Job) -> None:
        """Run a job unless it is done. Raises InputError, with the end of its log, if it fails or hangs."""
        if job.done:
            return
        self._require_same_ranks(job)
        job = replace(job, overrides=(*job.overrides, *self.overrides))
        logs = job.folder / "metrics"
        logs.mkdir(parents=True, exist_ok=True)
        metrics = logs / f"{len(list(logs.glob('*.jsonl'))):03d}.jsonl"
        _say(job.name + (f", from step {job.last_step} of {job.steps}" if job.last_step else ""))
        busy = f"{job.name} is being run by another process"
        with hold(job.folder / "running.lock", busy) as own, one_job_at_a_time() as cluster:
            disk.remove_all_but(job, job.last_step)  # the last complete one; VeRL forgets others after a restart
            run_verl(self.config, job, metrics, self.stall, (own, cluster))
        if job.steps and not job.done:
            raise InputError(
                f"{job.name} ended at step {job.last_step} of {job.steps}; see {job.folder / 'log.txt'}, then run the "
                "same command again"
            )
        if job.steps == 0 and job.name != "buffer":
            write_text("done\n", job.folder / "done")


def run_verl(config: LLMConfig, job: jobs.Job, metrics: Path, stall: float, locks: Sequence[int]) -> None:
    """Run a job's process, as `run_watched` does. metrics: where its JSON lines go."""
    command, environment = [sys.executable, *jobs.command_line(job.overrides)], jobs.environment(config, job, metrics)
    run_watched(command, environment, job.folder / "log.txt", stall, locks)


def _say(stage: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {stage}", flush=True)
