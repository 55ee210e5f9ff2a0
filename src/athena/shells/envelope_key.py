"""The key that seals reasoning state held by clients, made once and kept in the state directory."""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
from pathlib import Path

from athena.errors import AthenaError
from athena.shells.config import Config
from athena.shells.own_files import UnsafePlace, create_own, open_own, own_directory, quoted

LOG = logging.getLogger("athena")
_FORM = re.compile(rb"[0-9a-fA-F]{64}")


def kept_envelope_key(config: Config) -> bytes:
    """The configured secret, or one made once and kept: state a client holds must survive a restart.

    Where nothing can be kept, such as on a read-only disk, the key lasts as long as the process, with a warning. A kept key
    that is damaged, or that others control, is never used and never replaced: raises AthenaError, which names the remedy.
    """
    if config.envelope_key is not None:
        return config.envelope_key.reveal().encode()
    path = Path(config.state_dir).expanduser() / "envelope.key"
    try:
        own_directory(path.parent)
        return _read(path) or _made(path)
    except UnsafePlace as error:
        raise AthenaError(f"the envelope key is not usable: {error}", code="envelope_key") from None
    except OSError as error:
        LOG.warning("the envelope key cannot be kept (%s); reasoning state ends with this process", error)
        return secrets.token_bytes(32)


def _made(path: Path) -> bytes:
    key = secrets.token_bytes(32)
    if create_own(path, key.hex().encode()):
        return key
    # Another process was first: both must use the same key.
    kept = _read(path)
    if kept is None:
        raise FileNotFoundError(f"{path} was removed while it was made")
    return kept


def _read(path: Path) -> bytes | None:
    """The kept key; None when there is none. Raises UnsafePlace for one that cannot be used."""
    try:
        descriptor = open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise UnsafePlace(f"{path} cannot be read; give yourself that right: chmod 600 {quoted(path)}") from None
    with open(descriptor, "rb") as file:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        text = file.read(1024).strip()
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UnsafePlace(f"others can read or change {path} (mode {mode:o}); take that right away: chmod 600 {quoted(path)}")
    if _FORM.fullmatch(text):
        return bytes.fromhex(text.decode())
    raise UnsafePlace(
        f"{path} does not hold a key of 64 hexadecimal digits; restore it, or remove it to have a new one made "
        "(reasoning state that clients hold is then no longer accepted)"
    )
