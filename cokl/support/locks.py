"""A lock that one process holds, and that ends with it however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cokl.support.errors import InputError
from cokl.support.files import remedy


@contextmanager
def hold(path: Path, busy: str) -> Iterator[int]:
    """Hold the lock file `path`, made if need be, and give its descriptor; the holder's name stands in it.

    A child that inherits the descriptor holds the lock too. Raises InputError, `busy` with the holder's name, while
    another process holds it; also for a symbolic link, and where no file can be made.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path} is a symbolic link, and a lock follows none; remove it") from error
        raise InputError(f"cannot write to {path.parent}: {remedy(error)}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise InputError(f"{busy} ({holder}); wait for it or end it") from None
        name = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, name.encode(), 0)
        except OSError as error:
            raise InputError(f"cannot write to {path}: {remedy(error)}") from error
        yield descriptor
    finally:
        os.close(descriptor)
