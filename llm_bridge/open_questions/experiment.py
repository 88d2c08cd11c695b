"""Runs of the loop, and what is measured of them: a table a run, kept in a folder and resumed.

Each run measures its model before the first step and after every eighth, with 64 fresh answers to every question, and
saves model and optimizer there, so that an interrupted run goes on from its last measurement.

Assumption beyond the paper: a run's seed is that of its buffer, of its prompts' order and of its sampling, so that the
methods of a seed share the buffer and the order of prompts.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bridge.open_questions.questions import Question

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from cokl.support.results import Execution, Work
    from llm_bridge.open_questions.loop import Buffer, Prompts, Settings, Training

DRAWS = 64
"""Answers in the buffer, and in a measurement, to each question."""
FIRST = 32
"""Different right answers are also counted among the first of this many right ones."""
AT_ONCE = 4
"""Questions that are asked 64 times together; with all 32 a process took 7.3 GB."""
AFTERWARDS = 8
"""Steps without a regularizer, after the run, in which only names from N on are right."""
EVERY = 8
"""Steps between two measurements."""
BUFFER, MEASURED = 1_000_000_007, 2_000_000_011
"""Added to a seed for the answers of the buffer and of measurements, which are not drawn with training's numbers."""


def smollm2_in(folder: Path) -> Path:
    """SmolLM2-135M-Instruct as transformers reads it, in `folder`/model, written there from its package if need be.

    Raises:
        InputError: the package is missing or its file is another, or the folder cannot be written.
    """
    from llm_bridge.smollm2_weights import convert, find_weights

    if not (folder / "model").exists():
        convert(find_weights(), folder / "model")
    return folder / "model"


def require_memory(gigabytes: float) -> None:
    """Raises InputError where the machine has less memory than that."""
    from cokl.support.errors import InputError
    from cokl.support.results import memory_in_gigabytes

    if (there := memory_in_gigabytes()) < gigabytes:
        raise InputError(f"this needs {gigabytes:g} GB of memory, and the machine has {there:.1f}; take fewer --jobs")


def open_model(folder: Path) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer.

    Raises:
        InputError: as `open_tokenizer`, or the folder holds no model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = open_tokenizer(folder)
    return _of_folder(folder, AutoModelForCausalLM, dtype=torch.float32), tokenizer


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer, with a token for padding.

    Raises:
        InputError: the folder holds none, or it has no chat template or no end token.
    """
    from transformers import AutoTokenizer

    from cokl.support.errors import InputError

    tokenizer = _of_folder(folder, AutoTokenizer)
    if not tokenizer.chat_template or tokenizer.eos_token_id is None:
        missing = "chat template" if not tokenizer.chat_template else "end token"
        raise InputError(
            f"{folder}: its tokenizer has no {missing}; take a model that was trained to answer, an -Instruct"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _of_folder(folder: Path, kind: Any, **options: Any) -> Any:
    from transformers.utils import logging

    from cokl.support.errors import InputError

    logging.disable_progress_bar()
    try:
        return kind.from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:  # whatever transformers makes of a folder that holds something else
        line = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: expected a folder with a model and its tokenizer: {line}") from error


def sampled_buffer(model_folder: Path, questions: Sequence[Question], settings: Settings) -> pd.DataFrame:
    """The reference's answers to all questions: a row an answer, with its tokens and log-likelihood."""
    import pandas as pd
    import torch

    from llm_bridge.open_questions.loop import tokenize

    model, tokenizer = open_model(model_folder)
    random = torch.Generator().manual_seed(BUFFER + settings.seed)
    tokens, log_probs = many_answers(model, tokenize(tokenizer, questions), settings, tokenizer.eos_token_id, random)
    return pd.DataFrame(
        {
            "question": [question.text for question in questions for _ in range(DRAWS)],
            "tokens": [row.tolist() for row in tokens.flatten(0, 1)],
            "log_prob": log_probs.flatten().tolist(),
        }
    )


