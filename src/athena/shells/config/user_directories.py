"""Where Athena keeps a user's files, by the XDG base directory specification, and where earlier releases kept them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_NAME = "athena"
_EARLIER_STATE = ".athena"


def state_directory(environment: Mapping[str, str], home: Path) -> Path:
    """Logs, generated keys, recordings: `athena` in XDG_STATE_HOME, which is `~/.local/state` unless it is set.

    Releases before 0.2.0 used `~/.athena`. Where that is there it goes on to be used, since it holds keys and recordings.
    """
    earlier = home / _EARLIER_STATE
    return earlier if earlier.is_dir() else _base(environment, "XDG_STATE_HOME", home / ".local" / "state") / _NAME


def config_directory(environment: Mapping[str, str], home: Path) -> Path:
    """The user's configuration: `athena` in XDG_CONFIG_HOME, which is `~/.config` unless it is set.

    Releases before 0.2.0 looked only into `~/.config/athena`: a file there counts while there is none in XDG_CONFIG_HOME.
    """
    usual = home / ".config" / _NAME
    chosen = _base(environment, "XDG_CONFIG_HOME", home / ".config") / _NAME
    return usual if not chosen.is_dir() and usual.is_dir() else chosen


def default_state_dir() -> str:
    """The state directory of this process's user, as a setting's value."""
    return str(state_directory(os.environ, Path.home()))


def _base(environment: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    """The specification wants absolute paths, and others to be ignored."""
    chosen = environment.get(variable, "")
    return Path(chosen) if os.path.isabs(chosen) else otherwise
