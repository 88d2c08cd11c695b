"""The task-shift lab: two prompt families on one shared network, trained on one, then the other (Appendix E.3).

What is random. Each purpose of a seed has a NumPy generator of its own, `default_rng([seed, number])`, so that none
disturbs another. A seed s has two tasks, each drawn as one of `bandit.engine.environment`: the prior task as its seed
2 s, the new one as its seed 2 s + 1. A selection seed is a seed like any other.

Of a task:

- 0: the clusters' centres, normal (C, D); then, cluster by cluster, its correct actions, without replacement and in the
  order of their Zipf ranks, and their shares, Dirichlet.
- 1: for the training prompts and then for the test prompts, the cluster of each, integers below C, and its noise,
  normal (N, D).

Of a seed:

- 100: what overlaps, cluster by cluster: which of the prior task's correct actions stay, which others come in, both
  without replacement, and a permutation of all of these, which the new task's shares go to in order.
- 101: the network, layer by layer, uniform (fan in + 1, fan out): the weights and, as the last line, the biases.
- 102: minibatches of pretraining, integers below 2 N: the prior task's training prompts and then the new one's.
- 103: minibatches of RL on the prior task, integers below N. It takes expectations and draws no responses.
- 104: minibatches of RL on the new task, integers below N.
- 105: the buffer's prompts, of the prior task's training prompts, without replacement.
- 106: uniform numbers (prompts, G_ref) for the cached responses to all of them, in that order.
- 107: minibatches of the buffer, integers below the number of prompts that the method's filter leaves.
- 108, 109: uniform numbers (prompts, G) for the rollouts to each minibatch of the new task, and of the buffer.
- 110: uniform numbers (prompts, G_ref) for the verdicts on the cached responses to all of them, in that order.
- 111: uniform numbers (prompts, G) for the verdicts on the rollouts to each minibatch of the buffer.

Minibatches are drawn with replacement, one for each batch of rollouts, that is for `optimizer_steps` steps. A response
is the first action whose cumulated probability exceeds the uniform number; it counts as correct if the verdict's number
is below its chance of success. All runs of a seed start these generators
anew, so that they share prompts and uniform numbers; those whose buffers or numbers of prompts differ share the
generators, not what these give.
"""
