(* Definitions that are properties, each by something that has it and something that has not. *)
Ltac each := case=> [[|[|[|n]]]] //= ?; rewrite /table /=; lra.
Goal policy (table [:: 1 / 4; 1 / 4; 1 / 2]).
Proof. by split; [each | sums; lra]. Qed.
Goal ~ policy (table [:: 1 / 2; 1 / 2; 1 / 2]).
Proof. by move=> [_]; sums; lra. Qed.
Goal ~ policy (table [:: 3 / 2; - (1 / 2); 0]).
Proof. by move=> [/(_ (@Ordinal 3 1 isT))]; rewrite /table /=; lra. Qed.
Goal strictly_concave (fun x => - x ^ 2).
Proof.
  move=> x y t _ _ ne ht; have : 0 < t * (1 - t) * (x - y) ^ 2; last by rewrite /=; nra.
  by apply: Rmult_lt_0_compat; [nra | case: (Rtotal_order x y) => [|[]] order; rewrite /=; nra].
Qed.
Goal ~ strictly_concave (fun x => x).
Proof. by move=> /(_ (1 / 4) (1 / 2) (1 / 2)) h; have := h ltac:(lra) ltac:(lra) ltac:(lra) ltac:(lra); lra. Qed.
Goal global_maximizer (fun p => Coquelicot.Rbar.Finite (mass right p)) (table [:: 1; 0; 0]).
Proof.
  split; first by split; [each | sums; lra].
  by move=> p pp; rewrite mass_table /=; have := mass_at_most_one right p pp; lra.
Qed.
Goal ~ global_maximizer (fun p => Coquelicot.Rbar.Finite (mass right p)) (table [:: 0; 1 / 2; 1 / 2]).
Proof.
  move=> [_ /(_ (table [:: 1; 0; 0]))] h; have : policy (table [:: 1; 0; 0]) by split; [each | sums; lra].
  by move=> /h; rewrite !mass_table /=; lra.
Qed.
Goal continuous_wrt (table [:: 0; 1 / 2; 1 / 2]) (table [:: 1 / 2; 1 / 4; 1 / 4]).
Proof. by case=> [[|[|[|n]]]] //= ?; rewrite /table /=; lra. Qed.
Goal ~ continuous_wrt (table [:: 1 / 2; 1 / 4; 1 / 4]) (table [:: 0; 1 / 2; 1 / 2]).
Proof. by move=> /(_ (@Ordinal 3 0 isT)); rewrite /table /=; lra. Qed.
