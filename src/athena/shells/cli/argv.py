"""Keys given as arguments are taken out of the process listing as far as the system allows.

Between the start of the program and this moment they can be seen: `--api-key-env` has no such moment.
"""

from __future__ import annotations

import contextlib

_SECRET_FLAGS = ("--api-key", "--key")


def hide_keys(argv: list[str]) -> list[str]:
    """The arguments, for parsing; in `argv` itself and in the system's listing the keys are masked."""
    arguments = argv[1:]
    for index, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if flag not in _SECRET_FLAGS or index == 0:
            continue
        if equals and value:
            argv[index] = f"{flag}=***"
            _mask_in_listing(value)
        elif not equals and index + 1 < len(argv):
            _mask_in_listing(argv[index + 1])
            argv[index + 1] = "***"
    return arguments


def _mask_in_listing(secret: str) -> None:
    """Overwrite the process's own arguments in memory, which is what ps and /proc show. Linux only."""
    if not secret:
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            # The second field may hold anything, so count from behind it: arg_start and arg_end are fields 48 and 49.
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if not 0 < start < end:
            return
        import ctypes
        import os

        listing = ctypes.string_at(start, end - start)
        wanted = os.fsencode(secret)
        at = listing.find(wanted)
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(wanted))
            at = listing.find(wanted, at + len(wanted))
