(* Beyond the paper: a new reward of 1 on some of the correct actions alone, the kept ones, and how soon plain RL finds
   it; theory/claims/plasticity.py. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies AppendixB_Objective AppendixB_Groups AppendixC AppendixD.
Open Scope R_scope.

(* ---------- Where the new reward starts ---------- *)

Section Start.
Context {A : finType}.
Variables (C kept : pred A) (ref : A -> R).
Hypotheses (kept_correct : forall a, kept a -> C a) (ref_mass : 0 < mass C ref).

(* Of a policy with the reference's correct conditional. *)
Theorem narrowed_start p : 0 < mass C p -> (forall a, plus C p a = plus C ref a) ->
  mass kept p = mass C p * mass kept ref / mass C ref.
Proof.
  move=> pos same; have -> : mass C p * mass kept ref / mass C ref = mass C p / mass C ref * mass kept ref by field; lra.
  rewrite /mass -sum_scale -/(mass C p) -/(mass C ref); apply: sum_ext => a /kept_correct Ca.
  have := same a; rewrite /plus Ca => equal; have -> : p a = p a / mass C p * mass C p by field; lra.
  by rewrite equal; field; lra.
Qed.

(* A group of G holds a kept action with the chance that belongs to this start. *)
Theorem narrowed_group p G : policy p -> 0 < mass C p -> (forall a, plus C p a = plus C ref a) ->
  expected p G (has_correct kept) = 1 - (1 - mass C p * mass kept ref / mass C ref) ^ G.
Proof. by move=> pp pos same; rewrite -narrowed_start // positive_count_probability. Qed.

Variable beta : R.
Hypotheses (ref_policy : policy ref) (beta_positive : 0 < beta).

(* Of every maximizer of J_CoKL over the policies with Z > 0, which Theorem 1 shows to have Z = 1 and pi+ = ref+. *)
Theorem cokl_narrowed_start p : policy p -> 0 < mass C p ->
  (forall other, policy other -> 0 < mass C other -> Rbar_le (J_cokl C beta ref other) (J_cokl C beta ref p)) ->
  mass kept p = mass kept ref / mass C ref.
Proof.
  move=> pp pos top; have [best_policy best_mass value best] := cokl_maximum C ref beta ref_policy ref_mass beta_positive.
  have [below which _] := best p pp pos; have [one same] : mass C p = 1 /\ forall a, plus C p a = plus C ref a.
    by apply/which/Rbar_le_antisym => //; rewrite -value; apply: top.
  by rewrite narrowed_start // one Rmult_1_l.
Qed.

(* Of the full KLs' maximizers over the simplex. *)
Theorem forward_narrowed_start p : mass C ref < 1 -> global_maximizer (J_forward C beta ref) p ->
  mass kept p = forward_optimum (mass C ref) beta * mass kept ref / mass C ref.
Proof.
  move=> q1 top; have hq := conj ref_mass q1; have gap := forward_strict_gap _ beta hq beta_positive.
  have [z [same _]] := forward_theorem_2 C ref beta ref_policy beta_positive hq p top.
  by rewrite -z narrowed_start // z; lra.
Qed.

Theorem reverse_narrowed_start p : mass C ref < 1 -> global_maximizer (J_reverse C beta ref) p ->
  mass kept p = reverse_optimum (mass C ref) beta * mass kept ref / mass C ref.
Proof.
  move=> q1 top; have hq := conj ref_mass q1; have gap := reverse_strict_gap _ beta hq beta_positive.
  have [z [same _]] := reverse_theorem_2 C ref beta ref_policy beta_positive hq p top.
  by rewrite -z narrowed_start // z; lra.
Qed.

End Start.

(* ---------- How long GRPO waits for a group that teaches it anything ---------- *)

(* A group that holds a kept action and another one. *)
Definition mixed {A : finType} (kept : pred A) (group : seq A) : bool :=
  (0 < correct_count kept group < size group)%nat.

(* GRPO's advantage, Eq. 1, of a reward of 1 on the kept actions; the deviation's divisor is G or G - 1. *)
Definition reward {A : finType} (kept : pred A) (a : A) : R := if kept a then 1 else 0.
Definition centred {A : finType} (kept : pred A) (group : seq A) (a : A) : R :=
  reward kept a - (\big[Rplus/0]_(b <- group) reward kept b) / INR (size group).
Definition advantage {A : finType} (kept : pred A) (eps divisor : R) (group : seq A) (a : A) : R :=
  centred kept group a / (sqrt ((\big[Rplus/0]_(b <- group) centred kept group b ^ 2) / divisor) + eps).

(* The chance that, of independent draws from q, the first that is found comes after n others. *)
Definition first_found {T : finType} (found : pred T) (q : T -> R) (n : nat) : R :=
  expected q n.+1 (fun drawn => if (find found drawn == n)%nat then 1 else 0).

Lemma first_found_chance {T : finType} (found : pred T) (q : T -> R) n : policy q ->
  first_found found q n = (1 - mass found q) ^ n * mass found q.
Proof.
  rewrite /first_found => pq; elim: n => [|n IH]; rewrite expected_one_more (sum_split found).
    rewrite (sum_ext found _ q); last by move=> a yes; rewrite expected_none /= yes /=; lra.
    rewrite (sum_ext (fun a => ~~ found a) _ (fun=> 0)) ?sum_zero; first by rewrite -/(mass found q) /=; lra.
    by move=> a /negbTE no; rewrite expected_none /= no /=; lra.
  rewrite (sum_ext found _ (fun=> 0)) ?sum_zero; last first.
    move=> a yes; rewrite (expected_ext _ _ _ (fun=> 0)) ?expected_constant //; first by lra.
    by move=> drawn; rewrite /= yes.
  rewrite (sum_ext (fun a => ~~ found a) _ (fun a => (1 - mass found q) ^ n * mass found q * q a)); last first.
    by move=> a /negbTE no; rewrite -IH Rmult_comm; congr (_ * _); apply: expected_ext => drawn; rewrite /= no.
  by rewrite sum_scale mass_complement //=; lra.
Qed.

Lemma geometric_mean x : 0 <= x < 1 -> is_series (fun n => INR n.+1 * x ^ n) (/ (1 - x) * / (1 - x)).
Proof.
  move=> [x0 x1]; have geometric : is_series (fun n => x ^ n) (/ (1 - x)) by apply: is_series_geom; rewrite Rabs_pos_eq.
  have nonneg n : 0 <= x ^ n by apply: pow_le.
  apply: (is_series_ext _ _ _ _ (is_series_mult_pos _ _ _ _ geometric geometric nonneg nonneg)) => n.
  rewrite -(sum_eq (fun=> x ^ n)) => [|k kn]; first by rewrite sum_cte S_INR; lra.
  by rewrite -pow_add; congr (_ ^ _); lia.
Qed.

Section Waiting.
Context {A : finType}.
Variables (kept : pred A) (p : A -> R) (G : nat).

Lemma reward_sum group : \big[Rplus/0]_(b <- group) reward kept b = INR (correct_count kept group).
Proof. exact: count_as_sum. Qed.

(* A group has an advantage that is not 0 exactly if it is mixed. *)
Theorem advantages_of_mixed_groups eps divisor group : 0 < eps ->
  mixed kept group <-> exists a, a \in group /\ advantage kept eps divisor group a <> 0.
Proof.
  move=> e0; pose variance := (\big[Rplus/0]_(b <- group) centred kept group b ^ 2) / divisor.
  pose below := sqrt variance + eps; have positive : 0 < below by have := sqrt_pos variance; rewrite /below; lra.
  split=> [/andP [some other]|[a [inside]]].
    have /hasP [a inside yes] : has kept group by rewrite has_count.
    exists a; split=> //; rewrite /advantage -/variance -/below; apply: Rgt_not_eq; apply: Rdiv_lt_0_compat => //.
    rewrite /centred reward_sum /reward yes.
    have less : INR (correct_count kept group) < INR (size group) by apply/lt_INR/ltP.
    have n0 := pos_INR (correct_count kept group).
    suff : INR (correct_count kept group) / INR (size group) < 1 by lra.
    by apply: (Rmult_lt_reg_r (INR (size group))); [lra | rewrite /Rdiv Rmult_assoc Rinv_l; lra].
  rewrite /advantage -/variance -/below /centred reward_sum /reward; case: (boolP (mixed kept group)) => // none ne; case: ne.
  have n0 : INR (size group) <> 0 by apply: not_0_INR; case: group inside {variance below positive none}.
  suff -> : (if kept a then 1 else 0) = INR (correct_count kept group) / INR (size group) by rewrite /Rdiv; lra.
  move: none; rewrite /mixed negb_and -!leqNgt leqn0 => /orP [/eqP zero|full].
    have /hasPn /(_ a inside) /negbTE -> : ~~ has kept group by rewrite has_count -/(correct_count kept group) zero.
    by rewrite zero /Rdiv /=; lra.
  have same : correct_count kept group = size group by apply/eqP; rewrite eqn_leq full count_size.
  have /allP /(_ a inside) -> : all kept group by rewrite all_count -/(correct_count kept group) same.
  by rewrite same; field.
Qed.

Hypothesis policy_p : policy p.

Theorem mixed_probability : (0 < G)%nat ->
  expected p G (fun group => if mixed kept group then 1 else 0) = 1 - (1 - mass kept p) ^ G - mass kept p ^ G.
Proof.
  move=> size0; have none := count_distribution kept p G 0 policy_p; have all := count_distribution kept p G G policy_p.
  rewrite bin0 subn0 /= in none; rewrite binn subnn /= in all.
  have -> : expected p G (fun group => if mixed kept group then 1 else 0) =
      expected p G (fun group => 1 + (-1) * (if (correct_count kept group == 0)%nat then 1 else 0)
        + (-1) * (if (correct_count kept group == G)%nat then 1 else 0)).
    apply: sum_ext => group _; congr (_ * _); rewrite /mixed size_tuple lt0n ltn_neqAle.
    have -> : (correct_count kept group <= G)%nat by rewrite -{2}(size_tuple group) count_size.
    rewrite andbT; case: eqP => [zero|_]; case: eqP => [full|_] /=; try lra.
    by move: size0; rewrite -full zero.
  by rewrite !expected_plus !expected_scale expected_constant // none all; lra.
Qed.

(* The first mixed group is the (n + 1)-th with a chance; these sum to 1, and the mean of n + 1 is the waiting time. *)
Theorem waiting_groups : (1 < G)%nat -> 0 < mass kept p < 1 ->
  let chance := first_found (fun group : G.-tuple A => mixed kept group) (fun group => group_probability p group) in
  is_series chance 1 /\
  is_series (fun n => INR n.+1 * chance n) (1 / (1 - (1 - mass kept p) ^ G - mass kept p ^ G)).
Proof.
  move=> size1 [m0 m1] chance; have size0 := ltnW size1.
  have group_policy : policy (fun group : G.-tuple A => group_probability p group).
    split; last by rewrite -(expected_constant p G 1 policy_p); apply: sum_ext => group _; lra.
    move=> group; rewrite /group_probability; apply: (big_ind (fun x => 0 <= x)); [lra | exact: Rmult_le_pos |].
    by move=> a _; case: policy_p.
  have same : mass (fun group : G.-tuple A => mixed kept group) (fun group => group_probability p group) =
      1 - (1 - mass kept p) ^ G - mass kept p ^ G.
    rewrite -mixed_probability // /mass /expected -sum_indicator; apply: sum_ext => group _.
    by case: (mixed kept group) => /=; lra.
  have shrinks x : 0 < x < 1 -> 0 < x ^ G < x.
    move=> hx; case: G size1 => [|[|n]] // _ /=; have := pow_lt x n ltac:(lra).
    have := pow_incr x 1 n ltac:(lra); rewrite pow1 => at_most y0.
    have lower : 0 < x * x ^ n by [apply: Rmult_lt_0_compat; lra]; have upper : x * x ^ n < 1 by nra.
    by split; [apply: Rmult_lt_0_compat; lra | nra].
  have := shrinks (mass kept p) ltac:(lra); have := shrinks (1 - mass kept p) ltac:(lra).
  move: same; set m := mass _ _ => same hu hv; rewrite -same.
  have each n : chance n = (1 - m) ^ n * m by exact: first_found_chance.
  split.
    have := is_series_scal m _ _ (is_series_geom (1 - m) ltac:(rewrite Rabs_pos_eq; lra)); rewrite /scal /= /mult /=.
    have -> : m * / (1 - (1 - m)) = 1 by field; lra.
    by apply: is_series_ext => n; rewrite each; lra.
  have := is_series_scal m _ _ (geometric_mean (1 - m) ltac:(lra)); rewrite /scal /= /mult /=.
  have -> : m * (/ (1 - (1 - m)) * / (1 - (1 - m))) = 1 / m by field; lra.
  by apply: is_series_ext => n; rewrite each; lra.
Qed.

End Waiting.

(* ---------- How long exact policy gradient takes until it earns the new reward half of the time ---------- *)

(* The sum of squares of a conditional. *)
Definition squares {A : finType} (c : A -> R) : R := \sum_a c a ^ 2.

(* F, the time that a mass needs to one half at s = 1. *)
Definition half_time (z : R) : R := 1 / z - 1 / (1 - z) + 2 * ln ((1 - z) / z).

(* The derivative of the new reward's mean with respect to the logit of an action. *)
Definition reward_gradient {A : finType} (kept : pred A) (logits : A -> R) (a : A) : R :=
  softmax logits a * (reward kept a - mass kept (softmax logits)).

Lemma half_time_derivative z : 0 < z < 1 -> is_derive half_time z (- / (z * (1 - z)) ^ 2).
Proof.
  move=> hz; rewrite /half_time; auto_derive; last by field; lra.
  by repeat split; try lra; apply: Rdiv_lt_0_compat; lra.
Qed.

Lemma half_time_at_half : half_time (1 / 2) = 0.
Proof. by rewrite /half_time (_ : (1 - 1 / 2) / (1 / 2) = 1) ?ln_1; lra. Qed.

Lemma mean_value (f : R -> R) T : 0 <= T -> (forall t, 0 <= t <= T -> ex_derive f t) ->
  exists t, 0 <= t <= T /\ f T - f 0 = Derive f t * T.
Proof.
  move=> T0 smooth; have [||t [ht equal]] := MVT_gen f 0 T (Derive f).
  - by move=> t; rewrite Rmin_left ?Rmax_right // => ht; apply: Derive_correct; apply: smooth; lra.
  - move=> t; rewrite Rmin_left ?Rmax_right // => ht; apply: derivable_continuous_pt; apply: ex_derive_Reals_0.
    by apply: smooth.
  by exists t; move: ht equal; rewrite Rmin_left ?Rmax_right // Rminus_0_r.
Qed.

Lemma never_falls (f : R -> R) T : 0 <= T -> (forall t, 0 <= t <= T -> exists2 d, is_derive f t d & 0 <= d) -> f 0 <= f T.
Proof.
  move=> T0 rising; have [|t [ht equal]] := mean_value f T T0.
    by move=> t /rising [d slope _]; exists d.
  by have [d slope d0] := rising t ht; move: equal; rewrite (is_derive_unique _ _ _ slope); nra.
Qed.

Section Sums.
Context {A : finType}.
Variables (Q : pred A) (c : A -> R).
Hypotheses (nonneg : forall a, 0 <= c a) (one : \sum_(a | Q a) c a = 1).

Lemma sum_of_ones : \sum_(a | Q a) 1 = INR #|Q|.
Proof. by rewrite big_const; elim: #|Q| => [|n IH] //; rewrite iterS IH S_INR; lra. Qed.

Lemma squares_at_most_one : \sum_(a | Q a) c a ^ 2 <= 1.
Proof.
  rewrite -one; apply: sum_le => a Qa; have := term_le_sum Q c a (fun b _ => nonneg b) Qa; have := nonneg a.
  by rewrite one /=; nra.
Qed.

Lemma squares_at_least : 1 / INR #|Q| <= \sum_(a | Q a) c a ^ 2.
Proof.
  have n0 : 0 < INR #|Q|.
    case: (posnP #|Q|) => [none|some]; last by apply/lt_0_INR/ltP.
    by move: one; rewrite big_pred0 => [|a]; [lra | exact: (card0_eq none)].
  have : 0 <= \sum_(a | Q a) ((c a ^ 2 - 2 / INR #|Q| * c a) + / INR #|Q| ^ 2 * 1).
    apply: sum_nonneg => a _.
    have -> : c a ^ 2 - 2 / INR #|Q| * c a + / INR #|Q| ^ 2 * 1 = (c a - 1 / INR #|Q|) ^ 2 by field; lra.
    exact: pow2_ge_0.
  rewrite sum_plus sum_minus !sum_scale one sum_of_ones.
  have -> : / INR #|Q| ^ 2 * INR #|Q| = 1 / INR #|Q| by field; lra.
  lra.
Qed.

Lemma cubes_at_least : 0 <= \sum_(a | Q a) (c a ^ 2 * (c a - \sum_(b | Q b) c b ^ 2)).
Proof.
  set s := \sum_(b | Q b) c b ^ 2.
  have -> : \sum_(a | Q a) (c a ^ 2 * (c a - s)) = \sum_(a | Q a) (c a * (c a - s) ^ 2 + (s * c a ^ 2 - s ^ 2 * c a)).
    by apply: sum_ext => a _; ring.
  rewrite sum_plus sum_minus !sum_scale one -/s.
  have : 0 <= \sum_(a | Q a) (c a * (c a - s) ^ 2).
    by apply: sum_nonneg => a _; apply: Rmult_le_pos => //; exact: pow2_ge_0.
  by rewrite /=; lra.
Qed.

End Sums.

Section Path.
Context {A : finType}.
Variables (path : R -> A -> R) (velocity : A -> R) (t : R).
Hypothesis moves : forall a, is_derive (fun s => path s a) t (velocity a).

Lemma exponentials_positive (Q : pred A) (l : A -> R) a : Q a -> 0 < \sum_(b | Q b) exp (l b).
Proof.
  move=> Qa; apply: Rlt_le_trans (term_le_sum Q (fun b => exp (l b)) a _ Qa); first exact: exp_pos.
  by move=> b _; apply: Rlt_le; apply: exp_pos.
Qed.

Lemma plus_softmax (Q : pred A) (l : A -> R) a : Q a -> plus Q (softmax l) a = exp (l a) / \sum_(b | Q b) exp (l b).
Proof.
  move=> Qa; rewrite /plus Qa /mass /softmax sum_div.
  have total : 0 < \sum_b exp (l b) by exact: (exponentials_positive xpredT l a).
  by have part := exponentials_positive Q l a Qa; field; lra.
Qed.

Lemma plus_derivative (Q : pred A) a : Q a -> let c := plus Q (softmax (path t)) in
  is_derive (fun s => plus Q (softmax (path s)) a) t (c a * (velocity a - \sum_(b | Q b) (c b * velocity b))).
Proof.
  move=> Qa c; have total := exponentials_positive Q (path t) a Qa; set w := \sum_(b | Q b) exp (path t b) in total.
  apply: (is_derive_ext (fun s => exp (path s a) / \sum_(b | Q b) exp (path s b))).
    by move=> s; rewrite plus_softmax.
  have up b : is_derive (fun s => exp (path s b)) t (velocity b * exp (path t b)).
    by apply: (is_derive_comp exp (fun s => path s b) t); [exact: is_derive_exp | exact: moves].
  have down : is_derive (fun s => \sum_(b | Q b) exp (path s b)) t (\sum_(b | Q b) (velocity b * exp (path t b))).
    by apply: is_derive_sum => b _; exact: up.
  have -> : \sum_(b | Q b) (c b * velocity b) = / w * \sum_(b | Q b) (velocity b * exp (path t b)).
    by rewrite -sum_scale; apply: sum_ext => b Qb; rewrite /c plus_softmax // -/w /Rdiv; lra.
  rewrite /c plus_softmax // -/w.
  have ne : w <> 0 by lra.
  by evar_last; [exact: is_derive_div (up a) down ne | rewrite /= -/w; field].
Qed.

Lemma softmax_derivative a : let p := softmax (path t) in
  is_derive (fun s => softmax (path s) a) t (p a * (velocity a - \sum_b (p b * velocity b))).
Proof.
  have whole s b : plus xpredT (softmax (path s)) b = softmax (path s) b.
    by rewrite plus_softmax.
  move=> p; apply: (is_derive_ext (fun s => plus xpredT (softmax (path s)) a)) => [s|]; first exact: whole.
  evar_last; first exact: plus_derivative xpredT a isT.
  by rewrite whole; congr (_ * (_ - _)); apply: sum_ext => b _; rewrite whole.
Qed.

(* Where the logits of Q move by k times their conditionals, the sum of the conditionals' squares moves as k's sign says. *)
Lemma squares_derivative (Q : pred A) some k : Q some ->
  (forall a, Q a -> velocity a = k * plus Q (softmax (path t)) a) ->
  exists2 d, is_derive (fun s => squares (plus Q (softmax (path s)))) t (2 * k * d) & 0 <= d.
Proof.
  move=> Qs along; set c := plus Q (softmax (path t)) in along.
  have outside (d : A -> R) : squares (plus Q d) = \sum_(a | Q a) plus Q d a ^ 2.
    by rewrite /squares -[RHS]sum_indicator; apply: sum_ext => a _; rewrite /plus; case: (Q a) => //=; lra.
  have pp := softmax_policy (path t) some.
  have pos : 0 < mass Q (softmax (path t)).
    have := term_le_sum Q (softmax (path t)) some (fun b _ => proj1 pp b) Qs; have := softmax_positive (path t) some.
    by rewrite -/(mass Q (softmax (path t))); lra.
  have [nonneg _] := plus_policy Q _ pp pos.
  have one : \sum_(a | Q a) c a = 1 by apply: mass_plus; lra.
  exists (\sum_(a | Q a) (c a ^ 2 * (c a - \sum_(b | Q b) c b ^ 2))); last exact: cubes_at_least.
  apply: (is_derive_ext (fun s => \sum_(a | Q a) plus Q (softmax (path s)) a ^ 2)) => [s|]; first by rewrite outside.
  rewrite -sum_scale; apply: is_derive_sum => a Qa.
  evar_last; first exact: is_derive_pow (plus_derivative Q a Qa).
  have -> : \sum_(b | Q b) (c b * velocity b) = k * \sum_(b | Q b) c b ^ 2.
    by rewrite -sum_scale; apply: sum_ext => b Qb; rewrite along //; ring.
  rewrite -/(c a) along //; set s := \sum_(b | Q b) c b ^ 2; rewrite /=; ring.
Qed.

End Path.

(* That it is that derivative. *)
Theorem reward_gradient_of_mass {A : finType} (kept : pred A) (logits : A -> R) b :
  is_derive (fun s => mass kept (softmax (moved logits (basis b) s))) 0 (reward_gradient kept logits b).
Proof.
  have line a : is_derive (fun s => moved logits (basis b) s a) 0 (basis b a) by rewrite /moved; auto_derive => //; lra.
  have start a : softmax (moved logits (basis b) 0) a = softmax logits a.
    have same c : moved logits (basis b) 0 c = logits c by rewrite /moved; lra.
    by rewrite /softmax same; congr (_ / _); apply: sum_ext => c _; rewrite same.
  evar_last; first by apply: is_derive_sum => a _; exact: softmax_derivative line a.
  have inner : \sum_c (softmax (moved logits (basis b) 0) c * basis b c) = softmax logits b.
    by rewrite (bigD1 b) //= big1 => [|c /negbTE other]; rewrite /basis ?eqxx ?other ?start; lra.
  rewrite inner /reward_gradient (sum_ext _ _ (fun a => softmax logits b * basis b a - softmax logits b * softmax logits a)).
    rewrite sum_minus !sum_scale -/(mass kept (softmax logits)).
    suff -> : \sum_(a | kept a) basis b a = reward kept b by lra.
    rewrite -sum_indicator (bigD1 b) //= big1 => [|a /negbTE other]; rewrite /basis ?eqxx ?other /reward; by case: ifP; lra.
  move=> a _; rewrite start /basis; case: eqP => [->|_]; lra.
Qed.

(* ---------- Gradient flow: each logit moves with the speed of its derivative, from time 0 to T ---------- *)

Section Flow.
Context {A : finType}.
Variables (kept : pred A) (logits : R -> A -> R) (T : R).
Hypotheses (later : 0 <= T) (flow : forall t a, 0 <= t <= T ->
  is_derive (fun s => logits s a) t (reward_gradient kept (logits t) a)).
Let prob t := softmax (logits t).
Let J t := mass kept (prob t).

Lemma squares_plus (Q : pred A) (p : A -> R) : 0 < mass Q p -> squares (plus Q p) = (\sum_(a | Q a) p a ^ 2) / mass Q p ^ 2.
Proof.
  move=> pos; rewrite /squares -sum_div -[RHS]sum_indicator; apply: sum_ext => a _; rewrite /plus.
  by case: (Q a); [field; lra | rewrite /=; lra].
Qed.

Lemma minus_is_plus (p : A -> R) a : policy p -> minus kept p a = plus (predC kept) p a.
Proof. by move=> pp; rewrite /minus /plus /= -mass_complement //; case: (kept a). Qed.

Section Inside.
Variables some other : A.
Hypotheses (some_kept : kept some) (other_not : ~~ kept other).

Lemma prob_policy t : policy (prob t).
Proof. exact: softmax_policy. Qed.

Lemma other_mass t : mass (predC kept) (prob t) = 1 - J t.
Proof. exact: mass_complement (prob_policy t). Qed.

Lemma positive_mass (Q : pred A) a t : Q a -> 0 < mass Q (prob t).
Proof.
  move=> Qa; have := term_le_sum Q (prob t) a (fun b _ => proj1 (prob_policy t) b) Qa.
  by have := softmax_positive (logits t) a; rewrite -/(mass Q (prob t)) -/(prob t); lra.
Qed.

Lemma J_inside t : 0 < J t < 1.
Proof.
  have := positive_mass kept some t some_kept; have := positive_mass (predC kept) other t other_not.
  by rewrite other_mass -/(J t); lra.
Qed.

Lemma mass_slope t : 0 <= t <= T ->
  is_derive J t ((J t * (1 - J t)) ^ 2 * (squares (plus kept (prob t)) + squares (plus (predC kept) (prob t)))).
Proof.
  move=> ht; have hJ := J_inside t.
  evar_last; first by apply: is_derive_sum => a _; exact: softmax_derivative (fun a => flow t a ht) a.
  rewrite !squares_plus ?other_mass -/(J t); try lra; rewrite -/(prob t).
  set X := \sum_(a | kept a) prob t a ^ 2; set Y := \sum_(a | predC kept a) prob t a ^ 2.
  have inner : \sum_(a | kept a) (prob t a * reward_gradient kept (logits t) a) = (1 - J t) * X.
    by rewrite -sum_scale; apply: sum_ext => a Ka; rewrite /reward_gradient /reward Ka -/(prob t) -/(J t) /=; lra.
  have outer : \sum_(a | ~~ kept a) (prob t a * reward_gradient kept (logits t) a) = - J t * Y.
    rewrite -sum_scale; apply: sum_ext => a /negbTE Ka.
    by rewrite /reward_gradient /reward Ka -/(prob t) -/(J t) /=; lra.
  rewrite (sum_split kept) inner outer.
  rewrite (sum_ext kept _ (fun a => prob t a * reward_gradient kept (logits t) a
    - ((1 - J t) * X + - J t * Y) * prob t a)); last by move=> a _; lra.
  by rewrite sum_minus sum_scale inner -/(mass kept (prob t)) -/(J t); field; lra.
Qed.

Lemma squares_inside t : 0 <= t <= T -> squares (plus kept (prob 0)) <= squares (plus kept (prob t)).
Proof.
  move=> ht; apply: (never_falls (fun s => squares (plus kept (prob s)))) => [|s hs]; first by lra.
  have hJ := J_inside s; have hs' : 0 <= s <= T by lra.
  have [a Ka|d slope d0] := squares_derivative logits _ s (fun a => flow s a hs') kept some (J s * (1 - J s)) some_kept.
    by rewrite /reward_gradient /reward /plus Ka -/(prob s) -/(J s); field; lra.
  by exists (2 * (J s * (1 - J s)) * d) => //; apply: Rmult_le_pos => //; nra.
Qed.

Lemma squares_outside t : 0 <= t <= T ->
  squares (plus (predC kept) (prob t)) <= squares (plus (predC kept) (prob 0)).
Proof.
  move=> ht; suff : - squares (plus (predC kept) (prob 0)) <= - squares (plus (predC kept) (prob t)) by lra.
  apply: (never_falls (fun s => - squares (plus (predC kept) (prob s)))) => [|s hs]; first by lra.
  have hJ := J_inside s; have hs' : 0 <= s <= T by lra.
  have [a Ka|d slope d0] :=
    squares_derivative logits _ s (fun a => flow s a hs') (predC kept) other (- (J s * (1 - J s))) other_not.
    rewrite /reward_gradient /reward /plus other_mass Ka (negbTE Ka) -/(prob s) -/(J s); field; lra.
  exists (- (2 * - (J s * (1 - J s)) * d)); first exact: is_derive_opp slope.
  by have : 0 <= J s * (1 - J s) * d; [apply: Rmult_le_pos => //; nra | lra].
Qed.

Lemma squares_bounds (Q : pred A) a t : Q a ->
  [/\ 0 < 1 / INR #|Q|, 1 / INR #|Q| <= squares (plus Q (prob t)) & squares (plus Q (prob t)) <= 1].
Proof.
  move=> Qa; have pos := positive_mass Q a t Qa; have [nonneg _] := plus_policy Q _ (prob_policy t) pos.
  have one : \sum_(b | Q b) plus Q (prob t) b = 1 by apply: mass_plus; lra.
  have -> : squares (plus Q (prob t)) = \sum_(b | Q b) plus Q (prob t) b ^ 2.
    by rewrite /squares -[RHS]sum_indicator; apply: sum_ext => b _; rewrite /plus; case: (Q b) => //=; lra.
  split; [|exact: squares_at_least | exact: squares_at_most_one].
  by apply: Rdiv_lt_0_compat; [lra | apply/lt_0_INR/ltP/card_gt0P; exists a].
Qed.

Lemma elapsed : let slowest := squares (plus kept (prob 0)) + 1 / INR #|predC kept| in
  0 < slowest /\ exists s, slowest <= s <= 1 + squares (minus kept (prob 0)) /\
  half_time (J 0) - half_time (J T) = s * T.
Proof.
  have -> : squares (minus kept (prob 0)) = squares (plus (predC kept) (prob 0)).
    by apply: sum_ext => a _; rewrite minus_is_plus //; exact: prob_policy.
  have slope t : 0 <= t <= T -> is_derive (fun s => half_time (J s)) t
      (- (squares (plus kept (prob t)) + squares (plus (predC kept) (prob t)))).
    move=> ht; have hJ := J_inside t; have product : J t * (1 - J t) <> 0 by nra.
    evar_last; first exact: is_derive_comp (half_time_derivative _ hJ) (mass_slope t ht).
    by rewrite /scal /= /mult /=; field; lra.
  have [t|t [ht equal]] := mean_value (fun s => half_time (J s)) T later; first by move=> /slope; eexists; eassumption.
  move=> slowest; split.
    have [p0 least _] := squares_bounds kept some 0 some_kept.
    by have [n0 _ _] := squares_bounds (predC kept) other 0 other_not; apply: Rplus_lt_0_compat => //; lra.
  exists (squares (plus kept (prob t)) + squares (plus (predC kept) (prob t))).
  have inside := squares_inside t ht; have outside := squares_outside t ht.
  have [_ _ most] := squares_bounds kept some t some_kept.
  have [_ least _] := squares_bounds (predC kept) other t other_not.
  move: equal; rewrite (is_derive_unique _ _ _ (slope t ht)) => equal.
  by split; [split; [exact: Rplus_le_compat | lra] | lra].
Qed.

End Inside.

Lemma both_kinds : 0 < J T < 1 -> exists some other, kept some /\ ~~ kept other.
Proof.
  move=> inside; have [some some_kept] : exists a, kept a.
    case: (pickP kept) => [a|none]; first by exists a.
    by move: inside; rewrite /J /mass big_pred0 //; lra.
  exists some; case: (pickP (predC kept)) => [other|none]; first by exists other.
  have := mass_complement kept _ (softmax_policy (logits T) some).
  by rewrite (big_pred0 _ _ _ _ none) -/(prob T) -/(J T); lra.
Qed.

(* The time T that the flow takes from J = p to one half is F(p) / s, with s between these bounds. *)
Theorem narrowed_half_time : J T = 1 / 2 -> exists s,
  squares (plus kept (prob 0)) + 1 / INR #|predC kept| <= s <= 1 + squares (minus kept (prob 0)) /\
  T = half_time (J 0) / s.
Proof.
  move=> half; have [some [other [some_kept other_not]]] := both_kinds ltac:(lra).
  have [positive [s [bounds equal]]] := elapsed some other some_kept other_not; exists s; split=> //.
  rewrite half half_time_at_half in equal; have -> : half_time (J 0) = s * T by lra.
  by field; lra.
Qed.

(* One half is reached, by the latest of these times. *)
Theorem narrowed_half_reached : 0 < J T < 1 ->
  half_time (J 0) / (squares (plus kept (prob 0)) + 1 / INR #|predC kept|) <= T -> 1 / 2 <= J T.
Proof.
  move=> inside; have [some [other [some_kept other_not]]] := both_kinds inside.
  have [positive [s [bounds equal]]] := elapsed some other some_kept other_not.
  set slowest := _ + _ in positive bounds * => late.
  have : half_time (J 0) <= slowest * T.
    have -> : half_time (J 0) = slowest * (half_time (J 0) / slowest) by field; lra.
    by apply: Rmult_le_compat_l; lra.
  case: (Rle_lt_dec (1 / 2) (J T)) => // small enough.
  suff : 0 < half_time (J T) by nra.
  rewrite /half_time; have : 0 < ln ((1 - J T) / J T).
    rewrite -ln_1; apply: ln_increasing; first lra.
    by apply: (Rmult_lt_reg_r (J T)); [lra | rewrite /Rdiv Rmult_assoc Rinv_l; lra].
  have : 1 / (1 - J T) < 1 / J T by rewrite /Rdiv !Rmult_1_l; apply: Rinv_lt_contravar; [apply: Rmult_lt_0_compat|]; lra.
  lra.
Qed.

End Flow.
