"""The gateway as an ASGI application, to be mounted anywhere or run by any ASGI server.

app = athena.asgi.create_app("athena.yml")
uvicorn --factory athena.asgi:create_app
"""

from __future__ import annotations

import os

from athena.errors import ConfigError
from athena.shells.config import Config, Sources, load
from athena.shells.gateway.app import Gateway

__all__ = ["Gateway", "create_app"]


def create_app(config: Config | str | os.PathLike[str] | None = None) -> Gateway:
    """The gateway for a configuration, a configuration file, or what the process's own surroundings say.

    Raises ConfigError, also when no upstream is configured. Server settings (host, port, workers, log) are the server's.
    """
    if isinstance(config, Config):
        return Gateway(config)
    loaded = load(Sources.here({}, None if config is None else os.fspath(config)))
    if loaded.is_empty:
        raise ConfigError("\n".join(("no upstream is configured: set base_url or upstreams in athena.yml", *loaded.hints)))
    return Gateway(loaded.config)
