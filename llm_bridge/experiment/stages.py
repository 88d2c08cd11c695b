"""The stages of an experiment: data, math stage, buffer, chat stage with each method, evaluation.

Each stage is done when its result is there, and starting again resumes from what is there: VeRL's last checkpoint in
the training stages. Every job is a process of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from cokl import methods
from cokl.support.code import with_code
from cokl.support.errors import InputError
from cokl.support.files import read_json, write_parquet, write_text
from cokl.support.results import WITHOUT_CONFIG, differences, require_own
from llm_bridge.experiment import jobs
from llm_bridge.experiment.config import BASE, REVISIONS, LLMConfig
from llm_bridge.experiment.logged import final_scores
from llm_bridge.experiment.process import alone, run
from llm_bridge.experiment.workloads import CANDIDATES

if TYPE_CHECKING:
    from omegaconf import DictConfig

ChatRun = tuple[str, float | None]
"""A method's name, and the coefficient where it is not the configuration's."""


def driver_version() -> tuple[int, int] | None:
    """The newest CUDA that the GPU's driver knows, (13, 0) for 13.0; None without a driver."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return version.value // 1000, version.value % 1000 // 10


@dataclass(frozen=True)
class Experiment:
    """An experiment in a folder of its own.

    overrides: VeRL options in Hydra's syntax, for every job, after ours. data_dir: local copies of the data sets.
    """

    config: LLMConfig
    root: Path
    overrides: tuple[str, ...] = ()
    data_dir: Path | None = None

    def open(self) -> None:
        """Record the configuration in the folder. Raises InputError if it holds another experiment, or other things."""
        require_own(self.root, ("config.json",))
        described = {**self.config.as_dict(), "overrides": list(self.overrides)}
        config = json.loads(json.dumps(with_code(described, {path.name: path for path in self._given()})))
        self._require_same(self.root / "config.json", config, f"{self.root} holds another experiment")

    def _given(self) -> Iterator[Path]:
        """Files of the user's that decide numbers: prompts, and a module with the reward function."""
        if self.config.own_data:
            for name in self.config.sets:
                yield Path(jobs.prompts_file(self.config, self.root, name))
        where = self.config.reward_function.rpartition(":")[0]
        if where.startswith("pkg://"):
            spec = find_spec(where.removeprefix("pkg://"))
            where = spec.origin or "" if spec else ""
        if where and Path(__file__).parents[1] not in Path(where).expanduser().resolve().parents:
            yield Path(where).expanduser()

    def require_device(self) -> None:
        """Raises InputError for a GPU configuration on a machine without a GPU that PyTorch can use, and that is no
        part of a cluster.
        """
        import torch

        if self.config.device == "cuda" and "RAY_ADDRESS" not in os.environ and not torch.cuda.is_available():
            driver, built = driver_version(), torch.version.cuda
            if driver and built is None:
                raise InputError("this PyTorch is built for CPUs, and there is a GPU's driver here: run make llm-gpu")
            if driver and built and driver < tuple(map(int, built.split(".")[:2])):
                raise InputError(
                    f"a driver older than PyTorch: it knows CUDA {driver[0]}.{driver[1]}, and PyTorch is built for "
                    f"{built}; install a newer driver (CUDA 13.0 needs 580)"
                )
            raise InputError(
                "this configuration trains on GPUs, and there is none here: run it on a GPU node, set RAY_ADDRESS to a "
                "cluster, look at it with --dry-run, or take --preset smollm2"
            )

    def fetched(self) -> LLMConfig:
        """The configuration with folders in place of the hub's models, which are fetched at their pinned commits unless
        they are in the cache. Raises InputError where one cannot be had.
        """
        from llm_bridge.buffer.groups import model_folder

        def folder(model: str) -> str:
            return str(model_folder(model, REVISIONS.get(model, "")).absolute()) if model else ""

        return replace(self.config, model=folder(self.config.model), reward_model=folder(self.config.reward_model))

    @property
    def start(self) -> str:
        """The model before the math stage: a name on the hub, or a folder."""
        return self.config.model or str(self.root / "data" / "model")

    @property
    def reference(self) -> Path:
        """The chat stage's start and its reference: the model after the math stage, if there is one."""
        math_stage = self.config.workload.math_stage
        return jobs.trained(self.config, self.root, BASE).model if math_stage else Path(self.start)

    def prepare(self) -> None:
        """The prompts, unless they are the user's own, and the workload's starting model where no other is named."""
        data, write = self.root / "data", self.config.workload.prompts.write
        made = [*(["data"] if write else []), *([] if self.config.model else ["starting model"])]
        if not made or (data / ("done" if self.config.model else "model/tokenizer_config.json")).is_file():
            return
        weights = None if self.config.model else resolve_name(self.config.workload.start.weights)
        if weights:
            weights.require_room(self.root, self.config.name)
            packed = weights.find_weights()
        _say(" and ".join(made))
        if write:
            resolve_name(write)(data, seed=self.config.seed, data_dir=self.data_dir)
        if weights:
            weights.convert(packed, data / "model")

    def train_math(self) -> None:
        """The math stage, from the starting model; without one, what the chat stage starts from."""
        self.prepare()
        config = self.fetched()
        if not config.workload.math_stage:
            return
        math = partial(jobs.math_job, config, self.root, config.model or self.start)
        if config.workload.prompts.strata:
            self._form_strata(config, math)
        self._train(math(), BASE)

    def _form_strata(self, config: LLMConfig, math: Callable[[], jobs.Job]) -> None:
        """The evaluation sets that the answers of the math-stage model decide on, unless they are there."""
        last = jobs.last_stratum(config, self.root)
        if math().done and last.is_file():
            return
        last.unlink(missing_ok=True)  # another model's
        job = math()
        self.run(job)
        drawn = job.folder / CANDIDATES / f"{job.steps}.jsonl"
        if not drawn.is_file() or drawn.read_bytes()[-1:] != b"\n":  # none, or cut off in a line
            self.run(job, jobs.EVALUATE_ONLY)
        resolve_name(config.workload.prompts.strata)(drawn, last.parent, config.buffer_prompts)

    def fill_buffer(self) -> None:
        """The reference-correct buffer.

        Raises InputError for an older model's buffer, and for a job that fails or leaves none.
        """
        from llm_bridge.buffer.groups import Buffer, model_fingerprint

        path = self.root / "buffer.parquet"
        self.train_math()
        if path.is_file():
            Buffer.load(path, model_fingerprint(self.reference))
            return
        self._draw_buffer_prompts()
        self.run(jobs.buffer_job(self.config, self.root, self.reference))
        if not path.is_file():
            raise InputError(f"the buffer job ended without a buffer; see {self.root / 'buffer' / 'log.txt'}")

    def train_chat(self, method_name: str, beta: float | None = None) -> None:
        """The chat stage with one method. Raises InputError where it started from another math-stage model."""
        from llm_bridge.buffer.groups import model_fingerprint

        self.train_math()
        method_name, regularized = methods.get(method_name).name, bool(methods.get(method_name).streams())
        if regularized:
            self.fill_buffer()
        job = jobs.chat_job(self.fetched(), self.root, self.reference, method_name, beta)
        description = {
            "method": method_name,
            "beta": (self.config.beta(method_name) if beta is None else beta) if regularized else 0.0,
            "kl_prompts": jobs.kl_prompts(self.config, method_name),
            "main": beta is None,
            "reference": model_fingerprint(self.reference),
        }
        if regularized:
            description = with_code(description, {method_name: type(methods.get(method_name).regularizer)})
        self._require_same(job.folder / "run.json", description, f"{job.folder} holds another run")
        self._train(job, job.folder.name)

    def check_prompts(self) -> None:
        """Raises InputError for prompts of one's own that are not as VeRL reads them, and for sets without prompts."""
        from llm_bridge.data.prepare import check_own

        if self.config.own_data:
            check_own(Path(jobs.prompts_file(self.config, self.root, "")).parent, self.config.sets)
        elif not set(self.config.math_sets) <= set(known := self.config.workload.prompts.sets):
            raise InputError(f"math_sets: expected some of {', '.join(known)}; prompts of your own need --own-data")

    def check(self, runs: Sequence[ChatRun]) -> list[tuple[jobs.Job, DictConfig]]:
        """The math stage, if any, and what the chat runs need, in order, done or not, each with VeRL's configuration.

        Raises InputError for prompts, settings and overrides that would be refused later, before any work.
        """
        self.check_prompts()
        from omegaconf import OmegaConf

        from llm_bridge.trainer.checks import look_at_settings

        planned = [jobs.math_job(self.config, self.root, self.start)] if self.config.workload.math_stage else []
        if any(methods.get(method_name).streams() for method_name, _ in runs):
            planned.append(jobs.buffer_job(self.config, self.root, self.reference))
        planned += [jobs.chat_job(self.config, self.root, self.reference, *run) for run in runs]
        jobs.check_overrides(self.overrides)
        planned = [replace(job, overrides=(*job.overrides, *self.overrides)) for job in planned]
        checked = [(job, jobs.compose(job)) for job in planned]
        for job, composed in checked:
            if OmegaConf.select(composed, "cokl.method"):
                refused, _ = look_at_settings(composed)
                if refused:
                    raise InputError(f"{job.name}: {'; '.join(refusal.reason for refusal in refused)}")
        self._check_function()
        return checked

    def _check_function(self) -> None:
        """Raises InputError for a reward function of one's own that is not there, or that fails for a right answer.

        The first prompt of each of one's own sets is answered with its ground truth. A function beside a reward model
        cannot be asked yet.
        """
        name = self.config.reward_function
        if not name or name.startswith("pkg://llm_bridge."):
            return
        import pandas as pd

        from llm_bridge.rewards.judge import load_function, reward_of

        routed = ("reward_router_address", "reward_model_tokenizer") if self.config.reward_model else ()
        function = load_function(name, **dict.fromkeys(routed))
        if self.config.own_data and not self.config.reward_model:
            for source in self.config.sets:
                row = pd.read_parquet(jobs.prompts_file(self.config, self.root, source)).iloc[0]
                truth = row["reward_model"]["ground_truth"]
                reward_of(function, str(truth), row["data_source"], truth, row["extra_info"])

    def run(self, job: jobs.Job, options: Sequence[str] = ()) -> None:
        """Run a job unless it is done, or with VeRL's `options` in any case. Raises InputError if it fails."""
        if job.done and not options:
            return
        log, metrics = job.folder / "log.txt", job.folder / "metrics"
        if job.steps and not job.last_step:  # from its start: what lies there is another model's
            for stale in (metrics, job.folder / CANDIDATES):
                shutil.rmtree(stale, ignore_errors=True)
        metrics.mkdir(parents=True, exist_ok=True)
        resumed = f" from step {job.last_step} of {job.steps}" if job.last_step else ""
        _say(f"{job.name}{', evaluation' if options else resumed}; log: {log}")
        variables = jobs.environment(self.config, metrics / f"{len(list(metrics.glob('*.jsonl'))):03d}.jsonl")
        with alone():
            run([sys.executable, *jobs.command_line((*job.overrides, *self.overrides, *options))], variables, log)
        if job.last_step < job.steps:
            raise InputError(f"{job.name} ended at step {job.last_step} of {job.steps}; see {log}, then run it again")

    def _train(self, job: jobs.Job, name: str) -> None:
        """Train, evaluate what is not evaluated yet, and keep the model alone of what checkpoints hold."""
        self.run(job)
        if not final_scores(self.config, self.root, name):
            self.run(job, jobs.EVALUATE_ONLY)
            if not final_scores(self.config, self.root, name):
                raise InputError(f"{job.name}: no scores in {job.folder / 'metrics'}; trainer.logger needs file")
        for path in (job.folder / "checkpoints").glob("global_step_*/**/*"):
            if path.is_file() and job.model not in path.parents:
                path.unlink()

    def _draw_buffer_prompts(self) -> None:
        """Buffer prompts: a seeded draw from the workload's file, which is the math training set in the paper (E.3)."""
        import pandas as pd

        rows = pd.read_parquet(jobs.prompts_file(self.config, self.root, self.config.workload.buffer_file))
        drawn = rows.sample(n=min(self.config.buffer_prompts, len(rows)), random_state=self.config.seed)
        write_parquet(drawn.reset_index(drop=True), self.root / "buffer" / "prompts.parquet")

    @staticmethod
    def _require_same(stored: Path, content: dict, otherwise: str) -> None:
        """Write a description, or compare with the one that is there. Raises InputError if it is another."""
        if not stored.is_file():
            write_text(json.dumps(content, indent=2) + "\n", stored)
        elif differing := "; ".join(differences(read_json(stored, dict, WITHOUT_CONFIG), content)):
            raise InputError(f"{otherwise} ({differing}); choose another --out or remove it")


def _say(stage: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {stage}", flush=True)
