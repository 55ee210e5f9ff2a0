"""Which configuration files are obeyed. A configuration file is as powerful as a program: it says where prompts and keys go and
which files are written. So a file counts only when the user placed or approved it:

    EXPLICIT    named by --config or ATHENA_CONFIG                               used
    OWN         in ~/.config/athena or /etc/athena                               used
    UNSAFE      ... but others can write it                                      the start stops
    TRUSTED     `athena config trust` was said for exactly these bytes           used
    CHANGED     ... for other bytes at the same place                            not used
    UNTRUSTED   any other athena.yml of the current directory                    not used, not even read

`TrustStore` remembers, for the absolute path of a file, the SHA-256 of the bytes that were approved. Whoever loads a file reads
its bytes once, and hashes and parses those same bytes: a file that changes in between cannot be obeyed unseen.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from enum import Enum
from pathlib import Path as FilePath

import msgspec

from athena.errors import ConfigProblem
from athena.shells.own_files import UnsafePlace, check_directory, others_may_write, own_directory, quoted, read_own, replace_own

_RECORD_BYTES = 64 * 1024


class TrustStanding(Enum):
    """Why a configuration file is used, or why not."""

    EXPLICIT = "named by --config or ATHENA_CONFIG"
    OWN = "in a configuration directory"
    UNSAFE = "in a configuration directory, but others can write it"
    TRUSTED = "trusted"
    CHANGED = "changed since it was trusted"
    UNTRUSTED = "not trusted"


class Approval(msgspec.Struct, frozen=True):
    """What is remembered about one file."""

    path: str
    """For people; the record's own name is what identifies the file."""
    sha256: str
    since: str


_read_approval = msgspec.json.Decoder(Approval).decode


class TrustStore:
    """The approved files, one record each, in the user's state directory. A directory that others can write is not believed."""

    def __init__(self, state_dir: FilePath) -> None:
        self._state_dir = state_dir
        self._directory = state_dir / "trusted"

    def record(self, file: FilePath) -> FilePath:
        """Where the approval of a file is kept."""
        return self._directory / f"{hashlib.sha256(os.fsencode(place_of(file))).hexdigest()}.json"

    def find(self, file: FilePath) -> Approval | None:
        """The approval of a file, of whatever content; None when there is none. Raises UnsafePlace."""
        return self._read(self.record(file))

    def trust(self, file: FilePath, data: bytes, since: str) -> None:
        """Remember that these bytes of the file are approved. Raises OSError."""
        own_directory(self._state_dir)
        own_directory(self._directory)
        shown = os.fsencode(place_of(file)).decode("utf-8", "backslashreplace")
        approval = Approval(shown, digest(data), since)
        replace_own(self.record(file), msgspec.json.format(msgspec.json.encode(approval)) + b"\n")

    def forget(self, file: FilePath) -> bool:
        """Take the approval back. False: there was none."""
        try:
            self.record(file).unlink()
        except FileNotFoundError:
            return False
        return True

    def approvals(self) -> list[Approval]:
        """All of them, by path. Raises UnsafePlace."""
        try:
            records = sorted(self._directory.glob("*.json"))
        except OSError:
            return []
        found = (self._read(record) for record in records)
        return sorted((approval for approval in found if approval is not None), key=lambda approval: approval.path)

    def _read(self, record: FilePath) -> Approval | None:
        try:
            check_directory(self._state_dir)
            check_directory(self._directory)
            return _read_approval(read_own(record, _RECORD_BYTES) or b"")
        except UnsafePlace:
            raise
        except (OSError, msgspec.MsgspecError):
            return None


class FoundFile(msgspec.Struct, frozen=True):
    """A configuration file that is there, and what is made of it."""

    file: FilePath
    standing: TrustStanding
    notice: ConfigProblem | None = None
    """What to say about a file that is not used."""


def place_of(file: FilePath) -> FilePath:
    """The absolute path of a file by which it is remembered: links on the way are resolved, the file itself is not."""
    return FilePath(os.path.realpath(file.parent)) / file.name


def digest(data: bytes) -> str:
    """By what the content of a file is known."""
    return hashlib.sha256(data).hexdigest()


def not_used(file: FilePath, label: str, standing: TrustStanding, *, fatal: bool = False) -> ConfigProblem:
    """The one line about a file that is not used, with the command that changes it."""
    reason = "it changed since it was trusted" if standing is TrustStanding.CHANGED else "it is not trusted"
    return ConfigProblem(f"not used, because {reason}", "", label, None, f"to use it: {trust_command(file)}", fatal)


def trust_command(file: FilePath) -> str:
    """The command that approves a file, safe to copy: a path with control characters is left to the current directory."""
    place = place_of(file)
    return f"athena config trust {quoted(place)}" if str(place).isprintable() else "athena config trust"


def lies_in(file: FilePath, directories: Iterable[FilePath]) -> bool:
    """Is the file directly in one of these directories?"""
    parent = place_of(file).parent
    return any(parent == FilePath(os.path.realpath(directory)) for directory in directories)


def others_control(info: os.stat_result, label: str, file: FilePath) -> ConfigProblem | None:
    """The fault of a file in a configuration directory that another user could have written, by the rules of ssh."""
    if info.st_uid not in (os.geteuid(), 0):
        remedy = f"make it your own: chown {os.geteuid()} {quoted(file)}; or name it with --config"
        return ConfigProblem(f"belongs to another user (uid {info.st_uid})", "", label, None, remedy)
    if others_may_write(info):
        mode = f"{stat.S_IMODE(info.st_mode):o}"
        return ConfigProblem(f"others can write this file (mode {mode})", "", label, None, f"chmod go-w {quoted(file)}")
    return None
