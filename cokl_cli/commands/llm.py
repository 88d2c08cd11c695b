"""Commands of `cokl llm` that run the experiment. Heavy imports are inside `run`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.extras import SubcommandApp

from cokl.support.errors import InputError
from cokl.support.options import Coefficients, Names, from_json, require, separated
from cokl_cli.commands import llm_report
from cokl_cli.output import Output
from cokl_cli.presets import FromFile, changed, preset_among, stored_settings, value_after
from llm_bridge.data.config import DataConfig
from llm_bridge.experiment.config import (
    PAPER_METHODS,
    PRESETS,
    REVERSE_FAMILY,
    SEARCHED_BETAS,
    SEARCHED_KL_PROMPTS,
    UNSEARCHED,
    LLMConfig,
)

if TYPE_CHECKING:
    from llm_bridge.experiment.stages import ChatRun, Experiment

Counts = Annotated[tuple[int, ...], separated(int, "GROUPS")]
Preset = Literal["tiny", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"]


@dataclass(frozen=True)
class ExperimentOptions(FromFile, Output):
    """What every command on an experiment takes."""

    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    """Options of VeRL in Hydra's syntax, such as actor_rollout_ref.actor.optim.lr=2e-6, for every job."""
    preset: Preset = "tiny"
    """The experiment: tiny trains on a laptop's CPU, the others are the paper's models on GPUs."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to save in and to resume from; runs/llm-PRESET if not given."""
    data_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Local copies of the data sets, for machines without internet."""
    patience: float = 60.0
    """Minutes without a line of output after which a job is ended as hung."""
    keep: Literal["model", "checkpoint", "all"] = "model"
    """What stays on disk once a run is finished and evaluated: its model in bfloat16, also its last checkpoint, or all
    checkpoints."""
    push: Annotated[str, tyro.conf.arg(metavar="NAMESPACE")] = ""
    """The user or organization on the hub that final models are uploaded to, into private repositories."""
    settings: Annotated[LLMConfig, tyro.conf.arg(name="experiment")] = PRESETS["tiny"]
    data: DataConfig = DataConfig()

    def plan(self) -> Experiment:
        """The experiment, not yet opened. Raises InputError for a wrong override."""
        from llm_bridge.experiment.jobs import configured
        from llm_bridge.experiment.stages import Experiment

        require(self.patience > 0, "patience", "a number > 0", self.patience)
        settings, overrides = configured(self.settings, self.overrides)
        stall = 60 * self.patience
        return Experiment(settings, self.folder, overrides, self.data_dir, stall, self.data, self.keep, self.push)

    def outcome(self) -> dict[str, Any]:
        """Where everything is, and the tables of what is finished by name."""
        made = {path.stem: str(path) for path in sorted((self.folder / "report").glob("*.csv"))}
        return {"folder": self.folder, "tables": made}

    @property
    def folder(self) -> Path:
        """Where results go."""
        name = self.config_file.stem if self.config_file else self.preset
        return (self.out or Path("runs") / f"llm-{name}").resolve()

    def experiment(self, runs: Sequence[ChatRun] = ()) -> Experiment:
        """The experiment, opened. Raises InputError for a folder of another experiment, wrong versions,
        no GPU, and options that VeRL or the joint loss would refuse in the math stage or in these chat runs.
        """
        from llm_bridge.experiment.disk import require_room
        from llm_bridge.experiment.dry_run import parameters
        from llm_bridge.trainer.start.versions import require_accelerator, require_versions

        require_versions(self.settings.device)
        require_accelerator(self.settings.device)
        experiment = self.plan()
        planned = [job for job, _ in experiment.check(runs)]
        size = parameters(experiment.config)
        if size:
            require_room(experiment.root, planned, size, self.keep)
        experiment.open()
        return experiment


@dataclass(frozen=True)
class Run(ExperimentOptions):
    """Everything: data, math stage, buffer, chat stage with each method, report. Resumes."""

    methods: Names = PAPER_METHODS
    """Methods of the chat stage: grpo (no regularizer), cokl_floor, and any regularizer with a sampled surrogate."""
    search_betas: Coefficients = ()
    """Train every regularized method also with these coefficients, for the coefficient search."""
    search_kl_groups: Counts = ()
    """Train CoKL also with these numbers of response groups per update, half of them cached."""
    paper_search: bool = False
    """The searches of the paper: three coefficients for each family of methods, and CoKL with 16, 32 and 64 groups."""
    dry_run: bool = False
    """Show stages, VeRL's resolved configuration of each, rows per step and estimates; needs no GPU and no network."""

    def run(self) -> int:
        """Run what is missing, method by method, write the tables after each, and draw at the end."""
        _require_methods(self.methods)
        runs = self.chat_runs()
        if self.dry_run:
            from llm_bridge.experiment.dry_run import describe

            plan = self.plan()
            print(describe(plan.config, plan.check(runs), self.keep))
            return 0
        experiment = self.experiment(runs)
        for run in runs:
            experiment.train_chat(*run)
            _report(experiment, quiet=run != runs[-1])
        _draw(self.folder)
        return 0

    def chat_runs(self) -> list[ChatRun]:
        """Every method as configured, then the searches. Raises InputError for a value that cannot be trained with."""
        from cokl import methods

        for beta in self.search_betas:
            require(beta > 0, "search_betas", "finite coefficients > 0", beta)
        for groups in self.search_kl_groups:
            require(groups > 0 and groups % 2 == 0, "search_kl_groups", "even numbers > 0", groups)
        runs: list[ChatRun] = [(method, None, None) for method in self.methods]
        for method in self.methods:
            if methods.get(method).streams():
                family = SEARCHED_BETAS["reverse" if method in REVERSE_FAMILY else "forward"]
                searched = family if self.paper_search and method not in UNSEARCHED else ()
                betas = dict.fromkeys([*self.search_betas, *searched])
                runs += [(method, beta, None) for beta in betas if beta != self.settings.beta(method)]
        prompts = SEARCHED_KL_PROMPTS if self.paper_search else ()
        batches = dict.fromkeys([*self.search_kl_groups, *(2 * number for number in prompts)])
        return runs + [("cokl", None, number) for number in batches if number != self.settings.kl_groups]


