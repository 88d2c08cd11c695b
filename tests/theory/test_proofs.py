"""The proofs in Coq: all compile, on the reals' axioms alone; their definitions are the Python's; wrong ones fail.

Needs coqc, and fails without it. Deselected by default (`make proofs` selects the marker).
"""

from __future__ import annotations

import math
import random
import re
import shutil
import subprocess
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import pytest
import torch
from mpmath import mpf

from cokl.groups import ResponseGroups, SurrogateConfig, surrogate_loss
from cokl.policy import CorrectSet, Policy
from theory import formulas
from theory.claims import registered_claims
from theory.definitions import ExactPolicy
from theory.definitions import kl as exact_kl
from theory.finite_group import Bandit, expected_surrogate_gradient
from theory.proofs import machine_checked
from theory.proofs.machine_checked import BUILD, FILES, SOURCES

pytestmark = pytest.mark.proofs
POINTS = 20
TOLERANCE = "1 / 1000000000000"


@pytest.fixture(scope="module")
def build() -> Path:
    assert machine_checked.coq_is_installed(), machine_checked.INSTALL
    assert machine_checked.compile_proofs(BUILD) == {}
    return BUILD


# ---------- All files, no gap, the listed axioms ----------


def test_every_file_is_listed_and_compiles(build):
    assert sorted(path.name for path in SOURCES.glob("*.v")) == sorted(FILES)
    assert all(machine_checked.is_compiled(file, build) for file in FILES)


def test_the_axioms_are_the_listed_ones(build):
    assert machine_checked.axioms(build) == machine_checked.allowed_axioms()


def test_an_independent_checker_accepts_the_compiled_files(build):
    """coqchk reads the compiled files alone, so nothing that a source tells Coq to skip is skipped."""
    modules = [argument for file in FILES for argument in ("-norec", f"CoKL.{file.removesuffix('.v')}")]
    command = ["coqchk", "-silent", "-R", ".", "CoKL", *modules]
    checked = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_an_admitted_proof_is_seen(build, tmp_path, monkeypatch):
    sources, copy = _copies(build, tmp_path, monkeypatch)
    text = (sources / "Theorems.v").read_text()
    (sources / "Theorems.v").write_text(f"{text[: text.rindex('Proof.')]}Proof. Admitted.\n")
    failures = machine_checked.compile_proofs(copy, ("Theorems.v",))
    assert set(failures) == {"Theorems.v"}
    assert "finite_groups_keep_the_optimum" in failures["Theorems.v"]
    assert not machine_checked.is_compiled("Theorems.v", copy)


# ---------- The definitions, by numbers ----------

