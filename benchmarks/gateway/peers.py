"""Other gateways, measured when they are installed in `.peers`."""

from __future__ import annotations

from benchmarks.gateway.systems import System

PEERS: dict[str, System] = {}