@dataclass(frozen=True)
class Prepare(ExperimentOptions):
    """The data sets as VeRL reads them, with a manifest; for tiny, its tokenizer and starting model too."""

    def run(self) -> int:
        """Write ROOT/data unless it is there."""
        experiment = self.plan()
        experiment.open()
        experiment.prepare()
        print(f"data: {experiment.root / 'data'}")
        return 0


@dataclass(frozen=True)
class Prefetch(ExperimentOptions):
    """Models and data into the hub's cache, at pinned commits, for nodes without internet (set HF_HUB_OFFLINE=1)."""

    def run(self) -> int:
        """Fetch what is not there."""
        from llm_bridge.data.prepare import download

        experiment = self.plan()
        config = experiment.fetched()
        print("\n".join(f"model: {folder}" for folder in (config.model, config.reward_model) if folder))
        if config.model and not config.own_data and self.data_dir is None:
            print("\n".join(f"data: {path}" for path in download(self.data)))
        return 0


@dataclass(frozen=True)
class Train(ExperimentOptions):
    """The math stage, or the chat stage with one method, and the stages that it needs."""

    stage: Literal["math", "chat"] = "chat"
    """Which stage."""
    method: str = "cokl"
    """The method of the chat stage."""
    beta: float | None = None
    """The method's coefficient; the configuration's if not given."""

    def run(self) -> int:
        """Train what is missing."""
        _require_methods((self.method,))
        if self.beta is not None:
            require(self.beta > 0, "beta", "a finite coefficient > 0", self.beta)
        experiment = self.experiment([(self.method, self.beta, None)] if self.stage == "chat" else [])
        if self.stage == "math":
            experiment.train_math()
        else:
            experiment.train_chat(self.method, self.beta)
        return 0


@dataclass(frozen=True)
class BuildBuffer(ExperimentOptions):
    """The reference-correct buffer: of the math-stage model, or brought from responses that were sampled elsewhere.

    Verdicts on those are their column reward, or those of --reward-function.
    """

    responses: Annotated[Path | None, tyro.conf.arg(metavar="PARQUET")] = None
    """A row per response, with the columns of docs/how-to/verl.md; with it no experiment is needed."""
    reference: str = ""
    """The model that sampled them: a folder, or a name on the hub."""
    reward_key: str = "score"
    """The key of the score, if --reward-function returns a dictionary."""
    reward_kwargs: str = "{}"
    """The function's further arguments, as VeRL's reward_kwargs, in JSON."""
    correct_above: float = 0.5
    """A response whose reward or score is above this number is correct."""
    log_probs: bool = True
    """Log-probabilities under the reference. Without them the responses may be another model's, and --reference is the
    model to be trained; for methods that do not compare with the reference."""

    def run(self) -> int:
        """Fill it unless it is there and belongs to the model."""
        if self.responses or self.reference:
            return self._bring()
        experiment = self.experiment()
        experiment.fill_buffer()
        print(f"buffer: {experiment.root / 'buffer.parquet'}")
        return 0

    def _bring(self) -> int:
        from llm_bridge.bring_buffer import bring_buffer
        from llm_bridge.rewards.judge import Judge, load_function

        if self.responses is None or not self.reference:
            raise InputError("--responses and --reference: expected both of them")
        settings, judge = self.settings, None
        if settings.reward_function:
            try:
                options = dict(json.loads(self.reward_kwargs))
            except (ValueError, TypeError):
                raise InputError(f"reward_kwargs: expected a JSON object, got {self.reward_kwargs!r}") from None
            judge = Judge(load_function(settings.reward_function), self.reward_key, options, self.correct_above)
        buffer = bring_buffer(
            self.responses,
            self.reference,
            judge,
            settings.thinking,
            settings.temperature,
            self.log_probs,
            self.correct_above,
        )
        path = self.folder / "buffer.parquet"
        buffer.save(path)
        solved = sum(group.rewards.any() for group in buffer.groups)
        print(f"buffer: {path}, {len(buffer)} prompts of {buffer.group_size} responses, {solved} of them solved")
        return 0