PREAMBLE = """From mathcomp Require Import all_ssreflect.
Require Import Reals Lra.
From Interval Require Import Tactic.
From CoKL Require Import FiniteSums Policies AppendixA AppendixB_Objective AppendixB_Groups AppendixC AppendixD.
From CoKL Require Import AppendixB_Recovery.
Open Scope R_scope.
(* Three actions, of which the first two are correct. *)
Definition table (values : seq R) (a : 'I_3) : R := nth 0 values a.
Definition right (a : 'I_3) : bool := (a < 2)%nat.
Definition first : 'I_3 := ord0.
Definition third : 'I_3 := ord_max.
Lemma mass_table values : mass right (table values) = nth 0 values 0 + nth 0 values 1.
Proof.
  by rewrite /mass big_mkcond !big_ord_recl big_ord0 /table /right /=; change R0 with 0; rewrite !Rplus_0_r.
Qed.
Ltac sums := rewrite ?mass_table ?big_ord_recl ?big_ord0 /table /right /=; change R0 with 0; rewrite ?Rmult_0_l.
Lemma table_positive x y z a : 0 < x -> 0 < y -> 0 < z -> 0 < table [:: x; y; z] a.
Proof. by case: a => [[|[|[|n]]]] //=. Qed.
Lemma kl_table p x y z : 0 < x -> 0 < y -> 0 < z ->
  kl p (table [:: x; y; z]) = Coquelicot.Rbar.Finite (kl_sum p (table [:: x; y; z])).
Proof. by move=> hx hy hz; apply: kl_finite => a; have := table_positive x y z a hx hy hz; lra. Qed.
Lemma kl_plus_table values x y z : 0 < x -> 0 < y -> 0 < z ->
  kl (plus right (table values)) (plus right (table [:: x; y; z])) =
  Coquelicot.Rbar.Finite (kl_sum (plus right (table values)) (plus right (table [:: x; y; z]))).
Proof.
  move=> hx hy hz; apply: kl_finite => a; have := table_positive x y z a hx hy hz.
  by rewrite /plus mass_table /=; case: ifP => // _ pos /quotient_zero []; lra.
Qed.
Ltac value := try lra; rewrite /= /recovery /log_partial /INR /kl_sum /plus; sums.
"""
GROUPS = """Ltac groups := rewrite ?big_ord_recl ?big_ord0 ?expected_none ?expected_one_more
  ?big_ord_recl ?big_ord0 ?expected_none /surrogate_gradient /weighted_score /has_correct
  /weight /correct_count ?big_cons ?big_nil; sums.
(* The expectations written out once, for any probabilities p and r and any scores s. *)
Notation three x y z := (table [:: x; y; z]).
Ltac written_out := eexists; rewrite ?/expected_gradient ?/buffered_gradient !expected_one_more; groups; reflexivity.
Definition weighted_at p0 p1 p2 s0 s1 s2 :
  {x | expected (three p0 p1 p2) 2 (weighted_score right (three s0 s1 s2)) = x}. Proof. written_out. Defined.
Definition held_at p0 p1 p2 : {x | expected (three p0 p1 p2) 2 (has_correct right) = x}.
Proof. written_out. Defined.
Definition unfiltered_at r0 r1 r2 p0 p1 p2 s0 s1 s2 :
  {x | expected_gradient right (three r0 r1 r2) (three p0 p1 p2) (three s0 s1 s2) 1 = x}.
Proof. written_out. Defined.
Definition buffered_at r0 r1 r2 p0 p1 p2 s0 s1 s2 :
  {x | buffered_gradient right (three r0 r1 r2) (three p0 p1 p2) (three s0 s1 s2) 1 = x}.
Proof. written_out. Defined.
Ltac read := cbv beta iota delta [weighted_at held_at unfiltered_at buffered_at proj1_sig].
"""


def _coq(value: Fraction | float) -> str:
    """A number as Coq reads it, exactly."""
    exact = Fraction(value)
    return f"({exact.numerator} / {exact.denominator})" if exact else "0"


def _coq_table(values) -> str:
    return f"(table [:: {'; '.join(map(_coq, values))}])"


def _goal(term: str, value, tactic: str) -> str:
    return (
        f"Goal Rabs ({term} - {_coq(float(value))}) <= {TOLERANCE}.\nProof. {tactic}; interval with (i_prec 90). Qed.\n"
    )


