"""Progress in a log file: whole lines, few of them, with rate and time left; on a terminal a bar."""

from __future__ import annotations

import io
import sys

import pytest

from cokl.support import results


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _counted(stream: io.StringIO, monkeypatch, total: int = 50) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with results.progress_bar(total, "runs", done=10) as bar:
        for _ in range(total - 10):
            bar.update()
    return stream.getvalue()


def test_a_log_file_gets_its_first_and_last_line_alone_when_work_is_quick(monkeypatch):
    first, last = _counted(io.StringIO(), monkeypatch).splitlines()
    assert first.startswith("runs: 10 of 50, ")
    assert last.startswith("runs: 50 of 50, ")
    assert "run/s" in last
    assert "left" in last


def test_a_log_file_has_no_carriage_return_however_often_it_is_written(monkeypatch):
    monkeypatch.setattr(results, "SECONDS_BETWEEN_LINES", 0.0)
    written = _counted(io.StringIO(), monkeypatch)
    assert "\r" not in written
    assert len(written.splitlines()) > 30


def test_a_terminal_gets_a_bar(monkeypatch):
    assert "\r" in _counted(_Terminal(), monkeypatch)


@pytest.mark.parametrize("stream", [io.StringIO, _Terminal])
def test_nothing_is_said_when_it_is_not_wanted(stream, monkeypatch):
    written = stream()
    monkeypatch.setattr(sys, "stderr", written)
    with results.progress_bar(3, "runs", shown=False) as bar:
        bar.update(3)
    assert written.getvalue() == ""
