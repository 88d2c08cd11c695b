"""The task-shift lab: two prompt families on one shared network, trained on one, then the other (Appendix E.3).

What is random beside what `bandit.engine.two_tasks` says. A task is drawn as one of `bandit.engine.environment`:

- 0: the clusters' centres, normal (C, D); then, cluster by cluster, its correct actions, without replacement and in the
  order of their Zipf ranks, and their shares, Dirichlet.
- 1: for the training prompts and then for the test prompts, the cluster of each, integers below C, and its noise,
  normal (N, D).

Of a seed:

- 100: what overlaps, cluster by cluster: which of the prior task's correct actions stay, which others come in, both
  without replacement, and a permutation of all of these, which the new task's shares go to in order.
- 110: uniform numbers (prompts, G_ref) for the verdicts on the cached responses to all of them, in that order.
- 111: uniform numbers (prompts, G) for the verdicts on the rollouts to each minibatch of the buffer.

A response is the first action whose cumulated probability exceeds its uniform number; it counts as correct if the
verdict's number is below its chance of success.
"""