class Draw:
    """Random rational points."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def between(self, low: float, high: float) -> Fraction:
        return Fraction(round(self.random.uniform(low, high) * 1000), 1000)

    def simplex(self) -> list[Fraction]:
        weights = [self.random.randint(20, 200) for _ in range(3)]
        return [Fraction(weight, sum(weights)) for weight in weights]


def _policy(probs: list[Fraction]) -> Policy:
    logits = torch.tensor([math.log(prob) if prob else -math.inf for prob in probs], dtype=torch.float64)
    return Policy(logits, CorrectSet.from_mask(torch.tensor([True, True, False])))


def _exact(probs: list[Fraction]) -> ExactPolicy:
    return ExactPolicy(tuple(mpf(prob.numerator) / prob.denominator for prob in probs), (True, True, False))


def scalar_goals(draw: Draw) -> str:
    """One point of every definition over numbers, against the formula of that name."""
    q, z, beta = draw.between(0.05, 0.95), draw.between(0.05, 0.95), draw.between(0.1, 8)
    size = draw.random.randint(1, 8)
    f, p, y, num = formulas, 1 - q, 1 - z, math
    at, fq, fz, fb = f"{_coq(q)} {_coq(beta)}", float(q), float(z), float(beta)
    at_z = f"{at} {_coq(z)}"
    above = q + (1 - q) * z
    divergence = f.bernoulli_kl(num, fq, fz), f.bernoulli_kl(num, fz, fq)
    logs = "rewrite /log_partial /INR"
    recovered = f.recovery_closed_form(num, fz, size)
    goals = [
        (f"forward_optimum {at}", f.forward_kl_optimum(num, fq, fb), "rewrite /forward_optimum"),
        (f"reverse_optimum {at}", f.reverse_kl_optimum(num, fq, fb), "rewrite /reverse_optimum /sigmoid /logit"),
        (f"bernoulli_kl {_coq(q)} {_coq(z)}", divergence[0], "rewrite /bernoulli_kl"),
        (f"kl_sum (bernoulli {_coq(q)}) (bernoulli {_coq(z)})", divergence[0], "rewrite /kl_sum big_bool /="),
        (f"forward_profile {at_z}", fz - fb * divergence[0], "rewrite /forward_profile /bernoulli_kl"),
        (f"reverse_profile {at_z}", fz - fb * divergence[1], "rewrite /reverse_profile /bernoulli_kl"),
        (f"forward_slope {at_z}", f.forward_kl_slope(num, fz, fq, fb), "rewrite /forward_slope"),
        (
            f"forward_curvature {at_z}",
            f.forward_kl_curvature(Fraction, z, y, q, p, beta),
            "rewrite /forward_curvature",
        ),
        (f"reverse_slope {at_z}", f.reverse_kl_slope(num, fz, fq, fb), "rewrite /reverse_slope"),
        (
            f"reverse_curvature {_coq(beta)} {_coq(z)}",
            f.reverse_kl_curvature(Fraction, z, y, q, p, beta),
            "rewrite /reverse_curvature",
        ),
        (
            f"{_coq(above)} * (1 - {_coq(above)}) / ({_coq(above)} - {_coq(q)})",
            f.forward_kl_coefficient(Fraction, above, q),
            "idtac",
        ),
        (f"recovery {size} {_coq(z)}", recovered, f"rewrite /recovery; {logs}"),
        (
            f"recovery_slope {size} {_coq(z)}",
            f.recovery_slope(Fraction, z, size),
            "rewrite /recovery_slope",
        ),
        (
            f"finite_slope {size} {_coq(beta)} {_coq(z)}",
            f.finite_objective_slope(Fraction, z, size, beta),
            "rewrite /finite_slope",
        ),
        (
            f"1 - (1 - {_coq(z)}) ^ {size}",
            f.positive_count_probability(Fraction, z, size),
            "idtac",
        ),
        (
            f"without_term1_threshold {size}",
            f.without_term1_threshold(num, size),
            f"rewrite /without_term1_threshold /harmonic; {logs}",
        ),
        (
            f"without_term1 {size} {_coq(beta)} {_coq(z)}",
            fz - fb * (math.log(fz) + recovered),
            f"rewrite /without_term1; {logs}",
        ),
    ]
    return "".join(_goal(*goal) for goal in goals)


def policy_goals(draw: Draw) -> str:
    """One point of every definition over policies, against the toolkit's regularizers and the exact definitions."""
    ref, pi = draw.simplex(), draw.simplex()
    policy, reference, exact = _policy(pi), _policy(ref), _exact(pi)
    values = {name: regularizer.value(policy, reference) for name, regularizer in formulas.regularizers.items()}
    at_ref, at_pi = _coq_table(ref), _coq_table(pi)
    logits = [draw.between(-3, 3) for _ in range(3)]
    trained = Policy(torch.tensor([float(logit) for logit in logits], dtype=torch.float64), policy.correct)
    z = draw.between(0.1, 0.9)
    assembled = float(z) * exact.plus[0], (1 - float(z)) * exact.minus[2]
    pieces = "rewrite /assemble /plus /minus; sums"
    goals = [
        (f"mass right {at_pi}", exact.mass, "sums"),
        (f"plus right {at_pi} first", exact.plus[0], "rewrite /plus; sums"),
        (f"minus right {at_pi} third", exact.minus[2], "rewrite /minus; sums"),
        (
            f"assemble right {_coq(z)} (plus right {at_pi}) (minus right {at_pi}) first",
            assembled[0],
            pieces,
        ),
        (f"with_mass right {at_pi} {_coq(z)} third", assembled[1], f"rewrite /with_mass; {pieces}"),
        (f"kl_sum {at_pi} {at_ref}", exact_kl(exact.probs, _exact(ref).probs), "rewrite /kl_sum; sums"),
        (f"kl_sum {at_ref} {at_pi}", values["forward_kl"], "rewrite /kl_sum; sums"),
        (f"kl_sum {at_pi} {at_ref}", values["reverse_kl"], "rewrite /kl_sum; sums"),
        (f"cokl right {at_ref} {at_pi}", values["cokl"], "rewrite /cokl /kl_sum /plus; sums"),
        (f"softmax {_coq_table(logits)} first", trained.probs[0], "rewrite /softmax; sums"),
    ]
    beta, size = draw.between(0.1, 8), draw.random.randint(1, 4)
    mass, b = float(exact.mass), float(beta)
    recovered = formulas.recovery_closed_form(math, mass, size)
    for term, penalty, tactic in (
        (f"J_forward right {_coq(beta)} {at_ref} {at_pi}", values["forward_kl"], "rewrite /J_forward kl_table"),
        (f"J_reverse right {_coq(beta)} {at_ref} {at_pi}", values["reverse_kl"], "rewrite /J_reverse kl_table"),
        (f"J_cokl right {_coq(beta)} {at_ref} {at_pi}", values["cokl"], "rewrite /J_cokl kl_plus_table"),
        (
            f"J_finite right {_coq(beta)} {size} {at_ref} {at_pi}",
            values["cokl"] + recovered,
            "rewrite /J_finite kl_plus_table",
        ),
    ):
        goals.append((f"Coquelicot.Rbar.real ({term})", mass - b * penalty, f"{tactic}; value"))
    return "".join(_goal(*goal) for goal in goals)


