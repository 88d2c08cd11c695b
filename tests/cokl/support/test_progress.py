"""Progress: on a terminal a bar, in a log file few counts."""

from __future__ import annotations

import io
import sys

import pytest

from cokl.support import results


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, _Terminal])
def test_it_starts_at_what_is_done_ends_at_the_total_and_can_be_silent(stream, monkeypatch):
    for shown in (True, False):
        written = stream()
        monkeypatch.setattr(sys, "stderr", written)
        with results.progress_bar(50, "runs", done=10, shown=shown) as bar:
            for _ in range(40):
                bar.update()
        counts = [count in written.getvalue() for count in ("10/50", "50/50")]
        assert counts == [shown, shown]
    assert written.getvalue() == ""
