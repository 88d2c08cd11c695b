"""The sequence lab: task shift with responses of many tokens, whose expectations recursions give exactly.

What is random beside what `bandit.engine.two_tasks` says, with T uniform numbers a response. Of a task:

- 0: the clusters' centres, standard normal (C, D); the automata's transitions, integers below Q (C, Q + 1, V), of which
  the last state's are not used; uniform numbers (C, Q, V), whose order (`argsort`) forbids the symbols where it is
  below the number of forbidden ones; the next-token probabilities of every cluster, Dirichlet (C, V + 1, V), first
  those of the first token and then those after each last token, the same at every later position.
- 1: for the training prompts and then for the test prompts, the cluster of each, integers below C, and its noise,
  normal (N, D).

A token is the first whose cumulated probability exceeds its uniform number.
"""
