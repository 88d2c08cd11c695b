"""The harness itself: what is seen of a rank that dies."""

import os
import signal

import pytest

pytest.importorskip("verl")

from tests.llm_bridge.trainer import one_step


def test_a_crash_in_one_rank_is_told_with_its_stack(tmp_path):
    with pytest.raises(RuntimeError) as told:
        _run_with_a_crash(tmp_path)
    (note,) = told.value.__notes__
    assert "rank-1, exit code -11" in note
    assert "Fatal Python error: Segmentation fault" in note
    assert "_serve" in note


def _run_with_a_crash(folder):
    with one_step.started(folder, ranks=2) as step:
        pid = step.workers.others[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSEGV)
        step.run()
