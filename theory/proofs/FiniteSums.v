(* Sums of real numbers over a finite type: MathComp's big operators at Coq's reals. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra.
Open Scope R_scope.

Section Laws.
Let plus_assoc : associative Rplus. Proof. by move=> x y z; rewrite Rplus_assoc. Qed.
Let mult_assoc : associative Rmult. Proof. by move=> x y z; rewrite Rmult_assoc. Qed.
Canonical Rplus_law := Monoid.Law plus_assoc Rplus_0_l Rplus_0_r.
Canonical Rplus_com_law := Monoid.ComLaw Rplus_comm.
Canonical Rmult_law := Monoid.Law mult_assoc Rmult_1_l Rmult_1_r.
Canonical Rmult_com_law := Monoid.ComLaw Rmult_comm.
Canonical Rmult_mul_law := Monoid.MulLaw Rmult_0_l Rmult_0_r.
Canonical Rplus_add_law := Monoid.AddLaw Rmult_plus_distr_r Rmult_plus_distr_l.
End Laws.

Notation "\sum_ ( i | P ) F" := (\big[Rplus/R0]_(i | P%B) F%R) : R_scope.
Notation "\sum_ ( i : t ) F" := (\big[Rplus/R0]_(i : t) F%R) (only parsing) : R_scope.
Notation "\sum_ i F" := (\big[Rplus/R0]_i F%R) : R_scope.

Section Sums.
Context {A : finType}.
Implicit Types (P : pred A) (F G : A -> R).

Lemma sum_ext P F G : (forall a, P a -> F a = G a) -> \sum_(a | P a) F a = \sum_(a | P a) G a.
Proof. by move=> same; apply: eq_bigr. Qed.

Lemma sum_le P F G : (forall a, P a -> F a <= G a) -> \sum_(a | P a) F a <= \sum_(a | P a) G a.
Proof. by move=> below; apply: (big_ind2 (fun x y => x <= y)) => //; [lra | move=> *; lra]. Qed.

Lemma sum_zero P : \sum_(a | P a) 0 = 0.
Proof. by rewrite big1. Qed.

Lemma sum_nonneg P F : (forall a, P a -> 0 <= F a) -> 0 <= \sum_(a | P a) F a.
Proof. by move=> nonneg; rewrite -(sum_zero P); apply: sum_le. Qed.

Lemma sum_plus P F G : \sum_(a | P a) (F a + G a) = \sum_(a | P a) F a + \sum_(a | P a) G a.
Proof. by rewrite big_split. Qed.

Lemma sum_scale P c F : \sum_(a | P a) (c * F a) = c * (\sum_(a | P a) F a).
Proof. by rewrite big_distrr. Qed.

Lemma sum_opp P F : \sum_(a | P a) (- F a) = - (\sum_(a | P a) F a).
Proof.
  have -> : - (\sum_(a | P a) F a) = (-1) * (\sum_(a | P a) F a) by lra.
  by rewrite -sum_scale; apply: sum_ext => a _; lra.
Qed.

Lemma sum_minus P F G : \sum_(a | P a) (F a - G a) = \sum_(a | P a) F a - \sum_(a | P a) G a.
Proof. by rewrite /Rminus sum_plus sum_opp. Qed.

Lemma sum_div P c F : \sum_(a | P a) (F a / c) = (\sum_(a | P a) F a) / c.
Proof.
  by rewrite /Rdiv (Rmult_comm _ (/ c)) -sum_scale; apply: sum_ext => a _; rewrite Rmult_comm.
Qed.

(* A term of a sum of nonnegative terms is at most the sum; the sum is zero only if all terms are. *)
Lemma term_le_sum P F b : (forall a, P a -> 0 <= F a) -> P b -> F b <= \sum_(a | P a) F a.
Proof.
  move=> nonneg Pb; rewrite (bigD1 b) //=.
  suff : 0 <= \sum_(a | P a && (a != b)) F a by lra.
  by apply: sum_nonneg => a /andP [Pa _]; apply: nonneg.
Qed.

Lemma sum_zero_terms P F : (forall a, P a -> 0 <= F a) -> \sum_(a | P a) F a = 0 -> forall a, P a -> F a = 0.
Proof.
  move=> nonneg total a Pa; have := term_le_sum P F a nonneg Pa; have := nonneg a Pa; lra.
Qed.

Lemma sum_split P F : \sum_a F a = \sum_(a | P a) F a + \sum_(a | ~~ P a) F a.
Proof. by rewrite (bigID P). Qed.

Lemma sum_indicator P F : \sum_a (if P a then F a else 0) = \sum_(a | P a) F a.
Proof. by rewrite [RHS]big_mkcond. Qed.

End Sums.
