(* Appendix B, end: the recovery term R_G, the finite-group population objective, and the ablation without term 1. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies AppendixA AppendixB_Objective AppendixB_Groups AppendixC AppendixD.
Open Scope R_scope.

(* sum_{m=1}^G (1 - z)^m / m, and the harmonic number H_G. *)
Fixpoint log_partial (G : nat) (z : R) : R :=
  match G with O => 0 | S n => log_partial n z + (1 - z) ^ (S n) / INR (S n) end.
Definition harmonic (G : nat) : R := log_partial G 0.

(* R_G's closed form, Eq. appb-recovery-term, and the stated derivative. *)
Definition recovery (G : nat) (z : R) : R := - ln z - log_partial G z.
Definition recovery_slope (G : nat) (z : R) : R := - ((1 - z) ^ G / z).

(* J_G, Eq. appb-finite-population-objective. *)
Definition J_finite {A : finType} (C : pred A) (beta : R) (G : nat) (ref p : A -> R) : Rbar :=
  objective (mass C p) beta (Rbar_plus (kl (plus C ref) (plus C p)) (Finite (recovery G (mass C p)))).
Definition finite_slope (G : nat) (beta z : R) : R := 1 + beta * ((1 - z) ^ G / z).

(* What finite groups make of the ablation without term 1: Z - beta (log Z + R_G(Z)), continued to Z = 0. *)
Definition without_term1 (G : nat) (beta z : R) : R := z + beta * log_partial G z.
Definition without_term1_threshold (G : nat) : R := 1 / harmonic G.

Lemma size_positive n : 0 < INR (S n).
Proof. by apply: lt_0_INR; apply/ltP. Qed.

Lemma log_partial_slope G z : z <> 0 -> is_derive (log_partial G) z (- ((1 - (1 - z) ^ G) / z)).
Proof.
  move=> ne; elim: G => [|n IH].
    have -> : - ((1 - (1 - z) ^ 0) / z) = 0 by rewrite /=; field.
    exact: is_derive_const.
  have -> : - ((1 - (1 - z) ^ S n) / z) = - ((1 - (1 - z) ^ n) / z) + - (1 - z) ^ n by rewrite /=; field.
  apply: (is_derive_plus (V := R_NormedModule)) IH _.
  have pos := size_positive n; auto_derive => //.
  change (- (1) * (INR (S n) * (1 + - z) ^ n) * / INR (S n) = - (1 - z) ^ n).
  by rewrite /Rminus; field; lra.
Qed.

(* Eq. appb-recovery-derivative. *)
Theorem recovery_derivative G z : 0 < z -> is_derive (recovery G) z (recovery_slope G z).
Proof.
  move=> pos; have -> : recovery_slope G z = - / z - - ((1 - (1 - z) ^ G) / z) by rewrite /recovery_slope; field; lra.
  apply: (is_derive_minus (V := R_NormedModule)); last by apply: log_partial_slope; lra.
  by apply: (is_derive_opp (V := R_NormedModule)); apply: is_derive_ln.
Qed.

(* Eq. appb-recovery-properties: the sign of R_G', inside (0, 1) only ... *)
Theorem recovery_decreasing G z : 0 < z < 1 -> recovery_slope G z < 0.
Proof.
  move=> [z0 z1]; have : 0 < (1 - z) ^ G / z by apply: Rdiv_lt_0_compat => //; apply: pow_lt; lra.
  rewrite /recovery_slope; lra.
Qed.

(* ... at Z = 1 it is 0 (finding 14). *)
Theorem recovery_flat_at_one G : recovery_slope (S G) 1 = 0.
Proof. by rewrite /recovery_slope /=; field. Qed.

Lemma recovery_at_one G : recovery G 1 = 0.
Proof.
  rewrite /recovery ln_1; suff -> : log_partial G 1 = 0 by lra.
  by elim: G => [|n IH] //; rewrite /log_partial -/log_partial IH /= /Rdiv; lra.
Qed.

(* A function on (0, 1] with nonpositive derivative is at least its value at 1. *)
Lemma above_end (F slope : R -> R) z : 0 < z <= 1 ->
  (forall x, 0 < x -> is_derive F x (slope x)) -> (forall x, 0 < x <= 1 -> slope x <= 0) -> F 1 <= F z.
Proof.
  move=> [z0 z1] derivative falling.
  have [c [[c0 c1] increment]] : exists c, Rmin z 1 <= c <= Rmax z 1 /\ F 1 - F z = slope c * (1 - z).
    have low : Rmin z 1 = z by apply: Rmin_left.
    apply: MVT_gen => x [x0 x1]; rewrite low in x0; first by apply: derivative; lra.
    apply: derivable_continuous_pt; exists (slope x); apply/is_derive_Reals; apply: derivative; lra.
  move: c0 c1; rewrite Rmin_left // Rmax_right // => c0 c1.
  have := falling c ltac:(lra); nra.
Qed.

Theorem recovery_nonnegative G z : 0 < z <= 1 -> 0 <= recovery G z.
Proof.
  move=> hz; rewrite -(recovery_at_one G); apply: (above_end _ (recovery_slope G)) => // x; first exact: recovery_derivative.
  move=> [x0 x1]; have : 0 <= (1 - x) ^ G / x by apply: Rdiv_le_0_compat => //; apply: pow_le; lra.
  rewrite /recovery_slope; lra.
Qed.

(* The geometric majorant (beyond the paper), from which the limits follow. *)
Theorem recovery_upper G z : 0 < z <= 1 -> recovery G z <= (1 - z) ^ (S G) / (INR (S G) * z).
Proof.
  move=> hz; have pos := size_positive G.
  suff : 0 <= (1 - z) ^ (S G) / (INR (S G) * z) - recovery G z by lra.
  have end1 : (1 - 1) ^ (S G) / (INR (S G) * 1) - recovery G 1 = 0 by rewrite recovery_at_one /=; field; apply: Rgt_not_eq.
  rewrite -end1.
  apply: (above_end (fun x => (1 - x) ^ (S G) / (INR (S G) * x) - recovery G x)
    (fun x => - (1 - x) ^ G / x - (1 - x) ^ (S G) / (INR (S G) * x ^ 2) - recovery_slope G x)) => // x.
  - move=> x0; apply: (is_derive_minus (V := R_NormedModule)); last exact: recovery_derivative.
    auto_derive; first by change (INR (S G) * x <> 0); have := Rmult_lt_0_compat _ _ pos x0; lra.
    change (- (1) * (INR (S G) * (1 + - x) ^ G) * / (INR (S G) * x) +
      (1 + - x) * (1 + - x) ^ G * (- (INR (S G) * 1) * / (INR (S G) * x * (INR (S G) * x))) =
      - (1 - x) ^ G / x - (1 - x) * (1 - x) ^ G / (INR (S G) * x ^ 2)).
    by rewrite /Rminus; field; split; lra.
  - move=> [x0 x1]; rewrite /recovery_slope.
    have : 0 <= (1 - x) ^ (S G) / (INR (S G) * x ^ 2).
      apply: Rdiv_le_0_compat; first by apply: pow_le; lra.
      by apply: Rmult_lt_0_compat => //; apply: pow_lt.
    by rewrite /Rdiv; lra.
Qed.

Lemma recovery_next G z : recovery G z = (1 - z) ^ (S G) / INR (S G) + recovery (S G) z.
Proof. by rewrite /recovery [log_partial (S G) z]/log_partial -/log_partial; lra. Qed.

Theorem recovery_lower G z : 0 < z <= 1 -> (1 - z) ^ (S G) / INR (S G) <= recovery G z.
Proof. by move=> hz; rewrite (recovery_next G); have := recovery_nonnegative (S G) z hz; lra. Qed.

(* R_G = 0 at Z = 1 alone. *)
Theorem recovery_zero G z : 0 < z <= 1 -> recovery G z = 0 <-> z = 1.
Proof.
  move=> hz; split=> [zero|->]; last exact: recovery_at_one.
  case: (Req_dec z 1) => // ne; have := recovery_lower G z hz; rewrite zero.
  have : 0 < (1 - z) ^ (S G) / INR (S G) by apply: Rdiv_lt_0_compat; [apply: pow_lt; lra | exact: size_positive].
  lra.
Qed.

Lemma recovery_small G z : 0 < z <= 1 -> recovery G z <= / INR (S G) * / z.
Proof.
  move=> hz; apply: Rle_trans (recovery_upper G z hz) _; have pos := size_positive G.
  rewrite /Rdiv Rinv_mult -{2}(Rmult_1_l (/ INR (S G) * / z)).
  apply: Rmult_le_compat_r.
    by apply: Rmult_le_pos; apply: Rlt_le; apply: Rinv_0_lt_compat; lra.
  by have := pow_incr (1 - z) 1 (S G) ltac:(lra); rewrite pow1.
Qed.

(* Eq. appb-recovery-limits. *)
Theorem recovery_limit_large_group z : 0 < z <= 1 -> is_lim_seq (fun G => recovery G z) 0.
Proof.
  move=> hz; apply: (is_lim_seq_le_le (fun=> 0) _ (fun G => / INR (S G) * / z)).
  - by move=> G; split; [exact: recovery_nonnegative | exact: recovery_small].
  - exact: is_lim_seq_const.
  - have -> : Finite 0 = Rbar_mult 0 (/ z) by rewrite /=; congr Finite; lra.
    apply: is_lim_seq_scal_r; have -> : Finite 0 = Rbar_inv p_infty by [].
    apply: is_lim_seq_inv => //; apply: (proj1 (is_lim_seq_incr_1 INR p_infty)); exact: is_lim_seq_INR.
Qed.

Theorem recovery_limit_full_mass G : is_lim (recovery G) 1 0.
Proof.
  rewrite -(recovery_at_one G); apply: is_lim_continuity.
  apply: derivable_continuous_pt; exists (recovery_slope G 1); apply/is_derive_Reals; apply: recovery_derivative; lra.
Qed.

(* Eq. appb-recovery-term: the closed form is the series sum_{m > G} (1 - z)^m / m. *)
Theorem recovery_series G z : 0 < z <= 1 ->
  is_series (fun k => (1 - z) ^ (S G + k) / INR (S G + k)) (recovery G z).
Proof.
  move=> hz; rewrite /is_series.
  have partial n : sum_n (fun k => (1 - z) ^ (S G + k) / INR (S G + k)) n = recovery G z - recovery (S G + n) z.
    elim: n => [|n IH]; first by rewrite sum_O addn0 (recovery_next G); lra.
    rewrite sum_Sn IH addnS (recovery_next (S G + n)).
    by set a := _ / _; set b := recovery _.+1 z; change (recovery G z - (a + b) + a = recovery G z - b); lra.
  change (is_lim_seq (sum_n (fun k => (1 - z) ^ (S G + k) / INR (S G + k))) (Finite (recovery G z))).
  apply: (is_lim_seq_ext (fun n => recovery G z - recovery (S G + n) z)) => //.
  have -> : Finite (recovery G z) = Finite (recovery G z - 0) by congr Finite; lra.
  apply: is_lim_seq_minus'; first exact: is_lim_seq_const.
  have := recovery_limit_large_group z hz => /(is_lim_seq_incr_n _ (S G)).
  by apply: is_lim_seq_ext => n; rewrite plusE addnC.
Qed.

(* ---------- The expected gradient in recovery form ---------- *)

Section Gradient.
Context {A : finType}.
Variables (C : pred A) (ref : A -> R).
Hypotheses (ref_policy : policy ref) (ref_mass : 0 < mass C ref).
Variables (allowed : pred A) (path : R -> A -> R) (score : A -> R) (t : R).
Hypotheses (path_policy : forall s, policy (path s)) (path_positive : forall s a, allowed a -> 0 < path s a).
Hypothesis path_masked : forall s a, ~~ allowed a -> path s a = 0.
Hypothesis ref_allowed : forall a, C a -> ref a <> 0 -> allowed a.
Hypothesis path_score : forall a, allowed a -> is_derive (fun s => ln (path s a)) t (score a).

Let pos := path_mass C ref ref_mass allowed path path_policy path_positive ref_allowed.
Let logs := log_mass_gradient C ref ref_mass allowed path score t path_policy path_positive path_masked ref_allowed
  path_score.
Let cokls := cokl_gradient C ref ref_policy ref_mass allowed path score t path_policy path_positive path_masked
  ref_allowed path_score.

(* Eq. appb-finite-gradient-decomposition: the gradients named by what they differentiate. *)
Theorem finite_gradient_decomposition G : (0 < G)%nat ->
  exists cokl_slope log_mass_slope,
    is_derive (fun s => cokl C ref (path s)) t cokl_slope /\
    is_derive (fun s => ln (mass C (path s))) t log_mass_slope /\
    buffered_gradient C ref (path t) score G = cokl_slope - (1 - mass C (path t)) ^ G * log_mass_slope.
Proof.
  move=> size.
  exists (- mean (plus C ref) score + mean (plus C (path t)) score), (mean (plus C (path t)) score).
  split; first exact: cokls.
  split; first exact: logs.
  by rewrite finite_group_gradient //; ring.
Qed.

Lemma recovery_along_path G :
  is_derive (fun s => recovery G (mass C (path s))) t (- ((1 - mass C (path t)) ^ G * mean (plus C (path t)) score)).
Proof.
  apply: (is_derive_ext (fun s => recovery G (exp (ln (mass C (path s)))))); first by move=> s; rewrite exp_ln.
  have inner := is_derive_comp exp (fun s => ln (mass C (path s))) t _ _ (is_derive_exp _) logs.
  have outer := is_derive_comp (recovery G) (fun s => exp (ln (mass C (path s)))) t _ _
    (recovery_derivative G _ (exp_pos _)) inner.
  move: outer; rewrite /scal /= /mult /= exp_ln // -/(mean (plus C (path t)) score) /recovery_slope.
  set m := mean _ _; set w := (1 - _) ^ G; have := pos t; set z := mass C (path t) => z0.
  by have -> : m * z * - (w / z) = - (w * m) by field; lra.
Qed.

(* Eq. appb-recovery-gradient: it is the gradient of CoKL + R_G(Z). *)
Theorem recovery_gradient G : (0 < G)%nat ->
  is_derive (fun s => cokl C ref (path s) + recovery G (mass C (path s))) t
    (buffered_gradient C ref (path t) score G).
Proof.
  move=> size; rewrite finite_group_gradient //.
  have -> : - mean (plus C ref) score + (1 - (1 - mass C (path t)) ^ G) * mean (plus C (path t)) score =
            (- mean (plus C ref) score + mean (plus C (path t)) score) +
            - ((1 - mass C (path t)) ^ G * mean (plus C (path t)) score) by ring.
  by apply: (is_derive_plus (V := R_NormedModule)); [exact: cokls | exact: recovery_along_path].
Qed.

(* Term 2 alone, the ablation without term 1: the gradient of log Z + R_G(Z). *)
Theorem without_term1_gradient G :
  is_derive (fun s => ln (mass C (path s)) + recovery G (mass C (path s))) t
    (expected (path t) G (weighted_score C score)).
Proof.
  rewrite expected_weighted_score //.
  have -> : (1 - (1 - mass C (path t)) ^ G) * mean (plus C (path t)) score =
            mean (plus C (path t)) score + - ((1 - mass C (path t)) ^ G * mean (plus C (path t)) score) by ring.
  by apply: (is_derive_plus (V := R_NormedModule)); [exact: logs | exact: recovery_along_path].
Qed.

End Gradient.

(* ---------- The finite-group population objective ---------- *)

Lemma finite_profile_derivative G beta d z : 0 < z ->
  is_derive (fun x => x - beta * (d + recovery G x)) z (finite_slope G beta z).
Proof.
  move=> z0; have -> : finite_slope G beta z = 1 - beta * (0 + recovery_slope G z).
    by rewrite /finite_slope /recovery_slope; ring.
  apply: (is_derive_minus (V := R_NormedModule)); first exact: is_derive_id.
  apply: is_derive_scal; apply: (is_derive_plus (V := R_NormedModule)); first exact: is_derive_const.
  exact: recovery_derivative.
Qed.

(* Eq. appb-finite-objective-derivative: J_G's derivative in Z, for fixed pi+ and pi-. *)
Theorem finite_objective_derivative {A : finType} (C : pred A) (ref : A -> R) beta G right wrong z :
  policy right -> mass C right = 1 -> continuous_wrt (plus C ref) right -> 0 < z ->
  is_derive (fun x => real (J_finite C beta G ref (assemble C x right wrong))) z (finite_slope G beta z).
Proof.
  move=> pr one ac z0.
  apply: (is_derive_ext_loc (fun x => x - beta * (kl_sum (plus C ref) right + recovery G x))); last first.
    exact: finite_profile_derivative.
  exists (mkposreal z z0) => x near; have [_ x0] := Rabs_def2 (x - z) z near.
  rewrite /J_finite assemble_mass // (kl_ext _ (plus C ref) _ right) ?kl_finite //= => a.
  case Ca : (C a); first by rewrite assemble_plus //; lra.
  by rewrite (outside_zero C right a) ?Ca // /plus Ca.
Qed.

Theorem finite_objective_increasing G beta z : 0 < beta -> 0 < z <= 1 -> 0 < finite_slope G beta z.
Proof.
  move=> b0 [z0 z1]; have : 0 <= (1 - z) ^ G / z by apply: Rdiv_le_0_compat => //; apply: pow_le; lra.
  rewrite /finite_slope; nra.
Qed.

(* Eq. appb-finite-optimum. *)
Theorem finite_objective_maximum {A : finType} (C : pred A) (ref : A -> R) beta G :
  policy ref -> 0 < mass C ref -> 0 < beta ->
  [/\ policy (plus C ref), 0 < mass C (plus C ref), J_finite C beta G ref (plus C ref) = 1 &
    forall p, policy p -> 0 < mass C p ->
      [/\ Rbar_le (J_finite C beta G ref p) 1,
          J_finite C beta G ref p = 1 <-> mass C p = 1 /\ forall a, plus C p a = plus C ref a &
          J_finite C beta G ref p = 1 <-> forall a, p a = plus C ref a]].
Proof.
  move=> pr qr b0; have [pp pos value best] := cokl_maximum C ref beta pr qr b0.
  have below p : policy p -> 0 < mass C p -> Rbar_le (J_finite C beta G ref p) (J_cokl C beta ref p).
    move=> pol p0; have := recovery_nonnegative G (mass C p) (conj p0 (mass_at_most_one C p pol)).
    by rewrite /J_finite /J_cokl; case: (kl _ _) => [d||] //=; nra.
  have equal p : mass C p = 1 -> J_finite C beta G ref p = J_cokl C beta ref p.
    move=> one; rewrite /J_finite /J_cokl one recovery_at_one.
    by case: (kl _ _) => [d||] //=; congr Finite; lra.
  have one := ref_plus_mass C ref qr; split=> //; first by rewrite equal.
  move=> p pol p0; have [top where_ which] := best p pol p0.
  have forced : J_finite C beta G ref p = 1 -> J_cokl C beta ref p = 1.
    by move=> reached; apply: Rbar_le_antisym => //; rewrite -reached; apply: below.
  split.
  - exact: Rbar_le_trans (below p pol p0) top.
  - by split=> [/forced /where_|h] //; rewrite equal; [apply/where_ | case: h].
  - by split=> [/forced /which|h] //; rewrite equal; [apply/which | rewrite (mass_ext C p (plus C ref))].
Qed.

(* ---------- Without term 1 ---------- *)

Theorem without_term1_value G beta z : 0 < z -> without_term1 G beta z = z - beta * (ln z + recovery G z).
Proof. by move=> z0; rewrite /without_term1 /recovery; ring. Qed.

(* It is convex in Z, by its chords. *)
Lemma power_convex n x y t : 0 <= x -> 0 <= y -> 0 <= t <= 1 ->
  (t * x + (1 - t) * y) ^ n <= t * x ^ n + (1 - t) * y ^ n.
Proof.
  move=> x0 y0 ht; elim: n => [|n IH] /=; first by lra.
  set m := t * x + (1 - t) * y; have m0 : 0 <= m by rewrite /m; nra.
  have step : m * m ^ n <= m * (t * x ^ n + (1 - t) * y ^ n) by apply: Rmult_le_compat_l.
  have same : 0 <= (x - y) * (x ^ n - y ^ n).
    by case: (Rle_dec x y) => order; [have := pow_incr x y n | have := pow_incr y x n]; nra.
  have tt : 0 <= t * (1 - t) by nra.
  have gap : 0 <= t * (1 - t) * ((x - y) * (x ^ n - y ^ n)) by apply: Rmult_le_pos.
  by apply: Rle_trans step _; rewrite /m; nra.
Qed.

Theorem without_term1_convex G beta x y t : 0 < beta -> 0 <= x <= 1 -> 0 <= y <= 1 -> 0 <= t <= 1 ->
  without_term1 G beta (t * x + (1 - t) * y) <= t * without_term1 G beta x + (1 - t) * without_term1 G beta y.
Proof.
  move=> b0 hx hy ht; rewrite /without_term1.
  suff : log_partial G (t * x + (1 - t) * y) <= t * log_partial G x + (1 - t) * log_partial G y by nra.
  elim: G => [|n IH]; first by rewrite /=; lra.
  rewrite /log_partial -/log_partial; have pos := Rinv_0_lt_compat _ (size_positive n).
  have := power_convex (S n) (1 - x) (1 - y) t ltac:(lra) ltac:(lra) ht.
  have -> : t * (1 - x) + (1 - t) * (1 - y) = 1 - (t * x + (1 - t) * y) by ring.
  set m := (1 - _) ^ S n; set a := (1 - x) ^ S n; set b := (1 - y) ^ S n => chord.
  have : m * / INR (S n) <= (t * a + (1 - t) * b) * / INR (S n) by apply: Rmult_le_compat_r; lra.
  rewrite /Rdiv; lra.
Qed.

Lemma log_partial_below G z : 0 <= z <= 1 -> 0 <= log_partial G z <= (1 - z) * harmonic G.
Proof.
  move=> hz; rewrite /harmonic; elim: G => [|n [low high]]; first by rewrite /=; lra.
  have pos := size_positive n; rewrite /log_partial -/log_partial.
  have p0 : 0 <= (1 - z) ^ n by apply: pow_le; lra.
  have p1 : (1 - z) ^ n <= 1 by have := pow_incr (1 - z) 1 n ltac:(lra); rewrite pow1.
  have up : (1 - z) ^ S n <= 1 - z by rewrite /=; nra.
  have down : 0 <= (1 - z) ^ S n by apply: pow_le; lra.
  have -> : (1 - 0) ^ S n = 1 by rewrite Rminus_0_r pow1.
  have inv : 0 < / INR (S n) by apply: Rinv_0_lt_compat.
  rewrite /Rdiv; split; nra.
Qed.

Lemma harmonic_positive G : 0 < harmonic (S G).
Proof.
  rewrite /harmonic /log_partial -/log_partial; have [low _] := log_partial_below G 0 ltac:(lra).
  have : 0 < (1 - 0) ^ S G / INR (S G).
    by apply: Rdiv_lt_0_compat; [apply: pow_lt; lra | exact: size_positive].
  lra.
Qed.

(* Above 1 / H_G the ablation is best at Z = 0, below it at Z = 1 (finding 15). *)
Theorem without_term1_collapses G beta : without_term1_threshold (S G) < beta ->
  forall z, 0 < z <= 1 -> without_term1 (S G) beta z < without_term1 (S G) beta 0.
Proof.
  move=> above z hz; have pos := harmonic_positive G; have [_ high] := log_partial_below (S G) z ltac:(lra).
  have large : 1 < beta * harmonic (S G).
    have -> : 1 = without_term1_threshold (S G) * harmonic (S G) by rewrite /without_term1_threshold; field; lra.
    exact: Rmult_lt_compat_r.
  have b0 : 0 < beta by apply: Rlt_trans above; apply: Rdiv_lt_0_compat; lra.
  rewrite /without_term1 -/(harmonic (S G)).
  have : beta * log_partial (S G) z <= beta * ((1 - z) * harmonic (S G)) by apply: Rmult_le_compat_l; lra.
  nra.
Qed.

Theorem without_term1_below_threshold G beta : 0 < beta < without_term1_threshold (S G) ->
  forall z, 0 <= z < 1 -> without_term1 (S G) beta z < without_term1 (S G) beta 1.
Proof.
  move=> [b0 below] z hz; have pos := harmonic_positive G; have [_ high] := log_partial_below (S G) z ltac:(lra).
  have small : beta * harmonic (S G) < 1.
    have -> : 1 = without_term1_threshold (S G) * harmonic (S G) by rewrite /without_term1_threshold; field; lra.
    exact: Rmult_lt_compat_r.
  have one : log_partial (S G) 1 = 0 by have := recovery_at_one (S G); rewrite /recovery ln_1; lra.
  rewrite /without_term1 one.
  have : beta * log_partial (S G) z <= beta * ((1 - z) * harmonic (S G)) by apply: Rmult_le_compat_l; lra.
  nra.
Qed.
