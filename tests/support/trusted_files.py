"""Configuration files of a directory, approved as `athena config trust` approves them."""

from __future__ import annotations

from pathlib import Path

from athena.shells.config import TrustStore


def trust(file: Path, home: Path) -> None:
    """Approve the file as it is now, for the user with this home."""
    TrustStore(home / ".local/state/athena").trust(file, file.read_bytes(), "2026-01-01T00:00:00+00:00")