def group_goals(draw: Draw) -> str:
    """One point of the expectations over groups, against the toolkit's weights and the enumeration of all groups."""
    ref, pi = draw.simplex(), draw.simplex()
    scores = [draw.between(-2, 2) for _ in range(3)]
    held, weighted = 0.0, 0.0
    for group in product(range(3), repeat=2):
        probability = float(pi[group[0]] * pi[group[1]])
        rewards = torch.tensor([[float(action < 2) for action in group]], dtype=torch.float64)
        weights = formulas.reference_weights(ResponseGroups(torch.zeros_like(rewards), rewards))[0]
        held += probability * float(rewards.any())
        weighted += probability * sum(float(w) * float(scores[a]) for w, a in zip(weights, group, strict=True))
    logits = [torch.tensor([math.log(prob) for prob in probs], dtype=torch.float64) for probs in (ref, pi)]
    bandit = Bandit(logits[0], logits[1], logits[1], torch.tensor([True, True, False]))
    score = _coq_table([(1 if action == 0 else 0) - pi[0] for action in range(3)])
    cokl = formulas.regularizers["cokl"]
    at_ref, at_pi = _coq_table(ref), _coq_table(pi)
    goals = [
        (
            f"expected {at_pi} 2 (weighted_score right {_coq_table(scores)})",
            weighted,
            "rewrite (proj2_sig (weighted_at _ _ _ _ _ _)); read",
        ),
        (f"expected {at_pi} 2 (has_correct right)", held, "rewrite (proj2_sig (held_at _ _ _)); read"),
        (
            f"expected_gradient right {at_ref} {at_pi} {score} 1",
            expected_surrogate_gradient(cokl, bandit, 1, filtered=False)[0],
            "rewrite (proj2_sig (unfiltered_at _ _ _ _ _ _ _ _ _)); read",
        ),
        (
            f"buffered_gradient right {at_ref} {at_pi} {score} 1",
            expected_surrogate_gradient(cokl, bandit, 1)[0],
            "rewrite (proj2_sig (buffered_at _ _ _ _ _ _ _ _ _)); read",
        ),
    ]
    return "".join(_goal(*goal) for goal in goals) + _batch_goal(draw, pi)


