"""The process around the gateway: sockets, a strict HTTP/1.1 front, signals, reload, workers."""

from __future__ import annotations

from athena.shells.server.plan import Plan, Started
from athena.shells.server.run import serve

__all__ = ["Plan", "Started", "serve"]
