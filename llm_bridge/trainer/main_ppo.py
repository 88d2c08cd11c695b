"""VeRL's entry point with the trainers of this package: `python -m llm_bridge.main_ppo OVERRIDES`, as Hydra's."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import hydra
import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from cokl.support.errors import InputError

HANDED_ON = ("PYTHONPATH", "TENSORBOARD_DIR", "VERL_FILE_LOGGER_PATH", "VERL_LOGGING_LEVEL", "WANDB_API_KEY")


class TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):
    """VeRL's runner, in whose process the trainers register themselves."""

    def run(self, config: DictConfig) -> None:
        from llm_bridge.trainer import buffer_filler as build_buffer  # noqa: F401

        super().run(config)


@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config: DictConfig) -> None:
    """Validate the configuration and run the job on Ray."""
    hand_on_environment(config)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    try:
        run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(TaskRunner))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            sys.exit(f"error: {error.cause}")
        raise


def hand_on_environment(config: DictConfig) -> None:
    """To workers of a Ray cluster that runs already, which inherit nothing from this process."""
    if "RAY_ADDRESS" in os.environ:
        kept = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        OmegaConf.update(config, "ray_kwargs.ray_init.runtime_env.env_vars", kept, force_add=True)


if __name__ == "__main__":
    if sys.platform == "linux":  # end when the command that started this job is killed
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    main()
