(* Beyond the paper: an f-divergence leaves a correctness gap for every beta exactly if f'(0+) = -infinity. The reference
   is positive everywhere; f is continuous at 0, where a maximizer exists for every beta, or f(0+) = +infinity. *)
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

(* So it is continuous there; extended by f(0) to the left it is continuous everywhere. *)
Lemma near_a_point f x : convex_from_zero f -> 0 < x ->
  exists L, 0 <= L /\ forall y, 0 <= y <= 2 * x -> Rabs (f y - f x) <= L * Rabs (y - x).
Proof.
  move=> convex x0; have [s support] := supporting_line f x convex x0.
  pose K := (Rabs (f (2 * x) - f x) + Rabs (f 0 - f x)) / x.
  have s0 := Rabs_pos s; have r0 := Rabs_pos (f (2 * x) - f x); have l0 := Rabs_pos (f 0 - f x).
  have K0 : 0 <= K by apply: Rdiv_le_0_compat; lra.
  exists (Rabs s + K); split=> [|y [y0 y2]]; first by lra.
  have d0 := Rabs_pos (y - x); have low := support y y0.
  have line : - (Rabs s * Rabs (y - x)) <= s * (y - x).
    by rewrite -Rabs_mult; have := Rle_abs (- (s * (y - x))); rewrite Rabs_Ropp; lra.
  have high : f y <= f x + K * Rabs (y - x).
    pose t := Rabs (y - x) / x.
    have tx : t * x = Rabs (y - x) by rewrite /t; field; lra.
    have -> : K * Rabs (y - x) = t * (Rabs (f (2 * x) - f x) + Rabs (f 0 - f x)) by rewrite /K /t; field; lra.
    have t0 : 0 <= t by apply: Rdiv_le_0_compat.
    have t1 : t <= 1 by apply: (Rmult_le_reg_r x) => //; rewrite tx; have := Rabs_le_between (y - x) x; lra.
    have ar := Rle_abs (f (2 * x) - f x); have al := Rle_abs (f 0 - f x).
    case: (Rle_lt_dec x y) => [above|below].
    - have := convex (2 * x) x t ltac:(lra) ltac:(lra) (conj t0 t1).
      have -> : t * (2 * x) + (1 - t) * x = y by move: tx; rewrite Rabs_pos_eq; lra.
      nra.
    - have := convex 0 x t (Rle_refl 0) ltac:(lra) (conj t0 t1).
      have -> : t * 0 + (1 - t) * x = y by move: tx; rewrite Rabs_left; lra.
      nra.
  by apply: Rabs_le; nra.
Qed.

Lemma extended_continuous f : convex_from_zero f -> filterlim f (at_right 0) (locally (f 0)) ->
  forall x, continuity_pt (fun t => f (Rmax 0 t)) x.
Proof.
  move=> convex right x; apply/continuity_pt_locally => eps; have e0 := cond_pos eps.
  case: (Rtotal_order x 0) => [left|[->|inside]].
  - have d0 : 0 < - x by lra.
    exists (mkposreal _ d0) => u; change (Rabs (u - x) < - x -> Rabs (f (Rmax 0 u) - f (Rmax 0 x)) < eps) => near.
    have := Rle_abs (u - x) => ux; rewrite !Rmax_left; [|lra|lra].
    by rewrite Rminus_eq_0 Rabs_R0.
  - have [d close] := right (ball (f 0) eps) (locally_ball _ eps); exists d => u near.
    rewrite (Rmax_left 0 0); last by lra.
    case: (Rle_lt_dec u 0) => [u0|u0]; first by rewrite Rmax_left // Rminus_eq_0 Rabs_R0.
    by rewrite Rmax_right; [exact: (close u near u0) | lra].
  - have [L [L0 bound]] := near_a_point f x convex inside.
    have d0 : 0 < Rmin x (eps / (L + 1)) by apply: Rmin_glb_lt => //; apply: Rdiv_lt_0_compat; lra.
    exists (mkposreal _ d0) => u.
    change (Rabs (u - x) < Rmin x (eps / (L + 1)) -> Rabs (f (Rmax 0 u) - f (Rmax 0 x)) < eps) => near.
    have nx := Rlt_le_trans _ _ _ near (Rmin_l _ _); have ne := Rlt_le_trans _ _ _ near (Rmin_r _ _).
    have [ux xu] := Rabs_def2 _ _ nx.
    rewrite !Rmax_right; [|lra|lra].
    apply: Rle_lt_trans (bound u ltac:(lra)) _.
    have := Rmult_lt_compat_r (L + 1) _ _ ltac:(lra) ne.
    have -> : eps / (L + 1) * (L + 1) = eps by field; lra.
    have := Rabs_pos (u - x); nra.
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

