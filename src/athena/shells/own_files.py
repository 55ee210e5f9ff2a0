"""Files and directories that Athena keeps for itself: how they are made and opened, and which ones it refuses.

The rules are those that ssh has for its files. A file of ours is a regular file, belongs to the user who runs Athena, and is
not reached through a symbolic link. A directory of ours belongs to that user, and is writable by no other user. Everything else
may have been put there by somebody else, who would then choose our keys, or where our lines are written.

Whatever is refused raises `UnsafePlace`. It is an OSError, so code that can go on without a file treats it like a full disk;
its text is a whole sentence that names the remedy.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shlex
import stat
from pathlib import Path

_NOT_LINKED = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
"""What file systems without hard links answer."""


class UnsafePlace(OSError):
    """A file or directory that Athena does not use; the message says why, and what to do about it."""


def others_may_write(info: os.stat_result) -> bool:
    """Can another user than the owner change it?

    The group's right to write is harmless where the group is the user's own: many systems give every user a group of the
    same name, and files that this group may write.
    """
    if info.st_mode & stat.S_IWOTH:
        return True
    return bool(info.st_mode & stat.S_IWGRP) and not _is_private_group(info.st_gid)


def _is_private_group(number: int) -> bool:
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


# -- directories -----------------------------------------------------------------------------------------------------------


def own_directory(path: Path) -> None:
    """Make the directory if it is missing, for its owner only. Raises UnsafePlace for one that others control."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True, mode=0o700)
    check_directory(path)


def check_directory(path: Path) -> None:
    """Raises UnsafePlace for what is not a directory, or one that another user owns or can write to; OSError for none."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (os.geteuid(), 0):
        raise UnsafePlace(f"{path} is a symbolic link that another user made (uid {found.st_uid}); name another directory")
    found = os.stat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePlace(f"{path} is not a directory; name another place")
    if found.st_uid != os.geteuid():
        raise UnsafePlace(
            f"{path} belongs to another user (uid {found.st_uid}); use a directory of your own, such as {path / 'athena'}"
        )
    if others_may_write(found):
        mode = stat.S_IMODE(found.st_mode)
        raise UnsafePlace(f"others can write to {path} (mode {mode:o}); take that right away: chmod go-w {quoted(path)}")


# -- files -----------------------------------------------------------------------------------------------------------------


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a file of ours; one that is made has mode 600. Raises UnsafePlace, or OSError as `os.open` does."""
    try:
        # Not blocking: a pipe put in a file's place would make us wait for whoever holds its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePlace(f"{path} is a symbolic link, which is not followed; name the file itself") from None
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise UnsafePlace(f"{path} is not a regular file; name another one") from None
        raise
    try:
        _check(path, os.fstat(descriptor))
    except UnsafePlace:
        os.close(descriptor)
        raise
    return descriptor


def check_own(path: Path) -> None:
    """The same checks without opening the file: whoever closes a file gives up the locks that its process has on it."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise UnsafePlace(f"{path} is a symbolic link, which is not followed; name the file itself")
    _check(path, found)


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePlace(f"{path} is not a regular file; name another one")
    if found.st_uid != os.geteuid():
        raise UnsafePlace(f"{path} belongs to another user (uid {found.st_uid}); name another file, or remove this one")


def read_own(path: Path, limit: int) -> bytes | None:
    """The first `limit` bytes of a file of ours; None when it is not there. Raises UnsafePlace or OSError."""
    try:
        descriptor = open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        return file.read(limit)


def replace_own(path: Path, data: bytes) -> None:
    """Write a file of ours as a whole, mode 600, in place of an earlier one; a reader sees the old or the new."""
    aside = _written_aside(path, data)
    try:
        os.replace(aside, path)
    except OSError:
        os.unlink(aside)
        raise


def create_own(path: Path, data: bytes) -> bool:
    """Write a new file of ours as a whole, mode 600. False: it is there already, and stays as it is.

    Of several processes that try at the same time one succeeds, and the others find its file complete.
    """
    aside = _written_aside(path, data)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NOT_LINKED:
            raise
        if os.path.lexists(path):
            return False
        os.rename(aside, path)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
    return True


def _written_aside(path: Path, data: bytes) -> Path:
    """The data in a new file beside the place where it belongs."""
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = open_own(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        os.unlink(aside)
        raise
    return aside


def quoted(path: Path) -> str:
    """A path to be copied into a shell."""
    return shlex.quote(str(path))
