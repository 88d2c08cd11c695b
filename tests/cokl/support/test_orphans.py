"""Processes that end with the one that started them."""

import os
import signal
import subprocess
import sys
import threading

CHILD = """
import os, time
from cokl.support.orphans import end_with
end_with({parent})
print("on", flush=True)
time.sleep(600)
"""


def test_a_child_whose_parent_is_gone_already_ends_at_once():
    command = [sys.executable, "-c", CHILD.format(parent=1 + 2**22)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")


def test_a_child_ends_when_its_parent_is_killed():
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD.format(parent='os.getppid()')!r}])"
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "on\n"
    started.send_signal(signal.SIGKILL)
    # The child holds the pipe's other end: this returns when it has ended, half a second later.
    assert started.communicate(timeout=60)[0] == ""


def test_a_process_whose_parent_lives_goes_on_and_nothing_waits_for_the_watch():
    from cokl.support.orphans import end_with

    before = set(threading.enumerate())
    end_with(os.getppid())
    (watch,) = set(threading.enumerate()) - before
    assert watch.daemon
    watch.join(0.7)  # longer than it sleeps between two looks
    assert watch.is_alive()
