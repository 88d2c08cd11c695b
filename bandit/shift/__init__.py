"""The task-shift lab: forgetting and its prevention where every quantity is known."""
