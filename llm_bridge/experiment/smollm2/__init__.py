"""SmolLM2-135M-Instruct through the paper's stages: what it is asked, and what was decided after which run.

**Prompts.** Arithmetic is reasoning-gym's `chain_sum`. The math stage trains on 64 sums of one digit, 12 steps of 8
prompts with 8 answers each, at a learning rate of 2e-5. Held out are the 36 other sums, and 96 sums of three one-digit
numbers, of which the model mostly fails after it. A response is right if it ends with the number. Another order makes
another sum: of the evaluated known ones of seeds 100, 0 and 1, 10 of 22, 5 of 23 and 10 of 28 were trained on in the
other order, and 2, 8 and 2 are cached in it. In the pilot, in plain transformers, 0.97 of the answers to training
prompts were right after 11 such steps, and 0.97 of those to the 36 after 16. The bases give 4.2 different right answers
of 8 to a known prompt on seed 100, 1.1, 1.3, 2.8, 1.0, 3.3 and 2.1 on seeds 0 to 5.

**Strata.** The base draws 8 responses to each held-out prompt at the evaluation's temperature. A prompt is known if at
least 7 are right, unknown if at most 1 is. Every second prompt of a stratum may give the buffer, 16 at most, and the
others are evaluated, with new draws. Known prompts measure retention, unknown ones learning. The buffer drops prompts
without a right response, and takes unknown ones with one first: 4, 6 and 8 on seeds 100, 0 and 1, beside all 16 known.

**Second task.** Lines of small talk, rewarded for friendly words, 24 steps of 4 lines with 8 answers each, at 5e-5. It
is usable if GRPO alone loses 20 points on known prompts or more. On pilot seeds, 900 and more, at 5e-5 from a base of
sums, 32 of them fell from 1.00 to 0.81 in 15 steps and to 0.25 in 20, judged right if also ended, and to 0.84
otherwise. At 3e-5 to 6e-5 two other bases lost 25 to 69 points in 15 to 30 steps; at 1e-5 nothing was lost in 20.

**Methods.** GRPO alone, reverse KL, forward KL, replay (`correct_forward_kl`) and CoKL. All take the same steps, of 32
rows of the second task and, but for GRPO alone, 32 rows of regularization; of these 16 are cached for CoKL. Each takes
its best coefficient on seed 100: the highest sum of correctness on known prompts and of the second task's reward, each
in percent. CoKL had 0.003, 0.01, 0.03 and 0.1, replay these and 0.3, forward KL 0.01, 0.03 and 0.1, reverse KL 0.01 and
0.03. CoKL chose 0.01; replay 0.003 and the full KLs 0.01, each the least it had; run last, on a new base, the full KLs'
0.003 beat 0.01 by 1.2 and 1.5 points. Replay's 0.003 was run after its 0.01 was seen on seed 0. CoKL's 0.3 was left out
after 31 % at 0.1, the full KLs' others for time. SCORES.csv has every run, `main` 1 at these choices but on seed 100.

**What is compared.** Primary: correctness on known prompts after the second stage, CoKL minus replay, paired by seed,
raw. Secondary: unknown prompts, the second task's reward, distinct correct responses; and, fixed before each run, what
final models learn in another math stage that pays only right answers with the word "equals", on seeds 5 and 4, or with
a full stop at the end, on seed 6, whose base hardly says "equals". The primary's rule, written after the first run's
scores, seeds 0 to 2, and before the second's, 3 to 5: it is claimed if its mean has one sign in both and its interval
over all six seeds leaves out zero. Told without a claim: the KL on cached responses; the full KLs of seeds 0 to 2, from
bases trained anew (SCORES.csv: `reference` 2); and seed 6, planned before it, all from one base (`main` 0).

Assumption beyond the paper: the tasks are ours to choose; the paper's models and rewards are larger by far.
"""
