"""Settings of the whole suite: the same examples on every run, and one thread per process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile("suite", derandomize=True, deadline=None, max_examples=40)
settings.register_profile(
    "mutation", settings.get_profile("suite"), max_examples=8, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile(
    "fuzz", derandomize=False, deadline=None, max_examples=1000, suppress_health_check=list(HealthCheck)
)
settings.load_profile("suite")
torch.set_num_threads(1)
os.environ["COLUMNS"] = "100"  # lines of a screen are wrapped to the terminal, and workers of xdist have 80

# A shell's background job ignores Ctrl-C and so would every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all: Playwright does not start twice in a process."""
    from tests.browser import chromium

    with chromium() as launched:
        yield launched
