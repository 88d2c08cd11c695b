"""Scores, tables and the command of the sequence lab."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from bandit.sequences.experiment import Sequences

from bandit.sequences import analysis as report
from bandit.sequences.analysis import PREDICTORS, leads, razor
from bandit.sequences.config import PRESETS
from bandit.sequences.train import METRICS, sequences
from cokl.support.files import write_result
from cokl.support.results import Execution
from cokl_cli.app import main
from tests.bandit.sequences.test_train import TINY


def table(seeds: int = 5) -> pd.DataFrame:
    """A lab in which CoKL keeps 0.02 more accuracy than replay at every adaptation and the Razor holds exactly."""
    lines = []
    roles = [(seed, "report") for seed in range(seeds)] + [(1000, "selection")]
    for seed, role in roles:
        luck = 0.001 * (seed % 7)
        for method, beta, new, prior in [
            ("base", 0.0, 0.2, 0.8),
            ("none", 0.0, 0.9, 0.4),
            *[("cokl", beta, 0.9 - beta, 0.5 + beta) for beta in (0.01, 0.1, 0.3)],
            *[("correct_forward_kl", beta, 0.9 - beta, 0.48 + beta) for beta in (0.01, 0.1, 0.3)],
        ]:
            for step, share in ((0, 0.0), (10, 0.5), (20, 1.0)):
                if method == "base" and step:
                    continue
                lost = (0.8 - prior) * share
                line = dict.fromkeys(METRICS, 1.0 + lost)
                line |= {"prior_correct": 0.8 - lost + luck, "new_correct": 0.2 + (new - 0.2) * share + luck}
                line |= {"new_kl": lost, "prior_pass_at_k": 0.9 - lost}
                identity = {"seed": seed, "mode": "sampled", "method": method, "beta": beta, "step": step}
                lines.append(identity | line | {"role": role, "kl_prompts": 0 if beta == 0 else 8})
    return pd.DataFrame(lines)


def test_a_lead_at_equal_adaptation_is_found():
    found = leads(table()).set_index("method")
    # 0.02 of the 0.4 that GRPO forgets
    assert found.loc["correct_forward_kl", "retention"] == pytest.approx(100 * 0.02 / 0.4)
    assert found.loc["correct_forward_kl", "prior_correct"] == pytest.approx(0.02)
    assert found.loc["correct_forward_kl", "prior_pass_at_k"] == pytest.approx(0.02)


def test_the_primary_comparison_has_a_verdict_from_four_seeds_on():
    assert "2.0 ± 0.0 points" in report.primary(table())
    assert "In this miniature: CoKL ends higher." in report.primary(table())
    assert "No verdicts: 3 reported seeds" in report.primary(table(seeds=3))
    reversed_roles = table().replace({"method": {"cokl": "correct_forward_kl", "correct_forward_kl": "cokl"}})
    assert "In this miniature: CoKL ends lower." in report.primary(reversed_roles)
    without = table()
    assert "not to be had" in report.primary(without[without["method"] != "correct_forward_kl"])


def test_the_screen_and_the_page_have_the_primary_lead_and_its_interval_in_points(tmp_path):
    """CoKL's five seeds are half a point apart: 2.776 / 5^(1/2) of their deviation of 0.79 is an interval of 0.98."""
    rows = table()
    lucky = (rows["method"] == "cokl") & (rows["role"] == "report") & (rows["step"] > 0)
    rows.loc[lucky, "prior_correct"] += 0.005 * (rows["seed"] - 2)
    screen = report.write(rows, PRESETS["quick"], tmp_path)
    assert screen.startswith("Held: CoKL keeps more than Correct-only forward KL, adapting alike: by 2.0 ± 1.0 points.")
    assert "2.0 ± 1.0 points. In this miniature: CoKL ends higher." in (tmp_path / "results.md").read_text()


def test_the_claim_counts_the_reported_seeds_alone(tmp_path):
    for seeds, verdict in ((3, None), (4, "held")):
        write_result(table(seeds), tmp_path / "sequences.parquet")
        (claim,) = Sequences().claims(tmp_path)
        assert claim.verdict == verdict


def test_a_coefficient_of_which_a_seed_diverged_takes_no_part_in_the_claim(tmp_path):
    """Without replay's middle coefficient the line between the others is another one."""
    rows = table()
    lost = (rows["method"] == "correct_forward_kl") & (rows["beta"] == 0.1) & (rows["seed"] == 2)
    rows.loc[lost & (rows["step"] > 0), list(METRICS)] = np.nan
    write_result(rows, tmp_path / "sequences.parquet")
    (claim,) = Sequences().claims(tmp_path)
    kept = rows[(rows["method"] != "correct_forward_kl") | (rows["beta"] != 0.1)]
    assert claim.measured == report.primary(kept)


def test_the_razor_is_one_where_it_holds_and_low_for_noise():
    good = razor(table()).set_index(["over", "predictor"])["r2"]
    assert good["all methods", "new_kl"] == pytest.approx(1)
    rng = np.random.default_rng(0)
    noisy = table().assign(new_kl=lambda rows: rng.random(len(rows)))
    bad = razor(noisy).set_index(["over", "predictor"])["r2"]
    assert bad["all methods", "new_kl"] < 0.9
    assert set(razor(table())["predictor"]) <= set(PREDICTORS)


def test_the_lab_goes_on_where_it_was_stopped_and_writes_the_same(tmp_path):
    config = dataclasses.replace(TINY, seeds=1)
    first = sequences(config, Execution(out=tmp_path / "a", jobs=1), progress=False)
    for chunk in sorted((tmp_path / "a" / "runs").iterdir())[1:]:
        chunk.unlink()
    pd.testing.assert_frame_equal(sequences(config, Execution(out=tmp_path / "a", jobs=1), progress=False), first)
    base = first[first["method"] == "base"]
    start = first[(first["method"] != "base") & (first["step"] == 0)]
    assert len(base) == 4  # two modes, two seeds
    for seed, rows in start.groupby("seed"):
        expected = base.loc[base["seed"] == seed, "prior_correct"].iloc[0]
        np.testing.assert_allclose(rows["prior_correct"], expected, rtol=1e-5)


def test_the_command_trains_writes_and_says(tmp_path, capsys):
    flags = (
        "--methods none,cokl,correct_forward_kl --betas 0.1,1 --seeds 2 --selection-seeds 1 --length 3 --symbols 3 "
        "--forbidden 1 --clusters 3 --input-dim 4 --train-inputs 40 --test-inputs 6 --steps 6 --eval-interval 3 "
        "--batch-size 5 --group-size 3 --buffer-size 12 --hidden 8 --pretrain-steps 20 --prior-steps 3 --jobs 1"
    )
    with pytest.raises(SystemExit) as ended:
        main(["bandit", "sequences", "--preset", "quick", "--out", str(tmp_path), *flags.split()])
    assert not ended.value.code
    said = capsys.readouterr().out
    assert said.startswith("No verdict: CoKL keeps more than ")
    page = (tmp_path / "results.md").read_text()
    assert "Responses of 3 tokens over 3 symbols" in page
    assert "Primary comparison" in page
    for name in ("normalized", "raw", "equal_adaptation", "leads", "razor", "beta_search"):
        assert f"## {name}.csv" in page
        assert (tmp_path / f"{name}.csv").is_file()
    assert len(pd.read_parquet(tmp_path / "sequences.parquet")) == 3 * (1 + 3 * 5)


def test_the_command_refuses_what_could_not_be_scored(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bandit", "sequences", "--methods", "cokl", "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "none among them" in capsys.readouterr().err
