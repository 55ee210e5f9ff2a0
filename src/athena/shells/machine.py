"""What the machine, or the container around this process, has: memory and file descriptors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

_CGROUP = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""Control groups without a limit say `max`, or a number close to this."""
_LARGEST = 1_048_576
"""Descriptors to ask for where the system names no limit."""

ReadText = Callable[[str], str]


def _read(path: str) -> str:
    return Path(path).read_text(encoding="ascii", errors="replace")


def memory_bytes(read: ReadText = _read) -> int:
    """The memory this process can have: the machine's, or less where a control group or `ulimit -v` says so; 0: not known."""
    known = [limit for limit in (_physical(read), _address_space(), *_groups(read)) if 0 < limit < _NO_LIMIT]
    return min(known, default=0)


def _physical(read: ReadText) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in read("/proc/meminfo").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0


def _address_space() -> int:
    try:
        import resource
    except ImportError:
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if soft == resource.RLIM_INFINITY else soft


def _groups(read: ReadText) -> list[int]:
    """The limits of the control groups of this process, from its own up to the outermost: each of them holds."""
    try:
        lines = read("/proc/self/cgroup").splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in lines:
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            root, name = _CGROUP, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = f"{_CGROUP}/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in path.split("/") if part]
        # Inside of a container its own group is mounted as the root, whatever path it has outside.
        for depth in range(len(parts), -1, -1):
            with contextlib.suppress(OSError, ValueError):
                found.append(int(read("/".join([root, *parts[:depth], name]))))
    return found


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as the system lets this process have; how many that is. 0: there is no limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LARGEST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def open_descriptors() -> int:
    """How many descriptors this process has open; a guess where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # one is the listing's own
    except OSError:
        return 16
