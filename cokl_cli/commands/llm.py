"""Commands of `cokl llm`. Heavy imports are inside `run`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tyro.extras import SubcommandApp

from cokl.names import canonical
from cokl.support.options import Coefficients, Settings, from_json, require, separated
from cokl.support.results import read_config
from cokl_cli.presets import FromFile, changed, preset_among, stored_settings, value_after
from llm_bridge.experiment.config import MATH, PAPER_METHODS, PRESETS, LLMConfig, PositiveFloat

if TYPE_CHECKING:
    from llm_bridge.experiment.jobs import Job
    from llm_bridge.experiment.stages import ChatRun, Experiment

Preset = Literal["smollm2", "qwen3-0.6b", "qwen3-0.6b-one-gpu", "qwen3-1.7b", "qwen3-4b", "open-questions"]


@dataclass(frozen=True)
class InFolder(FromFile):
    """What every command on an experiment takes."""

    preset: Preset = "smollm2"
    """The experiment: smollm2 and open-questions train a small language model on a CPU; the others are the paper's."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The experiment's folder; if not given runs/llm-PRESET, or runs/llm-NAME with --config NAME.json."""

    @property
    def folder(self) -> Path:
        """Where results go."""
        return (self.out or Path("runs") / f"llm-{self.named(self.preset)}").resolve()


@dataclass(frozen=True)
class ExperimentOptions(InFolder):
    """What every command that works on an experiment takes."""

    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    """Options of VeRL in Hydra's syntax, such as actor_rollout_ref.actor.optim.lr=2e-6, for every job."""
    data_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Local copies of the data sets, for machines without internet."""
    settings: Annotated[LLMConfig, tyro.conf.arg(name="experiment")] = PRESETS["smollm2"]

    def plan(self) -> Experiment:
        """The experiment, not yet opened."""
        from llm_bridge.experiment.stages import Experiment

        return Experiment(self.settings, self.folder, self.overrides, self.data_dir)


@dataclass(frozen=True)
class RunStages(ExperimentOptions):
    """Everything: data, math stage, buffer, chat stage with each method, report. Resumes."""

    methods: Annotated[tuple[str, ...], separated(canonical, "NAME")] = PAPER_METHODS
    """Methods of the chat stage: grpo (no regularizer), cokl_floor, and any regularizer with a sampled surrogate."""
    search_betas: Coefficients = ()
    """Train every regularized method also with these coefficients, for the coefficient search."""
    until: Literal["math", "buffer", "chat"] = "chat"
    """The last stage to run."""
    dry_run: bool = False
    """Check what VeRL would be asked to do and print its command for each job; needs no GPU and no network."""

    def run(self) -> int:
        """Run what is missing, or with `dry_run` show what that would be."""
        _require_methods(self.methods)
        runs, experiment = self.chat_runs(), self.plan()
        if not self.dry_run:
            experiment.require_device()
        planned = [job for job, _ in experiment.check(runs)]
        if self.dry_run:
            print(*(job.shown() for job in planned), sep="\n")
            return 0
        experiment.open()
        self._tell_minutes(planned)
        self._train(experiment, runs)
        return 0

    def _tell_minutes(self, planned: list[Job]) -> None:
        """How long each stage that is asked for will take, where that was measured, on a CPU."""
        pace = self.settings.workload.prompts.pace
        if pace and self.settings.device == "cpu":
            from llm_bridge.experiment.minutes import told

            asked = [job for job in planned if self.until == "chat" or job.name in (MATH, self.until)]
            print(told(asked, self.settings, pace), flush=True)

    def _train(self, experiment: Experiment, runs: list[ChatRun]) -> None:
        """The stages up to the last one asked for: tables after each method, and the figure at the end."""
        if self.until == MATH:
            experiment.train_math()
        elif self.until == "buffer":
            experiment.fill_buffer()
        else:
            for run in runs:
                experiment.train_chat(*run)
                _report(self.settings, self.folder, quiet=run != runs[-1])
            _draw(self.folder)

    def chat_runs(self) -> list[ChatRun]:
        """Every method as configured, then the search. Raises InputError for a value that cannot be trained with."""
        from cokl import methods

        for beta in self.search_betas:
            require(beta > 0, "search_betas", "finite coefficients > 0", beta)
        runs: list[ChatRun] = [(method, None) for method in self.methods]
        for method in self.methods:
            if methods.get(method).streams():
                runs += [(method, beta) for beta in self.search_betas if beta != self.settings.beta(method)]
        return runs


@dataclass(frozen=True)
class Prepare(ExperimentOptions):
    """Data sets and models at pinned commits, into ROOT/data and HF_HOME; then nodes need no internet."""

    def run(self) -> int:
        """Write ROOT/data unless it is there, and fetch what is on the hub."""
        experiment = self.plan()
        experiment.check_prompts()
        experiment.open()
        experiment.prepare()
        config = experiment.fetched()
        models = [f"model: {folder}" for folder in (config.model, config.reward_model) if folder]
        print("\n".join([f"data: {experiment.root / 'data'}", *models]))
        return 0


@dataclass(frozen=True)
class Rollouts(Settings):
    """Rollouts that VeRL or TRL has logged, as the responses that `cokl llm buffer` takes.

    They are text: each is taken as complete and gets the end token; leave out those that were cut off.
    """

    rollouts: tyro.conf.Positional[tuple[Path, ...]]
    """Files of VeRL's trainer.rollout_data_dir, or TRL's completions_*.parquet."""
    prompts: Annotated[Path, tyro.conf.arg(metavar="PARQUET")]
    """A training file of VeRL's that has their prompts."""
    reference: str
    """The model that answered: a folder, or a name on the hub."""
    reward: str
    """Their field with the reward, such as score."""
    thinking: bool = True
    """Whether the chat template enables thinking, as in that run."""
    out: Annotated[Path, tyro.conf.arg(metavar="PARQUET")] = Path("runs/buffer/responses.parquet")
    """File to write."""

    def run(self) -> int:
        """Convert them, and say how many there are."""
        import pyarrow.parquet as pq

        from cokl.support.files import write_atomically
        from llm_bridge.rollouts import rows_of

        table, steps = rows_of(self.rollouts, self.prompts, self.reference, self.reward, self.thinking)
        write_atomically(self.out, lambda temporary: pq.write_table(table, temporary))
        print(f"responses: {self.out}, {len(table)} of them")
        if len(steps) > 1:
            print(f"they are of {len(steps)} steps: only those of step {steps[0]} can be the starting model's own")
        return 0


