"""The command `cokl demo`: what plain RL and CoKL make of a language model's answers, in ten minutes.

Annotations are evaluated here, for the parser.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from cokl.names import canonical
from cokl.support.options import Names, Settings, Stored, require
from cokl.support.results import Execution

MINUTES = 10
MEMORY_GB = 4.0
"""Of one process."""


@dataclass(frozen=True)
class Demo(Settings):
    """Train a language model to answer open questions, with plain RL and with CoKL, and look at what it answers.

    The model is SmolLM2-135M, 538 MB in float32. It resumes, and ends with two pictures and a screen.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/demo")
    """Folder to save in and to resume from."""
    model: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Another model's folder, in the format of transformers, with a chat template."""
    questions: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Your own questions: a line {"question": "Name a bird.", "answers": ["robin", "wren"]} for each; capitals do not
    count."""
    methods: Annotated[Names, Stored(canonical)] = ("none", "cokl")
    """none (plain RL) and regularizers."""
    beta: float = 0.03
    """The regularizers' coefficient."""
    steps: int = 16
    """Optimizer steps, of 6 questions with 8 replies each."""
    seed: int = 0
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes, of 4 GB each; one for each method if not given, as far as there are cores."""

    def run(self) -> int:
        """Train what is missing, then draw and show."""
        from cokl import methods
        from cokl.support.results import usable_cores
        from figures import style
        from figures.matplotlib_renderer import render
        from llm_bridge.open_questions import analysis, figures
        from llm_bridge.open_questions.experiment import conduct, open_model, require_memory, smollm2_in
        from llm_bridge.open_questions.loop import Settings as Run
        from llm_bridge.open_questions.questions import built_in, fingerprint, read

        require(0 <= self.beta < float("inf"), "beta", "a finite coefficient >= 0", self.beta)
        require(self.seed >= 0, "seed", "at least 0", self.seed)
        require(self.steps >= 1, "steps", "at least 1", self.steps)
        require(len(set(self.methods)) == len(self.methods) > 0, "methods", "different names", ",".join(self.methods))
        for name in self.methods:
            methods.get(name).streams()  # refused before anything is read
        asked = read(self.questions) if self.questions else built_in()
        jobs = self.jobs or min(len(self.methods), usable_cores())
        require_memory(jobs * MEMORY_GB)
        runs = [
            Run(name, self.beta if methods.get(name).streams() else 0.0, self.seed, self.steps) for name in self.methods
        ]
        told: dict[str, Any] = {
            "model": str(self.model.resolve()) if self.model else "SmolLM2-135M-Instruct",
            "questions": fingerprint(asked),
            "steps": self.steps,
            "beta": self.beta,
            "seed": self.seed,
        }
        with Execution(out=self.out, jobs=jobs).results_folder(told) as folder:
            if self.model:
                open_model(self.model)  # refused before anything is spent
            print(
                f"{len(runs)} runs of {self.steps} steps, {jobs} at a time, with one core and {MEMORY_GB:g} GB each.\n"
                f"About {MINUTES} minutes on two idle cores. Ctrl-C stops it, and the same command goes on.\n"
                f"First the model answers each of {len(asked)} questions 64 times.",
                flush=True,
            )
            model = self.model or smollm2_in(folder)
            rows = conduct(folder, model, asked, runs, Execution(jobs=jobs))
            analysis.save(rows, folder)
        question, paths = analysis.most_answers(rows[rows["method"] == "base"]), analysis.means(rows)
        last = rows[(rows["step"] == self.steps) | (rows["method"] == "base")]
        pictures = {"answers": figures.answers(last, question), "training": render(figures.while_training(paths))}
        print(f"\n{figures.screen(last, paths, question)}\n\n{style.save_all(pictures, self.out)}")
        return 0