@dataclass(frozen=True)
class Pilot(ExperimentOptions):
    """20 joint steps for each way of counting a response's length: gradient share, chat reward, time and memory of a
    step, and the coefficient to begin with. From the starting model, on one accelerator unless told otherwise.
    """

    dry_run: bool = False
    """Show the jobs and VeRL's resolved configuration of each; needs no GPU and no network."""

    def run(self) -> int:
        """Run what is missing, and print the verdict."""
        from llm_bridge.experiment.pilot import pilot_jobs, verdict
        from llm_bridge.trainer.start.versions import require_accelerator, require_versions

        experiment = self.plan()
        config = experiment.config
        planned = experiment.composed(pilot_jobs(experiment, config))
        if self.dry_run:
            from llm_bridge.experiment.dry_run import describe

            print(describe(config, planned, self.keep))
            return 0
        require_versions(config.device)
        require_accelerator(config.device)
        experiment.open()
        experiment.prepare()
        buffer, *joint = pilot_jobs(experiment, experiment.fetched())
        if not (experiment.root / "buffer.parquet").is_file():
            experiment.draw_buffer_prompts()
            experiment.run(buffer)
        for job in joint:
            experiment.run(job)
        print(verdict(joint, config))
        return 0

    @property
    def folder(self) -> Path:
        """A folder of its own, since it starts from another model than the chat stage."""
        there = super().folder
        return there if self.out else there.with_name(f"{there.name}-pilot")


@dataclass(frozen=True)
class Evaluate(ExperimentOptions):
    """average@n of trained models on all sets, in jobs of their own; training ends with the same evaluation."""

    methods: Names = ("base",)
    """base (the math-stage model) and trained methods."""

    def run(self) -> int:
        """Evaluate each and report."""
        experiment = self.experiment()
        for name in self.methods:
            experiment.evaluate(name)
        _report(experiment, quiet=False)
        return 0


@dataclass(frozen=True)
class Report(ExperimentOptions):
    """Tables and figures of whatever the experiment has finished: screen, Markdown, LaTeX, CSV, PDF and PNG."""

    def run(self) -> int:
        """Collect VeRL's logs into ROOT/results, write ROOT/report, and draw."""
        _report(self.plan(), quiet=False)
        _draw(self.folder)
        return 0


def _report(experiment: Experiment, quiet: bool) -> None:
    """Save results and tables; print the tables unless `quiet`."""
    from llm_bridge.report.collect import collect
    from llm_bridge.report.result_tables import result_tables
    from llm_bridge.report.results import save_results
    from llm_bridge.report.tables import to_screen, write_tables

    results = collect(experiment.config, experiment.root)
    folder = experiment.root / "report"
    save_results(results, experiment.root / "results")
    tables = result_tables(results)
    write_tables(tables, folder)
    if not quiet:
        print("\n".join(map(to_screen, tables)))
        print(f"written to {folder}")


def _draw(folder: Path) -> None:
    """Draw what the experiment in `folder` has measured."""
    from figures import style
    from llm_bridge.report import figures as llm
    from llm_bridge.report.results import read_results

    print(style.save_all(llm.draw(read_results(folder / "results")), folder / "report"))


def _require_methods(names: tuple[str, ...]) -> None:
    """Raises InputError for an unknown method, one without a surrogate, or none."""
    from cokl import methods

    require(len(names) > 0, "methods", "at least one name", "an empty list")
    require(len(set(names)) == len(names), "methods", "different names", ",".join(names))
    for name in names:
        methods.get(name).streams()


def bridge(arguments: list[str]) -> SubcommandApp:
    """The commands, with the defaults of the preset and of the file named in `arguments`."""
    preset = preset_among(arguments, PRESETS, "tiny")
    path = value_after("--config", arguments)
    stored = stored_settings(path) if path else {}
    overrides = tuple(stored.pop("overrides", ()))
    own = {name: value for name, value in stored.items() if value is not None}  # a result keeps no machine's size
    preset = own.get("name", preset) if own.get("name") in PRESETS else preset
    settings = from_json(LLMConfig, changed(PRESETS[preset].as_dict(), own, path or ""))
    commands = SubcommandApp()
    for name, command in {
        "run": Run,
        "prefetch": Prefetch,
        "prepare": Prepare,
        "train": Train,
        "buffer": BuildBuffer,
        "evaluate": Evaluate,
        "report": Report,
    }.items():
        commands.command(name=name)(partial(command, preset=preset, settings=settings, overrides=overrides))
    one = replace(settings, accelerators=1, nodes=1)
    commands.command(name="pilot")(partial(Pilot, preset=preset, settings=one, overrides=overrides))
    commands.command(name="tables")(llm_report.Tables)
    commands.command(name="normalize")(llm_report.Normalize)
    return commands
