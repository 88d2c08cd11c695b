"""The stages of an experiment: data, math stage, buffer, chat stage with each method, evaluation.

Each stage is done when its result is there, and starting again goes on from what is there: VeRL's last checkpoint in
the training stages, the last saved chunk in the buffer. Every job is a process of its own, watched for progress.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cokl import methods
from cokl.support.errors import InputError
from cokl.support.files import differences, read_json, write_text
from llm_bridge.experiment import jobs as verl_config
from llm_bridge.experiment.config import BASE, LLMConfig
from llm_bridge.experiment.jobs import Job
from llm_bridge.experiment.logged import final_scores

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

ChatRun = tuple[str, float | None, int | None]
"""A method, and the coefficient and the response groups per update where they are not the configuration's."""


@dataclass(frozen=True)
class Experiment:
    """An experiment in a folder of its own.

    overrides: VeRL options in Hydra's syntax, for every job, after ours. stall: seconds without a line of output after
    which a job is ended as hung.
    """

    config: LLMConfig
    root: Path
    overrides: tuple[str, ...] = ()
    data_dir: Path | None = None
    stall: float = 3600.0

    def open(self) -> None:
        """Tie the folder to the configuration. Raises InputError if it holds another experiment."""
        stored = self.root / "config.json"
        kept = [override for override in self.overrides if override.lstrip("+~").split("=")[0] not in EXECUTION]
        config = {**self.config.as_dict(), "loggers": None, "overrides": kept}
        config = json.loads(json.dumps(config))
        if stored.is_file():
            changed = differences(read_json(stored, dict), config)
            if changed:
                raise InputError(
                    f"{self.root} holds another experiment ({'; '.join(changed)}); choose another --out or remove it"
                )
        else:
            write_text(json.dumps(config, indent=2) + "\n", stored)

    @property
    def starting_model(self) -> Path | str:
        """Where the math stage starts."""
        return self.config.model or self.root / "data" / "model"

    @property
    def reference(self) -> Path:
        """The model after the math stage: the chat stage's start and its reference."""
        return checkpoint_model(verl_config.math_job(self.config, self.root, ""))

    def prepare(self) -> None:
        """The data sets, and for the tiny experiment the starting model."""
        data = self.root / "data"
        if (data / ("manifest.json" if self.config.model else "model/tokenizer_config.json")).is_file():
            return
        _say("data" if self.config.model else "data, tokenizer and starting model")
        if self.config.model:
            from llm_bridge.data.prepare import prepare

            prepare(data, self.data_dir)
        else:
            from llm_bridge.tiny.make import make_tiny

            make_tiny(data, self.config.pretraining_steps, self.config.seed)

    def train_math(self) -> None:
        """The math stage, from the starting model."""
        self.prepare()
        self._train(verl_config.math_job(self.config, self.root, self.starting_model), BASE)

    def fill_buffer(self) -> None:
        """The reference-correct buffer, from the math-stage model. An older model's buffer is refused."""
        from llm_bridge.buffer import Buffer, model_fingerprint

        path = self.root / "buffer.parquet"
        self.train_math()
        if path.is_file():
            Buffer.load(path, model_fingerprint(self.reference))
            return
        self._draw_buffer_prompts()
        self._run(verl_config.buffer_job(self.config, self.root, self.reference))
        if not path.is_file():
            raise InputError(f"the buffer job ended without a buffer; see {self.root / 'buffer' / 'log.txt'}")

    def train_chat(self, method: str, beta: float | None = None, kl_groups: int | None = None) -> None:
        """The chat stage with one method."""
        self.train_math()
        if methods.get(method).streams():
            self.fill_buffer()
        job = verl_config.chat_job(self.config, self.root, self.reference, method, beta, kl_groups)
        self._require_same_reference(job)
        description = {
            "method": method,
            "beta": (self.config.beta(method) if beta is None else beta) if methods.get(method).streams() else 0.0,
            "kl_prompts": verl_config.kl_prompts(self.config, method, kl_groups),
            "main": beta is None and kl_groups is None,
        }
        write_text(json.dumps(description) + "\n", job.folder / "run.json")
        self._train(job, job.folder.name)

    def evaluate(self, name: str) -> None:
        """average@n of "base" or of a trained variant, in a job of its own."""
        job = verl_config.math_job(self.config, self.root, "")
        if name != BASE:
            job = Job(f"chat/{name}", self.root / "chat" / name, (), self.config.chat_steps, {})
        if not is_done(job):
            raise InputError(f"{name}: there is no trained model in {job.folder}; train it first")
        self._run(verl_config.evaluation_job(self.config, self.root, name, checkpoint_model(job)))

    def planned_jobs(self, runs: Sequence[ChatRun]) -> list[Job]:
        """The math stage and what the chat runs need, in order, whether or not it is done; nothing is started."""
        jobs = [verl_config.math_job(self.config, self.root, self.starting_model)]
        if any(methods.get(method).streams() for method, _, _ in runs):
            jobs.append(verl_config.buffer_job(self.config, self.root, self.reference))
        jobs += [verl_config.chat_job(self.config, self.root, self.reference, *run) for run in runs]
        return [replace(job, overrides=(*job.overrides, *self.overrides)) for job in jobs]

    def check(self, runs: Sequence[ChatRun]) -> list[tuple[Job, DictConfig]]:
        """The planned jobs with VeRL's configuration of each. Raises InputError for settings and overrides that VeRL or
        the joint loss would refuse, before any work.
        """
        planned = [(job, verl_config.compose(job)) for job in self.planned_jobs(runs)]
        from llm_bridge.trainer.options import check_settings

        for job, composed in planned:
            if job.name.startswith("chat/"):
                try:
                    check_settings(composed, self.config.reference_group_size)
                except InputError as error:
                    raise InputError(f"{job.name}: {error}") from error
        return planned

    def _train(self, job: Job, name: str) -> None:
        """Train, and evaluate what a run that died after its last checkpoint has left unevaluated."""
        self._run(job)
        if not final_scores(self.config, self.root, name):
            self.evaluate(name)

    def _require_same_reference(self, job: Job) -> None:
        """Refuse to go on with a chat run that started from another math-stage model."""
        from llm_bridge.buffer import model_fingerprint

        current, stored = model_fingerprint(self.reference), job.folder / "reference.txt"
        if not stored.is_file():
            write_text(current + "\n", stored)
        elif stored.read_text(encoding="utf-8").strip() != current:
            raise InputError(f"{job.folder} started from another math-stage model; remove that folder to train again")

    def _draw_buffer_prompts(self) -> None:
        """Buffer prompts: a seeded draw from the math training set (E.3)."""
        import pandas as pd

        from cokl.support.files import write_parquet

        rows = pd.read_parquet(self.root / "data" / "math_train.parquet")
        count = min(self.config.buffer_prompts, len(rows))
        drawn = rows.sample(n=count, random_state=self.config.seed).reset_index(drop=True)
        write_parquet(drawn, self.root / "buffer" / "prompts.parquet")

    def _run(self, job: Job) -> None:
        """Run a job unless it is done. Raises InputError, with the end of its log, if it fails or hangs."""
        if is_done(job):
            return
        job = replace(job, overrides=(*job.overrides, *self.overrides))
        job.folder.mkdir(parents=True, exist_ok=True)
        attempt = len(list((job.folder / "metrics").glob("*.jsonl"))) if (job.folder / "metrics").is_dir() else 0
        metrics = job.folder / "metrics" / f"{attempt:03d}.jsonl"
        metrics.parent.mkdir(exist_ok=True)
        _say(job.name + (f", from step {last_step(job)} of {job.steps}" if last_step(job) else ""))
        with _one_job_at_a_time() as lock:
            run_watched(
                [sys.executable, *verl_config.command_line(job.overrides)],
                verl_config.environment(self.config, job, metrics),
                job.folder / "log.txt",
                self.stall,
                lock,
            )
        if job.steps and not is_done(job):
            raise InputError(
                f"{job.name} ended at step {last_step(job)} of {job.steps}; see {job.folder / 'log.txt'}, then run the "
                "same command again"
            )
        if job.steps == 0 and job.name.startswith("evaluation/"):
            write_text("done\n", job.folder / "done")


