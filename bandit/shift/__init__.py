"""The task-shift lab: two prompt families on one shared network, trained on one, then the other (Appendix E.3).

What is random beside what `bandit.engine.two_tasks` says. A task is drawn as one of `bandit.engine.environment`:

- 0: the clusters' centres, normal (C, D); then, cluster by cluster, its correct actions, without replacement and in the
  order of their Zipf ranks, and their shares, Dirichlet.
- 1: for the training prompts and then for the test prompts, the cluster of each, integers below C, and its noise,
  normal (N, D).

Of a seed:

- 100: the new task's correct actions, cluster by cluster, of those that are wrong for the prior task's cluster of that
  number, without replacement; and a permutation of them, which the new task's shares go to in order.
- 110: uniform numbers (prompts, G_ref) for the verdicts on the cached responses to all of them, in that order.
- 111: uniform numbers (prompts, G) for the verdicts on the rollouts to each minibatch of the buffer.

A response is the first action whose cumulated probability exceeds its uniform number; it counts as correct if the
verdict's number is below its chance of success.
"""