def many_answers(
    model: Any, prompts: Prompts, settings: Settings, end: int, random: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """`DRAWS` answers to each prompt, as the loop's `sample` gives them; some prompts at a time, for the memory."""
    import torch

    from llm_bridge.open_questions.loop import sample

    parts = torch.arange(len(prompts.tokens_PL)).split(AT_ONCE)
    found = [sample(model, prompts[part], settings, DRAWS, end, random) for part in parts]
    return torch.cat([tokens for tokens, _ in found]), torch.cat([log_probs for _, log_probs in found])


def opened_buffer(
    table: pd.DataFrame, questions: Sequence[Question], tokenizer: Any
) -> tuple[Buffer, torch.Tensor, Any]:
    """The buffer of `sampled_buffer`'s table; log-likelihoods under the reference, (Q, C); and the answers."""
    import numpy as np
    import torch

    from llm_bridge.open_questions.loop import Buffer, judge

    tokens = torch.from_numpy(np.stack(table["tokens"].tolist())).view(len(questions), DRAWS, -1)
    answers = judge(tokenizer, questions, tokens)
    rewards = torch.tensor([[float(answer is not None) for answer in group] for group in answers])
    return Buffer(tokens, rewards), torch.tensor(table["log_prob"].tolist()).view(len(questions), DRAWS), answers


def measured(
    answers: Sequence[str | None],
    right_log_probs: torch.Tensor | None = None,
    reference_log_probs: torch.Tensor | None = None,
) -> dict[str, float]:
    """What is reported of the answers to one question.

    Args:
        answers: those of all draws, in order, None where a reply names no right one.
        right_log_probs: (D,), of the different right cached replies, under the policy.
        reference_log_probs: (D,), of the same under the reference.

    Returns:
        `right`, the share of draws; `different` right answers; `different_of_32`, among the first 32 right ones, NaN
        if there are fewer; `entropy` of the right answers in nats, from their frequencies; and `cached_kl`, the KL from
        the reference to the policy in nats, both normalised over the cached right replies.
    """
    right = [answer for answer in answers if answer is not None]
    shares = [count / len(right) for count in Counter(right).values()]
    kl = math.nan
    if right_log_probs is not None and reference_log_probs is not None and len(right_log_probs):
        policy, reference = right_log_probs.log_softmax(-1), reference_log_probs.log_softmax(-1)
        kl = float((reference.exp() * (reference - policy)).sum())
    return {
        "right": len(right) / len(answers),
        "different": len(shares),
        "different_of_32": len(set(right[:FIRST])) if len(right) >= FIRST else math.nan,
        "entropy": -sum(share * math.log(share) for share in shares) if right else math.nan,
        "cached_kl": kl,
    }


@dataclass(frozen=True)
class Held:
    """What a run's measurements share."""

    questions: Sequence[Question]
    buffer: Buffer
    reference_log_probs: torch.Tensor
    prompts: Prompts

    def measure(self, model: Any, tokenizer: Any, settings: Settings, step: int) -> list[dict[str, Any]]:
        """A row a question, from fresh draws at the training's temperature."""
        import torch

        from llm_bridge.open_questions.loop import judge, log_likelihoods

        random = torch.Generator().manual_seed(MEASURED + 100_000 * settings.seed + step)
        end, rows = tokenizer.eos_token_id, []
        tokens, _ = many_answers(model, self.prompts, settings, end, random)
        for number, (question, replies) in enumerate(
            zip(self.questions, judge(tokenizer, self.questions, tokens), strict=True)
        ):
            right = self.buffer.rewards_QC[number] == 1
            cached, first = self.buffer.tokens_QCT[number][right].unique(dim=0, return_inverse=True)
            under_reference = torch.zeros(len(cached))
            under_reference[first] = self.reference_log_probs[number][right]
            now = None
            if len(cached):
                one = self.prompts[torch.tensor([number])]
                with torch.no_grad():
                    now = log_likelihoods(
                        model, one, torch.zeros(len(cached), dtype=torch.long), cached, end, settings.temperature
                    )
            numbers = measured(replies, now, under_reference)
            rows.append(described(question, replies, step, numbers, tokenizer, tokens[number]))
        return rows


def run(
    model_folder: Path,
    questions: Sequence[Question],
    buffer_file: Path,
    settings: Settings,
    progress: Path,
    afterwards: int = 0,
) -> pd.DataFrame:
    """One run, from the last state that is beside `progress`, a file that gets a byte for each step.

    Returns:
        A row for each question and measurement, and the means of the training steps since the last measurement. With
        `afterwards` steps the last measurement's rows have `new_reward` too, their mean reward.
    """
    import pandas as pd
    import torch

    from cokl import methods
    from cokl.support.files import read_parquet, write_atomically
    from llm_bridge.open_questions.loop import Training, tokenize

    model, tokenizer = open_model(model_folder)
    buffer, reference_log_probs, _ = opened_buffer(read_parquet(buffer_file), questions, tokenizer)
    held = Held(questions, buffer, reference_log_probs, tokenize(tokenizer, questions))
    trained = [number for number, question in enumerate(questions) if not question.held_out]
    own = replace(buffer, tokens_QCT=buffer.tokens_QCT[trained], rewards_QC=buffer.rewards_QC[trained])
    reference = copy.deepcopy(model) if methods.get(settings.method).compares_with_reference else None
    training = Training(model, tokenizer, [questions[number] for number in trained], own, settings, reference)
    checkpoint, rows, steps, seconds = progress.with_suffix(".checkpoint"), [], [], 0.0
    if checkpoint.exists():
        stored = torch.load(checkpoint, weights_only=False)
        restore(training, stored["training"])
        rows, seconds = stored["rows"], stored["seconds"]
    progress.write_bytes(b"." * training.done)
    with torch.enable_grad():
        for step in range(training.done + 1, settings.steps + 1):
            started = time.process_time()
            steps.append(training.step())
            seconds += time.process_time() - started
            with progress.open("ab") as file:
                file.write(b".")
            if step % EVERY == 0 or step == settings.steps:
                means = {f"train_{name}": sum(row[name] for row in steps) / len(steps) for name in steps[0]}
                found = held.measure(model, tokenizer, settings, step)
                rows += [{**row, **means, "step_seconds": seconds / step} for row in found]
                steps = []
                state = {"training": state_of(training), "rows": rows, "seconds": seconds}
                write_atomically(checkpoint, partial(torch.save, state))
        if afterwards:
            narrowed = [questions[number].narrowed() for number in trained]
            plain = replace(settings, method="none", beta=0.0, steps=afterwards)
            then, new_rewards = Training(model, tokenizer, narrowed, own, plain), []
            for _ in range(afterwards):
                new_rewards.append(then.step()["reward"])
                with progress.open("ab") as file:
                    file.write(b".")
            for row in rows[-len(questions) :]:
                row["new_reward"] = sum(new_rewards) / afterwards
    table = pd.DataFrame(rows).assign(method=settings.method, beta=settings.beta)
    return table.assign(seed=settings.seed, prompts=settings.prompts)


def state_of(training: Training) -> dict[str, Any]:
    """All that the next step depends on."""
    return {
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "random": training.random.get_state(),
        "done": training.done,
    }


def restore(training: Training, state: dict[str, Any]) -> None:
    """Go on from what `state_of` gave."""
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.random.set_state(state["random"])
    training.done = state["done"]


def conduct(
    folder: Path,
    model_folder: Path,
    questions: Sequence[Question],
    runs: Sequence[Settings],
    execution: Execution,
    afterwards: int = 0,
) -> pd.DataFrame:
    """All runs and the buffers that they need, each in a file of `folder`, computed unless it is there.

    Returns:
        A row for each run, question and measurement; step 0 is the buffer, of each seed once, with method "base".
    """
    import pandas as pd

    from cokl.support.files import read_parquet
    from cokl.support.results import Work, compute

    seeds = sorted({settings.seed for settings in runs})
    buffers = {seed: folder / f"seed-{seed}" / "buffer.parquet" for seed in seeds}
    first = {settings.seed: settings for settings in reversed(runs)}
    made = [Work(sampled_buffer, (model_folder, questions, first[seed]), buffers[seed]) for seed in seeds]
    compute(made, execution, "buffers", progress=True)
    works = [
        Work(
            run,
            (model_folder, questions, buffers[settings.seed], settings, progress_file(folder, settings), afterwards),
            progress_file(folder, settings).with_suffix(".parquet"),
            settings.steps + afterwards,
        )
        for settings in runs
    ]
    with steps_shown(works):
        tables = compute(works, execution, "steps", progress=False)
    drop_states(works)
    tokenizer = open_tokenizer(model_folder)
    bases = [at_start(read_parquet(buffers[seed]), questions, tokenizer, seed) for seed in seeds]
    return pd.concat([*bases, *tables], ignore_index=True)


def at_start(table: pd.DataFrame, questions: Sequence[Question], tokenizer: Any, seed: int) -> pd.DataFrame:
    """The measurement of step 0, whose answers are the buffer's: rows as those of `run`, of the method "base"."""
    import pandas as pd

    buffer, _, answers = opened_buffer(table, questions, tokenizer)
    rows = [
        described(question, replies, 0, measured(replies), tokenizer, tokens)
        | {"cached_kl": 0.0 if bool(rewards.any()) else math.nan}
        for question, replies, tokens, rewards in zip(
            questions, answers, buffer.tokens_QCT, buffer.rewards_QC, strict=True
        )
    ]
    return pd.DataFrame(rows).assign(method="base", beta=0.0, seed=seed)


def described(
    question: Question, answers: Sequence[str | None], step: int, numbers: dict[str, float], tokenizer: Any, tokens: Any
) -> dict[str, Any]:
    """A row of the table: one question at one step, how often each answer came, and the first ten replies."""
    return {
        "step": step,
        "question": question.text,
        "kind": question.kind,
        "held_out": question.held_out,
        **numbers,
        "answers": json.dumps(Counter(answer or "" for answer in answers).most_common()),
        "replies": json.dumps(tokenizer.batch_decode(tokens[:10], skip_special_tokens=True)),
    }


def progress_file(folder: Path, settings: Settings) -> Path:
    """Where a run says how far it is; its table is beside it."""
    return folder / f"seed-{settings.seed}" / f"{settings.method}-{settings.beta}.steps"


@contextlib.contextmanager
def steps_shown(works: Sequence[Work]) -> Iterator[None]:
    """A bar that counts the steps of all runs, which are in other processes, from the files they write.

    Meanwhile the states of runs that are done go, 1.6 GB each.
    """
    from cokl.support.results import progress_bar

    def done_of(work: Work) -> int:
        progress = work.path.with_suffix(".steps")
        return work.size if work.path.exists() else progress.stat().st_size if progress.exists() else 0

    def done() -> int:
        return sum(map(done_of, works))

    total, over = sum(work.size for work in works), threading.Event()
    with progress_bar(total, "steps", done(), done() < total) as bar:

        def follow() -> None:
            while not over.wait(1):
                bar.update(done() - bar.n)
                drop_states(works)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()
            bar.update(done() - bar.n)


def drop_states(works: Sequence[Work]) -> None:
    """Remove what a run would resume from where its table is there, and not before."""
    for work in works:
        if work.path.exists():
            work.path.with_suffix(".checkpoint").unlink(missing_ok=True)