(* Jensen's inequality on one of the two sets of responses, S with the mass m under the reference. *)
Lemma jensen (S : pred A) m p : convex_from_zero f -> policy p -> m = \sum_(a | S a) ref a -> 0 < m ->
  m * f ((\sum_(a | S a) p a) / m) <= \sum_(a | S a) (ref a * f (p a / ref a)).
Proof.
  move=> convex pp same m0; have [np _] := pp.
  have w0 : 0 <= \sum_(a | S a) p a by apply: sum_nonneg => a _; apply: np.
  case: (Rle_lt_or_eq_dec _ _ w0) => [pos|none].
  - have [s support] := supporting_line f ((\sum_(a | S a) p a) / m) convex ltac:(apply: Rdiv_lt_0_compat; lra).
    have -> : m * f ((\sum_(a | S a) p a) / m) =
              \sum_(a | S a) (ref a * ((f ((\sum_(a | S a) p a) / m) - s * ((\sum_(a | S a) p a) / m)) + s * (p a / ref a))).
      by rewrite sum_affine -same; field; lra.
    apply: sum_le => a _; apply: Rmult_le_compat_l; first by apply: Rlt_le.
    have := support _ (ratio_nonneg p a pp); lra.
  - right; rewrite -none (sum_ext _ _ (fun a => f 0 * ref a)).
      by rewrite sum_scale -same /Rdiv Rmult_0_l; lra.
    move=> a Sa; rewrite (sum_zero_terms S p (fun b _ => np b) (esym none) a Sa) /Rdiv Rmult_0_l; lra.
Qed.

(* The reference's conditionals are best for every Z, and the profile that they leave is continuous in it. *)
Theorem f_divergence_maximizer_exists beta : convex_from_zero f -> f 1 = 0 ->
  filterlim f (at_right 0) (locally (f 0)) -> 0 < beta -> exists best, global_maximizer (J_divergence beta) best.
Proof.
  move=> convex f1 right b0; pose fe t := f (Rmax 0 t); have fec := extended_continuous f convex right.
  pose profile z := z - beta * (q * fe (z / q) + (1 - q) * fe ((1 - z) / (1 - q))).
  have continuous z : 0 <= z <= 1 -> continuity_pt profile z.
    move=> _; have scaled g c : continuity_pt g z -> continuity_pt (fun u => c * fe (g u)) z.
      move=> gc; apply: continuity_pt_mult; first by apply: continuity_pt_const => ? ?.
      exact: (continuity_pt_comp g fe z gc (fec _)).
    have affine c d : continuity_pt (fun u => (c + d * u)) z.
      by apply: continuity_pt_plus; [apply: continuity_pt_const => ? ? | apply: continuity_pt_mult;
         [apply: continuity_pt_const => ? ? | apply: continuity_pt_id]].
    apply: (continuity_pt_ext (fun u => u - beta * (q * fe (0 + / q * u) + (1 - q) * fe (/ (1 - q) + - / (1 - q) * u)))).
      by move=> u; rewrite /profile; congr (_ - beta * (q * fe _ + (1 - q) * fe _)); field; lra.
    apply: continuity_pt_minus; first exact: continuity_pt_id.
    apply: continuity_pt_mult; first by apply: continuity_pt_const => ? ?.
    by apply: continuity_pt_plus; apply: scaled.
  have [z [top [z0 z1]]] := continuity_ab_maj profile 0 1 Rle_0_1 continuous.
  have value p : policy p -> mass C p - beta * f_divergence f ref p <= profile (mass C p).
    move=> pp; have low := mass_nonneg C p pp; have high := mass_at_most_one C p pp.
    have inside := jensen C q p convex pp erefl (proj1 q_inside).
    have outside := jensen (fun a => ~~ C a) (1 - q) p convex pp (esym (mass_complement C ref ref_policy)) ltac:(lra).
    move: inside outside; rewrite mass_complement // -/(mass C p) => inside outside.
    rewrite /profile /fe !Rmax_right; [|by apply: Rdiv_le_0_compat; lra|by apply: Rdiv_le_0_compat; lra].
    rewrite /f_divergence (sum_split C); have := Rmult_le_compat_l beta _ _ ltac:(lra) (Rplus_le_compat _ _ _ _ inside outside).
    lra.
  have [nr sr] := ref_policy.
  pose best a := if C a then z * (ref a / q) else (1 - z) * (ref a / (1 - q)).
  have bm : mass C best = z.
    rewrite /mass (sum_ext _ _ (fun a => z / q * ref a)); last by move=> a Ca; rewrite /best Ca; field; lra.
    by rewrite sum_scale -/(mass C ref) -/q; field; lra.
  have bo : \sum_(a | ~~ C a) best a = 1 - z.
    rewrite (sum_ext _ _ (fun a => (1 - z) / (1 - q) * ref a)); last by move=> a /negbTE Ca; rewrite /best Ca; field; lra.
    by rewrite sum_scale mass_complement // -/q; field; lra.
  exists best; split; [split|] => [a||other po].
  - rewrite /best; case: (C a); apply: Rmult_le_pos; try lra; apply: Rdiv_le_0_compat; try lra; exact: nr.
  - by rewrite (sum_split C) -/(mass C best) bm bo; lra.
  have -> : J_divergence beta best = Finite (profile z).
    rewrite /J_divergence /= bm /profile /f_divergence (sum_split C) /fe !Rmax_right;
      [|by apply: Rdiv_le_0_compat; lra|by apply: Rdiv_le_0_compat; lra].
    rewrite (sum_ext C _ (fun a => f (z / q) * ref a)); last first.
      move=> a Ca; rewrite /best Ca; have -> : z * (ref a / q) / ref a = z / q by field; have := ref_positive a; lra.
      lra.
    rewrite (sum_ext (fun a => ~~ C a) _ (fun a => f ((1 - z) / (1 - q)) * ref a)); last first.
      move=> a /negbTE Ca; rewrite /best Ca.
      have -> : (1 - z) * (ref a / (1 - q)) / ref a = (1 - z) / (1 - q) by field; have := ref_positive a; lra.
      lra.
    by rewrite !sum_scale mass_complement // -/(mass C ref) -/q; congr Finite; lra.
  rewrite /=; apply: Rle_trans (value other po) (top _ _); split; [exact: mass_nonneg | exact: mass_at_most_one].
Qed.

(* f continuous at 0: for every beta a maximizer exists, and all have Z < 1, exactly if f'(0+) = -infinity. Convexity
   alone allows f to jump down just right of 0; the chords from 0 then say nothing of f'(0+). *)
Theorem f_divergence_gap : convex_from_zero f -> f 1 = 0 -> filterlim f (at_right 0) (locally (f 0)) ->
  (forall beta, 0 < beta -> (exists best, global_maximizer (J_divergence beta) best) /\
    forall best, global_maximizer (J_divergence beta) best -> mass C best < 1) <-> infinite_slope_at_zero f.
Proof.
  move=> convex f1 right; split=> [gaps|steep beta b0].
  - case: (Classical_Prop.classic (infinite_slope_at_zero f)) => // /(flat_gives_none convex) [beta [b0 none]].
    case: none => full pf one; apply: Classical_Prop.NNPP => none.
    have := proj2 (gaps beta b0) full; rewrite one => below; apply: (Rlt_irrefl 1); apply: below; split=> // other po.
    by apply: Rbar_not_lt_le => above; apply: none; exists other.
  - split=> [|best [pp top]]; first exact: f_divergence_maximizer_exists.
    case: (Rle_lt_or_eq_dec _ _ (mass_at_most_one C best pp)) => // one.
    have [other [po above]] := steep_gives_gap beta convex f1 steep b0 best pp one.
    by have := top other po; move/Rbar_le_not_lt.
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
