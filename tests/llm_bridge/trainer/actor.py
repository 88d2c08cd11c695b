"""VeRL's training worker in this process, on a CPU, without Ray, and a tiny model for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 32


def make_model(folder: Path) -> None:
    """A Qwen3 transformer of random weights, large enough to tell tokens apart."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def meeting_place(folder: Path) -> str:
    """Where ranks find each other: a file, for a free port of now may be taken when the second rank comes."""
    return f"file://{folder.absolute()}/ranks"


def training_worker(folder: Path, rank: int, ranks: int, **changes: Any) -> Any:
    """The worker that holds the actor, FSDP2 on gloo in float32, of the model in `folder`; once per process and folder.

    changes: of VeRL's configuration of the model.
    """
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",  # VeRL wants one and does not use it
        "DIST_INIT_METHOD": meeting_place(folder),
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_USE_EXTERNAL_MODULES": "llm_bridge.cpu",
    }
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    model = HFModelConfig(
        path=str(folder),
        load_tokenizer=False,
        use_remove_padding=False,
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa"},
        **changes,
    )
    engine = FSDPEngineConfig(
        strategy="fsdp2",
        use_torch_compile=False,
        mixed_precision=dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), "fp32"),
        use_dynamic_bsz=False,
    )
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=engine,
            optimizer_config=FSDPOptimizerConfig(lr=1e-6, total_training_steps=1),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker
