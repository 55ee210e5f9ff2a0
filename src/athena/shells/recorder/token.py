"""The token that opens the inspector: made once, kept in the state directory, so that all server processes take the same."""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path

from athena.shells.own_files import create_own, open_own, own_directory

LOG = logging.getLogger("athena")
_FORM = re.compile(rb"[A-Za-z0-9_-]{20,100}")


def inspector_token(state_dir: Path) -> str:
    """The kept token; where nothing can be kept, one that lasts as long as this process."""
    path = state_dir / "inspector.token"
    made = secrets.token_urlsafe(18)
    try:
        own_directory(path.parent)
        return _read(path) or (made if create_own(path, made.encode()) else _read(path) or made)
    except OSError as error:
        LOG.warning("the inspector's token cannot be kept: %s", error)
        return made


def _read(path: Path) -> str | None:
    try:
        descriptor = open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        text = file.read(200).strip()
    return text.decode() if _FORM.fullmatch(text) else None
