"""The sequence lab: task shift with responses of many tokens, whose expectations recursions give exactly.

What is random. Each purpose of a seed has a NumPy generator of its own, `default_rng([seed, number])`, so that none
disturbs another. A seed s has two families of prompts, which are drawn as seeds of their own: 2 s for the prior task,
2 s + 1 for the new one. A selection seed is a seed like any other.

Of a family:

- 0: the clusters' centres, standard normal (C, D); the automata's transitions, integers below Q (C, Q + 1, V), of which
  the last state's are not used; uniform numbers (C, Q, V), whose order (`argsort`) forbids the symbols where it is
  below the number of forbidden ones; the next-token probabilities of every cluster, Dirichlet (C, V + 1, V), first
  those of the first token and then those after each last token, the same at every later position.
- 1: for the training prompts and then for the test prompts, the cluster of each, integers below C, and its noise,
  normal (N, D).

Of a seed:

- 101: the network, layer by layer, uniform (fan in + 1, fan out): the weights and, as the last line, the biases.
- 102: minibatches of pretraining, integers below 2 N: the prior task's training prompts and then the new one's.
- 103: minibatches of RL on the prior task, integers below N. It takes expectations and draws no responses.
- 104: minibatches of RL on the new task, integers below N.
- 105: the buffer's prompts, of the prior task's training prompts, without replacement.
- 106: uniform numbers (prompts, G_ref, T) for the cached responses to all of them, in that order.
- 107: minibatches of the buffer, integers below the number of prompts that the method's filter leaves.
- 108, 109: uniform numbers (prompts, G, T) for the rollouts to each minibatch of the new task, and of the buffer.

Minibatches are drawn with replacement, one for each step. A token is the first whose cumulated probability exceeds the
uniform number. All runs of a seed start these generators anew, so that they share prompts and uniform numbers; those
whose buffers or numbers of prompts differ share the generators, not what these give.
"""
