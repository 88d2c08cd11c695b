(* Appendix B, first half: CoKL's equivalent form, the replay identity and the gradient (Eqs. 8-10). *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies AppendixA.
Open Scope R_scope.

Section Objective.
Context {A : finType}.
Variables (C : pred A) (ref : A -> R).
Hypotheses (ref_policy : policy ref) (ref_mass : 0 < mass C ref).

(* CoKL's penalty, Eq. 8, as a number. *)
Definition cokl (p : A -> R) : R := kl_sum (plus C ref) (plus C p).

(* Eq. appb-conditioned-logprob. *)
Theorem conditioned_log_probability p a : 0 < mass C p -> C a -> 0 < p a -> ln (plus C p a) = ln (p a) - ln (mass C p).
Proof. by move=> pos Ca pa; rewrite /plus Ca ln_div. Qed.

Lemma ref_plus_outside a : plus C ref a <> 0 -> C a.
Proof. by rewrite /plus; case: (C a). Qed.

Lemma ref_plus_sums : \sum_a plus C ref a = 1.
Proof. by case: (plus_policy C ref ref_policy ref_mass). Qed.

Lemma positive_on_support p a : policy p -> continuous_wrt (plus C ref) p -> plus C ref a <> 0 -> 0 < p a.
Proof. by move=> [np _] ac ne; have := np a; have : p a <> 0 by [move=> /ac]; lra. Qed.

Lemma positive_ref_plus a : plus C ref a <> 0 -> 0 < plus C ref a.
Proof. by have := proj1 (plus_policy C ref ref_policy ref_mass) a; lra. Qed.

(* Eq. 9, with the constant that the paper drops: CoKL = sum ref+ log ref+ - E_ref+ log pi + log Z. *)
Theorem cokl_equivalent_form p : policy p -> 0 < mass C p -> continuous_wrt (plus C ref) p ->
  cokl p = \sum_a (plus C ref a * ln (plus C ref a)) - \sum_a (plus C ref a * ln (p a)) + ln (mass C p).
Proof.
  move=> pp pos ac; rewrite -sum_minus /cokl /kl_sum.
  have -> : ln (mass C p) = \sum_a (ln (mass C p) * plus C ref a) by rewrite sum_scale ref_plus_sums; lra.
  rewrite -sum_plus; apply: sum_ext => a _.
  case: (Req_dec (plus C ref a) 0) => [->|ne]; first by lra.
  have Ca := ref_plus_outside a ne; have p0 := positive_on_support p a pp ac ne.
  have r0 := positive_ref_plus a ne.
  have right0 : 0 < plus C p a by rewrite /plus Ca; apply: Rdiv_lt_0_compat.
  by rewrite ln_div // (conditioned_log_probability p) //; lra.
Qed.

(* The replay identity of the main text, with +infinity on both sides where pi misses a correct mode. *)
Theorem replay_identity p : policy p -> 0 < mass C p ->
  kl (plus C ref) p = Rbar_plus (kl (plus C ref) (plus C p)) (Finite (- ln (mass C p))).
Proof.
  move=> pp pos; case: (continuousP (plus C ref) p) => [ac|nac].
  - have ac' : continuous_wrt (plus C ref) (plus C p).
      move=> a; rewrite {1}/plus; case Ca : (C a); last by rewrite /plus Ca.
      by move=> /quotient_zero [/ac|]; lra.
    rewrite !kl_finite //= -/(cokl p) cokl_equivalent_form //; congr Finite.
    rewrite /kl_sum -sum_minus.
    have -> : \sum_a (plus C ref a * ln (plus C ref a / p a)) =
              \sum_a (plus C ref a * ln (plus C ref a) - plus C ref a * ln (p a)); last by lra.
    apply: sum_ext => a _; case: (Req_dec (plus C ref a) 0) => [->|ne]; first by lra.
    by rewrite ln_div; [lra | exact: positive_ref_plus | exact: positive_on_support].
  - rewrite !kl_infinite // => ac; apply: nac => a zero; apply: ac.
    by rewrite /plus; case: (C a); rewrite ?zero; lra.
Qed.

(* ---------- The gradient, Eq. 10, along every differentiable path of policies ---------- *)

Lemma is_derive_sum (P : pred A) (F : A -> R -> R) (d : A -> R) t :
  (forall a, P a -> is_derive (F a) t (d a)) -> is_derive (fun s => \sum_(a | P a) F a s) t (\sum_(a | P a) d a).
Proof.
  move=> each; elim: (index_enum A) => [|a rest IH].
  - rewrite big_nil; apply: (is_derive_ext (fun=> 0)); first by move=> s; rewrite big_nil.
    exact: is_derive_const.
  - rewrite big_cons; case Pa : (P a).
    + apply: (is_derive_ext (fun s => F a s + \big[Rplus/0]_(b <- rest | P b) F b s)).
        by move=> s; rewrite big_cons Pa.
      by apply: (is_derive_plus (V := R_NormedModule)); first exact: each.
    + by apply: is_derive_ext IH => s; rewrite big_cons Pa.
Qed.

Section Path.
(* Actions that are not allowed are masked: they have probability 0 all along the path. *)
Variables (allowed : pred A) (path : R -> A -> R) (score : A -> R) (t : R).
Hypotheses (path_policy : forall s, policy (path s)) (path_positive : forall s a, allowed a -> 0 < path s a).
Hypothesis path_masked : forall s a, ~~ allowed a -> path s a = 0.
Hypothesis ref_allowed : forall a, C a -> ref a <> 0 -> allowed a.
(* score a is the derivative of log pi(a) along the path. *)
Hypothesis path_score : forall a, allowed a -> is_derive (fun s => ln (path s a)) t (score a).

Lemma path_mass s : 0 < mass C (path s).
Proof.
  case: (Rle_lt_or_eq_dec 0 _ (mass_nonneg C _ (path_policy s))) => // none.
  suff : mass C ref = 0 by lra.
  rewrite /mass big1 // => a Ca; have := inside_zero C _ a (path_policy s) (esym none) Ca.
  case: (Req_dec (ref a) 0) => // /(ref_allowed a Ca) /(path_positive s a); lra.
Qed.

Lemma path_derivative a : is_derive (fun s => path s a) t (path t a * score a).
Proof.
  case shown : (allowed a); last first.
    apply: (is_derive_ext (fun=> 0)); first by move=> s; rewrite path_masked ?shown.
    by rewrite path_masked ?shown // Rmult_0_l; exact: is_derive_const.
  apply: (is_derive_ext (fun s => exp (ln (path s a)))); first by move=> s; rewrite exp_ln //; apply: path_positive.
  have pos := path_positive t a shown.
  have -> : path t a * score a = scal (score a) (exp (ln (path t a))) by rewrite exp_ln // /scal /= /mult /=; lra.
  apply: (is_derive_comp exp (fun s => ln (path s a)) t); [exact: is_derive_exp | exact: path_score].
Qed.

(* Eqs. appb-logz-gradient to appb-logz-expectation. *)
Theorem log_mass_gradient : is_derive (fun s => ln (mass C (path s))) t (\sum_a (plus C (path t) a * score a)).
Proof.
  have pos := path_mass t.
  have -> : \sum_a (plus C (path t) a * score a) = scal (\sum_(a | C a) (path t a * score a)) (/ mass C (path t)).
    rewrite /scal /= /mult /= Rmult_comm -sum_scale -[RHS]sum_indicator; apply: sum_ext => a _.
    by rewrite /plus; case: (C a) => /=; rewrite /Rdiv; lra.
  apply: (is_derive_comp ln (fun s => mass C (path s)) t); first by apply: is_derive_ln.
  by apply: is_derive_sum => a _; exact: path_derivative.
Qed.

(* Eq. 10: minus the mean score under ref+, plus the mean score under pi+. *)
Theorem cokl_gradient : is_derive (fun s => cokl (path s)) t
  (- (\sum_a (plus C ref a * score a)) + \sum_a (plus C (path t) a * score a)).
Proof.
  have shown a : plus C ref a <> 0 -> allowed a.
    by rewrite /plus; case Ca : (C a) => // ne; apply: ref_allowed => // zero; apply: ne; rewrite zero; lra.
  have ac s : continuous_wrt (plus C ref) (path s).
    by move=> a zero; case: (Req_dec (plus C ref a) 0) => // /shown /(path_positive s a); lra.
  apply: (is_derive_ext (fun s => \sum_a (plus C ref a * ln (plus C ref a))
      + - (\sum_a (plus C ref a * ln (path s a))) + ln (mass C (path s)))).
    by move=> s; rewrite cokl_equivalent_form //; [apply: path_mass].
  apply: (is_derive_plus (V := R_NormedModule)); last exact: log_mass_gradient.
  have -> : - (\sum_a (plus C ref a * score a)) = 0 + - (\sum_a (plus C ref a * score a)) by lra.
  apply: (is_derive_plus (V := R_NormedModule)); first exact: is_derive_const.
  apply: (is_derive_opp (V := R_NormedModule)); apply: is_derive_sum => a _.
  case: (Req_dec (plus C ref a) 0) => [->|/shown here]; last by apply: is_derive_scal; exact: path_score.
  by rewrite Rmult_0_l; apply: (is_derive_ext (fun=> 0)) => [s|]; [rewrite Rmult_0_l | exact: is_derive_const].
Qed.

End Path.

(* ---------- The gradient with respect to the logits ---------- *)

Definition moved (logits direction : A -> R) (s : R) (a : A) : R := logits a + s * direction a.
Definition basis (b a : A) : R := if a == b then 1 else 0.

Section Logits.
Variables (logits direction : A -> R) (some : A).
Let path (s : R) : A -> R := softmax (moved logits direction s).

Lemma partition_positive (l : A -> R) : 0 < \sum_b exp (l b).
Proof.
  apply: Rlt_le_trans (term_le_sum xpredT (fun b => exp (l b)) some _ isT); first exact: exp_pos.
  by move=> b _; apply: Rlt_le; apply: exp_pos.
Qed.

(* The score of a softmax: the direction, centred. *)
Theorem softmax_score a :
  is_derive (fun s => ln (path s a)) 0 (direction a - \sum_b (softmax logits b * direction b)).
Proof.
  have start b : moved logits direction 0 b = logits b by rewrite /moved; lra.
  have line b : is_derive (fun s => moved logits direction s b) 0 (direction b).
    by rewrite /moved; auto_derive => //; lra.
  apply: (is_derive_ext (fun s => moved logits direction s a - ln (\sum_b exp (moved logits direction s b)))).
    by move=> s; rewrite /path /softmax ln_div ?ln_exp //; [exact: exp_pos | exact: partition_positive].
  apply: (is_derive_minus (V := R_NormedModule)) => //.
  have total := partition_positive logits.
  have -> : \sum_b (softmax logits b * direction b) =
            scal (\sum_b (direction b * exp (logits b))) (/ \sum_b exp (logits b)).
    rewrite /scal /= /mult /= Rmult_comm -sum_scale; apply: sum_ext => b _.
    by rewrite /softmax /Rdiv; lra.
  have same : \sum_b exp (moved logits direction 0 b) = \sum_b exp (logits b).
    by apply: sum_ext => b _; rewrite start.
  apply: (is_derive_comp ln (fun s => \sum_b exp (moved logits direction s b)) 0).
    by rewrite same; apply: is_derive_ln.
  apply: is_derive_sum => b _; rewrite -start.
  apply: (is_derive_comp exp (fun s => moved logits direction s b) 0) => //; exact: is_derive_exp.
Qed.

(* Along every line of logits, the derivative of CoKL is sum (pi+ - ref+) times the direction. *)
Theorem cokl_logit_derivative :
  is_derive (fun s => cokl (path s)) 0 (\sum_a ((plus C (softmax logits) a - plus C ref a) * direction a)).
Proof.
  have start : forall a, path 0 a = softmax logits a.
    move=> a; rewrite /path /softmax /moved.
    have -> : logits a + 0 * direction a = logits a by lra.
    by congr (_ / _); apply: sum_ext => b _; congr exp; lra.
  have policies s : policy (path s) by exact: softmax_policy.
  have positive s a : xpredT a -> 0 < path s a by move=> _; exact: softmax_positive.
  have none s a : ~~ xpredT a -> path s a = 0 by [].
  have := cokl_gradient xpredT path _ 0 policies positive none (fun a _ _ => isT) (fun a _ => softmax_score a).
  have right := plus_ext C _ _ start.
  set center := \sum_b (softmax logits b * direction b); have split p : \sum_a p a = 1 ->
      \sum_a (p a * (direction a - center)) = \sum_a (p a * direction a) - center.
    move=> one; rewrite (sum_ext _ _ (fun a => p a * direction a - center * p a)); last by move=> *; lra.
    by rewrite sum_minus sum_scale one; lra.
  have one : \sum_a plus C (path 0) a = 1 by case: (plus_policy C _ (policies 0) (path_mass xpredT path policies positive (fun a _ _ => isT) 0)).
  rewrite !split ?ref_plus_sums //.
  have -> : \sum_a (plus C (path 0) a * direction a) = \sum_a (plus C (softmax logits) a * direction a).
    by apply: sum_ext => a _; rewrite right.
  rewrite (sum_ext _ (fun a => (plus C (softmax logits) a - plus C ref a) * direction a)
    (fun a => plus C (softmax logits) a * direction a - plus C ref a * direction a)); last by move=> *; lra.
  rewrite sum_minus; set x := \sum_a _; set y := \sum_a _.
  by have -> : - (x - center) + (y - center) = y - x by lra.
Qed.

End Logits.

(* The partial derivative with respect to the logit of b. *)
Theorem cokl_partial_derivative logits b :
  is_derive (fun s => cokl (softmax (moved logits (basis b) s))) 0 (plus C (softmax logits) b - plus C ref b).
Proof.
  have := cokl_logit_derivative logits (basis b) b.
  rewrite (bigD1 b) //= big1; first by rewrite /basis eqxx Rmult_1_r Rplus_0_r.
  by move=> a /negbTE ne; rewrite /basis ne; lra.
Qed.

End Objective.
