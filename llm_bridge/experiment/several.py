"""Several training runs in one set of VeRL's processes, one after another, each as a job of its own would be.

Starting VeRL takes longer than a short run of a tiny model. Workers, rollout engine and reward function are kept from
run to run. Everything else is made anew by the run's own trainer class under the run's own configuration: data order,
loss, buffer, log. Weights and optimizer come from a checkpoint at step 0, as VeRL resumes any other. A run that was
killed is made again from its first step, and one that is done is left.
"""

from __future__ import annotations

import os
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from verl.trainer.ppo.v1.trainer_base import get_trainer_cls, register_trainer

from cokl.support.files import read_json, write_text
from llm_bridge.trainer.base import RewardedTrainer, bring_reference

_KEPT = (
    *("actor_rollout_wg", "ref_policy_wg", "resource_pool_manager", "reward_loop_manager", "llm_server_manager"),
    *("checkpoint_manager", "teacher_model_manager", "distillation_config", "ref_in_actor", "tokenizer", "processor"),
)
"""Of the trainer that started the processes."""


@register_trainer("several")
class SeveralRunsTrainer(RewardedTrainer):
    """Starts VeRL's processes and trains the runs of `cokl.runs` with them.

    The file is JSON, a list of {"options", "weights", "metrics", "done"}. options: of VeRL, by dotted name, in which a
    run differs from this configuration; they must leave model, rollouts and reward function as they are. weights: the
    checkpoint folder of the actor whose weights it starts from, with a new optimizer; "" for the model itself. metrics:
    the file of its log. done: the file that a finished run leaves.
    """

    def __init__(self, config: DictConfig) -> None:
        """config: VeRL's whole configuration; by this name, since VeRL passes it as a keyword."""
        super().__init__(config)
        self.use_reference_policy = True  # for whichever run compares with it

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        bring_reference(self)

    def fit(self, agent_loop_manager) -> None:
        """Train what is not done."""
        start = Path(self.config.trainer.default_local_dir) / "start"
        self.actor_rollout_wg.save_checkpoint(str(start), None, 0, max_ckpt_to_keep=None)
        for run in read_json(Path(self.config.cokl.runs), list):
            if not Path(run["done"]).is_file():
                config = configuration(self.config, run["options"])
                self._prepare(Path(config.trainer.default_local_dir), start, run["weights"])
                os.environ["VERL_FILE_LOGGER_PATH"] = run["metrics"]
                self._train(config, agent_loop_manager)
                write_text("done\n", Path(run["done"]))

    def _prepare(self, checkpoints: Path, start: Path, weights: str) -> None:
        """Leave nothing but a checkpoint at step 0."""
        shutil.rmtree(checkpoints, ignore_errors=True)
        begin = checkpoints / "global_step_0" / "actor"
        shutil.copytree(start, begin)
        for shard in Path(weights).glob("model_world_size_*.pt") if weights else ():
            shutil.copy(shard, begin)
        write_text("0", checkpoints / "latest_checkpointed_iteration.txt")

    def _train(self, config: DictConfig, agent_loop_manager) -> None:
        trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config=config)
        for name in _KEPT:
            setattr(trainer, name, getattr(self, name))
        trainer._init_dataloader()
        trainer._init_dump_executor()
        trainer.actor_rollout_wg.set_loss_fn(trainer.actor_loss())
        trainer._load_checkpoint()
        trainer.on_init_end()
        trainer.fit(agent_loop_manager)
        trainer.logger.finish(exit_code=0)


def configuration(config: DictConfig, options: dict[str, Any]) -> DictConfig:
    """A copy of VeRL's configuration with these options; those under `cokl` are the only ones it then has there."""
    changed = deepcopy(config)
    with open_dict(changed):
        del changed["cokl"]
        for name, value in options.items():
            OmegaConf.update(changed, name, value, force_add=True)
    return changed
