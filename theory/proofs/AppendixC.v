(* Theorem 1 (Appendix C): under CoKL the correctness mass is free. The mass must be positive for pi+ to exist, and where
   a difference is stated the penalty must be finite; theory/FINDINGS.md says why. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies.
Open Scope R_scope.

(* J_CoKL = Z_pi - beta D_KL(ref+ || pi+). *)
Definition J_cokl {A : finType} (C : pred A) (beta : R) (ref p : A -> R) : Rbar :=
  objective (mass C p) beta (kl (plus C ref) (plus C p)).

Section Theorem1.
Context {A : finType}.
Variables (C : pred A) (ref : A -> R) (beta : R).
Hypotheses (ref_policy : policy ref) (ref_mass : 0 < mass C ref) (beta_positive : 0 < beta).
Let J := J_cokl C beta ref.

(* Clause 1: J depends on pi only through Z and pi+ ... *)
Theorem cokl_depends_on_mass_and_plus p1 p2 :
  mass C p1 = mass C p2 -> (forall a, plus C p1 a = plus C p2 a) -> J p1 = J p2.
Proof. by move=> same right; rewrite /J /J_cokl same; congr objective; apply: kl_ext. Qed.

(* ... so replacing pi- changes nothing. *)
Theorem cokl_ignores_minus z right wrong1 wrong2 :
  policy right -> mass C right = 1 -> z <> 0 ->
  J (assemble C z right wrong1) = J (assemble C z right wrong2).
Proof.
  move=> pr one ne; apply: cokl_depends_on_mass_and_plus; first by rewrite !assemble_mass.
  move=> a; case Ca : (C a); first by rewrite !assemble_plus.
  by rewrite /plus Ca.
Qed.

(* Clause 2: the exact difference, where the penalty is finite. *)
Theorem cokl_exact_difference p1 p2 :
  (forall a, plus C p1 a = plus C p2 a) -> mass C p1 < mass C p2 -> is_finite (kl (plus C ref) (plus C p1)) ->
  [/\ is_finite (J p1), is_finite (J p2), real (J p2) - real (J p1) = mass C p2 - mass C p1 & real (J p2) - real (J p1) > 0].
Proof.
  move=> same more finite; rewrite /J /J_cokl -(kl_ext (plus C ref) (plus C ref) (plus C p1) (plus C p2)) //.
  rewrite -finite /=; split=> //; lra.
Qed.

(* What happens where it is not: both objectives are -infinity (finding 2). *)
Theorem cokl_no_difference p1 p2 :
  (forall a, plus C p1 a = plus C p2 a) -> kl (plus C ref) (plus C p1) = p_infty -> J p1 = m_infty /\ J p2 = m_infty.
Proof.
  by move=> same infinite; rewrite /J /J_cokl -(kl_ext (plus C ref) (plus C ref) (plus C p1) (plus C p2)) // infinite.
Qed.

(* Along a segment to mass 0 the value tends to -beta D_KL(ref+ || p+), which p+ chooses (finding 1). *)
Theorem cokl_along_segment right wrong : policy right -> mass C right = 1 -> continuous_wrt (plus C ref) right ->
  filterlim (fun z => real (J (assemble C z right wrong))) (at_right 0)
    (locally (- beta * kl_sum (plus C ref) right)).
Proof.
  move=> pr one ac.
  apply: (filterlim_ext_loc (fun z => z - beta * kl_sum (plus C ref) right)).
    exists (mkposreal 1 Rlt_0_1) => z _ z0; rewrite /J /J_cokl assemble_mass //.
    rewrite (kl_ext _ (plus C ref) _ right) ?kl_finite // => a; case Ca : (C a).
      by rewrite assemble_plus //; lra.
    by rewrite (outside_zero C right a) ?Ca // /plus Ca.
  have -> : - beta * kl_sum (plus C ref) right = 0 - beta * kl_sum (plus C ref) right by lra.
  apply: (@filterlim_filter_le_1 _ _ (locally 0) (at_right 0)); first exact: filter_le_within.
  apply: (@ex_derive_continuous _ R_NormedModule (fun z => z - beta * kl_sum (plus C ref) right)).
  by auto_derive.
Qed.

Lemma ref_plus_policy : policy (plus C ref).
Proof. exact: plus_policy. Qed.

Lemma ref_plus_mass : mass C (plus C ref) = 1.
Proof. by apply: mass_plus; lra. Qed.

Lemma plus_of_ref_plus a : plus C (plus C ref) a = plus C ref a.
Proof. by rewrite {1}/plus ref_plus_mass /plus; case: (C a) => //; field; lra. Qed.

Lemma at_mass_one p : policy p -> mass C p = 1 -> forall a, plus C p a = p a.
Proof.
  move=> pp one a; rewrite /plus one; case Ca : (C a); first by field.
  by rewrite (outside_zero C p a) // Ca.
Qed.

Lemma cokl_below_mass p : policy p -> 0 < mass C p -> Rbar_le (J p) (mass C p).
Proof.
  move=> pp pos; have := gibbs _ _ ref_plus_policy (plus_policy C p pp pos).
  by rewrite /J /J_cokl; case: (kl _ _) => [d||] //=; nra.
Qed.

(* Clause 3: the maximum is 1, attained at (Z, pi+) = (1, ref+) alone; that is one policy, ref+ itself. *)
Theorem cokl_maximum :
  [/\ policy (plus C ref), 0 < mass C (plus C ref), J (plus C ref) = 1 &
    forall p, policy p -> 0 < mass C p ->
      [/\ Rbar_le (J p) 1,
          J p = 1 <-> mass C p = 1 /\ forall a, plus C p a = plus C ref a &
          J p = 1 <-> forall a, p a = plus C ref a]].
Proof.
  have value : J (plus C ref) = 1.
    rewrite /J /J_cokl ref_plus_mass (kl_ext _ (plus C ref) _ (plus C ref)) //; last exact: plus_of_ref_plus.
    by rewrite kl_self /=; [congr Finite; lra | exact: ref_plus_policy].
  split=> //; [exact: ref_plus_policy | by rewrite ref_plus_mass; lra |].
  move=> p pp pos; have right := plus_policy C p pp pos; have m1 := mass_at_most_one C p pp.
  have forced : J p = 1 -> mass C p = 1 /\ forall a, plus C p a = plus C ref a.
    move=> top; have := gibbs _ _ ref_plus_policy right; have := gibbs_equality _ _ ref_plus_policy right.
    move: top; rewrite /J /J_cokl; case: (kl _ _) => [d||] //= -[total] same d0.
    have one : mass C p = 1 by nra.
    have d1 : d = 0 by nra.
    by split=> // a; rewrite (proj1 same) // d1.
  have reached : mass C p = 1 /\ (forall a, plus C p a = plus C ref a) -> J p = 1.
    by move=> [one same]; rewrite -value; apply: cokl_depends_on_mass_and_plus => [|a]; rewrite ?ref_plus_mass ?plus_of_ref_plus.
  split=> //; first by have := cokl_below_mass p pp pos; case: (J p) => [v||] //= h; lra.
  split=> [/forced [one same] a|same]; first by rewrite -same at_mass_one.
  by rewrite -value; apply: cokl_depends_on_mass_and_plus => [|a]; [apply: mass_ext | apply: plus_ext].
Qed.

(* The supremum that no softmax policy attains (finding 3): with an incorrect action, every softmax policy stays below 1
   and comes arbitrarily close. *)
Theorem cokl_softmax_below_one some_wrong : ~~ C some_wrong -> forall logits, Rbar_lt (J (softmax logits)) 1.
Proof.
  move=> wrong logits; have pp := softmax_policy logits some_wrong.
  have less : mass C (softmax logits) < 1.
    have := term_le_sum (fun b => ~~ C b) (softmax logits) some_wrong (fun b _ => proj1 pp b) wrong.
    by rewrite mass_complement //; have := softmax_positive logits some_wrong; lra.
  case: (Rle_lt_or_eq_dec 0 (mass C (softmax logits)) (mass_nonneg C _ pp)) => [pos|none].
    by have := cokl_below_mass _ pp pos; case: (J _) => [v||] //= h; lra.
  have no_correct : forall a, ~~ C a.
    move=> a; apply/negP => Ca; have := inside_zero C _ a pp (esym none) Ca; have := softmax_positive logits a; lra.
  suff : mass C ref = 0 by lra.
  by rewrite /mass big1 // => a Ca; have := no_correct a; rewrite Ca.
Qed.

(* The policy that approaches it: ref+ with a little of the uniform policy. *)
Lemma cokl_of_mixture d (u : A -> R) : 0 < d < 1 -> policy u ->
  let near := fun a => (1 - d) * plus C ref a + d * u a in
  policy near /\ Rbar_le (1 - d + beta * ln (1 - d)) (J near).
Proof.
  move=> hd pu near; have [nr sr] := ref_plus_policy; have [nu su] := pu.
  have pn : policy near.
    split; first by move=> a; rewrite /near; have := nr a; have := nu a; nra.
    by rewrite /near sum_plus !sum_scale sr su; lra.
  have large : 1 - d <= mass C near.
    rewrite /mass /near sum_plus !sum_scale -/(mass C (plus C ref)) ref_plus_mass.
    by have : 0 <= \sum_(a | C a) u a by [apply: sum_nonneg]; nra.
  have pos : 0 < mass C near by lra.
  have m1 := mass_at_most_one C near pn.
  have above : forall a, (1 - d) * plus C ref a <= plus C near a.
    move=> a; rewrite {2}/plus; case Ca : (C a); last by rewrite /plus Ca; lra.
    apply: (Rmult_le_reg_r (mass C near)) => //; have -> : near a / mass C near * mass C near = near a by field; lra.
    have : (1 - d) * plus C ref a * mass C near <= (1 - d) * plus C ref a * 1.
      by apply: Rmult_le_compat_l => //; apply: Rmult_le_pos; [lra | apply: nr].
    by rewrite {3}/near; have := nu a; nra.
  split=> //; rewrite /J /J_cokl kl_finite; last first.
    by move=> a zero; have := above a; have := nr a; rewrite zero; nra.
  suff : kl_sum (plus C ref) (plus C near) <= - ln (1 - d) by rewrite /=; nra.
  have -> : - ln (1 - d) = \sum_a (- ln (1 - d) * plus C ref a) by rewrite sum_scale sr; lra.
  apply: sum_le => a _; case: (Req_dec (plus C ref a) 0) => [->|ne]; first by lra.
  have r0 : 0 < plus C ref a by have := nr a; lra.
  have n0 : 0 < plus C near a by have := above a; nra.
  rewrite ln_div // (Rmult_comm (- _)); apply: Rmult_le_compat_l; first lra.
  have : ln ((1 - d) * plus C ref a) <= ln (plus C near a) by apply: ln_le => //; nra.
  by rewrite ln_mult; lra.
Qed.

Theorem cokl_softmax_supremum (some : A) eps : 0 < eps -> exists logits, Rbar_lt (1 - eps) (J (softmax logits)).
Proof.
  move=> e0; pose d := Rmin (1 / 2) (eps / (2 * (1 + 2 * beta))).
  have b0 : 0 < 2 * (1 + 2 * beta) by lra.
  have d0 : 0 < d by apply: Rmin_glb_lt; [lra | exact: Rdiv_lt_0_compat].
  have d1 : d <= 1 / 2 by apply: Rmin_l.
  have small : d * (1 + 2 * beta) < eps.
    have le : d <= eps / (2 * (1 + 2 * beta)) by apply: Rmin_r.
    have : d * (1 + 2 * beta) <= eps / (2 * (1 + 2 * beta)) * (1 + 2 * beta) by apply: Rmult_le_compat_r; lra.
    have -> : eps / (2 * (1 + 2 * beta)) * (1 + 2 * beta) = eps / 2 by field; lra.
    lra.
  pose u := softmax (fun _ : A => 0); have pu : policy u by exact: softmax_policy.
  have [pn value] := cokl_of_mixture d u ltac:(lra) pu.
  set near := (fun a => _) in pn value; exists (fun a => ln (near a)).
  have positive : forall a, 0 < near a.
    move=> a; have := proj1 ref_plus_policy a; have := softmax_positive (fun _ : A => 0) a; rewrite -/u /near; nra.
  have same := positive_is_softmax near pn positive.
  have -> : J (softmax (fun a => ln (near a))) = J near.
    by apply: cokl_depends_on_mass_and_plus; [apply: mass_ext | apply: plus_ext].
  apply: Rbar_lt_le_trans value => /=.
  have : - (2 * d) <= ln (1 - d).
    have := ln_at_most (/ (1 - d)) ltac:(apply: Rinv_0_lt_compat; lra); rewrite ln_Rinv; last lra.
    have -> : / (1 - d) - 1 = d * / (1 - d) by field; lra.
    have : / (1 - d) <= 2 by rewrite -(Rinv_inv 2); apply: Rinv_le_contravar; lra.
    nra.
  nra.
Qed.

End Theorem1.