def last_step(job: Job) -> int:
    """The step of VeRL's last complete checkpoint; 0 if there is none."""
    tracker = job.folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.is_file() else 0


def is_done(job: Job) -> bool:
    """Whether a job has its last checkpoint, or, where it trains nothing, its result."""
    if job.steps:
        return last_step(job) >= job.steps
    return (job.folder / "done").is_file()


def checkpoint_model(job: Job) -> Path:
    """The Hugging Face folder that a training job's last checkpoint holds."""
    return job.folder / "checkpoints" / f"global_step_{job.steps}" / "actor" / "huggingface"


def run_watched(command: list[str], environment: dict[str, str], log: Path, stall: float, lock: int) -> None:
    """Run a command in a session of its own, its output appended to `log`; show VeRL's progress on one line.

    Raises InputError if it fails, or prints nothing for `stall` seconds and is ended. An interrupt ends it too.
    lock: a file descriptor that the job keeps open, so that its lock outlives a killed parent.
    """
    started = time.time()
    with log.open("ab") as output:
        output.write(f"\n== started {time.strftime('%Y-%m-%d %H:%M:%S')} ==\n".encode())
        output.flush()
        begin = output.tell()
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, cwd=log.parent, pass_fds=(lock,),
        )  # fmt: skip
        try:
            changed, size = time.time(), begin
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
                now = log.stat().st_size
                if now != size:
                    changed, size = time.time(), now
                    _show(_progress(log, begin), time.time() - started)
                elif time.time() - changed > stall:
                    raise InputError(
                        f"no output for {stall:.0f} s, so the job was ended as hung; see {log}, then run the same "
                        "command again, which goes on from the last checkpoint"
                    )
        finally:
            _end(process)
            if sys.stderr.isatty():
                print("\r\x1b[2K", end="", file=sys.stderr)
    if process.returncode:
        raise InputError(f"{_reason(log, begin)}; the whole log is {log}")