def _batch_goal(draw: Draw, pi: list[Fraction]) -> str:
    """The surrogate of two prompts with two reference and two rollout responses each, against the toolkit's loss."""
    drawn = torch.tensor([[[draw.random.randrange(3) for _ in range(2)] for _ in range(2)] for _ in range(2)])
    log_probs = torch.tensor([math.log(prob) for prob in pi], dtype=torch.float64)
    streams = [ResponseGroups(log_probs[actions], (actions < 2).double()) for actions in drawn]
    weights = formulas.regularizers["cokl"].surrogate_weights(*streams, SurrogateConfig())
    group = [f"(fun x : 'I_2 => nth [::] {_coq_groups(actions)} x)" for actions in drawn]
    term = f"batch_mean (fun x : 'I_2 => surrogate right ({group[0]} x) ({group[1]} x) {_coq_table(pi)})"
    unfold = "rewrite /batch_mean /surrogate /weighted_score card_ord !big_ord_recl big_ord0 /= ?big_cons ?big_nil"
    return _goal(term, surrogate_loss(weights, *streams), f"{unfold} /weight /correct_count /=; sums")


def _coq_groups(actions: torch.Tensor) -> str:
    return f"[:: {'; '.join(map(_coq_group, actions.tolist()))}]"


def _coq_group(actions: list[int]) -> str:
    return f"[:: {'; '.join(map(_coq_action, actions))}]"


def _coq_action(action: int) -> str:
    return ("first", "(@Ordinal 3 1 isT)", "third")[action]


PAIRS = """(* G = 2, over one correct and one incorrect action. *)
Definition two (values : seq R) (a : 'I_2) : R := nth 0 values a.
Definition one_right (a : 'I_2) : bool := (a < 1)%nat.
Ltac written_twice := eexists; rewrite ?/expected_gradient ?/buffered_gradient !expected_one_more; do 3 groups;
  rewrite /two /one_right /=; reflexivity.
Definition unfiltered_two r0 r1 p0 p1 s0 s1 :
  {x | expected_gradient one_right (two [:: r0; r1]) (two [:: p0; p1]) (two [:: s0; s1]) 2 = x}.
Proof. written_twice. Defined.
Definition buffered_two r0 r1 p0 p1 s0 s1 :
  {x | buffered_gradient one_right (two [:: r0; r1]) (two [:: p0; p1]) (two [:: s0; s1]) 2 = x}.
Proof. written_twice. Defined.
Ltac read_two := cbv beta iota delta [unfiltered_two buffered_two proj1_sig].
"""


def pair_goals(draw: Draw) -> str:
    """One point of the expected gradients for G = 2, over one correct and one incorrect action."""
    masses = draw.between(0.1, 0.9), draw.between(0.1, 0.9)
    ref, pi = ([mass, 1 - mass] for mass in masses)
    logits = [torch.tensor([math.log(prob) for prob in probs], dtype=torch.float64) for probs in (ref, pi)]
    bandit = Bandit(logits[0], logits[1], logits[1], torch.tensor([True, False]))
    tables = " ".join(f"(two [:: {'; '.join(map(_coq, values))}])" for values in (ref, pi, [1 - pi[0], -pi[0]]))
    goals = []
    for term, kept, filtered in (("expected_gradient", "unfiltered", False), ("buffered_gradient", "buffered", True)):
        value = expected_surrogate_gradient(formulas.regularizers["cokl"], bandit, 2, filtered)[0]
        tactic = f"rewrite (proj2_sig ({kept}_two _ _ _ _ _ _)); read_two"
        goals.append(_goal(f"{term} one_right {tables} 2", value, tactic))
    return "".join(goals)


QUARTERS = sorted({probs for split in ((4, 0, 0), (2, 2, 0), (2, 1, 1)) for probs in permutations(split)})

