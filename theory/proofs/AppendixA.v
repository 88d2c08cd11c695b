(* Appendix A: the correctness decomposition of full-policy KL (Eq. 7), forward and reverse, on the whole simplex. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies.
Open Scope R_scope.

Lemma kl_above {A : finType} (p m : A -> R) : kl p m <> m_infty.
Proof. by rewrite /kl; case: ifP. Qed.

Section Decomposition.
Context {A : finType}.
Implicit Types (C : pred A) (p m : A -> R).

(* Eqs. app-positive-part and app-negative-part: the contribution of a set S of responses. *)
Theorem part (S : pred A) p m :
  (forall a, 0 <= p a) -> (forall a, 0 <= m a) -> continuous_wrt p m ->
  let u := \sum_(a | S a) p a in let v := \sum_(a | S a) m a in
  \sum_(a | S a) (p a * ln (p a / m a)) =
  u * ln (u / v) + u * (\sum_(a | S a) (p a / u * ln (p a / u / (m a / v)))).
Proof.
  move=> np nm ac u v; have u0 : 0 <= u by apply: sum_nonneg.
  have v0 : 0 <= v by apply: sum_nonneg.
  case: (Req_dec u 0) => [none|nu].
    rewrite none (sum_ext _ _ (fun=> 0)) ?sum_zero; first by lra.
    by move=> a Sa; rewrite (sum_zero_terms S p) //; lra.
  have nv : v <> 0.
    move=> none; apply: nu; rewrite /u (sum_ext _ _ (fun=> 0)) ?sum_zero // => a Sa.
    by apply: ac; apply: (sum_zero_terms S m).
  have -> : u * ln (u / v) = \sum_(a | S a) (p a * ln (u / v)).
    by rewrite (sum_ext _ _ (fun a => ln (u / v) * p a)) ?sum_scale -/u => *; lra.
  rewrite -sum_scale -sum_plus; apply: sum_ext => a _.
  case: (Req_dec (p a) 0) => [->|pa]; first by lra.
  have ma : m a <> 0 by move=> /ac.
  have p0 : 0 < p a by have := np a; lra.
  have m0 : 0 < m a by have := nm a; lra.
  have -> : p a / m a = u / v * (p a / u / (m a / v)) by field.
  rewrite ln_mult; [by field | apply: Rdiv_lt_0_compat; lra |].
  by apply: Rdiv_lt_0_compat; apply: Rdiv_lt_0_compat; lra.
Qed.

Lemma kl_sum_plus C p m :
  kl_sum (plus C p) (plus C m) = \sum_(a | C a) (p a / mass C p * ln (p a / mass C p / (m a / mass C m))).
Proof.
  rewrite -sum_indicator; apply: sum_ext => a _; rewrite /plus; case: (C a) => //; lra.
Qed.

Lemma kl_sum_minus C p m : policy p -> policy m ->
  kl_sum (minus C p) (minus C m) =
  \sum_(a | ~~ C a) (p a / (1 - mass C p) * ln (p a / (1 - mass C p) / (m a / (1 - mass C m)))).
Proof.
  move=> pp pm; rewrite -sum_indicator; apply: sum_ext => a _; rewrite /minus; case: (C a) => //=; lra.
Qed.

Lemma kl_sum_bernoulli x y : kl_sum (bernoulli x) (bernoulli y) = bernoulli_kl x y.
Proof. by rewrite /kl_sum big_bool. Qed.

(* Eq. 7 as an identity of numbers, wherever D_KL(p || m) is finite. *)
Lemma decomposition_sum C p m : policy p -> policy m -> continuous_wrt p m ->
  kl_sum p m = bernoulli_kl (mass C p) (mass C m)
    + mass C p * kl_sum (plus C p) (plus C m) + (1 - mass C p) * kl_sum (minus C p) (minus C m).
Proof.
  move=> pp pm ac; case: (pp) => np _; case: (pm) => nm _.
  have right := part C p m np nm ac; have wrong := part (fun a => ~~ C a) p m np nm ac.
  rewrite kl_sum_plus kl_sum_minus // /bernoulli_kl /kl_sum (sum_split C).
  by move: right wrong; rewrite /= -/(mass C p) -/(mass C m) (mass_complement C p pp) (mass_complement C m pm) => -> ->; lra.
Qed.

(* When D_KL(p || m) is finite, so are the three on the right; when it is infinite, so is one of the three. *)

Lemma bernoulli_continuous C p m : policy p -> policy m -> continuous_wrt p m ->
  continuous_wrt (bernoulli (mass C p)) (bernoulli (mass C m)).
Proof.
  move=> pp pm ac [] /= none.
  - rewrite /mass (sum_ext _ _ (fun=> 0)) ?sum_zero // => a Ca; apply: ac; exact: (inside_zero C).
  - rewrite -mass_complement // (sum_ext _ _ (fun=> 0)) ?sum_zero // => a Ca; apply: ac; apply: (outside_zero C) => //; lra.
Qed.

Lemma quotient_zero x y : x / y = 0 -> x = 0 \/ y = 0.
Proof.
  move=> h; case: (Req_dec y 0) => [->|ne]; [by right | left].
  have -> : x = x / y * y by field.
  by rewrite h; lra.
Qed.

Lemma plus_continuous C p m : policy p -> policy m -> continuous_wrt p m -> continuous_wrt (plus C p) (plus C m).
Proof.
  move=> pp pm ac a; rewrite /plus; case Ca : (C a) => // /quotient_zero [/ac ->|none]; first by lra.
  by rewrite (ac a) ?(inside_zero C m a) //; lra.
Qed.

Lemma minus_continuous C p m : policy p -> policy m -> continuous_wrt p m -> continuous_wrt (minus C p) (minus C m).
Proof.
  move=> pp pm ac a; rewrite /minus; case Ca : (C a) => // /quotient_zero [/ac ->|none]; first by lra.
  rewrite (ac a) ?(outside_zero C m a) //; [lra | lra | by rewrite Ca].
Qed.

Lemma discontinuous_at p m : ~ continuous_wrt p m -> exists a, m a = 0 /\ p a <> 0.
Proof.
  move=> /continuousP /forallPn [a]; rewrite negb_imply => /andP [/is_zeroP zero /is_zeroP nonzero].
  by exists a.
Qed.

Lemma scaled_above c p m : 0 <= c -> Rbar_mult c (kl p m) <> m_infty.
Proof.
  move=> c0; rewrite /kl; case: ifP => // _; rewrite /Rbar_mult /=.
  by case: Rle_dec => // h; case: Rle_lt_or_eq_dec.
Qed.

Lemma scaled_infinite c : 0 < c -> Rbar_mult c p_infty = p_infty.
Proof.
  move=> c0; rewrite /Rbar_mult /=; case: Rle_dec => [h|]; last lra.
  by case: Rle_lt_or_eq_dec => //; lra.
Qed.

Lemma infinite_sum (x y z : Rbar) : x <> m_infty -> y <> m_infty -> z <> m_infty ->
  x = p_infty \/ y = p_infty \/ z = p_infty -> Rbar_plus x (Rbar_plus y z) = p_infty.
Proof. by move=> + + + [->|[->|->]]; case: x => [x||]; case: y => [y||]; case: z => [z||]. Qed.

(* Eq. 7, with +infinity where it is due and 0 * infinity = 0, for any two policies. *)
Lemma decomposition C p m : policy p -> policy m ->
  kl p m = Rbar_plus (kl (bernoulli (mass C p)) (bernoulli (mass C m)))
    (Rbar_plus (Rbar_mult (mass C p) (kl (plus C p) (plus C m)))
      (Rbar_mult (1 - mass C p) (kl (minus C p) (minus C m)))).
Proof.
  move=> pp pm; case: (continuousP p m) => [ac|nac].
    rewrite !kl_finite //; [|exact: minus_continuous|exact: plus_continuous|exact: bernoulli_continuous].
    by rewrite /= kl_sum_bernoulli (decomposition_sum C) //; congr Finite; ring.
  rewrite kl_infinite //; apply: esym; apply: infinite_sum.
  - exact: kl_above.
  - by apply: scaled_above; apply: mass_nonneg.
  - by apply: scaled_above; have := mass_at_most_one C p pp; lra.
  have [a [ma pa]] := discontinuous_at p m nac; have [np _] := pp.
  case Ca : (C a).
  - have q0 : 0 < mass C p.
      have := term_le_sum C p a (fun b _ => np b) Ca; have := np a; rewrite -/(mass C p); lra.
    case: (Req_dec (mass C m) 0) => [z0|nz].
    + by left; apply: kl_infinite => h; have := h true z0 => /=; lra.
    + right; left; rewrite kl_infinite ?scaled_infinite // => h.
      by have := h a; rewrite /plus Ca ma => /(_ ltac:(lra)) /quotient_zero; lra.
  - have q0 : 0 < 1 - mass C p.
      have := term_le_sum (fun b => ~~ C b) p a (fun b _ => np b) (negbT Ca); have := np a.
      by rewrite mass_complement //; lra.
    case: (Req_dec (mass C m) 1) => [z1|nz].
    + by left; apply: kl_infinite => h; have := h false ltac:(rewrite /=; lra) => /=; lra.
    + right; right; rewrite kl_infinite ?scaled_infinite // => h.
      by have := h a; rewrite /minus Ca ma => /(_ ltac:(lra)) /quotient_zero; lra.
Qed.

Theorem forward_decomposition C ref p : policy ref -> policy p ->
  kl ref p = Rbar_plus (kl (bernoulli (mass C ref)) (bernoulli (mass C p)))
    (Rbar_plus (Rbar_mult (mass C ref) (kl (plus C ref) (plus C p)))
      (Rbar_mult (1 - mass C ref) (kl (minus C ref) (minus C p)))).
Proof. exact: decomposition. Qed.

Theorem reverse_decomposition C ref p : policy ref -> policy p ->
  kl p ref = Rbar_plus (kl (bernoulli (mass C p)) (bernoulli (mass C ref)))
    (Rbar_plus (Rbar_mult (mass C p) (kl (plus C p) (plus C ref)))
      (Rbar_mult (1 - mass C p) (kl (minus C p) (minus C ref)))).
Proof. by move=> pr pp; apply: decomposition. Qed.

(* The Bernoulli divergence of the paper's formula, inside (0, 1). *)
Theorem bernoulli_divergence x y : 0 < y < 1 -> kl (bernoulli x) (bernoulli y) = Finite (bernoulli_kl x y).
Proof.
  move=> hy; rewrite kl_finite ?kl_sum_bernoulli // => -[] /=; lra.
Qed.

End Decomposition.
