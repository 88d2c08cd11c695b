"""Which folders count as finished experiments, and in which order."""

import json

from cokl_cli.experiments import finished


def test_the_papers_settings_come_before_another_presets(tmp_path):
    names = ["shift-paper", "shift-erring-verifier", "shift-quick"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "shift.parquet").touch()
    assert finished(tmp_path)["shift"] == [tmp_path / name for name in names]


def test_parts_of_a_robustness_run_are_no_sweeps_and_quick_ones_come_last(tmp_path):
    configs: dict[str, dict[str, dict[str, float]]] = {
        "paper": {},
        "quick": {},
        "robustness-quick/base": {},
        "robustness-paper/learning_rate": {"coefficients": {}},
    }
    for name, config in configs.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "sweep.parquet").touch()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    (tmp_path / "quick" / "config.json").unlink()
    assert finished(tmp_path)["sweep"] == [tmp_path / name for name in ("paper", "quick", "robustness-quick/base")]
