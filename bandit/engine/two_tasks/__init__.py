"""Training on one task, then on another: what the labs with single actions and with token sequences share.

What is random. Each purpose of a seed has a NumPy generator of its own, `default_rng([seed, number])`, so that none
disturbs another. A seed s has two tasks, drawn as seeds of their own: 2 s for the prior task, 2 s + 1 for the new one.
A selection seed is a seed like any other. How a lab draws a task, and what else is random there, its docstring says.

Of a seed:

- 101: the network, layer by layer, uniform (fan in + 1, fan out): the weights and, as the last line, the biases.
- 102: minibatches of pretraining, integers below 2 N: the prior task's training prompts and then the new one's.
- 103: minibatches of RL on the prior task, integers below N. It takes expectations and draws no responses.
- 104: minibatches of RL on the new task, integers below N.
- 105: the buffer's prompts, of the prior task's training prompts, without replacement.
- 106: uniform numbers (prompts, G_ref, ...) for the cached responses to all of them, in that order.
- 107: minibatches of the buffer, integers below the number of prompts that the method's filter leaves.
- 108, 109: uniform numbers (prompts, G, ...) for the rollouts to each minibatch of the new task, and of the buffer.

Minibatches are drawn with replacement, one for each step. All runs of a seed start these generators anew, so that they
share prompts and uniform numbers; those whose buffers or numbers of prompts differ share the generators, not what these
give.
"""
