(* Appendix B, second half: finite groups of verified responses, expected over all A^G groups. *)
From mathcomp Require Import all_ssreflect.
Require Import Reals Lra Psatz.
From Coquelicot Require Import Coquelicot.
From CoKL Require Import FiniteSums Policies AppendixA AppendixB_Objective.
Open Scope R_scope.

(* The expectation of F over groups of G independent responses: the sum over all G-tuples of actions. *)
Definition group_probability {A : finType} (p : A -> R) (group : seq A) : R := \big[Rmult/1]_(a <- group) p a.
Definition expected {A : finType} (p : A -> R) (G : nat) (F : seq A -> R) : R :=
  \sum_(group : G.-tuple A) (group_probability p group * F group).

(* The weights alpha and delta of Eq. 11, zero in a group without a correct response; and the weighted score of a group. *)
Definition correct_count {A : finType} (C : pred A) (group : seq A) : nat := count C group.
Definition weight {A : finType} (C : pred A) (group : seq A) (a : A) : R :=
  if (correct_count C group == 0)%nat then 0 else (if C a then 1 else 0) / INR (correct_count C group).
Definition weighted_score {A : finType} (C : pred A) (score : A -> R) (group : seq A) : R :=
  \big[Rplus/0]_(a <- group) (weight C group a * score a).

Definition has_correct {A : finType} (C : pred A) (group : seq A) : R :=
  if (correct_count C group == 0)%nat then 0 else 1.

(* Means of the score under ref+ and pi+. *)
Definition mean {A : finType} (p score : A -> R) : R := \sum_a (p a * score a).

(* The per-prompt surrogate on a reference group and a rollout group, and its mean over a batch of prompts, Eq. 12. The
   weights are numbers of the drawn rewards, behind the stop-gradient: of p the surrogate holds log p alone. *)
Definition surrogate {A : finType} (C : pred A) (reference rollout : seq A) (p : A -> R) : R :=
  - weighted_score C (fun a => ln (p a)) reference + weighted_score C (fun a => ln (p a)) rollout.
Definition batch_mean {X : finType} (F : X -> R) : R := (\sum_x F x) / INR #|X|.

