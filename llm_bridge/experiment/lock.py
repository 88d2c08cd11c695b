"""A lock that one process of this machine, and the children that inherit its descriptor, hold."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cokl.support.errors import InputError


@contextmanager
def hold(path: Path, busy: str) -> Iterator[int]:
    """Lock the file `path`, made if need be, and give its descriptor.

    Raises InputError, `busy`, while another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise InputError(f"{busy}; wait for it or end it") from None
    finally:
        os.close(descriptor)
