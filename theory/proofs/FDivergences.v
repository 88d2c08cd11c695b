(* Beyond the paper: an f-divergence leaves a correctness gap for every beta exactly if f'(0+) = -infinity. The reference
   is positive everywhere; two theorems, for f continuous at 0 and for f(0+) = +infinity. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies AppendixC.
Open Scope R_scope.

Definition convex_from_zero (f : R -> R) : Prop := forall x y t, 0 <= x -> 0 <= y -> 0 <= t <= 1 ->
  f (t * x + (1 - t) * y) <= t * f x + (1 - t) * f y.

(* D_f(p || ref) = sum ref f(p / ref). *)
Definition f_divergence {A : finType} (f : R -> R) (ref p : A -> R) : R := \sum_a (ref a * f (p a / ref a)).

(* The same where f(0+) = +infinity: infinite at a policy with a zero. *)
Definition f_divergence_infinite {A : finType} (f : R -> R) (ref p : A -> R) : Rbar :=
  if [exists a, is_zero (p a)] then p_infty else Finite (f_divergence f ref p).

(* f'(0+) = -infinity: the chords from 0 have no lower bound. *)
Definition infinite_slope_at_zero (f : R -> R) : Prop := forall M, exists t, 0 < t < 1 /\ f t - f 0 < - M * t.

(* A gap: no policy of mass 1 maximizes Z - beta D_f over the simplex. *)
Definition correctness_gap {A : finType} (C : pred A) (J : (A -> R) -> Rbar) : Prop :=
  forall full, policy full -> mass C full = 1 -> exists p, policy p /\ Rbar_lt (J full) (J p).

(* A convex function has a supporting line at each interior point. *)
Lemma supporting_line f x : convex_from_zero f -> 0 < x -> exists s, forall y, 0 <= y -> f x + s * (y - x) <= f y.
Proof.
  move=> convex x0.
  have chords y z : 0 <= y < x -> x < z -> (f x - f y) / (x - y) <= (f z - f x) / (z - x).
    move=> [y0 yx] xz; pose t := (z - x) / (z - y).
    have zy : 0 < z - y by lra.
    have ht : 0 <= t <= 1.
      split; first by apply: Rdiv_le_0_compat; lra.
      by apply: (Rmult_le_reg_r (z - y)) => //; have -> : t * (z - y) = z - x by [rewrite /t; field; lra]; lra.
    have := convex y z t y0 ltac:(lra) ht.
    have -> : t * y + (1 - t) * z = x by rewrite /t; field; lra.
    have -> : t * f y + (1 - t) * f z = ((z - x) * f y + (x - y) * f z) / (z - y) by rewrite /t; field; lra.
    move=> /(Rmult_le_compat_r (z - y)) => /(_ ltac:(lra)).
    have -> : ((z - x) * f y + (x - y) * f z) / (z - y) * (z - y) = (z - x) * f y + (x - y) * f z by field; lra.
    move=> key; have pos : 0 < (x - y) * (z - x) by apply: Rmult_lt_0_compat; lra.
    apply: (Rmult_le_reg_r ((x - y) * (z - x))) => //.
    have -> : (f x - f y) / (x - y) * ((x - y) * (z - x)) = (f x - f y) * (z - x) by field; lra.
    have -> : (f z - f x) / (z - x) * ((x - y) * (z - x)) = (f z - f x) * (x - y) by field; lra.
    lra.
  pose E r := exists y, 0 <= y < x /\ r = (f x - f y) / (x - y).
  have bounded : bound E by exists ((f (x + 1) - f x) / (x + 1 - x)) => r [y [hy ->]]; apply: chords; lra.
  have inhabited : exists r, E r by exists ((f x - f 0) / (x - 0)), 0; split; lra.
  have [s [upper least]] := completeness E bounded inhabited; exists s => y y0.
  case: (Rtotal_order y x) => [below|[->|above]]; first 1 last.
  - lra.
  - have : s <= (f y - f x) / (y - x) by apply: least => r [w [hw ->]]; apply: chords.
    move=> /(Rmult_le_compat_r (y - x)) => /(_ ltac:(lra)).
    by have -> : (f y - f x) / (y - x) * (y - x) = f y - f x by [field; lra]; lra.
  - have : (f x - f y) / (x - y) <= s by apply: upper; exists y; split; lra.
    move=> /(Rmult_le_compat_r (x - y)) => /(_ ltac:(lra)).
    by have -> : (f x - f y) / (x - y) * (x - y) = f x - f y by [field; lra]; lra.
Qed.

Section Gap.
Context {A : finType}.
Variables (C : pred A) (ref : A -> R) (f : R -> R).
Hypotheses (ref_policy : policy ref) (ref_positive : forall a, 0 < ref a).
Let q := mass C ref.
Hypothesis q_inside : 0 < q < 1.

Definition J_divergence (beta : R) (p : A -> R) : Rbar := objective (mass C p) beta (Finite (f_divergence f ref p)).
Definition J_divergence_infinite (beta : R) (p : A -> R) : Rbar := objective (mass C p) beta (f_divergence_infinite f ref p).

Lemma ratio_nonneg p a : policy p -> 0 <= p a / ref a.
Proof. by move=> [np _]; apply: Rdiv_le_0_compat. Qed.

Lemma sum_affine p (S : pred A) u v :
  \sum_(a | S a) (ref a * (u + v * (p a / ref a))) = u * (\sum_(a | S a) ref a) + v * (\sum_(a | S a) p a).
Proof.
  rewrite -!sum_scale -sum_plus; apply: sum_ext => a _; field; have := ref_positive a; lra.
Qed.

Lemma steep_gives_gap beta : convex_from_zero f -> f 1 = 0 -> infinite_slope_at_zero f -> 0 < beta ->
  correctness_gap C (J_divergence beta).
Proof.
  move=> convex f1 steep b0 full pf one.
  pose S := \sum_(a | C a) (ref a * f (full a / ref a)).
  have [e [he drop]] := steep (1 / beta + Rabs S / (1 - q)).
  pose p a := (1 - e) * full a + e * ref a; exists p.
  have [nf sf] := pf; have [nr sr] := ref_policy.
  have pp : policy p.
    split; first by move=> a; rewrite /p; have := nf a; have := nr a; nra.
    by rewrite /p sum_plus !sum_scale sf sr; lra.
  split=> //.
  have mp : mass C p = 1 - e * (1 - q).
    by rewrite /mass /p sum_plus !sum_scale -/(mass C full) -/(mass C ref) one -/q; lra.
  have whole : f_divergence f ref full = S + (1 - q) * f 0.
    rewrite /f_divergence (sum_split C) -/S; congr (_ + _).
    rewrite (sum_ext _ _ (fun a => f 0 * ref a)); first by rewrite sum_scale mass_complement // -/q; lra.
    by move=> a Ca; rewrite (outside_zero C full a) // /Rdiv Rmult_0_l; lra.
  have less : f_divergence f ref p <= (1 - e) * S + (1 - q) * f e.
    rewrite /f_divergence (sum_split C); apply: Rplus_le_compat.
    - rewrite /S -sum_scale; apply: sum_le => a _; have r0 := ref_positive a.
      have -> : p a / ref a = (1 - e) * (full a / ref a) + (1 - (1 - e)) * 1 by rewrite /p; field; lra.
      have := convex (full a / ref a) 1 (1 - e) (ratio_nonneg full a pf) ltac:(lra) ltac:(lra); rewrite f1 => bound.
      have : ref a * f ((1 - e) * (full a / ref a) + (1 - (1 - e)) * 1) <= ref a * ((1 - e) * f (full a / ref a) + (1 - (1 - e)) * 0).
        by apply: Rmult_le_compat_l => //; lra.
      lra.
    - right; rewrite (sum_ext _ _ (fun a => f e * ref a)); first by rewrite sum_scale mass_complement // -/q; lra.
      move=> a Ca; rewrite /p (outside_zero C full a) //.
      by have -> : ((1 - e) * 0 + e * ref a) / ref a = e by [field; have := ref_positive a; lra]; lra.
  rewrite /J_divergence /= whole one mp.
  have drop' : (1 - q) * (f e - f 0) < - ((1 - q) / beta + Rabs S) * e.
    have -> : - ((1 - q) / beta + Rabs S) * e = (1 - q) * (- (1 / beta + Rabs S / (1 - q)) * e) by field; lra.
    by apply: Rmult_lt_compat_l => //; lra.
  have scaled : beta * ((1 - q) * (f e - f 0)) < - (1 - q) * e - beta * Rabs S * e.
    have -> : - (1 - q) * e - beta * Rabs S * e = beta * (- ((1 - q) / beta + Rabs S) * e) by field; lra.
    exact: Rmult_lt_compat_l.
  have : beta * f_divergence f ref p <= beta * ((1 - e) * S + (1 - q) * f e) by apply: Rmult_le_compat_l => //; lra.
  have : - (Rabs S) * (beta * e) <= S * (beta * e).
    apply: Rmult_le_compat_r; first by apply: Rmult_le_pos; lra.
    by have := Rle_abs (- S); rewrite Rabs_Ropp; lra.
  lra.
Qed.

Lemma flat_gives_none : convex_from_zero f -> ~ infinite_slope_at_zero f ->
  exists beta, 0 < beta /\ ~ correctness_gap C (J_divergence beta).
Proof.
  move=> convex flat.
  have [M bounded] : exists M, forall t, 0 < t < 1 -> - M * t <= f t - f 0.
    have [M none] := Classical_Pred_Type.not_all_ex_not _ _ flat; exists M => t ht.
    by case: (Rle_lt_dec (- M * t) (f t - f 0)) => // below; case: none; exists t.
  have [s support] := supporting_line f (1 / q) convex ltac:(apply: Rdiv_lt_0_compat; lra).
  (* A chord bound from 0 that holds for every t. *)
  have [K floor] : exists K, forall t, 0 <= t -> f 0 - K * t <= f t.
    exists (2 * Rabs (f 0 - f (1 / 2)) + Rabs M) => t t0.
    have a1 := Rle_abs M; have a2 := Rle_abs (f 0 - f (1 / 2)); have a3 := Rabs_pos (f 0 - f (1 / 2)).
    have a4 := Rabs_pos M.
    case: (Rlt_le_dec t 1) => [small|large].
    - case: (Rle_lt_or_eq_dec 0 t t0) => [pos|<-]; last by lra.
      by have := bounded t (conj pos small); nra.
    - pose r := 1 / (2 * t).
      have r0 : 0 <= r by apply: Rdiv_le_0_compat; lra.
      have half : r * t = 1 / 2 by rewrite /r; field; lra.
      have r1 : r <= 1 by nra.
      have := convex t 0 r t0 (Rle_refl 0) (conj r0 r1).
      have -> : r * t + (1 - r) * 0 = 1 / 2 by lra.
      move=> chord; have : r * (f 0 - f t) <= f 0 - f (1 / 2) by lra.
      move=> /(Rmult_le_compat_l (2 * t)) => /(_ ltac:(lra)).
      have -> : 2 * t * (r * (f 0 - f t)) = f 0 - f t by rewrite /r; field; lra.
      nra.
  pose slope := Rabs s + Rabs K + 1.
  have s0 := Rabs_pos s; have K0 := Rabs_pos K.
  have slope0 : 0 < slope by rewrite /slope; lra.
  exists (1 / slope); split; first by apply: Rdiv_lt_0_compat; lra.
  have pr := plus_policy C ref ref_policy (proj1 q_inside).
  have one := ref_plus_mass C ref (proj1 q_inside).
  move=> /(_ (plus C ref) pr one) [p [pp]]; apply: Rle_not_lt; rewrite /= one.
  have mp1 := mass_at_most_one C p pp; have [nr sr] := ref_policy.
  have whole : f_divergence f ref (plus C ref) = q * f (1 / q) + (1 - q) * f 0.
    rewrite /f_divergence (sum_split C) (sum_ext C _ (fun a => f (1 / q) * ref a)); last first.
      move=> a Ca; rewrite /plus Ca -/q.
      have -> : ref a / q / ref a = 1 / q by field; have := ref_positive a; lra.
      lra.
    rewrite (sum_ext (fun a => ~~ C a) _ (fun a => f 0 * ref a)); last first.
      by move=> a /negbTE Ca; rewrite /plus Ca /Rdiv Rmult_0_l; lra.
    by rewrite !sum_scale mass_complement // -/(mass C ref) -/q; lra.
  have least : f_divergence f ref (plus C ref) - slope * (1 - mass C p) <= f_divergence f ref p.
    have inside : q * f (1 / q) + s * (mass C p - 1) <= \sum_(a | C a) (ref a * f (p a / ref a)).
      have -> : q * f (1 / q) + s * (mass C p - 1) =
                \sum_(a | C a) (ref a * ((f (1 / q) - s * (1 / q)) + s * (p a / ref a))).
        by rewrite sum_affine -/(mass C ref) -/q -/(mass C p); field; lra.
      apply: sum_le => a _; apply: Rmult_le_compat_l => //; have := support _ (ratio_nonneg p a pp); lra.
    have outside : (1 - q) * f 0 - K * (1 - mass C p) <= \sum_(a | ~~ C a) (ref a * f (p a / ref a)).
      have -> : (1 - q) * f 0 - K * (1 - mass C p) = \sum_(a | ~~ C a) (ref a * (f 0 + (- K) * (p a / ref a))).
        by rewrite sum_affine !mass_complement // -/q; lra.
      apply: sum_le => a _; apply: Rmult_le_compat_l => //; have := floor _ (ratio_nonneg p a pp); lra.
    rewrite whole /f_divergence (sum_split C).
    have := Rle_abs s; have := Rle_abs K; have := Rle_abs (- s); rewrite Rabs_Ropp /slope; nra.
  have inv : 0 <= 1 / slope by apply: Rdiv_le_0_compat; lra.
  have := Rmult_le_compat_l _ (f_divergence f ref (plus C ref) - f_divergence f ref p) (slope * (1 - mass C p)) inv ltac:(lra).
  have -> : 1 / slope * (slope * (1 - mass C p)) = 1 - mass C p by field; lra.
  lra.
Qed.

(* f(0) finite and f continuous at 0: a gap for every beta exactly if f'(0+) = -infinity. Convexity alone allows f to
   jump down just right of 0; the chords from 0 then say nothing of f'(0+). *)
Theorem f_divergence_gap : convex_from_zero f -> f 1 = 0 -> filterlim f (at_right 0) (locally (f 0)) ->
  (forall beta, 0 < beta -> correctness_gap C (J_divergence beta)) <-> infinite_slope_at_zero f.
Proof.
  move=> convex f1 _; split=> [gaps|steep beta]; last exact: steep_gives_gap.
  case: (Classical_Prop.classic (infinite_slope_at_zero f)) => // /(flat_gives_none convex) [beta [b0 none]].
  by case: none; apply: gaps.
Qed.

(* A maximizer then has mass below 1. *)
Theorem f_divergence_maximizer_below_one : convex_from_zero f -> f 1 = 0 ->
  filterlim f (at_right 0) (locally (f 0)) -> infinite_slope_at_zero f ->
  forall beta p, 0 < beta -> policy p ->
  (forall other, policy other -> Rbar_le (J_divergence beta other) (J_divergence beta p)) -> mass C p < 1.
Proof.
  move=> convex f1 _ steep beta p b0 pp best.
  case: (Rle_lt_or_eq_dec _ _ (mass_at_most_one C p pp)) => // one.
  have [other [po above]] := steep_gives_gap beta convex f1 steep b0 p pp one.
  by have := best other po; move/Rbar_le_not_lt.
Qed.

(* f(0+) = +infinity: a gap for every beta, and the chords near 0 have no lower bound either. *)
Theorem f_divergence_gap_infinite : f 1 = 0 -> filterlim f (at_right 0) (Rbar_locally p_infty) ->
  (forall beta, 0 < beta -> correctness_gap C (J_divergence_infinite beta)) /\
  (forall M, exists s t, 0 < s < t /\ t < 1 /\ f t - f s < - M * (t - s)).
Proof.
  move=> f1 infinite; split=> [beta b0 full pf one|M].
  - exists ref; split=> //.
    have [wrong outside] : exists a, ~~ C a.
      case: (pickP (fun a => ~~ C a)) => [a Ca|all]; first by exists a.
      have : 1 - q = 0; last by lra.
      by rewrite -mass_complement // big1 // => a; rewrite all.
    have -> : J_divergence_infinite beta full = m_infty.
      rewrite /J_divergence_infinite /f_divergence_infinite; case: existsP => //= -[].
      by exists wrong; apply/is_zeroP; apply: (outside_zero C).
    rewrite /J_divergence_infinite /f_divergence_infinite; case: existsP => [[a /is_zeroP]|] //.
    by have := ref_positive a; lra.
  - have [d far] := infinite (fun x => f (1 / 2) + Rabs M < x) ltac:(by exists (f (1 / 2) + Rabs M)).
    pose s := Rmin (d / 2) (1 / 4); exists s, (1 / 2); have d0 := cond_pos d.
    have s0 : 0 < s by apply: Rmin_glb_lt; lra.
    have s4 : s <= 1 / 4 by apply: Rmin_r.
    have sd : s <= d / 2 by apply: Rmin_l.
    split; first lra.
    split; first lra.
    have near : ball 0 d s by change (Rabs (s - 0) < d); rewrite Rminus_0_r Rabs_pos_eq; lra.
    have := far s near s0; have := Rle_abs M; have := Rabs_pos M; nra.
Qed.

End Gap.

(* Two generators: reverse KL's slope is infinite, Pearson's chi^2's is not (finding 9). *)
Theorem reverse_kl_generator_steep : infinite_slope_at_zero (fun t => t * ln t).
Proof.
  move=> M; exists (exp (- (Rabs M + 1))).
  have low := Rabs_pos M; have := Rle_abs M; have e0 := exp_pos (- (Rabs M + 1)) => above.
  have e1 : exp (- (Rabs M + 1)) < 1 by have := exp_increasing (- (Rabs M + 1)) 0 ltac:(lra); rewrite exp_0.
  by split=> //; rewrite ln_exp; nra.
Qed.

Theorem chi_squared_generator_not_steep : ~ infinite_slope_at_zero (fun t => (t - 1) ^ 2).
Proof. by move=> /(_ 2) [t [ht]]; nra. Qed.

(* The jump that continuity at 0 excludes: f(1) = 0, chords from 0 without a lower bound, and f'(0+) = -2. *)
Definition jump_at_zero (t : R) : R := if is_zero t then 2 else (t - 1) ^ 2.

Theorem jump_is_steep_without_continuity :
  infinite_slope_at_zero jump_at_zero /\ ~ filterlim jump_at_zero (at_right 0) (locally (jump_at_zero 0)).
Proof.
  have at_0 : jump_at_zero 0 = 2 by rewrite /jump_at_zero /is_zero; case: Req_EM_T => //= nonzero; exfalso; apply: nonzero.
  have off t : 0 < t -> jump_at_zero t = (t - 1) ^ 2.
    by move=> t0; rewrite /jump_at_zero; case: is_zeroP => // ?; lra.
  split=> [M|near].
  - have M0 := Rabs_pos M; exists (1 / (2 + Rabs M)).
    have small : 0 < 1 / (2 + Rabs M) by apply: Rdiv_lt_0_compat; lra.
    have unit : 1 / (2 + Rabs M) * (2 + Rabs M) = 1 by field; lra.
    have := Rle_abs M; split; first nra.
    rewrite off // at_0; nra.
  - have e0 : 0 < 1 / 2 by lra.
    have [d close] := near (ball (jump_at_zero 0) (mkposreal _ e0)) (locally_ball _ (mkposreal _ e0)).
    pose s := Rmin (d / 2) (1 / 4); have d0 := cond_pos d.
    have s0 : 0 < s by apply: Rmin_glb_lt; lra.
    have sd : s <= d / 2 by apply: Rmin_l.
    have := close s ltac:(change (Rabs (s - 0) < d); rewrite Rminus_0_r Rabs_pos_eq; lra) s0.
    rewrite at_0 off // => inside; have [_ above] : (s - 1) ^ 2 - 2 < 1 / 2 /\ - (1 / 2) < (s - 1) ^ 2 - 2.
      by apply: Rabs_def2; exact: inside.
    have s4 : s <= 1 / 4 by apply: Rmin_r.
    nra.
Qed.
