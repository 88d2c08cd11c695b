"""Disk: what checkpoints take, whether there is space for them, and what is left of a run that has been evaluated.

A checkpoint of VeRL's holds float32 weights, AdamW's two moments, and a Hugging Face copy in float32. VeRL keeps two.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cokl.support.errors import InputError
from llm_bridge.experiment.jobs import Job

Keep = Literal["model", "checkpoint", "all"]
CHECKPOINT, EXPORTED, HUGGING_FACE = 16, 2, 4
"""Bytes per parameter of a checkpoint, of an exported model in bfloat16, and of a checkpoint's Hugging Face copy."""
AT_ONCE = 2
"""Checkpoints of a run that VeRL keeps while it trains."""
GB = 1e9


def bytes_needed(jobs: Sequence[Job], parameters: float, keep: Keep) -> float:
    """What the training jobs that are not done will have on disk at most, one job after the other."""
    finished, most = 0.0, 0.0
    for job in jobs:
        if job.steps and not job.done:
            there = sum(path.stat().st_size for path in (job.folder / "checkpoints").rglob("*") if path.is_file())
            most = max(most, finished + max(0.0, (AT_ONCE * CHECKPOINT + EXPORTED) * parameters - there))
            finished += _bytes_kept(job, keep) * parameters
    return most


def describe(jobs: Sequence[Job], parameters: float, keep: Keep) -> str:
    """What the dry run says."""
    checkpoint, needed = CHECKPOINT * parameters / GB, bytes_needed(jobs, parameters, keep) / GB
    finished = _bytes_kept(jobs[-1], keep) * parameters / GB
    return (
        f"disk: {checkpoint:.1f} GB a checkpoint, {AT_ONCE} of them while a run trains, {finished:.1f} GB of each run "
        f"that is evaluated (--keep {keep}); up to {needed:.1f} GB in all"
    )


def require_room(root: Path, jobs: Sequence[Job], parameters: float, keep: Keep) -> None:
    """Raises InputError if the disk of `root` has less space than the jobs need."""
    there = next(folder for folder in (root, *root.parents) if folder.is_dir())
    free, needed = shutil.disk_usage(there).free, bytes_needed(jobs, parameters, keep)
    if free < needed:
        raise InputError(
            f"{there} has {free / GB:.1f} GB free and the checkpoints of this command need up to {needed / GB:.1f} GB; "
            "take --out on a larger disk, fewer methods, or --keep model"
        )


def remove_all_but(job: Job, step: int) -> None:
    """Every checkpoint of a job but the one of this step."""
    for folder in (job.folder / "checkpoints").glob("global_step_*"):
        if folder.name != f"global_step_{step}":
            shutil.rmtree(folder)


def export(job: Job, folder: Path) -> None:
    """Write the model of a finished job into `folder`, in bfloat16 and with its tokenizer, whole or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.bfloat16).save_pretrained(partial)
    AutoTokenizer.from_pretrained(job.model).save_pretrained(partial)
    os.replace(partial, folder)


def prune(job: Job, keep: Keep) -> None:
    """Of a finished job whose model is exported, leave what `keep` says; of the math stage its float32 model always,
    which every chat run starts from.
    """
    if keep == "all":
        return
    remove_all_but(job, job.steps)
    if keep == "model":
        for path in job.model.parents[1].rglob("*"):
            if path.is_file() and (job.name != "math" or job.model not in path.parents):
                path.unlink()


def push(folder: Path, repository: str) -> None:
    """Upload an exported model to the hub, into a private repository unless it is there. Raises InputError."""
    from huggingface_hub import HfApi

    try:
        HfApi().create_repo(repository, private=True, exist_ok=True)
        HfApi().upload_folder(folder_path=folder, repo_id=repository)
    except (OSError, ValueError) as error:  # the hub's errors are among them
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"cannot push {folder} to {repository} ({reason}); it stays there, run again") from error


def _bytes_kept(job: Job, keep: Keep) -> int:
    start = HUGGING_FACE if job.name == "math" else 0
    return EXPORTED + {"model": start, "checkpoint": CHECKPOINT, "all": AT_ONCE * CHECKPOINT}[keep]
