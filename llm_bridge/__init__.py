"""The paper's LLM experiment on VeRL: rollouts, sharding and optimization are VeRL's, the loss is `cokl`'s."""