BOUNDARY = """(* Policies with zeros: where KL is a number and where it is infinite. *)
Ltac entries := rewrite /plus ?mass_table /table /right /=.
Ltac covers := case=> [[|[|[|n]]]] //= ?; entries; try (move=> /quotient_zero []); rewrite /Rdiv; lra.
Ltac covered := rewrite kl_finite; last covers.
Ltac missed k := apply: kl_infinite => h; have := h (@Ordinal 3 k isT) ltac:(entries; rewrite /Rdiv; lra); entries;
  try (move=> /quotient_zero []); lra.
"""


def boundary_goals() -> str:
    """KL and CoKL of every pair of policies over quarters, zeros included, and the objectives where it is infinite."""
    goals = []
    for ref, pi in product(QUARTERS, QUARTERS):
        reference, policy = ([Fraction(share, 4) for share in shares] for shares in (ref, pi))
        at_ref, at_pi = _coq_table(reference), _coq_table(policy)
        missed = [action for action in range(3) if reference[action] and not policy[action]]
        value = exact_kl(_exact(reference).probs, _exact(policy).probs)
        if math.isinf(value):
            goals.append(
                f"Goal J_forward right 1 {at_ref} {at_pi} = Coquelicot.Rbar.m_infty.\n"
                f"Proof. rewrite /J_forward (_ : kl _ _ = Coquelicot.Rbar.p_infty) //; missed {missed[0]}%nat. Qed.\n"
            )
        else:
            term = f"Coquelicot.Rbar.real (kl {at_ref} {at_pi})"
            goals.append(_goal(term, value, "covered; rewrite /= /kl_sum; sums"))
        if any(reference[:2]) and any(policy[:2]):
            cokl = float(formulas.regularizers["cokl"].value(_policy(policy), _policy(reference)))
            if math.isinf(cokl):
                goals.append(
                    f"Goal J_cokl right 1 {at_ref} {at_pi} = Coquelicot.Rbar.m_infty.\n"
                    f"Proof. rewrite /J_cokl (_ : kl _ _ = Coquelicot.Rbar.p_infty) //; missed {missed[0]}%nat. Qed.\n"
                )
            else:
                term = f"Coquelicot.Rbar.real (kl (plus right {at_ref}) (plus right {at_pi}))"
                goals.append(_goal(term, cokl, "covered; rewrite /= /kl_sum /plus; sums; rewrite /Rdiv ?Rmult_0_l"))
    return "".join(goals)


def _check(goals: str, build: Path, name: str):
    needed = (GROUPS, "_at "), (GROUPS + PAIRS, "_two "), (BOUNDARY, "missed ")
    (build / f"{name}.v").write_text(PREAMBLE + "".join(text for text, word in needed if word in goals) + goals)
    return machine_checked.run_coq(f"{name}.v", build)


@pytest.mark.parametrize(
    ("kind", "goals"), [("Scalars", scalar_goals), ("PolicyNumbers", policy_goals), ("GroupNumbers", group_goals)]
)
def test_definitions_are_the_formulas(build, kind, goals):
    draw = Draw(20)
    result = _check("".join(goals(draw) for _ in range(POINTS)), build, kind)
    assert result.returncode == 0, result.stderr


def test_expected_gradients_of_pairs_are_the_enumeration(build):
    draw = Draw(21)
    result = _check("".join(pair_goals(draw) for _ in range(2)), build, "PairNumbers")
    assert result.returncode == 0, result.stderr


def test_zeros_and_infinities_are_the_python_definitions(build):
    result = _check(boundary_goals(), build, "BoundaryNumbers")
    assert result.returncode == 0, result.stderr


def test_definitions_that_are_properties_have_examples_and_counterexamples(build):
    examples = (Path(__file__).parent / "Properties.v").read_text()
    result = _check(examples, build, "PropertyExamples")
    assert result.returncode == 0, result.stderr
    for file in FILES:
        for name in re.findall(r"^Definition (\w+).* : Prop :=", (SOURCES / file).read_text(), re.MULTILINE):
            assert f"Goal {name} " in examples, name
            assert f"Goal ~ {name} " in examples, name


