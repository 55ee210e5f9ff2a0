"""The gateway as an ASGI application, to be mounted anywhere or run by any ASGI server.

app = athena.asgi.create_app("athena.yml")
uvicorn --factory athena.asgi:create_app
"""

from __future__ import annotations

import os

from athena.errors import ConfigError
from athena.shells.config import Config, Sources, load
from athena.shells.gateway.app import Gateway
from athena.shells.logs import log_warnings

__all__ = ["Gateway", "create_app"]


def create_app(config: Config | str | os.PathLike[str] | None = None) -> Gateway:
    """The gateway as an ASGI application, to be served by any ASGI server or mounted in another application.

        app = athena.asgi.create_app("athena.yml")

    Args:
        config: A configuration, the path of a configuration file, or None for what the process's own surroundings say
            (`athena.yml`, `ATHENA_*`); the `athena.yml` of the current directory counts only when it is trusted (`athena config
            trust`). Server settings in it (host, port, workers, tls, log) are the server's and not used.

    The application around it decides under which host names it may be reached; set `allow_hosts` to have the gateway check
    them. Web pages of other origins are refused unless `allow_origins` names them.

    Raises:
        ConfigError: The configuration is wrong, or no upstream is configured.
    """
    if isinstance(config, Config):
        return Gateway(config)
    loaded = load(Sources.here({}, None if config is None else os.fspath(config)))
    if loaded.is_empty:
        reasons = ("no upstream is configured: set base_url or upstreams in athena.yml", *map(str, loaded.ignored))
        raise ConfigError("\n".join((*reasons, *loaded.hints)))
    log_warnings(loaded)
    return Gateway(loaded.config)