def _end(process: subprocess.Popen) -> None:
    """End a job with all its workers, gently first."""
    for signal_number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            if signal_number == signal.SIGKILL or not _group_alive(process.pid):
                return


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    time.sleep(0.5)
    return True


def _progress(log: Path, begin: int) -> str:
    """VeRL's last progress line."""
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - 20_000))
        text = file.read().decode(errors="replace")
    found = re.findall(r"(?:Training Progress|buffer): [^\r\n]*", text)
    return re.sub(r"\|.*?\|", " ", found[-1])[:100] if found else "starting"


def _show(progress: str, seconds: float) -> None:
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K  {seconds:5.0f} s  {progress}"[: width + 5], end="", file=sys.stderr, flush=True)


def _reason(log: Path, begin: int) -> str:
    """The line of a failed job's log that says most."""
    lines: deque[str] = deque(maxlen=4000)
    with log.open("rb") as file:
        file.seek(begin)
        lines.extend(line.decode(errors="replace").rstrip() for line in file)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    plain = [re.sub(r"^\([^)]*pid=[^)]*\)\s*", "", line) for line in plain if line.strip()]
    for pattern in (r"^error: (.*)", r".*InputError: (.*)", r"^(\w+(?:\.\w+)*(?:Error|Exception): .*)"):
        found = [match.group(1) for line in plain if (match := re.match(pattern, line))]
        if found:
            return found[-1][:400]
    return plain[-1][:400] if plain else "the job failed without a word"


@contextlib.contextmanager
def _one_job_at_a_time() -> Iterator[int]:
    """Hold this machine's lock: two local clusters would give their weight updates the same socket.

    Raises InputError while another experiment holds it.
    """
    path = Path(tempfile.gettempdir()) / f"cokl-verl-{os.getuid()}.lock"
    with path.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise InputError(
                f"another experiment (process {lock.read().strip()}) is running VeRL on this machine, and two would "
                "block each other; wait for it or end it"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock.fileno()


def _say(stage: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {stage}", flush=True)