@dataclass(frozen=True)
class BuildBuffer(Settings):
    """A buffer brought from responses that were sampled elsewhere.

    Verdicts on them are their column reward, or those of --reward-function.
    """

    responses: Annotated[Path, tyro.conf.arg(metavar="PARQUET")]
    """A row per response, with the columns of docs/how-to/responses.md."""
    reference: str
    """The model to be trained: a folder, or a name on the hub."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/buffer")
    """Folder to save buffer.parquet in."""
    reward_function: str = ""
    """FILE.py:NAME or pkg://MODULE:NAME, VeRL's reward function."""
    thinking: bool = True
    """Whether the chat template enables thinking, as in your run."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature of your run."""
    correct_above: float = 0.5
    """A response whose reward or score is above this number is correct."""

    def run(self) -> int:
        """Make it, and say how many prompts are solved."""
        from llm_bridge.buffer.bring_buffer import bring_buffer
        from llm_bridge.rewards.judge import load_function

        function = load_function(self.reward_function) if self.reward_function else None
        how = self.thinking, self.temperature, self.correct_above
        buffer = bring_buffer(self.responses, self.reference, function, *how)
        path = self.out / "buffer.parquet"
        buffer.save(path)
        solved = sum(group.rewards.any() for group in buffer.groups)
        print(f"buffer: {path}, {len(buffer)} prompts of {buffer.group_size} responses, {solved} of them solved")
        return 0


@dataclass(frozen=True)
class Report(InFolder):
    """Tables and a figure of whatever the experiment has finished: screen, Markdown, CSV, PDF and PNG."""

    def run(self) -> int:
        """Collect VeRL's logs into ROOT/results, write ROOT/report, and draw."""
        _report(from_json(LLMConfig, read_config(self.folder)), self.folder, quiet=False)
        _draw(self.folder)
        return 0


def _report(config: LLMConfig, root: Path, quiet: bool) -> None:
    """Save results and tables; print the tables unless `quiet`."""
    from llm_bridge.report.collect import collect
    from llm_bridge.report.results import save_results
    from llm_bridge.report.tables import result_tables, to_markdown, write_tables

    results, folder = collect(config, root), root / "report"
    save_results(results, root / "results")
    tables = result_tables(results)
    write_tables(tables, folder)
    if not quiet:
        print("\n".join(map(to_markdown, tables)))
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
    preset = preset_among(arguments, PRESETS, "smollm2")
    path = value_after("--config", arguments)
    stored = stored_settings(path) if path else {}
    overrides = tuple(stored.pop("overrides", ()))
    preset = stored["name"] if stored.get("name") in PRESETS else preset
    settings = from_json(LLMConfig, changed(PRESETS[preset].as_dict(), stored, path or ""))
    commands = SubcommandApp()
    for name, command in {"run": RunStages, "prepare": Prepare}.items():
        commands.command(name=name)(partial(command, preset=preset, settings=settings, overrides=overrides))
    for name, command in {"rollouts": Rollouts, "buffer": BuildBuffer, "report": Report}.items():
        commands.command(name=name)(command)
    return commands
