(* Theorem 2 (Appendix D): the strict correctness gap of full-policy forward and reverse KL. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies AppendixA.
Open Scope R_scope.

(* The two objectives, -infinity where the divergence is infinite. *)
Definition J_forward {A : finType} (C : pred A) (beta : R) (ref p : A -> R) : Rbar :=
  objective (mass C p) beta (kl ref p).
Definition J_reverse {A : finType} (C : pred A) (beta : R) (ref p : A -> R) : Rbar :=
  objective (mass C p) beta (kl p ref).

(* Z*_FKL and Z*_RKL. *)
Definition sigmoid (a : R) : R := 1 / (1 + exp (- a)).
Definition logit (q : R) : R := ln (q / (1 - q)).
Definition forward_optimum (q beta : R) : R := (1 - beta + sqrt ((beta - 1) ^ 2 + 4 * beta * q)) / 2.
Definition reverse_optimum (q beta : R) : R := sigmoid (logit q + 1 / beta).

(* The objectives on policies with the reference's conditionals, as functions of z: f and g of Appendix D. *)
Definition forward_profile (q beta z : R) : R := z - beta * bernoulli_kl q z.
Definition reverse_profile (q beta z : R) : R := z - beta * bernoulli_kl z q.
Definition forward_slope (q beta z : R) : R := 1 - beta * ((z - q) / (z * (1 - z))).
Definition forward_curvature (q beta z : R) : R := - beta * (q / z ^ 2 + (1 - q) / (1 - z) ^ 2).
Definition reverse_slope (q beta z : R) : R := 1 - beta * ln (z * (1 - q) / (q * (1 - z))).
Definition reverse_curvature (beta z : R) : R := - beta / (z * (1 - z)).

(* The policy with mass z and the reference's conditionals. *)
Definition with_mass {A : finType} (C : pred A) (ref : A -> R) (z : R) : A -> R :=
  assemble C z (plus C ref) (minus C ref).

(* ---------- The closed forms ---------- *)

Lemma forward_discriminant q beta : 0 < q < 1 -> 0 < beta -> 0 <= (beta - 1) ^ 2 + 4 * beta * q.
Proof.
  move=> [q0 q1] b0; have := pow2_ge_0 (beta - 1); have := Rmult_lt_0_compat _ _ b0 q0; lra.
Qed.

Lemma forward_stationary q beta : 0 < q < 1 -> 0 < beta ->
  let z := forward_optimum q beta in z ^ 2 + (beta - 1) * z - beta * q = 0.
Proof.
  move=> [q0 q1] b0 z; rewrite /z /forward_optimum.
  have d0 := forward_discriminant q beta (conj q0 q1) b0.
  have := sqrt_sqrt _ d0; set s := sqrt _ => square; nra.
Qed.

(* q < Z* < 1. *)
Theorem forward_strict_gap q beta : 0 < q < 1 -> 0 < beta -> q < forward_optimum q beta < 1.
Proof.
  move=> [q0 q1] b0; rewrite /forward_optimum.
  have d0 := forward_discriminant q beta (conj q0 q1) b0.
  have := sqrt_sqrt _ d0; have := sqrt_pos ((beta - 1) ^ 2 + 4 * beta * q); set s := sqrt _ => s0 square.
  split.
  - suff : 2 * q + beta - 1 < s by lra.
    case: (Rlt_le_dec (2 * q + beta - 1) s) => // above.
    have : s * s <= (2 * q + beta - 1) * (2 * q + beta - 1) by apply: Rmult_le_compat.
    nra.
  - suff : s < 1 + beta by lra.
    case: (Rlt_le_dec s (1 + beta)) => // above.
    have : (1 + beta) * (1 + beta) <= s * s by apply: Rmult_le_compat; lra.
    nra.
Qed.

Lemma reverse_closed q beta : 0 < q < 1 -> 0 < beta ->
  reverse_optimum q beta = q / (q + (1 - q) * exp (- (1 / beta))).
Proof.
  move=> [q0 q1] b0; rewrite /reverse_optimum /sigmoid /logit Ropp_plus_distr exp_plus exp_Ropp exp_ln; last first.
    by apply: Rdiv_lt_0_compat; lra.
  have := exp_pos (- (1 / beta)); set e := exp _ => e0.
  field; repeat split; nra.
Qed.

Lemma decay_bounds beta : 0 < beta -> 0 < exp (- (1 / beta)) < 1.
Proof.
  move=> b0; split; first exact: exp_pos.
  have i0 : 0 < 1 / beta by apply: Rdiv_lt_0_compat; lra.
  by have := exp_increasing (- (1 / beta)) 0 ltac:(lra); rewrite exp_0.
Qed.

Theorem reverse_strict_gap q beta : 0 < q < 1 -> 0 < beta -> q < reverse_optimum q beta < 1.
Proof.
  move=> [q0 q1] b0; rewrite reverse_closed //; have := decay_bounds beta b0; set e := exp _ => -[e0 e1].
  have n0 : 0 < q + (1 - q) * e by nra.
  have back : q / (q + (1 - q) * e) * (q + (1 - q) * e) = q by field; lra.
  have ne : 0 < (1 - q) * (1 - e) by apply: Rmult_lt_0_compat; lra.
  have nq := Rmult_lt_0_compat _ _ q0 ne; have nc : 0 < (1 - q) * e by apply: Rmult_lt_0_compat; lra.
  by split; apply: (Rmult_lt_reg_r (q + (1 - q) * e)) => //; rewrite back; nra.
Qed.

(* The gap of reverse KL is exponentially small in 1 / beta (beyond the paper). *)
Theorem reverse_gap_bound q beta : 0 < q < 1 -> 0 < beta ->
  1 - reverse_optimum q beta <= (1 - q) / q * exp (- (1 / beta)).
Proof.
  move=> [q0 q1] b0; rewrite reverse_closed //; have := decay_bounds beta b0; set e := exp _ => -[e0 e1].
  have n0 : 0 < q + (1 - q) * e by nra.
  have -> : 1 - q / (q + (1 - q) * e) = (1 - q) * e / (q + (1 - q) * e) by field; lra.
  have -> : (1 - q) / q * e = (1 - q) * e / q by field; lra.
  apply: Rmult_le_compat_l; first by nra.
  by apply: Rinv_le_contravar; nra.
Qed.

(* The gap of forward KL is of the order of beta (beyond the paper). *)
Theorem forward_gap_bounds q beta : 0 < q < 1 -> 0 < beta ->
  beta * (1 - q) / (1 + beta) < 1 - forward_optimum q beta < beta * (1 - q) / (q + beta).
Proof.
  move=> hq hb; have := forward_stationary q beta hq hb; have := forward_strict_gap q beta hq hb.
  set z := forward_optimum q beta => /= -[zq z1] root; move: hq => [q0 q1].
  have -> : 1 - z = ((1 - z) * (1 + beta)) / (1 + beta) by field; lra.
  split; first by apply: Rmult_lt_compat_r; [apply: Rinv_0_lt_compat; lra | nra].
  have -> : (1 - z) * (1 + beta) / (1 + beta) = (1 - z) * (q + beta) / (q + beta) by field; lra.
  by apply: Rmult_lt_compat_r; [apply: Rinv_0_lt_compat; lra | nra].
Qed.

(* ---------- Monotonicity and limits in beta ---------- *)

Theorem forward_strictly_decreasing q beta1 beta2 :
  0 < q < 1 -> 0 < beta1 < beta2 -> forward_optimum q beta2 < forward_optimum q beta1.
Proof.
  move=> hq [b0 b12]; have hb : 0 < beta2 by lra.
  have := forward_stationary q beta1 hq b0; have := forward_strict_gap q beta1 hq b0.
  have := forward_stationary q beta2 hq hb; have := forward_strict_gap q beta2 hq hb.
  set z1 := forward_optimum q beta1; set z2 := forward_optimum q beta2 => /= g2 r2 g1 r1.
  have r2' : z2 * (z2 + beta2 - 1) = beta2 * q by nra.
  have s2 : 0 < z2 + beta2 - 1 by nra.
  have difference : (z1 - z2) * (z1 + z2 + beta2 - 1) = (beta2 - beta1) * (z1 - q) by nra.
  have : 0 < (beta2 - beta1) * (z1 - q) by apply: Rmult_lt_0_compat; lra.
  have : 0 < z1 + z2 + beta2 - 1 by lra.
  nra.
Qed.

Theorem reverse_strictly_decreasing q beta1 beta2 :
  0 < q < 1 -> 0 < beta1 < beta2 -> reverse_optimum q beta2 < reverse_optimum q beta1.
Proof.
  move=> hq [b0 b12]; rewrite !reverse_closed; try lra; move: hq => [q0 q1].
  have : exp (- (1 / beta1)) < exp (- (1 / beta2)).
    apply: exp_increasing; apply: Ropp_lt_contravar; rewrite /Rdiv !Rmult_1_l.
    by apply: Rinv_lt_contravar; nra.
  have := exp_pos (- (1 / beta1)); set e1 := exp _; set e2 := exp _ => e10 e12.
  apply: Rmult_lt_compat_l => //; apply: Rinv_lt_contravar; last by nra.
  by apply: Rmult_lt_0_compat; nra.
Qed.

(* dZ*_RKL / dbeta of Appendix D. *)
Theorem reverse_optimum_slope q beta : 0 < q < 1 -> 0 < beta ->
  let z := reverse_optimum q beta in is_derive (reverse_optimum q) beta (- (z * (1 - z) / beta ^ 2)).
Proof.
  move=> [q0 q1] b0 z; rewrite /z /reverse_optimum /sigmoid.
  auto_derive; first by repeat split; [lra | apply: Rgt_not_eq; have := exp_pos (- (logit q + 1 / beta)); lra].
  rewrite /Rdiv !Rmult_1_l; have := exp_pos (- (logit q + / beta)); set e := exp _ => e0.
  field; split; lra.
Qed.

Theorem reverse_optimum_slope_negative q beta : 0 < q < 1 -> 0 < beta ->
  let z := reverse_optimum q beta in - (z * (1 - z) / beta ^ 2) < 0.
Proof.
  move=> hq hb z; have inside : 0 < z < 1 by rewrite /z; have := reverse_strict_gap q beta hq hb; lra.
  have : 0 < z * (1 - z) / beta ^ 2 by apply: Rdiv_lt_0_compat; [nra | apply: pow_lt].
  lra.
Qed.

(* h of Appendix D: the coefficient whose optimum is z. *)
Theorem forward_coefficient q beta : 0 < q < 1 -> 0 < beta ->
  let z := forward_optimum q beta in beta = z * (1 - z) / (z - q).
Proof.
  move=> hq hb /=; have := forward_stationary q beta hq hb; have := forward_strict_gap q beta hq hb.
  set z := forward_optimum q beta => /= gap root; have -> : z * (1 - z) = beta * (z - q) by lra.
  by field; lra.
Qed.

Theorem forward_coefficient_slope q z : 0 < q < z ->
  is_derive (fun x => x * (1 - x) / (x - q)) z (- (((z - q) ^ 2 + q * (1 - q)) / (z - q) ^ 2)).
Proof. by move=> hz; auto_derive; [lra | field; lra]. Qed.

Theorem forward_coefficient_decreasing q z : 0 < q < 1 -> q < z -> - (((z - q) ^ 2 + q * (1 - q)) / (z - q) ^ 2) < 0.
Proof.
  move=> [q0 q1] hz; have s0 : 0 < (z - q) ^ 2 by apply: pow_lt; lra.
  have : 0 < ((z - q) ^ 2 + q * (1 - q)) / (z - q) ^ 2 by apply: Rdiv_lt_0_compat => //; nra.
  lra.
Qed.

(* The quadratic's one positive root. *)
Lemma forward_root q beta z : 0 < q < 1 -> 0 < beta -> 0 < z -> z ^ 2 + (beta - 1) * z - beta * q = 0 ->
  forward_optimum q beta = z.
Proof.
  move=> hq hb z0 root; have := forward_stationary q beta hq hb; have := forward_strict_gap q beta hq hb.
  set y := forward_optimum q beta => /= gap yroot; have bq := Rmult_lt_0_compat _ _ hb (proj1 hq).
  have y' : y * (y + beta - 1) = beta * q by lra.
  have s0 : 0 < y + beta - 1 by nra.
  have difference : (y - z) * (y + z + beta - 1) = 0 by rewrite /= in root; lra.
  by case: (Rmult_integral _ _ difference); lra.
Qed.

(* h is the inverse of Z*_FKL. *)
Theorem forward_coefficient_inverse q z : 0 < q < 1 -> q < z < 1 -> forward_optimum q (z * (1 - z) / (z - q)) = z.
Proof.
  move=> hq hz; have up : 0 < z * (1 - z) by nra.
  apply: forward_root => //; [by apply: Rdiv_lt_0_compat; lra | lra | by field; lra].
Qed.

Lemma exp_at_least x : 1 + x <= exp x.
Proof. by case: (Req_dec x 0) => [->|ne]; [rewrite exp_0; lra | apply: Rlt_le; apply: exp_ineq1]. Qed.

Lemma decay_at_most beta : 0 < beta -> exp (- (1 / beta)) <= beta.
Proof.
  move=> b0; have i0 : 0 < 1 / beta by apply: Rdiv_lt_0_compat; lra.
  have back : / (1 / beta) = beta by field; lra.
  rewrite exp_Ropp -{2}back; apply: Rinv_le_contravar => //.
  by have := exp_at_least (1 / beta); lra.
Qed.

(* A number within c * beta of its limit at beta = 0, or within c / beta at infinity. *)
Lemma limit_at_zero (F : R -> R) l c :
  0 < c -> (forall beta, 0 < beta -> Rabs (F beta - l) <= c * beta) -> filterlim F (at_right 0) (locally l).
Proof.
  move=> c0 close; apply/filterlim_locally => eps.
  have d0 : 0 < eps / c by apply: Rdiv_lt_0_compat => //; apply: cond_pos.
  exists (mkposreal _ d0) => beta near b0.
  change (Rabs (F beta - l) < eps); change (Rabs (beta - 0) < eps / c) in near.
  have b' : beta < eps / c by move: near; rewrite Rminus_0_r Rabs_pos_eq; lra.
  apply: Rle_lt_trans (close beta b0) _.
  have -> : pos eps = c * (eps / c) by field; lra.
  exact: Rmult_lt_compat_l.
Qed.

Lemma limit_at_infinity (F : R -> R) l c :
  0 < c -> (forall beta, 0 < beta -> Rabs (F beta - l) <= c / beta) -> is_lim F p_infty l.
Proof.
  move=> c0 close; apply/is_lim_spec => eps.
  exists (c / eps) => beta large.
  have e0 := cond_pos eps.
  have ce : 0 < c / eps by apply: Rdiv_lt_0_compat.
  have b0 : 0 < beta by lra.
  apply: Rle_lt_trans (close beta b0) _.
  apply: (Rmult_lt_reg_r beta) => //; have -> : c / beta * beta = c by field; lra.
  have -> : c = (c / eps) * eps by field; lra.
  by rewrite (Rmult_comm eps); apply: Rmult_lt_compat_r.
Qed.

Theorem forward_limit_small_beta q : 0 < q < 1 ->
  filterlim (forward_optimum q) (at_right 0) (locally 1).
Proof.
  move=> hq; apply: (limit_at_zero _ _ (1 / q)); first by apply: Rdiv_lt_0_compat; lra.
  move=> beta b0; have [gq g1] := forward_strict_gap q beta hq b0; have [_ high] := forward_gap_bounds q beta hq b0.
  rewrite Rabs_left; last lra.
  suff : beta * (1 - q) / (q + beta) <= 1 / q * beta by lra.
  have -> : 1 / q * beta = beta / q by field; lra.
  apply: (Rle_trans _ (beta / (q + beta))).
  - by apply: Rmult_le_compat_r; [apply: Rlt_le; apply: Rinv_0_lt_compat; lra | nra].
  - by apply: Rmult_le_compat_l; [lra | apply: Rinv_le_contravar; lra].
Qed.

Theorem forward_limit_large_beta q : 0 < q < 1 -> is_lim (forward_optimum q) p_infty q.
Proof.
  move=> hq; apply: (limit_at_infinity _ _ 1); first lra.
  move=> beta b0; have [gq g1] := forward_strict_gap q beta hq b0.
  have := forward_stationary q beta hq b0; move: gq g1; set z := forward_optimum q beta => gq g1 /= root.
  rewrite Rabs_pos_eq; last lra.
  have -> : z - q = z * (1 - z) / beta.
    have -> : z * (1 - z) = beta * (z - q) by lra.
    by field; lra.
  by apply: Rmult_le_compat_r; [apply: Rlt_le; apply: Rinv_0_lt_compat | nra].
Qed.

Theorem reverse_limit_small_beta q : 0 < q < 1 ->
  filterlim (reverse_optimum q) (at_right 0) (locally 1).
Proof.
  move=> hq; apply: (limit_at_zero _ _ ((1 - q) / q)); first by apply: Rdiv_lt_0_compat; lra.
  move=> beta b0; have [gq g1] := reverse_strict_gap q beta hq b0; have bound := reverse_gap_bound q beta hq b0.
  rewrite Rabs_left; last lra.
  suff : (1 - q) / q * exp (- (1 / beta)) <= (1 - q) / q * beta by lra.
  apply: Rmult_le_compat_l; last exact: decay_at_most.
  by apply: Rlt_le; apply: Rdiv_lt_0_compat; lra.
Qed.

Theorem reverse_limit_large_beta q : 0 < q < 1 -> is_lim (reverse_optimum q) p_infty q.
Proof.
  move=> hq; apply: (limit_at_infinity _ _ 1); first lra.
  move=> beta b0; have [gq g1] := reverse_strict_gap q beta hq b0.
  rewrite Rabs_pos_eq; last lra; move: hq => [q0 q1]; rewrite reverse_closed //.
  have := exp_at_least (- (1 / beta)); have := decay_bounds beta b0; set e := exp _ => -[e0 e1] low.
  have n0 : 0 < q + (1 - q) * e by nra.
  have -> : q / (q + (1 - q) * e) - q = q * ((1 - q) * (1 - e)) / (q + (1 - q) * e) by field; lra.
  apply: (Rle_trans _ (q * ((1 - q) * (1 - e)) / q)).
  - apply: Rmult_le_compat_l; last by apply: Rinv_le_contravar; nra.
    by apply: Rmult_le_pos; [lra | apply: Rmult_le_pos; lra].
  - have -> : q * ((1 - q) * (1 - e)) / q = (1 - q) * (1 - e) by field; lra.
    nra.
Qed.

(* ---------- The profiles: derivatives and strict concavity ---------- *)

Theorem forward_profile_slope q beta z : 0 < q < 1 -> 0 < z < 1 ->
  is_derive (forward_profile q beta) z (forward_slope q beta z).
Proof.
  move=> [q0 q1] [z0 z1]; rewrite /forward_profile /bernoulli_kl /forward_slope.
  auto_derive.
  - repeat split; try lra; apply: Rdiv_lt_0_compat; lra.
  - by field; repeat split; lra.
Qed.

Theorem forward_profile_curvature q beta z : 0 < q < 1 -> 0 < z < 1 ->
  is_derive (forward_slope q beta) z (forward_curvature q beta z).
Proof.
  move=> [q0 q1] [z0 z1]; rewrite /forward_slope /forward_curvature.
  auto_derive; first by repeat split; nra.
  by field; repeat split; lra.
Qed.

Theorem forward_curvature_negative q beta z : 0 < q < 1 -> 0 < beta -> 0 < z < 1 -> forward_curvature q beta z < 0.
Proof.
  move=> [q0 q1] b0 [z0 z1]; rewrite /forward_curvature.
  have : 0 < q / z ^ 2 by apply: Rdiv_lt_0_compat => //; apply: pow_lt.
  have : 0 < (1 - q) / (1 - z) ^ 2 by apply: Rdiv_lt_0_compat; [lra | apply: pow_lt; lra].
  nra.
Qed.

Theorem reverse_profile_slope q beta z : 0 < q < 1 -> 0 < z < 1 ->
  is_derive (reverse_profile q beta) z (reverse_slope q beta z).
Proof.
  move=> [q0 q1] [z0 z1]; rewrite /reverse_profile /bernoulli_kl /reverse_slope.
  have -> : z * (1 - q) / (q * (1 - z)) = (z / q) / ((1 - z) / (1 - q)) by field; lra.
  have a0 : 0 < z / q by apply: Rdiv_lt_0_compat; lra.
  have b0 : 0 < (1 - z) / (1 - q) by apply: Rdiv_lt_0_compat; lra.
  rewrite ln_div //; auto_derive; first by repeat split.
  have -> : 1 + - z = 1 - z by []; set l1 := ln (z * / q); set l2 := ln _.
  by rewrite /Rdiv -/l1 -/l2; field; repeat split; lra.
Qed.

Theorem reverse_profile_curvature q beta z : 0 < q < 1 -> 0 < z < 1 ->
  is_derive (reverse_slope q beta) z (reverse_curvature beta z).
Proof.
  move=> [q0 q1] [z0 z1]; rewrite /reverse_slope /reverse_curvature.
  auto_derive; last by field; repeat split; lra.
  repeat split; [nra | apply: Rdiv_lt_0_compat; nra].
Qed.

Theorem reverse_curvature_negative beta z : 0 < beta -> 0 < z < 1 -> reverse_curvature beta z < 0.
Proof.
  move=> b0 [z0 z1]; rewrite /reverse_curvature.
  have : 0 < beta / (z * (1 - z)) by apply: Rdiv_lt_0_compat => //; nra.
  rewrite /Rdiv; lra.
Qed.

(* The one stationary point of each profile is Z*. *)
Theorem forward_stationary_point q beta z : 0 < q < 1 -> 0 < beta -> 0 < z < 1 ->
  forward_slope q beta z = 0 <-> z = forward_optimum q beta.
Proof.
  move=> hq hb hz; have up : 0 < z * (1 - z) by nra.
  rewrite /forward_slope; split=> [flat|->]; last first.
    have := forward_coefficient q beta hq hb; have := forward_strict_gap q beta hq hb.
    set y := forward_optimum q beta => /= gap ->; field; repeat split; nra.
  apply: esym; apply: forward_root => //; first lra.
  have e : beta * (z - q) = z * (1 - z).
    have : beta * ((z - q) / (z * (1 - z))) * (z * (1 - z)) = beta * (z - q) by field; lra.
    have -> : beta * ((z - q) / (z * (1 - z))) = 1 by lra.
    lra.
  by rewrite /=; lra.
Qed.

Theorem reverse_stationary_point q beta z : 0 < q < 1 -> 0 < beta -> 0 < z < 1 ->
  reverse_slope q beta z = 0 <-> z = reverse_optimum q beta.
Proof.
  move=> hq hb hz; rewrite /reverse_slope reverse_closed //.
  have e0 := exp_pos (1 / beta); rewrite exp_Ropp.
  have ratio : 0 < z * (1 - q) / (q * (1 - z)) by apply: Rdiv_lt_0_compat; nra.
  split=> [flat|zr].
  - have : ln (z * (1 - q) / (q * (1 - z))) = 1 / beta by apply: (Rmult_eq_reg_l beta); [field_simplify; lra | lra].
    move=> l; have : exp (1 / beta) = z * (1 - q) / (q * (1 - z)) by rewrite -l exp_ln.
    by move=> ->; field; repeat split; nra.
  - have -> : z * (1 - q) / (q * (1 - z)) = exp (1 / beta); last by rewrite ln_exp; field; lra.
    have n0 : 0 < q * exp (1 / beta) + (1 - q) by nra.
    by rewrite zr; field; repeat split; nra.
Qed.

Definition strictly_concave (F : R -> R) : Prop := forall x y t, 0 < x < 1 -> 0 < y < 1 -> x <> y -> 0 < t < 1 ->
  t * F x + (1 - t) * F y < F (t * x + (1 - t) * y).

(* A function strictly below each of its tangents is strictly concave. *)
Lemma below_tangents (F slope : R -> R) :
  (forall x y, 0 < x < 1 -> 0 < y < 1 -> x <> y -> F y < F x + slope x * (y - x)) -> strictly_concave F.
Proof.
  move=> below x y t hx hy ne ht; set m := t * x + (1 - t) * y.
  have hm : 0 < m < 1 by rewrite /m; nra.
  have mx : m <> x by rewrite /m => h; apply: ne; nra.
  have my : m <> y by rewrite /m => h; apply: ne; nra.
  have tx := below m x hm hx mx; have ty := below m y hm hy my.
  have : t * F x + (1 - t) * F y < t * (F m + slope m * (x - m)) + (1 - t) * (F m + slope m * (y - m)) by nra.
  have -> : t * (F m + slope m * (x - m)) + (1 - t) * (F m + slope m * (y - m)) =
            F m + slope m * (t * x + (1 - t) * y - m) by ring.
  by rewrite -/m; lra.
Qed.

Lemma ln_secant x y : 0 < x -> 0 < y -> x <> y -> ln y - ln x < (y - x) / x.
Proof.
  move=> x0 y0 ne; rewrite -ln_div //; have -> : (y - x) / x = y / x - 1 by field; lra.
  apply: ln_below; first exact: Rdiv_lt_0_compat.
  by move=> h; apply: ne; have : y = y / x * x by [field; lra]; rewrite h; lra.
Qed.

Theorem forward_profile_strictly_concave q beta : 0 < q < 1 -> 0 < beta -> strictly_concave (forward_profile q beta).
Proof.
  move=> [q0 q1] b0; apply: (below_tangents _ (forward_slope q beta)) => x y [x0 x1] [y0 y1] ne.
  rewrite /forward_profile /forward_slope /bernoulli_kl !ln_div; try lra.
  have first := ln_secant x y x0 y0 ne; have second := ln_secant (1 - x) (1 - y) ltac:(lra) ltac:(lra) ltac:(lra).
  have -> : 1 - beta * ((x - q) / (x * (1 - x))) =
            1 + beta * (q / x) - beta * ((1 - q) / (1 - x)) by field; lra.
  have split : (y - x) / x = / x * (y - x) by field; lra.
  have fq : beta * q * (ln y - ln x) < beta * q * ((y - x) / x).
    by apply: Rmult_lt_compat_l => //; apply: Rmult_lt_0_compat.
  have sq : beta * (1 - q) * (ln (1 - y) - ln (1 - x)) < beta * (1 - q) * ((1 - y - (1 - x)) / (1 - x)).
    by apply: Rmult_lt_compat_l => //; apply: Rmult_lt_0_compat; lra.
  have -> : (1 + beta * (q / x) - beta * ((1 - q) / (1 - x))) * (y - x) =
            (y - x) + beta * q * ((y - x) / x) + beta * (1 - q) * ((1 - y - (1 - x)) / (1 - x)) by field; lra.
  lra.
Qed.

Theorem reverse_profile_strictly_concave q beta : 0 < q < 1 -> 0 < beta -> strictly_concave (reverse_profile q beta).
Proof.
  move=> [q0 q1] b0; apply: (below_tangents _ (reverse_slope q beta)) => x y [x0 x1] [y0 y1] ne.
  rewrite /reverse_profile /reverse_slope /bernoulli_kl.
  have -> : x * (1 - q) / (q * (1 - x)) = (x / q) / ((1 - x) / (1 - q)) by field; lra.
  rewrite (ln_div (x / q)); try (apply: Rdiv_lt_0_compat; lra); rewrite !ln_div; try lra.
  have first := ln_secant y x y0 x0 ltac:(lra).
  have second := ln_secant (1 - y) (1 - x) ltac:(lra) ltac:(lra) ltac:(lra).
  have fy : beta * y * (ln x - ln y) < beta * y * ((x - y) / y).
    by apply: Rmult_lt_compat_l => //; apply: Rmult_lt_0_compat.
  have sy : beta * (1 - y) * (ln (1 - x) - ln (1 - y)) < beta * (1 - y) * ((1 - x - (1 - y)) / (1 - y)).
    by apply: Rmult_lt_compat_l => //; apply: Rmult_lt_0_compat; lra.
  move: fy sy; have -> : beta * y * ((x - y) / y) = beta * (x - y) by field; lra.
  have -> : beta * (1 - y) * ((1 - x - (1 - y)) / (1 - y)) = beta * (y - x) by field; lra.
  nra.
Qed.

(* ---------- The global maximizers over the simplex ---------- *)

Section Maximizers.
Context {A : finType}.
Variables (C : pred A) (ref : A -> R) (beta : R).
Hypotheses (ref_policy : policy ref) (beta_positive : 0 < beta).
Let q := mass C ref.
Hypothesis q_inside : 0 < q < 1.

Lemma with_mass_facts z : 0 < z < 1 ->
  [/\ policy (with_mass C ref z), mass C (with_mass C ref z) = z,
      forall a, plus C (with_mass C ref z) a = plus C ref a & forall a, minus C (with_mass C ref z) a = minus C ref a].
Proof.
  move=> hz; have pp := plus_policy C ref ref_policy (proj1 q_inside).
  have pm := minus_policy C ref ref_policy (proj2 q_inside).
  have one : mass C (plus C ref) = 1 by apply: mass_plus; rewrite -/q; lra.
  have none : mass C (minus C ref) = 0.
    by rewrite /mass (sum_ext _ _ (fun=> 0)) ?sum_zero // => a Ca; rewrite /minus Ca.
  split.
  - by apply: assemble_policy => //; lra.
  - exact: assemble_mass.
  - move=> a; case Ca : (C a); first by apply: assemble_plus => //; lra.
    by rewrite /plus Ca.
  - move=> a; case Ca : (C a); first by rewrite /minus Ca.
    by apply: assemble_minus => //; [lra | rewrite Ca].
Qed.

(* On these policies the objectives are the profiles: what is left is to maximize over z. *)
Lemma same_conditionals z : 0 < z < 1 ->
  kl_sum (plus C ref) (plus C (with_mass C ref z)) = 0 /\ kl_sum (minus C ref) (minus C (with_mass C ref z)) = 0 /\
  kl_sum (plus C (with_mass C ref z)) (plus C ref) = 0 /\ kl_sum (minus C (with_mass C ref z)) (minus C ref) = 0.
Proof.
  move=> hz; have [_ _ right wrong] := with_mass_facts z hz.
  have pp := plus_policy C ref ref_policy (proj1 q_inside).
  have pm := minus_policy C ref ref_policy (proj2 q_inside).
  have none (r : A -> R) : policy r -> kl_sum r r = 0 by move=> pr; have := kl_self r pr; rewrite kl_finite // => -[].
  rewrite /kl_sum; do !split.
  - by rewrite -[RHS](none _ pp); apply: sum_ext => a _; rewrite right.
  - by rewrite -[RHS](none _ pm); apply: sum_ext => a _; rewrite wrong.
  - by rewrite -[RHS](none _ pp); apply: sum_ext => a _; rewrite right.
  - by rewrite -[RHS](none _ pm); apply: sum_ext => a _; rewrite wrong.
Qed.

Lemma with_mass_covers z a : 0 < z < 1 -> with_mass C ref z a = 0 <-> ref a = 0.
Proof.
  move=> hz; rewrite /with_mass /assemble /plus /minus -/q; case: (C a); split=> [h|->]; try (rewrite /Rdiv; lra).
  - have -> : ref a = z * (ref a / q) * (q / z) by field; lra.
    by rewrite h; lra.
  - have -> : ref a = (1 - z) * (ref a / (1 - q)) * ((1 - q) / (1 - z)) by field; lra.
    by rewrite h; lra.
Qed.

Theorem forward_reduction z : 0 < z < 1 -> J_forward C beta ref (with_mass C ref z) = Finite (forward_profile q beta z).
Proof.
  move=> hz; have [pw mw _ _] := with_mass_facts z hz; have [r [w _]] := same_conditionals z hz.
  have ac : continuous_wrt ref (with_mass C ref z) by move=> a /(with_mass_covers z a hz).
  rewrite /J_forward kl_finite //= (decomposition_sum C) // r w mw -/q /forward_profile; congr Finite; ring.
Qed.

Theorem reverse_reduction z : 0 < z < 1 -> J_reverse C beta ref (with_mass C ref z) = Finite (reverse_profile q beta z).
Proof.
  move=> hz; have [pw mw _ _] := with_mass_facts z hz; have [_ [_ [r w]]] := same_conditionals z hz.
  have ac : continuous_wrt (with_mass C ref z) ref by move=> a /(with_mass_covers z a hz).
  rewrite /J_reverse kl_finite //= (decomposition_sum C) // r w mw -/q /reverse_profile; congr Finite; ring.
Qed.

(* The factor by which with_mass rescales the reference. *)
Let weight z (a : A) : R := if C a then z / q else (1 - z) / (1 - q).

Lemma with_mass_weight z a : with_mass C ref z a = weight z a * ref a.
Proof.
  by rewrite /with_mass /assemble /weight /plus /minus -/q; case: (C a); field; lra.
Qed.

Lemma weight_positive z a : 0 < z < 1 -> 0 < weight z a.
Proof. by move=> hz; rewrite /weight; case: (C a); apply: Rdiv_lt_0_compat; lra. Qed.

(* A sum weighted by two values, one on C and one off it. *)
Lemma two_valued_sum p u v : policy p ->
  \sum_a (p a * (if C a then u else v)) = mass C p * u + (1 - mass C p) * v.
Proof.
  move=> pp; rewrite (sum_split C) (sum_ext C _ (fun a => u * p a)); last by move=> a ->; lra.
  rewrite (sum_ext (fun a => ~~ C a) _ (fun a => v * p a)); last by move=> a /negbTE ->; lra.
  by rewrite !sum_scale mass_complement // -/(mass C p); lra.
Qed.

(* --- Forward KL --- *)

Let zf := forward_optimum q beta.

Lemma forward_value p : policy p -> continuous_wrt ref p ->
  kl_sum ref p = \sum_a (ref a * ln (ref a / (p a / weight zf a))) - (q * ln (zf / q) + (1 - q) * ln ((1 - zf) / (1 - q))).
Proof.
  move=> pp ac; have hz := forward_strict_gap q beta q_inside beta_positive; rewrite -/zf in hz.
  have hz' : 0 < zf < 1 by lra.
  rewrite -[q in q * ln _]/(mass C ref) -[q in (1 - q) * ln _]/(mass C ref) -two_valued_sum // -sum_minus.
  apply: sum_ext => a _; case: (Req_dec (ref a) 0) => [->|r0]; first by lra.
  have rp : 0 < ref a by case: ref_policy => nr _; have := nr a; lra.
  have p0 : 0 < p a by case: pp => np _; have := np a; have : p a <> 0 by [move=> /ac]; lra.
  have w0 := weight_positive zf a hz'.
  have -> : (if C a then ln (zf / q) else ln ((1 - zf) / (1 - q))) = ln (weight zf a) by rewrite /weight; case: (C a).
  have -> : ref a / (p a / weight zf a) = ref a / p a * weight zf a by field; lra.
  rewrite ln_mult //; [lra | exact: Rdiv_lt_0_compat].
Qed.

Lemma zf_inside : 0 < zf < 1.
Proof. have := forward_strict_gap q beta q_inside beta_positive; rewrite -/zf; lra. Qed.

Lemma forward_stationary_ratio z :
  beta * (1 - (q / zf * z + (1 - q) / (1 - zf) * (1 - z))) = z - zf.
Proof.
  have hz := zf_inside; have := forward_stationary q beta q_inside beta_positive; rewrite -/zf => /= root.
  have -> : 1 - (q / zf * z + (1 - q) / (1 - zf) * (1 - z)) = (zf - q) * (z - zf) / (zf * (1 - zf)) by field; lra.
  have -> : zf * (1 - zf) = beta * (zf - q) by lra.
  have := forward_strict_gap q beta q_inside beta_positive; rewrite -/zf => gap.
  by field; lra.
Qed.

(* The sum over Jensen's summands: the whole loss of a policy against the best one, and when it is none. *)
Lemma forward_comparison p : policy p -> continuous_wrt ref p ->
  mass C p - beta * kl_sum ref p <= zf - beta * kl_sum ref (with_mass C ref zf) /\
  (mass C p - beta * kl_sum ref p = zf - beta * kl_sum ref (with_mass C ref zf) ->
   forall a, p a = with_mass C ref zf a).
Proof.
  move=> pp ac; have hz := zf_inside.
  have [bp bz _ _] := with_mass_facts zf hz.
  have bac : continuous_wrt ref (with_mass C ref zf) by move=> a /(with_mass_covers zf a hz).
  have terms : forall a, true -> 0 <= ref a * ln (ref a / (p a / weight zf a)) - (ref a - p a / weight zf a).
    move=> a _; have w0 := weight_positive zf a hz; case: (pp) => np _; case: (ref_policy) => nr _.
    have := kl_term (ref a) (p a / weight zf a) (nr a) (Rdiv_le_0_compat _ _ (np a) w0).
    have zero : p a / weight zf a = 0 -> ref a = 0.
      move=> h; apply: ac; have -> : p a = p a / weight zf a * weight zf a by field; lra.
      by rewrite h; lra.
    by move=> /(_ zero); lra.
  have best : \sum_a (ref a * ln (ref a / (with_mass C ref zf a / weight zf a))) = 0.
    rewrite big1 // => a _; rewrite with_mass_weight; have w0 := weight_positive zf a hz.
    have -> : weight zf a * ref a / weight zf a = ref a by field; lra.
    case: (Req_dec (ref a) 0) => [->|ne]; first by lra.
    have -> : ref a / ref a = 1 by field.
    by rewrite ln_1; lra.
  have shares : \sum_a (ref a - p a / weight zf a) = 1 - (q / zf * mass C p + (1 - q) / (1 - zf) * (1 - mass C p)).
    rewrite sum_minus; case: (ref_policy) => _ ->; congr (1 - _).
    rewrite (sum_ext _ _ (fun a => p a * (if C a then q / zf else (1 - q) / (1 - zf)))).
      by rewrite two_valued_sum //; lra.
    by move=> a _; rewrite /weight; case: (C a); field; lra.
  have total := sum_minus xpredT (fun a => ref a * ln (ref a / (p a / weight zf a))) (fun a => ref a - p a / weight zf a).
  have nonneg := sum_nonneg _ _ terms; rewrite total shares in nonneg.
  have stationary := forward_stationary_ratio (mass C p).
  rewrite forward_value // forward_value // best; split; first by nra.
  move=> equal a.
  have zero : \sum_a (ref a * ln (ref a / (p a / weight zf a)) - (ref a - p a / weight zf a)) = 0.
    rewrite total shares; apply: (Rmult_eq_reg_l beta); last lra.
    by rewrite Rmult_minus_distr_l stationary; lra.
  have := sum_zero_terms _ _ terms zero a isT; have w0 := weight_positive zf a hz.
  move=> same; case: (pp) => np _; case: (ref_policy) => nr _.
  have -> : p a = weight zf a * (p a / weight zf a) by field; lra.
  rewrite with_mass_weight; congr (_ * _); apply: esym; apply: kl_term_equal => //; last by lra.
  - exact: Rdiv_le_0_compat.
  - move=> h; apply: ac; have -> : p a = p a / weight zf a * weight zf a by field; lra.
    by rewrite h; lra.
Qed.

(* Theorem 2, forward KL: the policy with mass Z*_FKL and the reference's conditionals is the one global maximizer over
   the whole simplex, zeros included. *)
Theorem forward_global_maximizer :
  let best := with_mass C ref (forward_optimum q beta) in
  policy best /\ is_finite (J_forward C beta ref best) /\
  forall p, policy p ->
    Rbar_le (J_forward C beta ref p) (J_forward C beta ref best) /\
    (J_forward C beta ref p = J_forward C beta ref best <-> forall a, p a = best a).
Proof.
  rewrite -/zf /=; have hz := zf_inside; have [bp bz _ _] := with_mass_facts zf hz.
  have bac : continuous_wrt ref (with_mass C ref zf) by move=> a /(with_mass_covers zf a hz).
  have value : J_forward C beta ref (with_mass C ref zf) = Finite (zf - beta * kl_sum ref (with_mass C ref zf)).
    by rewrite /J_forward kl_finite //= bz.
  split=> //; split; first by rewrite value.
  move=> p pp; rewrite value; case: (continuousP ref p) => [ac|nac].
  - have -> : J_forward C beta ref p = Finite (mass C p - beta * kl_sum ref p) by rewrite /J_forward kl_finite.
    have [below unique] := forward_comparison p pp ac; split=> //; split; first by move=> [/unique].
    move=> same; congr Finite; have -> : mass C p = zf by rewrite -bz; apply: sum_ext => a _; apply: same.
    by congr (_ - _ * _); apply: sum_ext => a _; rewrite same.
  - have -> : J_forward C beta ref p = m_infty by rewrite /J_forward kl_infinite.
    split=> //; split=> // same; case: nac => a pa; apply: (bac a); by rewrite -same.
Qed.

(* --- Reverse KL --- *)

Let zr := reverse_optimum q beta.

Lemma zr_inside : 0 < zr < 1.
Proof. have := reverse_strict_gap q beta q_inside beta_positive; rewrite -/zr; lra. Qed.

Lemma reverse_stationary : ln (zr / q) - ln ((1 - zr) / (1 - q)) = 1 / beta.
Proof.
  have hz := zr_inside; rewrite -ln_div; try (apply: Rdiv_lt_0_compat; lra).
  have -> : zr / q / ((1 - zr) / (1 - q)) = exp (1 / beta); last by rewrite ln_exp.
  move: hz; rewrite /zr reverse_closed // exp_Ropp; have := exp_pos (1 / beta); set e := exp _ => e0 hz.
  have n0 : 0 < q * e + (1 - q) by nra.
  by field; repeat split; lra.
Qed.

(* J_RKL(pi) = -beta D_KL(pi || best) + a constant, on the policies that the reference covers. *)
Lemma reverse_value p : policy p -> continuous_wrt p ref ->
  mass C p - beta * kl_sum p ref = - beta * kl_sum p (with_mass C ref zr) - beta * ln ((1 - zr) / (1 - q)).
Proof.
  move=> pp ac; have hz := zr_inside.
  have -> : kl_sum p ref =
      kl_sum p (with_mass C ref zr) + (mass C p * ln (zr / q) + (1 - mass C p) * ln ((1 - zr) / (1 - q))).
    rewrite -two_valued_sum // -sum_plus; apply: sum_ext => a _.
    case: (Req_dec (p a) 0) => [->|p0]; first by lra.
    have pp0 : 0 < p a by case: pp => np _; have := np a; lra.
    have r0 : 0 < ref a by case: ref_policy => nr _; have := nr a; have : ref a <> 0 by [move=> /ac]; lra.
    have w0 := weight_positive zr a hz.
    have -> : (if C a then ln (zr / q) else ln ((1 - zr) / (1 - q))) = ln (weight zr a) by rewrite /weight; case: (C a).
    rewrite with_mass_weight; have -> : p a / ref a = p a / (weight zr a * ref a) * weight zr a by field; lra.
    rewrite ln_mult //; [lra | apply: Rdiv_lt_0_compat => //; exact: Rmult_lt_0_compat].
  have stationary := reverse_stationary.
  have -> : ln (zr / q) = 1 / beta + ln ((1 - zr) / (1 - q)) by lra.
  by field; lra.
Qed.

(* Theorem 2, reverse KL, with the policies of mass 0 and 1 included. *)
Theorem reverse_global_maximizer :
  let best := with_mass C ref (reverse_optimum q beta) in
  policy best /\ is_finite (J_reverse C beta ref best) /\
  forall p, policy p ->
    Rbar_le (J_reverse C beta ref p) (J_reverse C beta ref best) /\
    (J_reverse C beta ref p = J_reverse C beta ref best <-> forall a, p a = best a).
Proof.
  rewrite -/zr /=; have hz := zr_inside; have [bp bz _ _] := with_mass_facts zr hz.
  have bac : continuous_wrt (with_mass C ref zr) ref by move=> a /(with_mass_covers zr a hz).
  have itself : kl_sum (with_mass C ref zr) (with_mass C ref zr) = 0.
    by have := kl_self _ bp; rewrite kl_finite // => -[].
  have value : J_reverse C beta ref (with_mass C ref zr) = Finite (- beta * ln ((1 - zr) / (1 - q))).
    by rewrite /J_reverse kl_finite //=; congr Finite; rewrite reverse_value // itself; lra.
  split=> //; split; first by rewrite value.
  move=> p pp; rewrite value; case: (continuousP p ref) => [ac|nac].
  - have pac : continuous_wrt p (with_mass C ref zr) by move=> a /(with_mass_covers zr a hz) /ac.
    have -> : J_reverse C beta ref p = Finite (mass C p - beta * kl_sum p ref) by rewrite /J_reverse kl_finite.
    rewrite reverse_value //; have gap := gibbs_sum p _ pp bp pac.
    split; first by rewrite /=; nra.
    split=> [[equal]|same].
    + by apply: gibbs_sum_equality => //; apply: (Rmult_eq_reg_l beta); lra.
    + by congr Finite; have -> : kl_sum p (with_mass C ref zr) = 0 by [rewrite -itself; apply: sum_ext => a _; rewrite same]; lra.
  - have -> : J_reverse C beta ref p = m_infty by rewrite /J_reverse kl_infinite.
    split=> //; split=> // same; case: nac => a /(with_mass_covers zr a hz); by rewrite same.
Qed.

(* In the theorem's own words: every global maximizer has the reference's conditionals and the stated mass. *)
Lemma described_by best z p : 0 < z < 1 -> best = with_mass C ref z -> (forall a, p a = best a) ->
  mass C p = z /\ (forall a, plus C p a = plus C ref a) /\ (forall a, minus C p a = minus C ref a).
Proof.
  move=> hz -> same; have [_ bz right wrong] := with_mass_facts z hz.
  have pz : mass C p = mass C (with_mass C ref z) by apply: sum_ext => a _; apply: same.
  by rewrite pz; split=> //; split=> a; [rewrite -right /plus | rewrite -wrong /minus]; rewrite pz same.
Qed.

Theorem forward_theorem_2 p : global_maximizer (J_forward C beta ref) p ->
  mass C p = forward_optimum q beta /\
  (forall a, plus C p a = plus C ref a) /\ (forall a, minus C p a = minus C ref a).
Proof.
  move=> [pp top]; have [bp [_ unique]] := forward_global_maximizer; have [below same] := unique p pp.
  apply: (described_by (with_mass C ref zf)) => //; first exact: zf_inside.
  by apply/same; apply: Rbar_le_antisym => //; apply: top.
Qed.

Theorem reverse_theorem_2 p : global_maximizer (J_reverse C beta ref) p ->
  mass C p = reverse_optimum q beta /\
  (forall a, plus C p a = plus C ref a) /\ (forall a, minus C p a = minus C ref a).
Proof.
  move=> [pp top]; have [bp [_ unique]] := reverse_global_maximizer; have [below same] := unique p pp.
  apply: (described_by (with_mass C ref zr)) => //; first exact: zr_inside.
  by apply/same; apply: Rbar_le_antisym => //; apply: top.
Qed.

End Maximizers.