# ---------- Planted errors ----------


def _copies(build: Path, tmp_path: Path, monkeypatch) -> tuple[Path, Path]:
    """Sources to be changed, and a build that holds what was compiled from the true ones."""
    sources, copy = tmp_path / "sources", tmp_path / "build"
    shutil.copytree(SOURCES, sources)
    shutil.copytree(build, copy)
    monkeypatch.setattr(machine_checked, "SOURCES", sources)
    return sources, copy


WRONG = {
    "a sign in Z*_RKL": ("AppendixD.v", "sigmoid (logit q + 1 / beta)", "sigmoid (logit q - 1 / beta)"),
    "q < Z* weakened to q <= Z*": (
        "AppendixD.v",
        "Theorem forward_strict_gap q beta : 0 < q < 1 -> 0 < beta -> q < forward_optimum q beta < 1.",
        "Theorem forward_strict_gap q beta : 0 < q < 1 -> 0 < beta -> q <= forward_optimum q beta < 1.",
    ),
    "q in (0, 1) weakened to q <= 1": (
        "AppendixD.v",
        "Theorem reverse_strict_gap q beta : 0 < q < 1 ->",
        "Theorem reverse_strict_gap q beta : 0 < q <= 1 ->",
    ),
    "the exact difference without a finite penalty": (
        "AppendixC.v",
        "mass C p1 < mass C p2 -> is_finite (kl (plus C ref) (plus C p1)) ->",
        "mass C p1 < mass C p2 ->",
    ),
    "a sign in CoKL's gradient": (
        "AppendixB_Objective.v",
        "(plus C (softmax logits) b - plus C ref b)",
        "(plus C ref b - plus C (softmax logits) b)",
    ),
    "R_G' < 0 at Z = 1": (
        "AppendixB_Recovery.v",
        "Theorem recovery_decreasing G z : 0 < z < 1 ->",
        "Theorem recovery_decreasing G z : 0 < z <= 1 ->",
    ),
    "R_G summed from m = G": (
        "AppendixB_Recovery.v",
        "(1 - z) ^ (S G + k) / INR (S G + k)",
        "(1 - z) ^ (G + k) / INR (G + k)",
    ),
    "infinite KL counted as finite": ("Policies.v", "else p_infty.", "else Finite (kl_sum p m)."),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_statement_does_not_compile(build, tmp_path, monkeypatch, wrong):
    file, right, planted = WRONG[wrong]
    sources, copy = _copies(build, tmp_path, monkeypatch)
    text = (sources / file).read_text()
    assert right in text
    (sources / file).write_text(text.replace(right, planted))
    assert set(machine_checked.compile_proofs(copy, (file,))) == {file}


def test_a_weakened_theorem_breaks_the_whole_statement(build, tmp_path, monkeypatch):
    """q <= Z* is true and can be proved; what asks for q < Z* then fails."""
    sources, copy = _copies(build, tmp_path, monkeypatch)
    text = (sources / "AppendixD.v").read_text()
    statement = "Theorem reverse_strict_gap q beta : 0 < q < 1 -> 0 < beta -> q < reverse_optimum q beta < 1."
    proof = text[text.index(statement) + len(statement) :].split("Qed.")[0]
    strict = statement.replace("Theorem reverse_strict_gap", "Lemma strict")
    weak = statement.replace("q < reverse_optimum", "q <= reverse_optimum")
    (sources / "AppendixD.v").write_text(
        text.replace(
            f"{statement}{proof}Qed.",
            f"{strict}{proof}Qed.\n{weak}\nProof. by move=> hq hb; have := strict q beta hq hb; lra. Qed.\n",
        )
    )
    assert "AppendixD.v" not in machine_checked.compile_proofs(copy, ("AppendixD.v",))
    assert "Theorems.v" in machine_checked.compile_proofs(copy, ("Theorems.v",))


NARROWED = {
    "Theorem 2 for beta < 1 alone": ("policy ref -> 0 < mass C ref < 1 -> 0 < beta ->", "0 < beta < 1 ->", "[b0 _]"),
    "Theorem 2 for two distinct probabilities alone": (
        "policy ref -> 0 < mass C ref < 1 -> 0 < beta ->",
        "0 < beta -> (exists a b, ref a <> ref b) ->",
        "b0 _",
    ),
}


@pytest.mark.parametrize("narrowed", NARROWED)
def test_a_narrowed_theorem_that_is_still_proved_fails_make_proofs(build, tmp_path, monkeypatch, capsys, narrowed):
    statement, planted, introduced = NARROWED[narrowed]
    sources, copy = _copies(build, tmp_path, monkeypatch)
    text = (sources / "Theorems.v").read_text()
    assert statement in text
    assert text.count("move=> A C ref beta pr hq b0; have") == 2
    text = text.replace(statement, statement.replace("0 < beta ->", planted))
    text = text.replace("move=> A C ref beta pr hq b0; have", f"move=> A C ref beta pr hq {introduced}; have")
    (sources / "Theorems.v").write_text(text)
    monkeypatch.setattr(machine_checked, "BUILD", copy)
    assert machine_checked.compile_proofs(copy) == {}
    assert machine_checked.main() == 1
    assert "statements.txt" in capsys.readouterr().err


def test_a_proof_with_the_guard_bypassed_fails_make_proofs(build, tmp_path, monkeypatch, capsys):
    """1 = 2 by a fixpoint that calls itself on its own argument, used by a theorem whose statement stays as it is."""
    sources, copy = _copies(build, tmp_path, monkeypatch)
    text = (sources / "Theorems.v").read_text()
    statement, proof = text.rindex("Theorem "), text.rindex("Proof.")
    (sources / "Theorems.v").write_text(
        f"{text[:statement]}#[bypass_check(guard)] Fixpoint one_is_two (n : nat) : 1%nat = 2%nat := one_is_two n.\n"
        f"{text[statement:proof]}Proof. by have := one_is_two 0%nat. Qed.\n"
    )
    monkeypatch.setattr(machine_checked, "BUILD", copy)
    assert machine_checked.main() == 1
    assert "is assumed to be guarded" in capsys.readouterr().err
    assert not machine_checked.is_compiled("Theorems.v", copy)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("reverse_kl_optimum", lambda num, q, beta: 1 / (1 + num.exp(-(num.log(q / (1 - q)) - 1 / beta)))),
        ("forward_kl_optimum", lambda num, q, beta: (1 - beta - num.sqrt((beta - 1) ** 2 + 4 * beta * q)) / 2),
        ("bernoulli_kl", lambda num, a, b: a * num.log(a / b) - (1 - a) * num.log((1 - a) / (1 - b))),
        ("recovery_slope", lambda num, z, size: -((1 - z) ** (size + 1)) / z),
        ("without_term1_threshold", lambda num, size: 1 / sum(1 / m for m in range(1, size)) if size > 1 else 2.0),
    ],
)
def test_a_wrong_formula_fails_the_numbers(build, monkeypatch, name, wrong):
    monkeypatch.setattr(formulas, name, wrong)
    assert _check(scalar_goals(Draw(20)), build, "WrongNumbers").returncode != 0


# ---------- The claims table ----------


def test_the_table_shows_only_what_compiled_as_it_stands(build, tmp_path, monkeypatch):
    claims = registered_claims()
    named = {name for entry in machine_checked.theorems() for name in entry.claims}
    assert named <= set(claims)
    shown = {name: machine_checked.evidence(name, build) for name in named}
    assert all(shown.values())
    assert machine_checked.evidence("clipped-ratio", build) == []
    sources, copy = _copies(build, tmp_path, monkeypatch)
    with (sources / "AppendixC.v").open("a") as file:
        file.write("(* A change. *)\n")
    assert machine_checked.evidence("cokl-ignores-incorrect-conditional", copy) == []
    assert machine_checked.evidence("forward-kl-optimum", copy)[0].detail.startswith("AppendixD.v")