(* The per-prompt surrogate's gradient; that it is one is proved below. *)
Definition surrogate_gradient {A : finType} (C : pred A) (score : A -> R) (reference rollout : seq A) : R :=
  - weighted_score C score reference + weighted_score C score rollout.

(* Its expectation over both groups; `buffered` conditions the reference group on holding a correct response. *)
Definition expected_gradient {A : finType} (C : pred A) (ref p score : A -> R) (G : nat) : R :=
  expected ref G (fun reference => expected p G (fun rollout => surrogate_gradient C score reference rollout)).
Definition buffered_gradient {A : finType} (C : pred A) (ref p score : A -> R) (G : nat) : R :=
  expected ref G (fun reference => has_correct C reference *
    expected p G (fun rollout => surrogate_gradient C score reference rollout)) / expected ref G (has_correct C).

(* The expectation over a batch whose prompts draw independently, each from its own P x. *)
Definition expected_batch {X T : finType} (P : X -> T -> R) (F : (X -> T) -> R) : R :=
  \sum_(drawn : {ffun X -> T}) (\big[Rmult/1]_x P x (drawn x) * F drawn).

(* What a prompt draws: a reference group, conditioned on holding a correct response, and a rollout group. *)
Definition pair_probability {A : finType} (C : pred A) (ref p : A -> R) (G : nat) (pair : G.-tuple A * G.-tuple A) : R :=
  has_correct C pair.1 * group_probability ref pair.1 / expected ref G (has_correct C) * group_probability p pair.2.

Section Groups.
Context {A : finType}.
Implicit Types (C : pred A) (p score : A -> R) (G : nat).

(* A group of G + 1 responses is one response and a group of G. *)
Lemma expected_none p F : expected p 0 F = F [::].
Proof.
  rewrite /expected (bigD1 [tuple]) //= big1; last by move=> g; rewrite tuple0.
  by rewrite /group_probability big_nil; lra.
Qed.

Lemma expected_one_more p G F : expected p G.+1 F = \sum_a (p a * expected p G (fun group => F (a :: group))).
Proof.
  have -> : \sum_a (p a * expected p G (fun group => F (a :: group))) =
            \sum_a \sum_(g : G.-tuple A) (group_probability p (a :: g) * F (a :: g)).
    apply: sum_ext => a _; rewrite /expected -sum_scale; apply: sum_ext => g _.
    by rewrite /group_probability big_cons; lra.
  rewrite pair_big /expected.
  rewrite (reindex (fun x : A * G.-tuple A => cons_tuple x.1 x.2)) //=.
  exists (fun g : G.+1.-tuple A => (thead g, behead_tuple g)) => [[a g] _|g _] /=.
  - by rewrite theadE; congr pair; apply: val_inj.
  - by rewrite [RHS]tuple_eta; apply: val_inj.
Qed.

Lemma expected_ext p G F1 F2 : (forall group, F1 group = F2 group) -> expected p G F1 = expected p G F2.
Proof. by move=> same; apply: sum_ext => g _; rewrite same. Qed.

Lemma expected_plus p G F1 F2 : expected p G (fun g => F1 g + F2 g) = expected p G F1 + expected p G F2.
Proof. by rewrite /expected -sum_plus; apply: sum_ext => g _; lra. Qed.

Lemma expected_scale p G c F : expected p G (fun g => c * F g) = c * expected p G F.
Proof. by rewrite /expected -sum_scale; apply: sum_ext => g _; lra. Qed.

Lemma expected_constant p G c : policy p -> expected p G (fun=> c) = c.
Proof.
  move=> [_ total]; elim: G => [|G IH]; first by rewrite expected_none.
  rewrite expected_one_more (sum_ext _ _ (fun a => c * p a)); last by move=> a _; rewrite IH; lra.
  by rewrite sum_scale total; lra.
Qed.

(* Pr(K > 0) = 1 - (1 - Z)^G. *)
Lemma none_correct C p G : policy p -> expected p G (fun g => 1 - has_correct C g) = (1 - mass C p) ^ G.
Proof.
  move=> pp; elim: G => [|G IH]; first by rewrite expected_none /has_correct /=; lra.
  rewrite expected_one_more (sum_split C) (sum_ext C _ (fun=> 0)) ?sum_zero; last first.
    move=> a Ca; rewrite (expected_ext _ _ _ (fun=> 0)) ?expected_constant //; first by lra.
    by move=> g; rewrite /has_correct /correct_count /= Ca /=; lra.
  rewrite (sum_ext _ _ (fun a => (1 - mass C p) ^ G * p a)); last first.
    move=> a /negbTE Ca; rewrite -IH Rmult_comm; congr (_ * _); apply: expected_ext => g.
    by rewrite /has_correct /correct_count /= Ca.
  by rewrite sum_scale mass_complement //=; lra.
Qed.

Theorem positive_count_probability C p G : policy p -> expected p G (has_correct C) = 1 - (1 - mass C p) ^ G.
Proof.
  move=> pp; rewrite -(none_correct C p G pp).
  have -> : 1 - expected p G (fun g => 1 - has_correct C g) =
            expected p G (fun=> 1) + (-1) * expected p G (fun g => 1 - has_correct C g).
    by rewrite expected_constant //; lra.
  by rewrite -expected_scale -expected_plus; apply: expected_ext => g; lra.
Qed.

(* K ~ Binomial(G, Z); 'C(G, k) is zero for k > G. *)
Theorem count_distribution C p G (k : nat) : policy p ->
  expected p G (fun g => if (correct_count C g == k)%nat then 1 else 0) =
  INR 'C(G, k) * mass C p ^ k * (1 - mass C p) ^ (G - k)%nat.
Proof.
  move=> pp; elim: G k => [|G IH] k.
    by rewrite expected_none /correct_count /=; case: k => [|k] /=; lra.
  rewrite expected_one_more (sum_split C).
  rewrite (sum_ext (fun a => ~~ C a) _ (fun a => INR 'C(G, k) * mass C p ^ k * (1 - mass C p) ^ (G - k)%nat * p a)).
    2: by move=> a /negbTE Ca; rewrite -IH Rmult_comm; congr (_ * _); apply: expected_ext => g; rewrite /correct_count /= Ca.
  rewrite sum_scale mass_complement //; case: k => [|k].
    rewrite (sum_ext C _ (fun=> 0)) ?sum_zero ?subn0 ?bin0 /=; first by ring.
    move=> a Ca; rewrite (expected_ext _ _ _ (fun=> 0)) ?expected_constant //; first by lra.
    by move=> g; rewrite /correct_count /= Ca.
  rewrite (sum_ext C _ (fun a => INR 'C(G, k) * mass C p ^ k * (1 - mass C p) ^ (G - k)%nat * p a)).
    2: by move=> a Ca; rewrite -IH Rmult_comm; congr (_ * _); apply: expected_ext => g; rewrite /correct_count /= Ca add1n eqSS.
  rewrite sum_scale -/(mass C p) binS subSS -plusE plus_INR.
  case: (ltnP k G) => [below|above]; first by rewrite -(subnSK below) /=; ring.
  have none : 'C(G, k.+1) = 0%nat by rewrite bin_small.
  by rewrite none /=; ring.
Qed.

(* A sum of scores over the correct responses, weighted by any function of their number: its expectation is the mean
   score times a factor that does not depend on the score. *)
Lemma score_factor C p G (h : nat -> R) : exists factor, forall score,
  expected p G (fun g => h (correct_count C g) * \big[Rplus/0]_(a <- g) (if C a then score a else 0)) =
  factor * \sum_(a | C a) (p a * score a).
Proof.
  elim: G h => [|G IH] h.
    by exists 0 => score; rewrite expected_none big_nil; lra.
  have [same same_factor] := IH h; have [next next_factor] := IH (fun k => h k.+1).
  exists (expected p G (fun g => h (correct_count C g).+1) + (\sum_(a | C a) p a) * next + (\sum_(a | ~~ C a) p a) * same).
  move=> score; rewrite expected_one_more (sum_split C).
  rewrite (sum_ext C _ (fun a => expected p G (fun g => h (correct_count C g).+1) * (p a * score a)
      + next * (\sum_(b | C b) (p b * score b)) * p a)); last first.
    move=> a Ca; rewrite -next_factor.
    rewrite (expected_ext _ _ _ (fun g => score a * h (correct_count C g).+1 +
        h (correct_count C g).+1 * \big[Rplus/0]_(b <- g) (if C b then score b else 0))).
      by rewrite expected_plus expected_scale; ring.
    by move=> g; rewrite big_cons /correct_count /= Ca add1n; ring.
  rewrite (sum_ext (fun a => ~~ C a) _ (fun a => same * (\sum_(b | C b) (p b * score b)) * p a)); last first.
    move=> a /negbTE Ca; rewrite -same_factor Rmult_comm; congr (_ * _).
    by apply: expected_ext => g; rewrite big_cons /correct_count /= Ca add0n Rplus_0_l.
  by rewrite sum_plus !sum_scale; ring.
Qed.

Lemma weighted_score_factored C score g :
  weighted_score C score g =
  (if (correct_count C g == 0)%nat then 0 else / INR (correct_count C g)) *
  \big[Rplus/0]_(a <- g) (if C a then score a else 0).
Proof.
  rewrite big_distrr /weighted_score; apply: eq_bigr => a _; rewrite /weight /=.
  by case: eqP => _; case: (C a); rewrite /Rdiv; lra.
Qed.

Lemma count_as_sum C (g : seq A) : \big[Rplus/0]_(a <- g) (if C a then 1 else 0) = INR (correct_count C g).
Proof.
  elim: g => [|a g IH]; first by rewrite big_nil.
  rewrite big_cons IH /correct_count [count C (a :: g)]/=; case: (C a); rewrite ?add1n ?add0n ?S_INR; lra.
Qed.

Lemma weights_sum C g : weighted_score C (fun=> 1) g = has_correct C g.
Proof.
  rewrite weighted_score_factored count_as_sum /has_correct; case: eqP => [_|ne]; first by lra.
  by field; apply: not_0_INR.
Qed.

Lemma mean_plus C p score : 0 < mass C p -> mean (plus C p) score = (\sum_(a | C a) (p a * score a)) / mass C p.
Proof.
  move=> pos; rewrite -sum_div -[RHS]sum_indicator; apply: sum_ext => a _.
  by rewrite /plus; case: (C a); [field; lra | lra].
Qed.

(* Eq. appb-expected-current-score. *)
Theorem expected_weighted_score C p score G : policy p -> 0 < mass C p ->
  expected p G (weighted_score C score) = (1 - (1 - mass C p) ^ G) * mean (plus C p) score.
Proof.
  move=> pp pos; rewrite mean_plus // -positive_count_probability //.
  have [factor factored] := score_factor C p G (fun k => if (k == 0)%nat then 0 else / INR k).
  have main s : expected p G (weighted_score C s) = factor * \sum_(a | C a) (p a * s a).
    by rewrite -factored; apply: expected_ext => g; rewrite weighted_score_factored.
  rewrite main -(expected_ext _ _ (weighted_score C (fun=> 1))); last exact: weights_sum.
  rewrite main (sum_ext _ (fun a => p a * 1) p); last by move=> *; lra.
  by rewrite -/(mass C p); field; lra.
Qed.

(* Eq. appb-conditional-current-score, and appb-expected-reference-score: the mean given K > 0. *)
Theorem conditional_weighted_score C p score G : policy p -> 0 < mass C p -> (0 < G)%nat ->
  expected p G (fun g => has_correct C g * weighted_score C score g) / expected p G (has_correct C) =
  mean (plus C p) score.
Proof.
  move=> pp pos size; rewrite (expected_ext _ _ _ (weighted_score C score)).
    rewrite expected_weighted_score // positive_count_probability //.
    have := mass_at_most_one C p pp => m1.
    have : (1 - mass C p) ^ G < 1.
      by case: G size => // G _ /=; have := pow_incr (1 - mass C p) 1 G ltac:(lra); rewrite pow1; nra.
    by move=> less; field; lra.
  move=> g; rewrite /has_correct weighted_score_factored; case: eqP => _; lra.
Qed.

(* Eq. appb-finite-gradient: a reference group conditioned on a correct response, as in the buffer D+. *)
Theorem finite_group_gradient C ref p score G :
  policy ref -> policy p -> 0 < mass C ref -> 0 < mass C p -> (0 < G)%nat ->
  buffered_gradient C ref p score G =
  - mean (plus C ref) score + (1 - (1 - mass C p) ^ G) * mean (plus C p) score.
Proof.
  move=> pr pp qr qp size; rewrite -(conditional_weighted_score C ref score G pr qr size) -expected_weighted_score //.
  have nonzero : expected ref G (has_correct C) <> 0.
    rewrite positive_count_probability //; have := mass_at_most_one C ref pr => m1.
    by case: G size => // G _ /=; have := pow_incr (1 - mass C ref) 1 G ltac:(lra); rewrite pow1; nra.
  rewrite /buffered_gradient (expected_ext _ _ _ (fun g =>
      expected p G (weighted_score C score) * has_correct C g + (-1) * (has_correct C g * weighted_score C score g))).
    by rewrite expected_plus !expected_scale; field.
  move=> g; rewrite /surrogate_gradient expected_plus expected_constant //; ring.
Qed.

(* Without the filter (finding 11) ... *)
Theorem unfiltered_gradient C ref p score G : policy ref -> policy p -> 0 < mass C ref -> 0 < mass C p ->
  expected_gradient C ref p score G =
  - (1 - (1 - mass C ref) ^ G) * mean (plus C ref) score + (1 - (1 - mass C p) ^ G) * mean (plus C p) score.
Proof.
  move=> pr pp qr qp; rewrite /expected_gradient (expected_ext _ _ _ (fun g =>
      expected p G (weighted_score C score) + (-1) * weighted_score C score g)).
    by rewrite expected_plus expected_constant // expected_scale !expected_weighted_score //; ring.
  move=> g; rewrite /surrogate_gradient expected_plus expected_constant //; ring.
Qed.

(* ... at pi+ = ref+ what is left anchors the mass at q. *)
Theorem unfiltered_gradient_anchors C ref p score G : policy ref -> policy p -> 0 < mass C ref -> 0 < mass C p ->
  (forall a, plus C p a = plus C ref a) ->
  expected_gradient C ref p score G = ((1 - mass C ref) ^ G - (1 - mass C p) ^ G) * mean (plus C p) score.
Proof.
  move=> pr pp qr qp same; rewrite unfiltered_gradient //.
  have -> : mean (plus C ref) score = mean (plus C p) score by apply: sum_ext => a _; rewrite same.
  ring.
Qed.

(* ... from both sides: descent moves log Z against the sign of this factor. *)
Theorem unfiltered_pull G q z : (0 < G)%nat -> 0 <= q <= 1 -> 0 <= z <= 1 ->
  (z < q -> (1 - q) ^ G - (1 - z) ^ G < 0) /\ (q < z -> 0 < (1 - q) ^ G - (1 - z) ^ G).
Proof.
  move=> size hq hz; have rising x y : 0 <= x < y -> x ^ G < y ^ G.
    case: G size => // n _ [x0 xy] /=; have p0 : 0 < y ^ n by apply: pow_lt; lra.
    by have := pow_incr x y n ltac:(lra); nra.
  split=> order; [have := rising (1 - q) (1 - z) | have := rising (1 - z) (1 - q)]; lra.
Qed.

End Groups.

(* ---------- The surrogate itself: its gradient, and the mean over a batch ---------- *)

Lemma weight_outside {A : finType} (C : pred A) (group : seq A) a : ~~ C a -> weight C group a = 0.
Proof. by move=> /negbTE Ca; rewrite /weight Ca; case: eqP => _ //; rewrite /Rdiv Rmult_0_l. Qed.

Section Surrogate.
Context {X A : finType}.
Variables (C : X -> pred A) (allowed : X -> pred A) (path : X -> R -> A -> R) (score : X -> A -> R) (t : R).
Hypothesis path_score : forall x a, allowed x a -> is_derive (fun s => ln (path x s a)) t (score x a).

Lemma weighted_score_derivative x group : (forall a, a \in group -> C x a -> allowed x a) ->
  is_derive (fun s => weighted_score (C x) (fun a => ln (path x s a)) group) t (weighted_score (C x) (score x) group).
Proof.
  rewrite /weighted_score; move: (weight (C x) group) (weight_outside (C x) group) => w outside.
  elim: group => [|a rest IH] within.
    by rewrite big_nil; apply: (is_derive_ext (fun=> 0)) => [s|]; [rewrite big_nil | exact: is_derive_const].
  rewrite big_cons.
  apply: (is_derive_ext (fun s => w a * ln (path x s a) + \big[Rplus/0]_(b <- rest) (w b * ln (path x s b)))).
    by move=> s; rewrite big_cons.
  apply: (is_derive_plus (V := R_NormedModule)); last first.
    by apply: IH => b inside; apply: within; rewrite inE inside orbT.
  case Ca : (C x a).
    by apply: is_derive_scal; apply: path_score; apply: within; rewrite ?mem_head.
  rewrite outside ?Ca // Rmult_0_l; apply: (is_derive_ext (fun=> 0)) => [s|]; first by rewrite Rmult_0_l.
  exact: is_derive_const.
Qed.

(* The surrogate of Eq. 12 on drawn groups has the gradient of Eq. 12, as long as the correct responses drawn are not masked. *)
Theorem surrogate_derivative (reference rollout : X -> seq A) :
  (forall x a, a \in reference x ++ rollout x -> C x a -> allowed x a) ->
  is_derive (fun s => batch_mean (fun x => surrogate (C x) (reference x) (rollout x) (path x s))) t
    (batch_mean (fun x => surrogate_gradient (C x) (score x) (reference x) (rollout x))).
Proof.
  move=> within; rewrite /batch_mean /Rdiv Rmult_comm.
  apply: (is_derive_ext (fun s => / INR #|X| * \sum_x surrogate (C x) (reference x) (rollout x) (path x s))).
    by move=> s; rewrite Rmult_comm.
  apply: is_derive_scal; apply: is_derive_sum => x _; rewrite /surrogate /surrogate_gradient.
  apply: (is_derive_plus (V := R_NormedModule)); first apply: (is_derive_opp (V := R_NormedModule)).
    by apply: weighted_score_derivative => a inside; apply: within; rewrite mem_cat inside.
  by apply: weighted_score_derivative => a inside; apply: within; rewrite mem_cat inside orbT.
Qed.

End Surrogate.

Section Batch.
Context {X T : finType}.
Variable P : X -> T -> R.
Hypothesis sums : forall x, \sum_drawn P x drawn = 1.

Lemma expected_batch_one y (H : T -> R) :
  expected_batch P (fun drawn => H (drawn y)) = \sum_drawn (P y drawn * H drawn).
Proof.
  pose Q x drawn := P x drawn * (if x == y then H drawn else 1).
  have -> : expected_batch P (fun drawn => H (drawn y)) = \sum_(f : {ffun X -> T}) \big[Rmult/1]_x Q x (f x).
    apply: sum_ext => f _; rewrite /Q big_split /=; congr (_ * _).
    by rewrite (bigD1 y) //= eqxx big1 ?Rmult_1_r // => x /negbTE ->.
  rewrite -(bigA_distr_bigA Q) (bigD1 y) //=.
  have -> : \big[Rmult/1]_(x | x != y) (\sum_drawn Q x drawn) = 1.
    rewrite big1 // => x /negbTE other; rewrite -(sums x); apply: sum_ext => drawn _; rewrite /Q other; lra.
  by rewrite Rmult_1_r; apply: sum_ext => drawn _; rewrite /Q eqxx.
Qed.

Lemma expected_batch_mean (H : X -> T -> R) :
  expected_batch P (fun drawn => batch_mean (fun x => H x (drawn x))) = batch_mean (fun x => \sum_drawn (P x drawn * H x drawn)).
Proof.
  rewrite /batch_mean -(sum_ext _ (fun x => expected_batch P (fun drawn => H x (drawn x)))); last first.
    by move=> x _; exact: expected_batch_one.
  rewrite /expected_batch exchange_big -sum_div /=; apply: sum_ext => drawn _; rewrite sum_scale /Rdiv; lra.
Qed.

End Batch.

Lemma pair_expected {A : finType} (C : pred A) (ref p score : A -> R) G :
  \sum_pair (pair_probability C ref p G pair * surrogate_gradient C score pair.1 pair.2) =
  buffered_gradient C ref p score G.
Proof.
  rewrite -(pair_big xpredT xpredT (fun g h : G.-tuple A =>
    pair_probability C ref p G (g, h) * surrogate_gradient C score g h)) /buffered_gradient /pair_probability /=.
  set e := expected ref G (has_correct C); rewrite {1}/expected -sum_div; apply: sum_ext => g _.
  rewrite /expected -!sum_scale -sum_div; apply: sum_ext => h _; rewrite /Rdiv; ring.
Qed.

(* Over a batch whose prompts draw independently, the expected gradient of the mean surrogate is the mean of the
   per-prompt expected gradients. *)
Theorem batch_gradient {X A : finType} (C : X -> pred A) (ref p score : X -> A -> R) G :
  (forall x, policy (ref x)) -> (forall x, policy (p x)) -> (forall x, 0 < mass (C x) (ref x)) ->
  (forall x, 0 < mass (C x) (p x)) -> (0 < G)%nat ->
  expected_batch (fun x => pair_probability (C x) (ref x) (p x) G)
    (fun drawn => batch_mean (fun x => surrogate_gradient (C x) (score x) (drawn x).1 (drawn x).2)) =
  batch_mean (fun x => - mean (plus (C x) (ref x)) (score x) +
    (1 - (1 - mass (C x) (p x)) ^ G) * mean (plus (C x) (p x)) (score x)).
Proof.
  move=> pr pp qr qp size; rewrite (expected_batch_mean (fun x => pair_probability (C x) (ref x) (p x) G) _
    (fun x pair => surrogate_gradient (C x) (score x) pair.1 pair.2)) => [|x].
    by rewrite /batch_mean; congr (_ / _); apply: sum_ext => x _; rewrite pair_expected finite_group_gradient.
  have nonzero : expected (ref x) G (has_correct (C x)) <> 0.
    rewrite positive_count_probability //; have := mass_at_most_one (C x) (ref x) (pr x) => m1; have := qr x => q0.
    by case: G size => // n _ /=; have := pow_incr (1 - mass (C x) (ref x)) 1 n ltac:(lra); rewrite pow1; nra.
  rewrite -(pair_big xpredT xpredT (fun g h : G.-tuple A => pair_probability (C x) (ref x) (p x) G (g, h))) /=.
  have total : \sum_(h : G.-tuple A) group_probability (p x) h = 1.
    rewrite -(expected_constant (p x) G 1 (pp x)); apply: sum_ext => h _; lra.
  rewrite (sum_ext _ _ (fun g : G.-tuple A =>
    group_probability (ref x) g * has_correct (C x) g / expected (ref x) G (has_correct (C x)))).
    by rewrite sum_div; apply: Rinv_r.
  move=> g _; rewrite /pair_probability /= sum_scale total /Rdiv; lra.
Qed.
