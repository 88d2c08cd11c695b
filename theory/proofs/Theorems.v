(* The paper's two theorems, each as one statement with all of its clauses, and its finite-group corollary. The proofs
   are in the appendices; what is stated here cannot be weakened there unseen. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies AppendixC AppendixD AppendixB_Recovery.
Open Scope R_scope.

Theorem theorem_1 (A : finType) (C : pred A) (ref : A -> R) (beta : R) :
  policy ref -> 0 < mass C ref -> 0 < beta ->
  let J := J_cokl C beta ref in
  (* J depends on pi only through Z and pi+; pi- is free. *)
  (forall p1 p2, mass C p1 = mass C p2 -> (forall a, plus C p1 a = plus C p2 a) -> J p1 = J p2) /\
  (forall z right wrong1 wrong2, policy right -> mass C right = 1 -> z <> 0 ->
    J (assemble C z right wrong1) = J (assemble C z right wrong2)) /\
  (* The exact difference, where the penalty is finite. *)
  (forall p1 p2, (forall a, plus C p1 a = plus C p2 a) -> mass C p1 < mass C p2 ->
    is_finite (kl (plus C ref) (plus C p1)) ->
    [/\ is_finite (J p1), is_finite (J p2), real (J p2) - real (J p1) = mass C p2 - mass C p1
      & real (J p2) - real (J p1) > 0]) /\
  (* The maximum is 1, and attained; every maximizer has Z = 1 and pi+ = ref+. *)
  (exists p, [/\ policy p, 0 < mass C p & J p = 1]) /\
  (forall p, policy p -> 0 < mass C p -> Rbar_le (J p) 1) /\
  (forall p, policy p -> 0 < mass C p -> J p = 1 -> mass C p = 1 /\ forall a, plus C p a = plus C ref a).
Proof.
  move=> pr qr b0 J; have [pp pos value best] := cokl_maximum C ref beta pr qr b0.
  split; first exact: cokl_depends_on_mass_and_plus.
  split; first exact: cokl_ignores_minus.
  split; first exact: cokl_exact_difference.
  split; first by exists (plus C ref).
  by split=> p pol p0; have [top which _] := best p pol p0 => // /which.
Qed.

(* What Theorem 2 says of one direction: its objective, its closed form. *)
Definition strict_gap (J : forall A : finType, pred A -> R -> (A -> R) -> (A -> R) -> Rbar) (optimum : R -> R -> R) :=
  (* A global maximizer over the simplex exists; every one has the reference's conditionals and mass Z*. *)
  (forall (A : finType) (C : pred A) (ref : A -> R) (beta : R), policy ref -> 0 < mass C ref < 1 -> 0 < beta ->
    (exists p, global_maximizer (J A C beta ref) p) /\
    (forall p, global_maximizer (J A C beta ref) p ->
      [/\ mass C p = optimum (mass C ref) beta, forall a, plus C p a = plus C ref a
        & forall a, minus C p a = minus C ref a])) /\
  (* q < Z* < 1. *)
  (forall q beta, 0 < q < 1 -> 0 < beta -> q < optimum q beta < 1) /\
  (* Strictly decreasing in beta. *)
  (forall q beta1 beta2, 0 < q < 1 -> 0 < beta1 < beta2 -> optimum q beta2 < optimum q beta1) /\
  (* Both limits. *)
  (forall q, 0 < q < 1 -> filterlim (optimum q) (at_right 0) (locally 1)) /\
  (forall q, 0 < q < 1 -> is_lim (optimum q) p_infty q).

Theorem theorem_2_forward :
  strict_gap (@J_forward) (fun q beta => (1 - beta + sqrt ((beta - 1) ^ 2 + 4 * beta * q)) / 2).
Proof.
  split.
    move=> A C ref beta pr hq b0; have [pb [_ best]] := forward_global_maximizer C ref beta pr b0 hq.
    split; first by exists (with_mass C ref (forward_optimum (mass C ref) beta)); split=> // p /best [].
    by move=> p /(forward_theorem_2 C ref beta pr b0 hq) [? [? ?]].
  split; first exact: forward_strict_gap.
  split; first exact: forward_strictly_decreasing.
  by split=> q hq; [exact: forward_limit_small_beta | exact: forward_limit_large_beta].
Qed.

Theorem theorem_2_reverse : strict_gap (@J_reverse) (fun q beta => sigmoid (logit q + 1 / beta)).
Proof.
  split.
    move=> A C ref beta pr hq b0; have [pb [_ best]] := reverse_global_maximizer C ref beta pr b0 hq.
    split; first by exists (with_mass C ref (reverse_optimum (mass C ref) beta)); split=> // p /best [].
    by move=> p /(reverse_theorem_2 C ref beta pr b0 hq) [? [? ?]].
  split; first exact: reverse_strict_gap.
  split; first exact: reverse_strictly_decreasing.
  by split=> q hq; [exact: reverse_limit_small_beta | exact: reverse_limit_large_beta].
Qed.

(* Finite groups keep Theorem 1's maximum and maximizer. *)
Theorem finite_groups_keep_the_optimum (A : finType) (C : pred A) (ref : A -> R) (beta : R) (G : nat) :
  policy ref -> 0 < mass C ref -> 0 < beta -> forall p, policy p -> 0 < mass C p ->
  Rbar_le (J_finite C beta G ref p) 1 /\
  (J_finite C beta G ref p = 1 <-> mass C p = 1 /\ forall a, plus C p a = plus C ref a).
Proof.
  by move=> pr qr b0 p pol p0; have [_ _ _ best] := finite_objective_maximum C ref beta G pr qr b0; have [] := best p pol p0.
Qed.
