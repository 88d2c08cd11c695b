(* The paper's definitions over an arbitrary finite action set A and an arbitrary set C of correct actions (Eqs. 5-6):
   policies, correctness mass, conditionals, the extended-valued KL divergence; and Gibbs' inequality. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums.
Open Scope R_scope.

(* A policy is a point of the probability simplex; zeros are allowed. *)
Definition policy {A : finType} (p : A -> R) : Prop := (forall a, 0 <= p a) /\ \sum_a p a = 1.

(* Z_pi, Eq. 5. *)
Definition mass {A : finType} (C : pred A) (p : A -> R) : R := \sum_(a | C a) p a.

(* pi+ and pi-, Eq. 6. They mean something where the divisor is positive. *)
Definition plus {A : finType} (C : pred A) (p : A -> R) (a : A) : R := if C a then p a / mass C p else 0.
Definition minus {A : finType} (C : pred A) (p : A -> R) (a : A) : R := if C a then 0 else p a / (1 - mass C p).

(* The policy (z, p+, p-) of Appendix C. *)
Definition assemble {A : finType} (C : pred A) (z : R) (right wrong : A -> R) (a : A) : R :=
  if C a then z * right a else (1 - z) * wrong a.

(* Absolute continuity, p << m. *)
Definition continuous_wrt {A : finType} (p m : A -> R) : Prop := forall a, m a = 0 -> p a = 0.
Definition is_zero (x : R) : bool := if Req_EM_T x 0 then true else false.
Definition continuous_wrtb {A : finType} (p m : A -> R) : bool := [forall a, is_zero (m a) ==> is_zero (p a)].

(* D_KL(p || m): the sum where p << m, +infinity elsewhere. 0 log 0 = 0 by the factor 0. *)
Definition kl_sum {A : finType} (p m : A -> R) : R := \sum_a (p a * ln (p a / m a)).
Definition kl {A : finType} (p m : A -> R) : Rbar := if continuous_wrtb p m then Finite (kl_sum p m) else p_infty.

(* Bern(z), and its divergence as a number. *)
Definition bernoulli (z : R) (right : bool) : R := if right then z else 1 - z.
Definition bernoulli_kl (a b : R) : R := a * ln (a / b) + (1 - a) * ln ((1 - a) / (1 - b)).

(* Z_pi - beta * penalty, -infinity where the penalty is infinite. *)
Definition objective (z beta : R) (penalty : Rbar) : Rbar :=
  match penalty with Finite d => Finite (z - beta * d) | _ => m_infty end.

(* A policy that no other surpasses. *)
Definition global_maximizer {A : finType} (J : (A -> R) -> Rbar) (p : A -> R) : Prop :=
  policy p /\ forall other, policy other -> Rbar_le (J other) (J p).

Definition softmax {A : finType} (logits : A -> R) (a : A) : R := exp (logits a) / \sum_b exp (logits b).

(* Elementary facts. *)

Lemma is_zeroP x : reflect (x = 0) (is_zero x).
Proof. by rewrite /is_zero; case: Req_EM_T => h; constructor. Qed.

Lemma ln_below x : 0 < x -> x <> 1 -> ln x < x - 1.
Proof.
  move=> pos ne; have h : ln x <> 0 by move=> h; apply: ne; rewrite -(exp_ln x pos) h exp_0.
  by have := exp_ineq1 (ln x) h; rewrite exp_ln //; lra.
Qed.

Lemma ln_at_most x : 0 < x -> ln x <= x - 1.
Proof. move=> pos; case: (Req_dec x 1) => [->|ne]; [rewrite ln_1; lra | by have := ln_below x pos ne; lra]. Qed.

Lemma ln_inv_ratio x y : 0 < x -> 0 < y -> ln (x / y) = - ln (y / x).
Proof. by move=> px py; rewrite !ln_div //; lra. Qed.

Section Policies.
Context {A : finType}.
Implicit Types (C : pred A) (p m : A -> R).

Lemma continuousP p m : reflect (continuous_wrt p m) (continuous_wrtb p m).
Proof.
  apply: (iffP forallP) => h a.
  - by move=> /is_zeroP z; apply/is_zeroP; have := h a; rewrite z.
  - by apply/implyP => /is_zeroP /h /is_zeroP.
Qed.

Lemma kl_finite p m : continuous_wrt p m -> kl p m = Finite (kl_sum p m).
Proof. by rewrite /kl; case: continuousP. Qed.

Lemma kl_infinite p m : ~ continuous_wrt p m -> kl p m = p_infty.
Proof. by rewrite /kl; case: continuousP. Qed.

(* Each summand of D_KL is at least p - m, and equal only if p = m there. *)
Lemma kl_term x y : 0 <= x -> 0 <= y -> (y = 0 -> x = 0) -> x - y <= x * ln (x / y).
Proof.
  move=> nx ny ac; case: (Req_dec x 0) => [->|x0]; first by lra.
  have y0 : y <> 0 by move=> /ac.
  rewrite ln_inv_ratio; [|lra|lra].
  have := ln_at_most (y / x) ltac:(apply: Rdiv_lt_0_compat; lra) => below.
  have : x * ln (y / x) <= x * (y / x - 1) by apply: Rmult_le_compat_l.
  have -> : x * (y / x - 1) = y - x by field.
  lra.
Qed.

Lemma kl_term_equal x y : 0 <= x -> 0 <= y -> (y = 0 -> x = 0) -> x - y = x * ln (x / y) -> x = y.
Proof.
  move=> nx ny ac; case: (Req_dec x 0) => [->|x0]; first by lra.
  have y0 : y <> 0 by move=> /ac.
  rewrite ln_inv_ratio; [|lra|lra] => equal.
  case: (Req_dec (y / x) 1) => [one|ne].
  - have : y = (y / x) * x by field.
    by rewrite one; lra.
  - have := ln_below (y / x) ltac:(apply: Rdiv_lt_0_compat; lra) ne => below.
    have : x * ln (y / x) < x * (y / x - 1) by apply: Rmult_lt_compat_l; lra.
    have -> : x * (y / x - 1) = y - x by field.
    lra.
Qed.

(* Gibbs' inequality with its equality case, zeros included. *)
Lemma gibbs_sum p m : policy p -> policy m -> continuous_wrt p m -> 0 <= kl_sum p m.
Proof.
  move=> [np sp] [nm sm] ac.
  have : \sum_a (p a - m a) <= kl_sum p m by apply: sum_le => a _; apply: kl_term => //; apply: ac.
  by rewrite sum_minus sp sm; lra.
Qed.

Lemma gibbs_sum_equality p m :
  policy p -> policy m -> continuous_wrt p m -> kl_sum p m = 0 -> forall a, p a = m a.
Proof.
  move=> [np sp] [nm sm] ac zero a.
  have terms : forall b, true -> 0 <= p b * ln (p b / m b) - (p b - m b).
    by move=> b _; have := kl_term (p b) (m b) (np b) (nm b) (ac b); lra.
  have total : \sum_b (p b * ln (p b / m b) - (p b - m b)) = 0.
    by rewrite sum_minus sum_minus sp sm -/(kl_sum p m) zero; lra.
  have := sum_zero_terms xpredT _ terms total a isT => equal.
  by apply: kl_term_equal => //; [apply: ac | lra].
Qed.

Lemma kl_ext p p' m m' : (forall a, p a = p' a) -> (forall a, m a = m' a) -> kl p m = kl p' m'.
Proof.
  move=> same_p same_m; rewrite /kl.
  have -> : continuous_wrtb p m = continuous_wrtb p' m' by apply: eq_forallb => a; rewrite same_p same_m.
  by case: ifP => // _; congr Finite; apply: sum_ext => a _; rewrite same_p same_m.
Qed.

Lemma mass_ext C p p' : (forall a, p a = p' a) -> mass C p = mass C p'.
Proof. by move=> same; apply: sum_ext. Qed.

Lemma plus_ext C p p' : (forall a, p a = p' a) -> forall a, plus C p a = plus C p' a.
Proof. by move=> same a; rewrite /plus (mass_ext C p p') // same. Qed.

Lemma kl_self p : policy p -> kl p p = Finite 0.
Proof.
  move=> [np _]; rewrite kl_finite; last by [].
  rewrite /kl_sum big1 // => a _; case: (Req_dec (p a) 0) => [->|ne]; first by lra.
  have -> : p a / p a = 1 by field.
  by rewrite ln_1; lra.
Qed.

(* Gibbs' inequality: 0 <= D_KL(p || m) <= +infinity, and it is 0 exactly if p = m. *)
Theorem gibbs p m : policy p -> policy m -> Rbar_le (Finite 0) (kl p m).
Proof.
  move=> pp pm; rewrite /kl; case: continuousP => [ac|_]; [exact: gibbs_sum | done].
Qed.

Theorem gibbs_equality p m : policy p -> policy m -> kl p m = Finite 0 <-> forall a, p a = m a.
Proof.
  move=> pp pm; split.
  - by rewrite /kl; case: continuousP => [ac|_] // [zero]; apply: gibbs_sum_equality.
  - by move=> same; rewrite -(kl_self p pp); apply: kl_ext.
Qed.

(* Masses and conditionals. *)

Lemma mass_nonneg C p : policy p -> 0 <= mass C p.
Proof. by move=> [np _]; apply: sum_nonneg. Qed.

Lemma mass_complement C p : policy p -> \sum_(a | ~~ C a) p a = 1 - mass C p.
Proof. by move=> [_ sp]; move: (sum_split C p); rewrite sp /mass; lra. Qed.

Lemma mass_at_most_one C p : policy p -> mass C p <= 1.
Proof.
  move=> pp; have := mass_complement C p pp.
  have : 0 <= \sum_(a | ~~ C a) p a by apply: sum_nonneg => a _; case: pp.
  lra.
Qed.

Lemma mass_plus C p : mass C p <> 0 -> mass C (plus C p) = 1.
Proof.
  move=> ne; rewrite {1}/mass (sum_ext _ _ (fun a => p a / mass C p)); last by move=> a Ca; rewrite /plus Ca.
  by rewrite sum_div -/(mass C p); field.
Qed.

Lemma plus_policy C p : policy p -> 0 < mass C p -> policy (plus C p).
Proof.
  move=> [np sp] pos; split.
  - by move=> a; rewrite /plus; case: (C a); [apply: Rdiv_le_0_compat | lra].
  - rewrite (sum_split C) -/(mass C (plus C p)) mass_plus; last lra.
    rewrite (sum_ext _ _ (fun=> 0)) ?sum_zero; first by lra.
    by move=> a /negbTE Ca; rewrite /plus Ca.
Qed.

Lemma minus_policy C p : policy p -> mass C p < 1 -> policy (minus C p).
Proof.
  move=> pp pos; split.
  - by move=> a; rewrite /minus; case: (C a); [lra | apply: Rdiv_le_0_compat; [case: pp | lra]].
  - rewrite (sum_split C) (sum_ext C _ (fun=> 0)) ?sum_zero; last by move=> a Ca; rewrite /minus Ca.
    rewrite (sum_ext _ _ (fun a => p a / (1 - mass C p))); last by move=> a /negbTE Ca; rewrite /minus Ca.
    by rewrite sum_div mass_complement //; field; lra.
Qed.

(* Appendix C's parameterization: (z, p+, p-) gives a policy with that mass and these conditionals, and every policy
   with 0 < Z < 1 is given by its own. *)
Theorem assemble_mass C z right wrong : policy right -> mass C right = 1 -> mass C (assemble C z right wrong) = z.
Proof.
  move=> pr one; rewrite /mass (sum_ext _ _ (fun a => z * right a)); last by move=> a Ca; rewrite /assemble Ca.
  by rewrite sum_scale -/(mass C right) one; lra.
Qed.

Theorem assemble_policy C z right wrong :
  policy right -> mass C right = 1 -> policy wrong -> mass C wrong = 0 -> 0 <= z <= 1 ->
  policy (assemble C z right wrong).
Proof.
  move=> pr one pw none [low high]; split.
  - move=> a; rewrite /assemble; case: (C a); apply: Rmult_le_pos; try lra; [by case: pr | by case: pw].
  - rewrite (sum_split C) -/(mass C _) assemble_mass //.
    rewrite (sum_ext _ _ (fun a => (1 - z) * wrong a)); last by move=> a /negbTE Ca; rewrite /assemble Ca.
    by rewrite sum_scale mass_complement // none; lra.
Qed.

Theorem assemble_plus C z right wrong :
  policy right -> mass C right = 1 -> z <> 0 -> forall a, C a -> plus C (assemble C z right wrong) a = right a.
Proof.
  move=> pr one ne a Ca; rewrite /plus Ca assemble_mass // /assemble Ca; field => //.
Qed.

Theorem assemble_minus C z right wrong :
  policy right -> mass C right = 1 -> z <> 1 -> forall a, ~~ C a -> minus C (assemble C z right wrong) a = wrong a.
Proof.
  move=> pr one ne a /negbTE Ca; rewrite /minus Ca assemble_mass // /assemble Ca; field; lra.
Qed.

Theorem assemble_own C p :
  mass C p <> 0 -> mass C p <> 1 -> forall a, assemble C (mass C p) (plus C p) (minus C p) a = p a.
Proof.
  by move=> n0 n1 a; rewrite /assemble /plus /minus; case: (C a); field; lra.
Qed.

Lemma outside_zero C p a : policy p -> mass C p = 1 -> ~~ C a -> p a = 0.
Proof.
  move=> pp one; have nonneg : forall b, ~~ C b -> 0 <= p b by move=> b _; case: pp.
  by move: a; apply: sum_zero_terms => //; rewrite mass_complement // one; lra.
Qed.

Lemma inside_zero C p a : policy p -> mass C p = 0 -> C a -> p a = 0.
Proof. by move=> [np _] none; move: a; apply: sum_zero_terms. Qed.

Lemma softmax_positive (logits : A -> R) a : 0 < softmax logits a.
Proof.
  apply: Rdiv_lt_0_compat; first exact: exp_pos.
  apply: Rlt_le_trans (term_le_sum xpredT (fun b => exp (logits b)) a _ isT); first exact: exp_pos.
  by move=> b _; apply: Rlt_le; apply: exp_pos.
Qed.

Lemma softmax_policy (logits : A -> R) (some : A) : policy (softmax logits).
Proof.
  have total : 0 < \sum_b exp (logits b).
    apply: Rlt_le_trans (term_le_sum xpredT (fun b => exp (logits b)) some _ isT); first exact: exp_pos.
    by move=> b _; apply: Rlt_le; apply: exp_pos.
  split; first by move=> a; apply: Rlt_le; apply: softmax_positive.
  by rewrite /softmax sum_div; field; lra.
Qed.

(* Softmax policies are exactly the policies without zeros. *)
Lemma positive_is_softmax p : policy p -> (forall a, 0 < p a) -> forall a, softmax (fun b => ln (p b)) a = p a.
Proof.
  move=> [_ sp] pos a; rewrite /softmax (sum_ext _ _ p); last by move=> b _; rewrite exp_ln.
  by rewrite sp exp_ln //; field.
Qed.

End Policies.
