"""A small language model and open questions with many right answers: does RL narrow it, and what keeps it wide?

`questions` has the lists and the verifier, `loop` the training, `experiment` the runs and what is measured of them,
`analysis` the comparison at one correctness, `figures` pictures and screen. FINDINGS.md says what was planned when, and
what came out.

Assumption beyond the paper: the questions are ours; the paper's controlled experiment has a table of 200 actions.
"""
